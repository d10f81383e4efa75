//! `coua-bench soak`: mixed use for a long time.

use std::time::Duration;

use clap::Args;

use crate::report::{self, Table, require};
use crate::soak::{Plan, Row, soak};
use crate::target::Target;

/// Uses a server as web applications do, for hours, and ends at the first wrong answer
///
/// Values of all sizes expire and are evicted, and connections come and go. Memory and latency are
/// reported at intervals.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Flags {
    /// The server: HOST:PORT or unix:PATH
    #[arg(long, default_value = "127.0.0.1:11211")]
    target: Target,
    /// The server's process id, to report its memory
    #[arg(long)]
    pid: Option<u32>,
    /// Users, each with one connection at a time
    #[arg(long, default_value_t = 8)]
    users: usize,
    /// Number of keys that they share; give more than fit into the server, so that it evicts
    #[arg(long, default_value_t = 1_000_000)]
    keys: u32,
    /// Seconds of the whole run
    #[arg(long, default_value_t = 3600)]
    seconds: u64,
    /// Seconds per row of the report
    #[arg(long, default_value_t = 60)]
    interval: u64,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  An hour on a running server, with its memory use
    coua-bench soak --target 127.0.0.1:11211 --pid 1234
  A minute with many users
    coua-bench soak --seconds 60 --interval 10 --users 100";

/// Runs the command.
pub(crate) fn run(flags: &Flags) -> anyhow::Result<()> {
    require!(flags.users > 0, "--users takes 1 or more");
    require!(flags.keys > 0, "--keys takes 1 or more");
    require!(flags.interval > 0, "--interval takes 1 or more");
    let plan = Plan {
        target: flags.target.clone(),
        pid: flags.pid,
        users: flags.users,
        keys: flags.keys,
        time: Duration::from_secs(flags.seconds),
        interval: Duration::from_secs(flags.interval),
    };
    let mut rows: Vec<Row> = Vec::new();
    let ended = soak(&plan, |row| {
        report::progress(format!(
            "{:.0} s: {} requests, p99 {} µs, longest {} µs, {} MiB resident",
            row.seconds,
            row.requests,
            row.p99_us,
            row.max_us,
            row.resident_kib >> 10
        ));
        rows.push(row.clone());
    });
    match flags.json {
        true => report::print_json(&rows)?,
        false => report::print(table(&rows))?,
    }
    Ok(ended?)
}

fn table(rows: &[Row]) -> Table {
    let mut table = Table::new([
        "seconds",
        "requests",
        "hits",
        "p50 µs",
        "p99 µs",
        "p99.9 µs",
        "longest µs",
        "resident MiB",
        "items",
        "evictions",
    ]);
    for row in rows {
        table.row([
            format!("{:.0}", row.seconds),
            row.requests.to_string(),
            format!("{:.1} %", row.hit_percent),
            row.p50_us.to_string(),
            row.p99_us.to_string(),
            row.p999_us.to_string(),
            row.max_us.to_string(),
            format!("{:.1}", row.resident_kib as f64 / 1024.0),
            row.items.to_string(),
            row.evictions.to_string(),
        ]);
    }
    table
}
