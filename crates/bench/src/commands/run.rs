//! `coua-bench run`: one load on one server.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use clap::{Args, ValueEnum};
use serde::Serialize;

use crate::client::Client;
use crate::cpu;
use crate::load::{Engine, Measured, Requests, Shape, verify};
use crate::report::{self, Table};
use crate::target::Target;
use crate::workload::{KeyFormat, Popularity, Sampler, Values};

/// Puts one load on one server
#[derive(Args, Clone, Debug)]
pub(crate) struct Flags {
    /// HOST:PORT or unix:PATH
    #[arg(long, default_value = "127.0.0.1:11211")]
    target: Target,
    /// What to do
    #[arg(long = "do", value_enum, default_value = "measure")]
    task: Task,
    /// Connections, over all threads
    #[arg(long, default_value_t = 64)]
    connections: usize,
    /// Requests in flight a connection
    #[arg(long, default_value_t = 1)]
    depth: usize,
    /// Load threads
    #[arg(long, default_value_t = 1)]
    threads: usize,
    /// First core of the load threads, which take one each from there on; not bound where none
    #[arg(long)]
    core: Option<usize>,
    /// Number of keys
    #[arg(long, default_value_t = 1000)]
    keys: u32,
    /// Bytes a key
    #[arg(long, default_value_t = 8)]
    key_size: usize,
    /// Bytes a value
    #[arg(long, default_value_t = 8)]
    value_size: usize,
    /// Fraction of requests that are sets, from 0 to 1
    #[arg(long, default_value_t = 0.0)]
    sets: f64,
    /// Keys that one get asks for
    #[arg(long, default_value_t = 1)]
    keys_per_get: usize,
    /// uniform or zipf:EXPONENT
    #[arg(long, default_value = "uniform")]
    popularity: Popularity,
    /// Seconds measured
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
    /// Seconds of load before that
    #[arg(long, default_value_t = 1.0)]
    warm_up: f64,
    /// Seed of the keys' order
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// A task of the load generator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Task {
    /// Ask for keys as they are popular and measure
    Measure,
    /// Set every key once
    Load,
    /// Read every key back and compare each byte
    Verify,
}

/// The outcome of a load, for programs.
#[derive(Debug, Serialize)]
struct Outcome {
    seconds: f64,
    requests: u64,
    requests_per_second: f64,
    gets: u64,
    values: u64,
    refused_sets: u64,
    client_busy: f64,
    latency_us_p50: f64,
    latency_us_p99: f64,
    latency_us_p999: f64,
    latency_us_max: f64,
}

/// Does the task and prints what came of it.
pub(crate) fn run(flags: &Flags) -> anyhow::Result<()> {
    ensure!(
        flags.keys > 0 && flags.connections > 0 && flags.depth > 0,
        "0 keys, connections or depth ask for nothing"
    );
    ensure!(
        (1..=flags.connections).contains(&flags.threads),
        "each thread needs a connection"
    );
    let keys = KeyFormat::new(flags.key_size, flags.keys)
        .context("so many keys do not fit into keys of this size")?;
    let values = Arc::new(Values::new(flags.value_size));
    match flags.task {
        Task::Verify => check(flags, keys, &values),
        Task::Load => {
            let requests = Requests::filling(keys, values, 0..flags.keys);
            report(flags, &drive(flags, &requests, Engine::finish)?)
        }
        Task::Measure => {
            let sampler = Sampler::new(flags.popularity, flags.keys, flags.seed);
            let requests = Requests::new(keys, values, sampler, flags.keys_per_get, flags.sets);
            let (warm_up, time) = (seconds(flags.warm_up)?, seconds(flags.seconds)?);
            let measured = drive(flags, &requests, |engine| {
                engine.run(warm_up)?;
                engine.run(time)
            })?;
            report(flags, &measured)
        }
    }
}

/// A flag's seconds as a duration.
pub(crate) fn seconds(seconds: f64) -> anyhow::Result<Duration> {
    Duration::try_from_secs_f64(seconds).with_context(|| format!("{seconds} is no time in seconds"))
}

/// Runs one engine a thread, each with its part of the requests and connections.
fn drive(
    flags: &Flags,
    requests: &Requests,
    work: impl Fn(&mut Engine) -> Result<Measured, crate::load::Error> + Sync,
) -> anyhow::Result<Measured> {
    let shape = Shape::new(flags.key_size, flags.value_size);
    let one = |thread: usize| -> anyhow::Result<Measured> {
        if let Some(core) = flags.core {
            cpu::pin(core + thread)
                .with_context(|| format!("core {} cannot be used", core + thread))?;
        }
        let connections = flags.connections / flags.threads
            + usize::from(thread < flags.connections % flags.threads);
        let share = requests.for_share(thread, flags.threads);
        let mut engine = Engine::connect(&flags.target, connections, flags.depth, shape, &share)?;
        Ok(work(&mut engine)?)
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..flags.threads)
            .map(|thread| scope.spawn(move || one(thread)))
            .collect();
        let mut total = Measured::new();
        for thread in threads {
            total.add(&thread.join().expect("a load thread does not panic")?);
        }
        Ok(total)
    })
}

fn check(flags: &Flags, keys: KeyFormat, values: &Values) -> anyhow::Result<()> {
    let mut client = Client::connect(&flags.target)?;
    let verified = verify::verify(&mut client, keys, values, 0..flags.keys)?;
    let (right, missing, wrong) = (verified.right, verified.missing, verified.wrong);
    report::print(format!(
        "{right} values right, {missing} missing, {wrong} wrong"
    ))?;
    ensure!(wrong == 0, "{wrong} values are not those that were set");
    Ok(())
}

fn report(flags: &Flags, measured: &Measured) -> anyhow::Result<()> {
    let microseconds = |duration: Duration| duration.as_secs_f64() * 1e6;
    let outcome = Outcome {
        seconds: measured.elapsed.as_secs_f64(),
        requests: measured.replies,
        requests_per_second: measured.rate(),
        gets: measured.gets,
        values: measured.hits,
        refused_sets: measured.refused,
        client_busy: measured.client_cpu.as_secs_f64()
            / measured.elapsed.as_secs_f64()
            / flags.threads as f64,
        latency_us_p50: microseconds(measured.latency(0.5)),
        latency_us_p99: microseconds(measured.latency(0.99)),
        latency_us_p999: microseconds(measured.latency(0.999)),
        latency_us_max: microseconds(measured.latency_max()),
    };
    if flags.json {
        return Ok(report::print_json(&outcome)?);
    }
    let mut table = Table::new(["", "value"]);
    table.row([
        "requests/s".to_owned(),
        format!("{:.0}", outcome.requests_per_second),
    ]);
    table.row(["requests".to_owned(), outcome.requests.to_string()]);
    table.row(["values back".to_owned(), outcome.values.to_string()]);
    table.row(["sets refused".to_owned(), outcome.refused_sets.to_string()]);
    table.row([
        "client busy".to_owned(),
        format!("{:.0} %", outcome.client_busy * 100.0),
    ]);
    table.row([
        "latency p50".to_owned(),
        format!("{:.1} µs", outcome.latency_us_p50),
    ]);
    table.row([
        "latency p99".to_owned(),
        format!("{:.1} µs", outcome.latency_us_p99),
    ]);
    table.row([
        "latency p99.9".to_owned(),
        format!("{:.1} µs", outcome.latency_us_p999),
    ]);
    table.row([
        "longest".to_owned(),
        format!("{:.1} µs", outcome.latency_us_max),
    ]);
    Ok(report::print(table)?)
}
