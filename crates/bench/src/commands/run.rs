//! `coua-bench run`: one load on one server.

mod bench;
mod condition;
mod csv;
mod outcome;
mod plot;
mod sample;
mod sweep;

use std::fs::File;
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::{Context, ensure};
use clap::Args;
use hdrhistogram::serialization::V2DeflateSerializer;
use hdrhistogram::serialization::interval_log::{IntervalLogWriterBuilder, Tag};

pub(crate) use bench::Bench;
pub(crate) use csv::rows as csv_rows;
pub(crate) use outcome::{Load, Outcome, Search};
pub(crate) use sample::Sample;
pub(crate) use sweep::Sweep;

use condition::Condition;

use super::load_flags::{LoadFlags, ReportFlags, ServerFlags};
use super::rates::Rates;
use crate::load::Measured;
use crate::owner::Owner;
use crate::report::{self, ConditionsHeld, require};

/// Puts one load on one server, and checks every reply
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Flags {
    #[command(flatten)]
    server: ServerFlags,
    #[command(flatten)]
    load: LoadFlags,
    /// The server's process id, for its CPU time [default: found by its address, if it is on this
    /// machine]
    #[arg(long)]
    pid: Option<u32>,
    /// Write the latencies in nanoseconds to a file in HdrHistogram's log format
    #[arg(long, value_name = "FILE")]
    histogram: Option<PathBuf>,
    /// Draw rate and latency by the second, and the latency distribution; with --sweep, latency over
    /// the offered load
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
    /// Exit with status 3, and one line that says why, if this holds: p99>1ms, rate<50000, errors>0,
    /// misses>1% and so on; several with commas or repeated
    #[arg(
        long,
        value_name = "CONDITION",
        value_delimiter = ',',
        conflicts_with = "sweep"
    )]
    fail_if: Vec<Condition>,
    #[command(flatten)]
    report: ReportFlags,
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
  Does it stand still now and then? Each second for itself, in a table and as a picture
    coua-bench run --keys 1000000 --rate 50000 --seconds 60 --by-second --plot run.svg
  Why are some replies slow? By who was away: the load, the server, or the machine under both
    coua-bench run --keys 1000000 --rate 50000 --core 1 --gaps
  How does the latency grow with the load? Eight rates, drawn on logarithmic axes
    coua-bench run --keys 1000000 --sweep 10000-400000 --plot sweep.svg
  In a script: status 3 where it is too slow, or anything went wrong
    coua-bench run --rate 50000 --fail-if 'p99>1ms' --fail-if 'rate<49000,errors>0,misses>1%'
  For a spreadsheet, and to compare with a later run (coua-bench diff --help)
    coua-bench run --repetitions 5 --csv
    coua-bench run --repetitions 5 --json
  The same from three machines, of which two run coua-bench agent --listen 10.0.0.2:11411 and so on
    coua-bench run --target 10.0.0.1:11211 --agents 10.0.0.2:11411,10.0.0.3:11411 --keys 1000000
  Past the kernel, on coua's own TCP stack: by AF_XDP beside the kernel, or on an address of its own
    coua-bench run --net xdp:eth0 --target 10.0.0.1:11211 --keys 1000000 --depth 16
    coua-bench run --net packet:eth1 --address 10.0.0.2/24 --target 10.0.0.1:11211 --keys 1000000
  As at Facebook, or at Twitter
    coua-bench load --keys 1000000 --workload etc
    coua-bench run --keys 1000000 --workload etc --rate 20000

Closed loops find capacities and hide stalls: while the server stands still they ask nothing. For
latencies give a --rate. --fail-if takes latencies and counts of all measurements together, and the
median of their rates.";

/// Measures and prints the outcome.
pub(crate) fn run(flags: &Flags) -> anyhow::Result<()> {
    let (server, load) = (&flags.server, &flags.load);
    let owner = match flags.pid {
        Some(pid) => Some(Owner::of_pid(pid).context("--pid takes the id of a process")?),
        None => Owner::of_target(&server.target),
    };
    let setup = server.setup(load.depth)?;
    let mut bench = Bench::prepare(load, &setup, server.team.dialect, owner)?;
    match &load.sweep {
        Some(rates) => sweep(flags, rates, bench),
        None => {
            let outcome = measure(flags, &mut bench)?;
            tell(flags, &outcome, bench)
        }
    }
}

