//! `coua-bench flash`: coua with items on flash beside memcached's extstore, on the same kind of file and with the
//! same memory.
//!
//! Both run in one go, one after the other in each repetition, and never at the same time. coua reads with O_DIRECT;
//! extstore reads through the kernel's page cache, which is memory beside its `-m`. So memcached is measured twice where
//! it matters: as it is, and with its file's pages taken out of the page cache all the time.

mod capacity;
mod filling;
mod hits;
mod outcome;
mod page_cache;
mod sides;
mod speed;

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::programs::{CoreFlags, CouaFlag, MemcachedFlag};
use crate::report::{self, require};
use outcome::Outcome;
use sides::Programs;

/// Compares coua's items on flash with memcached's extstore: memory an item, hits, latency, throughput
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Flags {
    #[command(flatten)]
    coua: CouaFlag,
    #[command(flatten)]
    memcached: MemcachedFlag,
    /// What to measure
    #[arg(long, value_delimiter = ',', default_values = ["capacity", "hits", "latency", "throughput"])]
    parts: Vec<Part>,
    /// -m of both, in MiB
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u64).range(64..=1 << 22))]
    memory: u64,
    /// Length of the file of each, in MiB
    #[arg(long, value_name = "MIB", default_value_t = 1024, value_parser = clap::value_parser!(u64).range(128..=1 << 24))]
    flash: u64,
    /// Folder for the files
    #[arg(long, value_name = "FOLDER", default_value = "/var/tmp")]
    folder: PathBuf,
    /// Bytes per value, for latency and throughput
    #[arg(long, default_value_t = 1000)]
    value_size: usize,
    /// Items, for latency and throughput [default: as many as fill half of the file]
    #[arg(long)]
    items: Option<u32>,
    /// Bytes per value, for capacity, and how many items are stored there
    #[arg(long, default_value_t = 300)]
    capacity_value_size: usize,
    #[arg(long, default_value_t = 2_000_000, hide_short_help = true)]
    capacity_items: u32,
    /// Items stored a second while filling: what is evicted faster than it is written is lost to flash
    #[arg(long, default_value_t = 15_000, value_parser = clap::value_parser!(u32).range(1..))]
    fill_rate: u32,
    /// A trace or a folder of traces, for hits; see `coua-bench hits --help` for the formats
    #[arg(long, value_name = "PATH")]
    traces: Vec<PathBuf>,
    /// For hits: the share of all bytes that memory has room for, in per cent; flash has room for four times as much
    #[arg(long, default_value_t = 8.0)]
    memory_percent: f64,
    /// For hits: keys of a synthetic stream, and its requests
    #[arg(long, default_value_t = 500_000)]
    keys: u32,
    #[arg(long, default_value_t = 2_000_000, hide_short_help = true)]
    requests: usize,
    /// Workers (-t), for throughput
    #[arg(long, value_delimiter = ',', default_value = "1,2")]
    workers: Vec<usize>,
    /// Connections, for throughput
    #[arg(long, default_value_t = 32)]
    connections: usize,
    /// Repetitions of latency and throughput; medians are shown
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    repetitions: u32,
    /// Seconds of each measurement
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    #[command(flatten)]
    cores: CoreFlags,
    /// Print CSV
    #[arg(long, conflicts_with = "json")]
    csv: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// A part of the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// How many items can be retrieved, and how much memory that takes
    Capacity,
    /// Hits on streams and traces
    Hits,
    /// p50, p99 and p99.9 of items on flash, one request at a time
    Latency,
    /// Requests a second, pure reads and with 10 % writes
    Throughput,
}

const EXAMPLES: &str = "\
Examples:
  Everything, and hits on traces in a folder
    coua-bench flash --traces ./traces
  Latency alone, five times, as CSV
    coua-bench flash --parts latency --repetitions 5 --csv";

/// Bytes of a key.
const KEY_LEN: usize = 16;

/// Measures the parts and prints what came of it.
pub(crate) fn run(flags: &Flags) -> anyhow::Result<()> {
    require!(
        flags.seconds.is_finite() && flags.seconds > 0.0 && flags.seconds <= 3600.0,
        "--seconds takes a number above 0, up to 3600"
    );
    require!(
        flags.memory_percent > 0.0 && flags.memory_percent < 50.0,
        "--memory-percent takes a number above 0 and below 50"
    );
    require!(
        flags.keys > 0 && flags.requests > 0 && flags.connections > 0 && flags.capacity_items > 0,
        "--keys, --requests, --connections and --capacity-items take 1 or more"
    );
    require!(
        flags
            .workers
            .iter()
            .all(|&workers| (1..=64).contains(&workers)),
        "--workers takes numbers from 1 to 64"
    );
    let programs = Programs {
        coua: flags.coua.path()?,
        memcached: flags.memcached.path(),
    };
    let mut outcome = Outcome::new(flags.memory, flags.flash)?;
    let has = |part| flags.parts.contains(&part);
    if has(Part::Capacity) {
        outcome.capacity = capacity::measure(flags, &programs)?;
    }
    if has(Part::Hits) {
        outcome.hits = hits::measure(flags, &programs)?;
    }
    if has(Part::Latency) || has(Part::Throughput) {
        (outcome.latency, outcome.throughput) =
            speed::measure(flags, &programs, has(Part::Latency), has(Part::Throughput))?;
    }
    if flags.csv {
        return Ok(report::print(outcome.csv())?);
    }
    Ok(report::show(&outcome, flags.json)?)
}
