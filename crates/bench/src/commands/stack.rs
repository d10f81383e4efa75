//! `coua-bench stack`: what a request and its reply cost in the TCP stack alone.
//!
//! Segments are ready in memory before the clock starts, and replies are checked after it has
//! stopped: only the stack is measured, with a service that sends back what it gets.

use std::hint::black_box;
use std::time::{Duration, Instant as Moment};

use clap::Args;
use coua_tcp::config::Config;
use coua_tcp::nic::Nic;
use coua_tcp::stack::{Received, Stack};
use coua_tcp::time::Instant;
use coua_transport::huge_pages;
use serde::Serialize;

use crate::cpu;
use crate::process;
use crate::report::{self, Table, require};
use crate::segments::{BURST_LEN, Clients};

/// Measures coua's TCP stack alone, in this process: nanoseconds per request of 16 bytes, echoed
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Flags {
    /// Numbers of connections, a case each; every burst of requests comes from random ones
    #[arg(long, value_delimiter = ',', default_value = "32,1024,16384,262144")]
    connections: Vec<usize>,
    /// Requests per measurement
    #[arg(long, default_value_t = 4_000_000)]
    requests: u64,
    /// Measurements of each case; medians are reported
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Core to run on
    #[arg(long, default_value_t = 0)]
    core: usize,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  Nanoseconds per request, by number of connections
    coua-bench stack
  A quick run with few connections
    coua-bench stack --connections 32 --rounds 1 --requests 100000";

/// What was measured.
#[derive(Debug, Serialize)]
struct Row {
    connections: usize,
    /// Nanoseconds per request, including its reply.
    ns: f64,
    /// The same without checksums, either way.
    ns_trusted: f64,
    /// Bytes that an idle connection takes in the stack.
    bytes: f64,
}

/// Runs the command.
pub(crate) fn run(flags: &Flags) -> anyhow::Result<()> {
    require!(flags.rounds > 0, "--rounds takes 1 or more");
    require!(flags.requests > 0, "--requests takes 1 or more");
    let rows = cpu::pinned(flags.core, || measure_all(flags))??;
    if flags.json {
        return Ok(report::print_json(&rows)?);
    }
    let mut table = Table::new([
        "connections",
        "ns a request",
        "without checksums",
        "bytes a connection",
    ]);
    for row in &rows {
        table.row([
            row.connections.to_string(),
            format!("{:.1}", row.ns),
            format!("{:.1}", row.ns_trusted),
            format!("{:.0}", row.bytes),
        ]);
    }
    Ok(report::print(&table)?)
}

fn measure_all(flags: &Flags) -> anyhow::Result<Vec<Row>> {
    let mut rows = Vec::new();
    for &connections in &flags.connections {
        require!(
            (1..=1 << 20).contains(&connections),
            "--connections takes 1 to {}",
            1 << 20
        );
        // Both kinds in turn, so that a slow moment of the machine meets both.
        let mut samples = [Vec::new(), Vec::new()];
        let mut bytes = Vec::new();
        for round in 0..flags.rounds {
            for (trusts_link, samples) in [false, true].into_iter().zip(&mut samples) {
                let measured = measure(connections, flags.requests, trusts_link)?;
                samples.push(measured.ns);
                bytes.push(measured.bytes);
            }
            report::progress(format!(
                "{connections} connections, {} of {}",
                round + 1,
                flags.rounds
            ));
        }
        let [ns, ns_trusted] = samples.map(report::median);
        rows.push(Row {
            connections,
            ns,
            ns_trusted,
            bytes: report::median(bytes),
        });
    }
    Ok(rows)
}

/// The outcome of one repetition.
struct Measured {
    /// Nanoseconds per request.
    ns: f64,
    /// Bytes that an idle connection takes.
    bytes: f64,
}

fn measure(connections: usize, requests: u64, trusts_link: bool) -> anyhow::Result<Measured> {
    let address = "10.0.0.1/8".parse()?;
    let mut config = Config::new(vec![address], [7; 32]);
    config.connections_max = connections;
    config.half_open_max = connections;
    config.memory_max = (connections * 256).max(64 << 20);
    config.keep_alive = None;
    // These clients acknowledge only with their next request, however late that is.
    config.rto_min = Duration::from_secs(60);
    config.trusts_link = trusts_link;
    let mut clients = Clients::new(connections, trusts_link);
    let resident_kib = || process::resident_kib(std::process::id());
    let before_kib = resident_kib();
    let mut stack = Stack::new(config, clients.features(), Instant::default());
    for table in stack.tables() {
        huge_pages::ask_for(table);
    }
    stack.listen(Clients::PORT);
    let mut now_us = 0;
    while clients.open_some() {
        now_us += 10;
        turn(&mut stack, &mut clients, now_us);
        while stack.next_accepted().is_some() {}
        clients.look_at_replies()?;
    }
    let taken_kib = resident_kib().saturating_sub(before_kib);
    let mut spent = Duration::ZERO;
    let mut done = 0;
    // The first bursts warm everything up, and let late acknowledgments leave.
    let warm_up = requests / 8;
    while done < requests + warm_up {
        clients.make_requests();
        now_us += 10;
        let started = Moment::now();
        turn(&mut stack, &mut clients, now_us);
        if done >= warm_up {
            spent += started.elapsed();
        }
        done += clients.look_at_replies()?;
    }
    let measured = (done - warm_up) as f64;
    Ok(Measured {
        ns: spent.as_nanos() as f64 / measured,
        bytes: (taken_kib << 10) as f64 / connections as f64,
    })
}

/// One turn of a worker whose service sends back what it gets.
#[inline(never)]
fn turn(stack: &mut Stack, clients: &mut Clients, now_us: u64) {
    let mut space = [0; 64];
    stack.begin(Instant::from_micros(now_us), clients);
    while let Some((id, _)) = stack.next_ready() {
        if let Received::Bytes(len) = stack.receive(clients, id, &mut space) {
            let sent = stack.send_now(clients, id, black_box(&space[..len]));
            black_box(sent.is_ok());
        }
    }
    stack.end(clients);
}

const _: () = assert!(BURST_LEN <= coua_tcp::nic::BURST_LEN);
