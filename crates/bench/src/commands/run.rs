//! `coua-bench run`: one load on one server.

mod bench;
mod outcome;
mod sample;

use std::fs::File;
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::{Context, ensure};
use clap::Args;
use hdrhistogram::serialization::V2DeflateSerializer;
use hdrhistogram::serialization::interval_log::IntervalLogWriterBuilder;

pub(crate) use bench::Bench;
pub(crate) use outcome::{Load, Outcome, Search};
pub(crate) use sample::Sample;

use super::load_flags::{LoadFlags, ServerFlags};
use crate::load::Measured;
use crate::owner::Owner;
use crate::report;

/// Puts one load on one server, and checks every reply
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Flags {
    #[command(flatten)]
    server: ServerFlags,
    #[command(flatten)]
    load: LoadFlags,
    /// The server's process, for its CPU time; found by its address where it is on this machine
    #[arg(long)]
    pid: Option<u32>,
    /// Write the latencies in nanoseconds to a file in HdrHistogram's log format
    #[arg(long, value_name = "FILE")]
    histogram: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  How much can it take? 64 connections, each with one request in flight
    coua-bench load --keys 1000000
    coua-bench run --keys 1000000 --repetitions 5
  The same with pipelines, from two threads on cores 2 and 3
    coua-bench run --keys 1000000 --depth 16 --threads 2 --core 2
  How fast does it answer 50,000 requests a second, nine gets to a set?
    coua-bench run --keys 1000000 --rate 50000 --mix get=90,set=10 --popularity zipf:0.99
  What is the most that it answers within a millisecond, on average or in 99 of 100 cases?
    coua-bench run --keys 1000000 --find-max --bound avg=1ms
    coua-bench run --keys 1000000 --find-max --bound p99=1ms
  The same from three machines, of which two run coua-bench agent --listen 10.0.0.2:11411 and so on
    coua-bench run --target 10.0.0.1:11211 --agents 10.0.0.2:11411,10.0.0.3:11411 --keys 1000000
  Past the kernel, on coua's own TCP stack: by AF_XDP beside the kernel, or on an address of its own
    coua-bench run --net xdp:eth0 --target 10.0.0.1:11211 --keys 1000000 --depth 16
    coua-bench run --net packet:eth1 --address 10.0.0.2/24 --target 10.0.0.1:11211 --keys 1000000
  As at Facebook, or at Twitter
    coua-bench load --keys 1000000 --workload etc
    coua-bench run --keys 1000000 --workload etc --rate 20000

Closed loops find capacities and hide stalls: while the server stands still they ask nothing. For
latencies give a --rate.";

/// A flag's seconds as a duration.
pub(crate) fn seconds(seconds: f64) -> anyhow::Result<Duration> {
    Duration::try_from_secs_f64(seconds).with_context(|| format!("{seconds} is no time in seconds"))
}

/// Measures and prints what came of it.
pub(crate) fn run(flags: &Flags) -> anyhow::Result<()> {
    let (server, load) = (&flags.server, &flags.load);
    let owner = match flags.pid {
        Some(pid) => Some(Owner::of_pid(pid).context("--pid takes the id of a process")?),
        None => Owner::of_target(&server.target),
    };
    let setup = server.setup(load.depth)?;
    let mut bench = Bench::prepare(load, &setup, server.team.dialect, owner)?;
    let search = match load.find_max {
        true => Some(bench.search()?),
        false => None,
    };
    let rate = search.as_ref().map_or(load.rate, |search| search.rate);
    bench.warm_up(rate)?;
    let rounds = load.repetitions.unwrap_or(1);
    let samples = (1..=rounds)
        .map(|round| {
            bench.measure(
                rate,
                round.into(),
                &format!("measurement {round} of {rounds}"),
            )
        })
        .collect::<anyhow::Result<Vec<Sample>>>()?;
    if let Some(path) = &flags.histogram {
        let merged = bench.merged().expect("something was measured");
        write_histogram(path, merged).with_context(|| format!("--histogram {}", path.display()))?;
    }
    let outcome = Outcome::new(bench.load(), rate, search, samples);
    drop(bench);
    let wrong = outcome.wrong();
    report::show(&outcome, flags.json)?;
    ensure!(wrong == 0, "{wrong} values are not those of their keys");
    Ok(())
}

fn write_histogram(path: &Path, measured: &Measured) -> anyhow::Result<()> {
    let mut file = BufWriter::new(File::create(path)?);
    let mut serializer = V2DeflateSerializer::new();
    let mut log = IntervalLogWriterBuilder::new()
        .add_comment("latencies in nanoseconds, coua-bench")
        .with_start_time(SystemTime::now())
        .begin_log_with(&mut file, &mut serializer)?;
    let written = log.write_histogram(&measured.latency_ns, Duration::ZERO, measured.elapsed, None);
    written.map_err(|error| anyhow::anyhow!("{error:?}"))?;
    io::Write::flush(&mut file)?;
    Ok(())
}
