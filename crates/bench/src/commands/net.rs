//! `coua-bench net`: coua on its own TCP stack over a link of shared memory, beside memcached on the
//! kernel's.
//!
//! Each has one worker on one core, the load has another core, and all measurements of a case are
//! interleaved. Servers whose turn it is not are stopped, since one on a link polls all the time.
//! The bare service on the same stack and link shows how much of coua's time the cache takes. If
//! the load is the busier side, the server was not measured at its capacity.

mod cases;
mod outcome;
mod stage;

use std::time::Duration;

use anyhow::Context;
use clap::{Args, Parser};

use cases::Case;
use outcome::{Outcome, Side};
use stage::Stage;

use super::compare::Ground;
use super::load_flags::TimingFlags;
use super::programs::{CoreFlags, CouaFlag, MemcachedFlag};
use crate::link::Kind;
use crate::report;

/// Compares coua on its own TCP stack, over shared memory, with memcached on the kernel's
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Flags {
    /// The kind of link
    #[arg(long, value_enum, default_value = "memif")]
    link: Kind,
    /// Cases to measure, with commas: a name (get64), or the beginning of names with a * (set*);
    /// a wrong name gets a list of all
    #[arg(long, value_delimiter = ',', default_value = "*")]
    cases: Vec<String>,
    #[command(flatten)]
    coua: CouaFlag,
    #[command(flatten)]
    memcached: MemcachedFlag,
    #[command(flatten)]
    cores: CoreFlags,
    #[command(flatten)]
    timing: TimingFlags,
    /// Most requests in flight at a time, over all connections of a link
    #[arg(long, default_value_t = 512)]
    outstanding: usize,
    /// Bytes per key
    #[arg(long, default_value_t = 8)]
    key_size: usize,
    /// -m in the cases of gets, in MiB
    #[arg(long, default_value_t = 2048)]
    memory: u64,
    /// -m in the cases in which memory is full, in MiB
    #[arg(long, default_value_t = 128)]
    full_memory: u64,
    /// Also measure latencies at these rates, in each case: fractions of memcached's highest rate
    /// (0.5m) or of coua's (0.9c)
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
  By DPDK's memif (this program and coua built with --features dpdk)
    coua-bench net --cases get64 --link memif-dpdk";

/// The rates of one side of [`gain`], and which side was saturated.
pub(crate) struct Rates {
    /// Requests a second, in the order of time.
    pub(crate) per_second: Vec<f64>,
    pub(crate) saturated: String,
}

/// A ping-pong of 16 bytes and GETs of 8-byte values, with 64 connections and one request at a time on
/// each, by one worker.
pub(crate) struct Gain {
    /// The bare service on the kernel's TCP and on coua's stack.
    pub(crate) echo_kernel: Rates,
    pub(crate) echo_own: Rates,
    pub(crate) memcached: Rates,
    /// coua on the kernel's TCP and on its own stack.
    pub(crate) coua_kernel: Rates,
    pub(crate) coua_own: Rates,
}

/// Measures in turns how many of coua's requests a second come from its stack, and how many from
/// its service. Own stacks are at the other end of a memif link. Everything else is as `net` has it
/// by default.
pub(crate) fn gain(
    ground: &Ground,
    rounds: u32,
    seconds: Option<Duration>,
) -> anyhow::Result<Gain> {
    let words = format!("net --rounds {rounds} --key-size {}", cases::PING_KEY);
    let Words { mut flags } = Words::try_parse_from(words.split(' '))?;
    flags.timing.seconds = seconds.unwrap_or(flags.timing.seconds);
    flags.coua.clone_from(&ground.coua);
    flags.memcached.clone_from(&ground.memcached);
    flags.memory = ground.memory;
    for (core, cores) in [
        (&mut flags.cores.server_core, ground.server_cores()?),
        (&mut flags.cores.load_core, ground.load_cores()?),
    ] {
        *core = *cores.first().context("there is a core")?;
    }
    let outcome = Stage::prepare(&flags, &Case::beside_ping())?.measure()?;
    let rates = |side| outcome.rates(side).context("each side is measured");
    Ok(Gain {
        echo_kernel: rates(Side::KernelEcho)?,
        echo_own: rates(Side::Echo)?,
        memcached: rates(Side::Memcached)?,
        coua_kernel: rates(Side::KernelCoua)?,
        coua_own: rates(Side::Coua)?,
    })
}

/// The flags of a comparison without a command line.
#[derive(Debug, Parser)]
struct Words {
    #[command(flatten)]
    flags: Flags,
}

/// Measures all cases and prints the comparison.
pub(crate) fn run(flags: &Flags) -> anyhow::Result<()> {
    let cases: Vec<Case> = cases::named(&flags.cases).map_err(anyhow::Error::msg)?;
    let mut outcome = Outcome::new(flags);
    for case in &cases {
        let stage = Stage::prepare(flags, case)?;
        outcome.versions = stage.versions()?;
        outcome.cases.push(stage.measure()?);
    }
    Ok(report::show(&outcome, flags.json)?)
}
