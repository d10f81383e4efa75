//! `coua-bench verify`: reads every key back.

use anyhow::ensure;
use clap::Args;
use serde::Serialize;

use super::load_flags::{ItemFlags, ServerFlags};
use crate::load::Order;
use crate::report::{self, ProgressLine};
use crate::workload::{Mix, Op};

/// Reads every key of a workload back and compares each byte of its value
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Flags {
    #[command(flatten)]
    server: ServerFlags,
    #[command(flatten)]
    items: ItemFlags,
    /// Requests in flight per connection
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=65536))]
    depth: u32,
    /// Keys per get
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=1000))]
    keys_per_get: u32,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
The exit status is 1 if a value is wrong, and 0 if values are only missing.

Examples:
  What was stored with the same flags
    coua-bench load   --keys 1000000 --value-size 10-1000
    coua-bench verify --keys 1000000 --value-size 10-1000";

/// The outcome, for programs.
#[derive(Debug, Serialize)]
struct Outcome {
    right: u64,
    missing: u64,
    wrong: u64,
    errors: u64,
    lost: u64,
    seconds: f64,
    example: Option<Box<str>>,
}

/// Reads every key, and reports what is there.
pub(crate) fn run(flags: &Flags) -> anyhow::Result<()> {
    let (server, items) = (&flags.server, &flags.items);
    let plan = items.plan(
        server.team.dialect,
        Some(&Mix::only(Op::Get)),
        flags.keys_per_get,
    )?;
    let mut team = server.gather(flags.depth, &items.each(plan))?;
    let mut line = ProgressLine::new();
    let measured = team.carry_out(Order::Finish, |replies, _| {
        let keys = u64::from(items.keys).min(replies * u64::from(flags.keys_per_get));
        line.show(format_args!("{keys} of {} keys asked for", items.keys));
    })?;
    drop(line);
    let outcome = Outcome {
        right: measured.hits,
        missing: measured.misses,
        wrong: measured.wrong,
        errors: measured.refused,
        lost: measured.lost,
        seconds: measured.elapsed.as_secs_f64(),
        example: measured.example,
    };
    if flags.json {
        report::print_json(&outcome)?;
    } else {
        report::print(format!(
            "{} values right, {} missing, {} wrong; {} requests refused, {} lost",
            outcome.right, outcome.missing, outcome.wrong, outcome.errors, outcome.lost
        ))?;
    }
    let (wrong, unread) = (outcome.wrong, outcome.errors + outcome.lost);
    let example = outcome.example.as_deref().unwrap_or("no reply came");
    ensure!(wrong == 0, "{wrong} values are wrong: {example}");
    ensure!(
        unread == 0,
        "{unread} requests were not answered: {example}"
    );
    Ok(())
}