/// Measures as often as the flags say, at the highest rate if that is searched for.
fn measure(flags: &Flags, bench: &mut Bench<'_>) -> anyhow::Result<Outcome> {
    let load = &flags.load;
    let search = match load.find_max {
        true => Some(bench.search()?),
        false => None,
    };
    let rate = search.as_ref().map_or(load.rate, |search| search.rate);
    let samples = repeat(flags, bench, rate)?;
    Ok(Outcome::new(bench.load(), rate, search, samples))
}

fn repeat(flags: &Flags, bench: &mut Bench<'_>, rate: Option<f64>) -> anyhow::Result<Vec<Sample>> {
    bench.warm_up(rate)?;
    let rounds = flags.load.repetitions.unwrap_or(1);
    let samples = (1..=rounds).map(|round| {
        let what = format!("measurement {round} of {rounds}");
        bench.measure(rate, round.into(), &what)
    });
    samples.collect()
}

/// Measures at each rate, prints and draws all of them together.
fn sweep(flags: &Flags, rates: &Rates, mut bench: Bench<'_>) -> anyhow::Result<()> {
    require!(
        flags.histogram.is_none(),
        "--histogram holds one rate: give --rate rather than --sweep"
    );
    let outcomes = rates.each().map(|rate| {
        let samples = repeat(flags, &mut bench, Some(rate))?;
        Ok(Outcome::new(bench.load(), Some(rate), None, samples))
    });
    let outcomes = outcomes.collect::<anyhow::Result<Vec<Outcome>>>()?;
    drop(bench);
    let target = flags.server.target.to_string();
    let sweep = Sweep::new(vec![(target, outcomes)]);
    if let Some(path) = &flags.plot {
        let title = "Latency over the offered load";
        sweep.chart(title).write_svg(path)?;
    }
    sweep.tell(&flags.report)
}

/// Prints, draws and judges.
fn tell(flags: &Flags, outcome: &Outcome, bench: Bench<'_>) -> anyhow::Result<()> {
    let merged = bench.merged().expect("something was measured");
    if let Some(path) = &flags.histogram {
        write_histograms(path, [(None, merged)])?;
    }
    if let Some(path) = &flags.plot {
        plot::chart(outcome, merged).write_svg(path)?;
    }
    let conditions = flags.fail_if.iter();
    let failures = conditions.filter_map(|condition| condition.failure(outcome, merged));
    let failures: Vec<String> = failures.collect();
    drop(bench);
    let (wrong, report) = (outcome.wrong(), &flags.report);
    if report.csv {
        let named = (outcome.load.target(), outcome);
        report::print(csv_rows([named], report.by_second))?;
    } else {
        report::show(outcome, report.json)?;
        if report.by_second && !report.json {
            report::print(format_args!("\n{}", outcome.seconds_table()))?;
        }
    }
    ensure!(wrong == 0, "{wrong} values are not those of their keys");
    match failures.is_empty() {
        true => Ok(()),
        false => Err(ConditionsHeld(failures.join("; ")).into()),
    }
}

/// Writes the latencies of each server to a file in HdrHistogram's log format. If there are several
/// servers, their names are the tags.
pub(crate) fn write_histograms<'a>(
    path: &Path,
    all: impl IntoIterator<Item = (Option<&'a str>, &'a Measured)>,
) -> anyhow::Result<()> {
    let write = || {
        let mut file = BufWriter::new(File::create(path)?);
        let mut serializer = V2DeflateSerializer::new();
        let mut log = IntervalLogWriterBuilder::new()
            .add_comment("latencies in nanoseconds, coua-bench")
            .with_start_time(SystemTime::now())
            .begin_log_with(&mut file, &mut serializer)?;
        for (name, measured) in all {
            let name = name.map(tag_name);
            let tag = name.as_deref().and_then(Tag::new);
            let (latency_ns, elapsed) = (&measured.latency_ns, measured.elapsed);
            log.write_histogram(latency_ns, Duration::ZERO, elapsed, tag)
                .map_err(|error| anyhow::anyhow!("{error:?}"))?;
        }
        anyhow::Ok(io::Write::flush(&mut file)?)
    };
    write().with_context(|| format!("--histogram {}", path.display()))
}

/// A name as a tag: without characters that would end one.
fn tag_name(name: &str) -> String {
    name.replace([',', ' ', '\t', '\r', '\n'], "_")
}
