//! `coua-bench agent`: load threads for a driver on another machine.

use std::net::SocketAddr;

use anyhow::Context;
use clap::Args;

use crate::load::AgentService;
use crate::report;

/// Puts load on a server for a `coua-bench run --agents` on another machine
#[derive(Args, Clone, Debug)]
#[command(after_help = HELP)]
pub(crate) struct Flags {
    /// Address to listen on for drivers
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:11411")]
    listen: SocketAddr,
    /// First core of the load threads, which take one each from there on; not bound without it
    #[arg(long)]
    core: Option<usize>,
}

const HELP: &str = "\
It serves one driver at a time, and waits for the next when one has left. Driver and agents are of the
same version.

Whoever reaches the port can have it put load on any host that this machine reaches: bind it to an
address of a private network.

Examples:
  On 10.0.0.2 and 10.0.0.3, next to the driver
    coua-bench agent --listen 10.0.0.2:11411
    coua-bench agent --listen 10.0.0.3:11411
  On the driver's machine; 300 connections are 100 of each
    coua-bench run --target 10.0.0.1:11211 --agents 10.0.0.2:11411,10.0.0.3:11411 --connections 300";

/// Serves until it is killed.
pub(crate) fn run(flags: &Flags) -> anyhow::Result<()> {
    let service = AgentService::bind(flags.listen, flags.core)
        .with_context(|| format!("--listen {}", flags.listen))?;
    report::progress(format_args!(
        "waiting for drivers at {}",
        service.address()?
    ));
    Ok(service.serve(report::progress)?)
}
