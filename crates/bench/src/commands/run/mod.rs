//! `coua-bench run`: one load on one server.

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

use outcome::{Load, Outcome, Search};
use sample::Sample;

use super::load_flags::{ItemFlags, ServerFlags};
use crate::load::{Arrivals, Bound, Measured, Order, Pace, Requests, Team, find_max};
use crate::owner::Owner;
use crate::report::{self, ProgressLine};
use crate::workload::{Mix, Popularity};

/// Puts one load on one server, and checks every reply
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Flags {
    #[command(flatten)]
    server: ServerFlags,
    #[command(flatten)]
    items: ItemFlags,
    /// Requests in flight a connection
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=65536))]
    depth: u32,
    /// Keys that one get asks for
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    keys_per_get: u32,
    /// Operations with their weights, as in get=90,set=10; there are get, gets, gat, set, add,
    /// replace, delete, incr, decr and touch. incr and decr count on items of their own
    /// [default: get]
    #[arg(long)]
    mix: Option<Mix>,
    /// uniform, zipf:EXPONENT, or hot:KEYS:REQUESTS, where hot:0.1:0.9 gives a tenth of the keys nine
    /// tenths of the requests [default: uniform]
    #[arg(long)]
    popularity: Option<Popularity>,
    /// Keys in the order of a trace instead: one number a line, or as `coua-bench hits` reads them
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Open loop: requests a second, whatever the server does; latency counts from when a request
    /// was due. Without it a closed loop, in which the server sets the pace
    #[arg(long, value_parser = rate)]
    rate: Option<f64>,
    /// How an open loop's requests are spread over time
    #[arg(long, value_enum, default_value = "poisson")]
    arrivals: Arrivals,
    /// Find the highest rate at which --bound holds; each rate is tried for --seconds
    #[arg(long, conflicts_with = "rate")]
    find_max: bool,
    /// For --find-max: avg=TIME, max=TIME or a percentile, as in p99=1ms
    #[arg(long, default_value = "avg=1ms")]
    bound: Bound,
    /// Seconds measured
    #[arg(long, default_value = "5", value_parser = time)]
    seconds: Duration,
    /// Seconds of load before that
    #[arg(long, default_value = "1", value_parser = time)]
    warm_up: Duration,
    /// Measurements; medians and spread are reported
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    repetitions: u32,
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
  As at Facebook, or at Twitter
    coua-bench load --keys 1000000 --workload etc
    coua-bench run --keys 1000000 --workload etc --rate 20000

Closed loops find capacities and hide stalls: while the server stands still they ask nothing. For
latencies give a --rate.";

/// A flag's seconds as a duration.
pub(crate) fn seconds(seconds: f64) -> anyhow::Result<Duration> {
    Duration::try_from_secs_f64(seconds).with_context(|| format!("{seconds} is no time in seconds"))
}

fn time(text: &str) -> Result<Duration, String> {
    let time = text.parse().ok().and_then(|number| seconds(number).ok());
    time.ok_or_else(|| "expected a number of seconds, as in 0.5".to_owned())
}

fn rate(text: &str) -> Result<f64, String> {
    let rate = text.parse().ok();
    rate.filter(|rate| (1e-3..=1e9).contains(rate))
        .ok_or_else(|| "expected requests a second, from 0.001 to 1e9".to_owned())
}

/// Measures and prints what came of it.
pub(crate) fn run(flags: &Flags) -> anyhow::Result<()> {
    ensure!(!flags.seconds.is_zero(), "--seconds must not be 0");
    let (server, items) = (&flags.server, &flags.items);
    let plan = items.plan(server.dialect, flags.mix.as_ref(), flags.keys_per_get)?;
    let popularity = items.popularity(flags.popularity);
    let sampler = items.sampler(popularity, flags.trace.as_ref())?;
    let load = Load::new(flags, &plan, popularity);
    let requests = Requests::planned(plan.into(), sampler, items.seed);
    let mut bench = Bench::prepare(flags, &requests)?;
    let search = match flags.find_max {
        true => Some(bench.search()?),
        false => None,
    };
    let rate = search.as_ref().map_or(flags.rate, |search| search.rate);
    let samples = bench.repeat(rate)?;
    if let Some(path) = &flags.histogram {
        let merged = bench.merged.as_ref().expect("something was measured");
        write_histogram(path, merged).with_context(|| format!("--histogram {}", path.display()))?;
    }
    drop(bench);
    let outcome = Outcome::new(load, rate, search, samples);
    let wrong = outcome.wrong();
    match flags.json {
        true => report::print_json(&outcome)?,
        false => report::print(&outcome)?,
    }
    ensure!(wrong == 0, "{wrong} values are not those of their keys");
    Ok(())
}

