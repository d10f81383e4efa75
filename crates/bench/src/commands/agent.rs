//! `coua-bench agent`: load threads for a driver on another machine.

use std::net::SocketAddr;

use anyhow::Context;
use clap::Args;

use crate::load::AgentService;
use crate::report;

/// Shares the load of a `coua-bench run --agents` that runs on another machine
#[derive(Args, Clone, Debug)]
#[command(after_help = HELP)]
pub(crate) struct Flags {
    /// Address to listen on
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:11411")]
    listen: SocketAddr,
    /// Bind the load threads to cores, one each, from this core on [default: not bound]
    #[arg(long)]
    core: Option<usize>,
}

const HELP: &str = "\
The driver is the machine that runs coua-bench run. An agent serves one driver at a time and then
waits for the next. Driver and agents must have the same version.

Anybody who reaches the port can make the agent put load on any host that it reaches: listen on an
address of a private network only.

Examples:
  On 10.0.0.2 and 10.0.0.3, next to the driver
    coua-bench agent --listen 10.0.0.2:11411
    coua-bench agent --listen 10.0.0.3:11411
  On the driver; of 300 connections each machine opens 100
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
