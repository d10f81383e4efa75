//! `coua-bench workers`: whole workers in this process, each with its clients on its own thread.
//!
//! The server is the one that is shipped, with its stack, its service and the store that the
//! workers share; only the network card is replaced, by [`Inside`]. The rate of several workers,
//! beside that of one, shows how much they slow each other.

use std::net::SocketAddr;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use clap::Args;
use coua::flags::{self as server_flags, Invocation};
use coua::server::{Server, Sockets};
use coua_transport::userspace::{Card, Config, Exchange, Polling, StackSetup};
use serde::Serialize;

use super::load_flags::TimingFlags;
use super::net_load::Shape;
use crate::link::client::{Answers, Settings};
use crate::link::{Control, Inside, Over};
use crate::load::{Engine, Requests};
use crate::report::{self, Table, median, require};
use crate::target::Target;
use crate::workload::Popularity;

/// Measures whole workers and their clients in this process: scaling, and UDP beside TCP
///
/// Each worker is that of the shipped server, with its TCP stack and the shared store; its clients run
/// on the same thread in place of a network card.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Flags {
    /// Numbers of workers; each is pinned to a core of its own, from core 0 on
    #[arg(long, value_delimiter = ',', default_value = "1,2")]
    workers: Vec<usize>,
    /// Transport of the requests
    #[arg(long, value_enum, value_delimiter = ',', default_value = "tcp")]
    over: Vec<Over>,
    /// Fractions of requests that are sets, from 0 to 1
    #[arg(long, value_delimiter = ',', default_value = "0,0.05")]
    sets: Vec<f64>,
    /// uniform or zipf:EXPONENT
    #[arg(long, value_delimiter = ',', default_value = "uniform,zipf:0.99")]
    popularity: Vec<Popularity>,
    /// Connections per worker
    #[arg(long, default_value_t = 64)]
    connections: usize,
    /// Requests that a connection sends at once before it waits for the replies
    #[arg(long, default_value_t = 1)]
    depth: usize,
    /// Number of keys
    #[arg(long, default_value_t = 1_000_000)]
    keys: u32,
    /// Bytes per key
    #[arg(long, default_value_t = 8)]
    key_size: usize,
    /// Bytes per value
    #[arg(long, default_value_t = 64)]
    value_size: usize,
    /// -m, in MiB
    #[arg(long, default_value_t = 1024)]
    memory: u64,
    #[command(flatten)]
    timing: TimingFlags,
    /// Leave out checksums on both sides, as with a card that does them
    #[arg(long)]
    trust_link: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  One worker and two, with gets only and with 5 % sets
    coua-bench workers --workers 1,2 --sets 0,0.05
  UDP beside TCP
    coua-bench workers --workers 1 --over tcp,udp --sets 0
  A single worker for callgrind
    coua-bench workers --workers 1 --rounds 1 --sets 0 --keys 1000 --memory 64";

/// One number of workers in one case.
#[derive(Debug, Serialize)]
struct Row {
    popularity: String,
    sets: f64,
    over: Over,
    workers: usize,
    /// The median of the measurements; so are the times and the hits.
    requests_per_second: f64,
    /// Requests per second divided by those of the first number of workers over the first
    /// transport.
    ratio: f64,
    /// Time per request of the server with its stack, and of the clients, in nanoseconds.
    server_ns: f64,
    clients_ns: f64,
    /// Fraction of gets that found a value.
    hits: f64,
}

/// One measurement.
#[derive(Clone, Copy)]
struct Sample {
    requests_per_second: f64,
    server_ns: f64,
    clients_ns: f64,
    hits: f64,
}

/// How long starting, filling and stopping may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// The stacks' memory for what their connections hold, in bytes.
const STACK_MEMORY: usize = 64 << 20;

/// Runs the command.
pub(crate) fn run(flags: &Flags) -> anyhow::Result<()> {
    let mut rows = Vec::new();
    for &popularity in &flags.popularity {
        for &sets in &flags.sets {
            rows.extend(case(flags, popularity, sets)?);
        }
    }
    if flags.json {
        return Ok(report::print_json(&rows)?);
    }
    let mut table = Table::new([
        "popularity",
        "sets",
        "over",
        "workers",
        "M requests/s",
        "÷ the first",
        "server, ns a request",
        "clients, ns",
        "hits",
    ]);
    for row in &rows {
        table.row([
            row.popularity.clone(),
            row.sets.to_string(),
            format!("{:?}", row.over).to_lowercase(),
            row.workers.to_string(),
            format!("{:.3}", row.requests_per_second / 1e6),
            format!("{:.2}", row.ratio),
            format!("{:.0}", row.server_ns),
            format!("{:.0}", row.clients_ns),
            format!("{:.3}", row.hits),
        ]);
    }
    Ok(report::print(&table)?)
}