/// A team at work, and the server beside it.
struct Bench<'a> {
    flags: &'a Flags,
    team: Team,
    owner: Option<Owner>,
    line: ProgressLine,
    merged: Option<Measured>,
}

impl<'a> Bench<'a> {
    /// The longest that the closed loop before a search takes.
    const GUESS: Duration = Duration::from_secs(2);
    /// Rates that hold and do not are within this fraction of each other in the end.
    const PRECISION: f64 = 0.02;

    fn prepare(flags: &'a Flags, requests: &Requests) -> anyhow::Result<Bench<'a>> {
        let owner = match flags.pid {
            Some(pid) => Some(Owner::of_pid(pid).context("--pid takes the id of a process")?),
            None => Owner::of_target(&flags.server.target),
        };
        let team = flags.server.gather(flags.depth, requests)?;
        Ok(Bench {
            flags,
            team,
            owner,
            line: ProgressLine::new(),
            merged: None,
        })
    }

    fn order(&self, rate: Option<f64>, time: Duration, round: u64) -> Order {
        match rate {
            None => Order::Closed(time),
            Some(rate) => {
                let pace = Pace {
                    rate,
                    arrivals: self.flags.arrivals,
                    seed: self.flags.items.seed + round,
                };
                Order::Open(pace, time)
            }
        }
    }

    fn carry_out(&mut self, order: Order, what: &str) -> anyhow::Result<Measured> {
        let line = &mut self.line;
        Ok(self.team.carry_out(order, |replies, elapsed| {
            let seconds = elapsed.as_secs_f64();
            let rate = replies as f64 / seconds;
            line.show(format_args!("{what}, {seconds:.0} s: {rate:.0} requests/s"));
        })?)
    }

    /// Finds the highest rate that holds.
    fn search(&mut self) -> anyhow::Result<Search> {
        let time = self.flags.seconds;
        self.carry_out(Order::Closed(self.flags.warm_up), "warm-up")?;
        let guess = self.carry_out(Order::Closed(time.min(Self::GUESS)), "first guess")?;
        ensure!(guess.replies > 0, "the server answered nothing");
        let bound = self.flags.bound;
        let mut round = 0;
        let found = find_max(&bound, guess.rate(), Self::PRECISION, |rate| {
            round += 1;
            let order = self.order(Some(rate), time, round);
            let measured = self.carry_out(order, &format!("trying {rate:.0} requests/s"))?;
            let (is, rate) = (bound.of(&measured), measured.rate());
            report::progress(format_args!("{rate:.0} requests/s: {bound}, is {is:.1?}"));
            anyhow::Ok(measured)
        })?;
        Ok(Search::new(&bound, &found))
    }

    /// Warms up, and measures as often as is asked for.
    fn repeat(&mut self, rate: Option<f64>) -> anyhow::Result<Vec<Sample>> {
        let warm_up = self.order(rate, self.flags.warm_up, 0);
        self.carry_out(warm_up, "warm-up")?;
        let mut samples = Vec::new();
        for round in 1..=self.flags.repetitions {
            let before = self.owner.map(Owner::usage).transpose();
            let before = before.context("the server's process cannot be looked at")?;
            let order = self.order(rate, self.flags.seconds, round.into());
            let what = format!("measurement {round} of {}", self.flags.repetitions);
            let measured = self.carry_out(order, &what)?;
            let after = self.owner.map(Owner::usage).transpose()?;
            let usage = before
                .zip(after)
                .map(|(before, after)| after.since(&before));
            samples.push(Sample::new(&measured, self.flags.server.threads, usage));
            match &mut self.merged {
                Some(merged) => merged.add(&measured),
                None => self.merged = Some(measured),
            }
        }
        Ok(samples)
    }
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
