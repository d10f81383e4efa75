//! `coua-bench net`: coua on its own TCP stack over a link of shared memory, beside memcached on the
//! kernel's.
//!
//! Each has one worker on one core, the load has another core, and all measurements of a case are
//! interleaved; servers whose turn it is not are stopped, since one on a link polls all the time.
//! The bare service on the same stack and link shows what of coua's time is the cache's. Where the
//! load is the busier side the server was not measured at its capacity.

mod cases;
mod outcome;
mod stage;

use std::path::PathBuf;

use clap::Args;

use cases::Case;
use outcome::Outcome;
use stage::Stage;

use super::load_flags::TimingFlags;
use crate::link::Kind;
use crate::report;

/// Compares coua on its own TCP stack, over a link of shared memory, with memcached on the kernel's
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Flags {
    /// The kind of link
    #[arg(long, value_enum, default_value = "memif")]
    link: Kind,
    /// Names of cases, or their beginnings with a *
    #[arg(long, value_delimiter = ',', default_value = "*")]
    cases: Vec<String>,
    /// The coua program, for DPDK's links built with the feature dpdk; by default the one beside
    /// this program
    #[arg(long)]
    coua: Option<PathBuf>,
    /// The memcached program; by default 1.6.45 where it was unpacked, else the one in PATH
    #[arg(long)]
    memcached: Option<PathBuf>,
    /// Core of the servers
    #[arg(long, default_value_t = 0)]
    server_core: usize,
    /// Core of the load
    #[arg(long, default_value_t = 1)]
    load_core: usize,
    #[command(flatten)]
    timing: TimingFlags,
    /// Requests under way at most, over all connections of a link
    #[arg(long, default_value_t = 512)]
    outstanding: usize,
    /// Bytes a key
    #[arg(long, default_value_t = 8)]
    key_size: usize,
    /// -m where everything fits and nothing is set, in MiB
    #[arg(long, default_value_t = 2048)]
    memory: u64,
    /// -m where memory is full, in MiB
    #[arg(long, default_value_t = 128)]
    full_memory: u64,
    /// Requests a second at which latencies are measured as well, in each case: a fraction of
    /// memcached's highest rate (0.5m) or of coua's (0.9c)
    #[arg(long, value_delimiter = ',')]
    rates: Vec<outcome::Rate>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  All cases: minutes
    coua-bench net
  One of them, and latencies at half of memcached's highest rate and at nine tenths of coua's
    coua-bench net --cases get64 --rates 0.5m,0.9c
  By DPDK's memif (built with --features dpdk)
    coua-bench net --cases get64 --link memif-dpdk";

/// Measures all cases and prints the comparison.
pub(crate) fn run(flags: &Flags) -> anyhow::Result<()> {
    let cases: Vec<Case> = cases::named(&flags.cases).map_err(anyhow::Error::msg)?;
    let mut outcome = Outcome::new(flags);
    for case in &cases {
        let stage = Stage::prepare(flags, case)?;
        outcome.note_versions(&stage.versions()?);
        outcome.cases.push(stage.measure()?);
    }
    Ok(report::show(&outcome, flags.json)?)
}