fn case(flags: &Flags, popularity: Popularity, sets: f64) -> anyhow::Result<Vec<Row>> {
    let sides = flags
        .over
        .iter()
        .flat_map(|&over| flags.workers.iter().map(move |&workers| (over, workers)));
    let mut sides: Vec<(Over, usize, Vec<Sample>)> = sides
        .map(|(over, workers)| (over, workers, Vec::new()))
        .collect();
    for round in 1..=flags.timing.rounds {
        for (over, workers, samples) in &mut sides {
            report::progress(format_args!(
                "{popularity}, {sets} sets, {over:?}, {workers} workers, {round} of {}",
                flags.timing.rounds
            ));
            samples.push(measure(flags, popularity, sets, *over, *workers)?);
        }
    }
    let middle = |samples: &[Sample], of: fn(&Sample) -> f64| median(samples.iter().map(of));
    let first = middle(&sides[0].2, |sample| sample.requests_per_second);
    let rows = sides.iter().map(|(over, workers, all)| {
        let rate = middle(all, |sample| sample.requests_per_second);
        Row {
            popularity: popularity.to_string(),
            sets,
            over: *over,
            workers: *workers,
            requests_per_second: rate,
            ratio: rate / first,
            server_ns: middle(all, |sample| sample.server_ns),
            clients_ns: middle(all, |sample| sample.clients_ns),
            hits: middle(all, |sample| sample.hits),
        }
    });
    Ok(rows.collect())
}

/// Starts a server, fills it, and puts load on all its workers.
fn measure(
    flags: &Flags,
    popularity: Popularity,
    sets: f64,
    over: Over,
    workers: usize,
) -> anyhow::Result<Sample> {
    let control = Arc::new(Control::default());
    let settings = server_settings(flags, workers)?;
    let mut sockets = Sockets::open(&settings)?;
    let exchanges = Exchange::between(workers);
    for (worker, exchange) in exchanges.into_iter().enumerate() {
        let clients = clients(flags, popularity, sets, worker)?;
        let port = clients.server.1;
        let card = Inside::new(clients, over, flags.trust_link, Arc::clone(&control))?;
        let config = Config {
            connections_max: flags.connections + 16,
            half_open_max: flags.connections + 16,
            memory_max: STACK_MEMORY,
            trusts_link: flags.trust_link,
            ..Config::new(vec!["10.0.0.1/8".parse()?], [7; 32])
        };
        let setup = StackSetup {
            card: Card::Other(Box::new(card)),
            config,
            ports: vec![port],
            datagram_port: (over == Over::Udp).then_some(port),
            polling: Polling::Busy,
            exchange,
        };
        sockets.give_setup(worker, setup);
    }
    let server = Server::start(settings, sockets, None)?;
    let measured = load(flags, &server, &control, workers);
    server.stop();
    measured
}

fn server_settings(flags: &Flags, workers: usize) -> anyhow::Result<server_flags::Settings> {
    require!(workers > 0, "--workers takes 1 or more");
    let cores = format!("0-{}", workers - 1);
    let (memory, threads) = (flags.memory.to_string(), workers.to_string());
    let connections = (flags.connections * workers + 16).to_string();
    let words = [
        "coua",
        "-l",
        "127.0.0.1",
        "-p",
        "-1",
        "-U",
        "0",
        "-m",
        &memory,
        "-t",
        &threads,
        "--cores",
        &cores,
        "-c",
        &connections,
    ];
    match server_flags::read(words.map(Into::into))? {
        Invocation::Serve(settings) => Ok(*settings),
        Invocation::Print(text) => bail!("{text}"),
        Invocation::Check(_) => bail!("a check"),
    }
}

fn clients(
    flags: &Flags,
    popularity: Popularity,
    sets: f64,
    worker: usize,
) -> anyhow::Result<Settings> {
    let shape = Shape {
        connections: flags.connections,
        depth: flags.depth,
        outstanding: flags.connections * flags.depth,
        keys: flags.keys,
        key_size: flags.key_size,
        value_size: flags.value_size,
        sets,
        popularity,
    };
    let server = SocketAddr::from(([10, 0, 0, 1], 11211));
    shape.settings(server, Answers::Cache, 1 + worker as u64)
}

fn load(
    flags: &Flags,
    server: &Server,
    control: &Control,
    workers: usize,
) -> anyhow::Result<Sample> {
    let address = server.shared().addresses().first();
    let target = Target::Tcp(*address.context("the server listens nowhere")?);
    let clients = clients(flags, Popularity::Uniform, 0.0, 0)?;
    let requests = Requests::filling(clients.keys, clients.values, 0..flags.keys);
    Engine::connect(&target, 16, 64, &requests)?.finish()?;
    wait_for(|| control.is_ready(workers).then_some(()))?;
    control.warm_up();
    thread::sleep(flags.timing.warm_up);
    control.measure();
    thread::sleep(flags.timing.seconds);
    control.rest();
    let shares = wait_for(|| control.results(workers))??;
    let mut sample = Sample {
        requests_per_second: 0.0,
        server_ns: 0.0,
        clients_ns: 0.0,
        hits: 0.0,
    };
    for share in &shares {
        let measured = &share.stretch.measured;
        let replies = measured.replies.max(1) as f64;
        let part = 1.0 / workers as f64;
        let server = measured.elapsed.saturating_sub(share.clients);
        sample.requests_per_second += measured.rate();
        sample.server_ns += part * server.as_nanos() as f64 / replies;
        sample.clients_ns += part * share.clients.as_nanos() as f64 / replies;
        sample.hits += part * measured.hits as f64 / measured.gets.max(1) as f64;
    }
    Ok(sample)
}

fn wait_for<T>(mut question: impl FnMut() -> Option<T>) -> anyhow::Result<T> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(answer) = question() {
            return Ok(answer);
        }
        ensure!(
            Instant::now() < deadline,
            "the workers have not finished within 60 s"
        );
        thread::sleep(Duration::from_millis(1));
    }
}
