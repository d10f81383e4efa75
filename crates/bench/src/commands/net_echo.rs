//! `coua-bench net-echo`: the bare service on coua's stack as a process of its own.

use std::path::PathBuf;

use clap::Args;
use coua_transport::userspace::Network;

use super::echo::Answer;
use crate::cpu;
use crate::link::{Echo, End, Kind, Reply};

/// Answers on a DPDK link, through coua's TCP stack, with bytes of the size that a cache would
/// answer with
#[derive(Args, Clone, Debug)]
pub(crate) struct Flags {
    /// The kind of link
    #[arg(long, value_enum, default_value = "memif")]
    link: Kind,
    /// The unix socket by which the link's ends find each other
    #[arg(long)]
    socket: PathBuf,
    /// Its address on the link
    #[arg(long, default_value = "10.0.0.1/8")]
    address: Network,
    /// Its port
    #[arg(long, default_value_t = 11211)]
    port: u16,
    /// Core to run on
    #[arg(long, default_value_t = 0)]
    core: usize,
    /// Connections at most
    #[arg(long, default_value_t = 70_000)]
    connections: usize,
    /// Send back what comes, whatever that is
    #[arg(long)]
    mirror: bool,
    #[command(flatten)]
    answer: Answer,
}

/// Serves until it is killed.
pub(crate) fn run(flags: &Flags) -> anyhow::Result<()> {
    let reply = match flags.mirror {
        true => Reply::Mirror,
        false => {
            let (lines, reply) = flags.answer.lines_and_reply();
            Reply::Same { lines, reply }
        }
    };
    cpu::pin(flags.core)?;
    let mut card = flags.link.open(End::Server, &flags.socket)?;
    let mut echo = Echo::new(flags.address, flags.port, flags.connections, reply, &card)?;
    echo.serve(&mut card)
}
