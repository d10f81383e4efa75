//! `coua-bench admission`: which items a tier of flash should take, by hits and by what is written.

use std::fmt::Display;
use std::path::PathBuf;

use anyhow::ensure;
use clap::Args;
use serde::Serialize;

use super::hits::{share, trace_files};
use crate::hits::stream::Stream;
use crate::hits::synthetic::Recipe;
use crate::hits::tier::{Admission, Counts, Recalls, Rules, Tier};
use crate::hits::trace;
use crate::report::{self, Table, require};

/// Compares rules for what goes to flash, by a model of memory with flash below it
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Flags {
    /// A trace or a folder of traces, as `coua-bench hits` takes them
    #[arg(long, value_name = "PATH")]
    traces: Vec<PathBuf>,
    /// Also replay the synthetic streams
    #[arg(long)]
    synthetic: bool,
    /// Number of popular keys of a synthetic stream
    #[arg(long, default_value_t = 1_000_000)]
    keys: u32,
    /// Requests of a synthetic stream; the first half is warm-up
    #[arg(long, default_value_t = 8_000_000)]
    requests: usize,
    /// Items that memory holds, in per cent of the distinct keys
    #[arg(long, default_value_t = 1.0)]
    memory_percent: f64,
    /// Items that flash holds, in per cent of the distinct keys
    #[arg(long, default_value_t = 10.0)]
    flash_percent: f64,
    /// Budget: items that may be written, in per cent of what is written without any rule
    #[arg(long, default_value_t = 30.0)]
    budget_percent: f64,
    /// Only streams whose name contains this [default: all]
    #[arg(long, default_value = "", hide_default_value = true)]
    only: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  On traces in a folder, with ten times as much flash as memory
    coua-bench admission --traces ./traces
  On synthetic streams
    coua-bench admission --synthetic";

/// Items written for one that may come back, in the store.
const WRITTEN_FOR_ONE: u64 = 2;

/// All rules on all streams.
#[derive(Debug, Serialize)]
struct Outcome {
    memory_percent: f64,
    flash_percent: f64,
    points: Vec<Point>,
}

#[derive(Debug, Serialize)]
struct Point {
    stream: String,
    rule: String,
    /// Of all gets.
    memory_hits: f64,
    flash_hits: f64,
    /// Items written for 1000 gets, and those of them that had been there before.
    written: f64,
    rewritten: f64,
    /// Items that came back to memory for 1000 gets.
    recalled: f64,
}

/// Replays everything and prints the comparison.
pub(crate) fn run(flags: &Flags) -> anyhow::Result<()> {
    require!(
        flags.memory_percent > 0.0 && flags.flash_percent > 0.0 && flags.budget_percent > 0.0,
        "--memory-percent, --flash-percent and --budget-percent take numbers above 0"
    );
    let mut outcome = Outcome {
        memory_percent: flags.memory_percent,
        flash_percent: flags.flash_percent,
        points: Vec::new(),
    };
    for path in trace_files(&flags.traces)? {
        if path.to_string_lossy().contains(&flags.only) {
            points(flags, &trace::read(&path)?, &mut outcome.points);
        }
    }
    if flags.synthetic {
        let recipes = Recipe::all().into_iter();
        for recipe in recipes.filter(|recipe| recipe.name().contains(&flags.only)) {
            let stream = recipe.stream(flags.keys, flags.requests);
            points(flags, &stream, &mut outcome.points);
        }
    }
    ensure!(
        !outcome.points.is_empty(),
        "nothing to replay: give --traces or --synthetic"
    );
    Ok(report::show(&outcome, flags.json)?)
}

impl Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(
            f,
            "Memory holds {} % of the keys, flash {} %.\n",
            self.memory_percent, self.flash_percent
        )?;
        let mut table = Table::new([
            "stream",
            "rule",
            "hits",
            "of memory",
            "of flash",
            "written for 1000 gets",
            "of these again",
            "recalled",
        ]);
        for point in &self.points {
            table.row([
                point.stream.clone(),
                point.rule.clone(),
                format!("{:.4}", point.memory_hits + point.flash_hits),
                format!("{:.4}", point.memory_hits),
                format!("{:.4}", point.flash_hits),
                format!("{:.0}", point.written),
                format!("{:.0}", point.rewritten),
                format!("{:.0}", point.recalled),
            ]);
        }
        write!(f, "{table}")
    }
}

fn points(flags: &Flags, stream: &Stream, points: &mut Vec<Point>) {
    report::progress(format_args!("{}: {} keys", stream.name, stream.keys));
    let items = |percent| share(stream.keys, percent).max(2) as usize;
    let (memory, flash) = (items(flags.memory_percent), items(flags.flash_percent));
    let replay = |rules| Tier::new(stream.keys, memory, flash, rules).replay(stream);
    let mut budget = 0;
    for second_chance in [false, true] {
        for admission in Admission::EACH {
            let rules = Rules {
                admission,
                budget: 0,
                second_chance,
                recalls: Recalls::Share(WRITTEN_FOR_ONE),
            };
            let counts = replay(rules);
            if points.last().is_none_or(|last| last.stream != stream.name) {
                budget = budget_of(&counts, flags.budget_percent);
            }
            points.push(Point::new(stream, name(&rules), &counts));
        }
    }
    let all = Rules {
        admission: Admission::All,
        budget: 0,
        second_chance: false,
        recalls: Recalls::All,
    };
    points.push(Point::new(stream, name(&all), &replay(all)));
    for admission in Admission::EACH {
        let rules = Rules {
            admission,
            budget: budget.max(1),
            second_chance: false,
            recalls: Recalls::Share(WRITTEN_FOR_ONE),
        };
        points.push(Point::new(stream, name(&rules), &replay(rules)));
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "a share of a number of requests"
)]
fn budget_of(counts: &Counts, percent: f64) -> u64 {
    (counts.written as f64 * 1000.0 / counts.gets.max(1) as f64 * percent / 100.0) as u64
}

fn name(rules: &Rules) -> String {
    let admission = match rules.admission {
        Admission::All => "all",
        Admission::Read => "read",
        Admission::Twice => "twice",
    };
    let chance = if rules.second_chance {
        ", second chance"
    } else {
        ""
    };
    let budget = if rules.budget > 0 { ", budget" } else { "" };
    let recalls = match rules.recalls {
        Recalls::All => ", all recalled",
        Recalls::Share(_) => "",
    };
    format!("{admission}{chance}{budget}{recalls}")
}

impl Point {
    #[expect(
        clippy::cast_precision_loss,
        reason = "a share of a number of requests"
    )]
    fn new(stream: &Stream, rule: String, counts: &Counts) -> Point {
        let of_gets = |count: u64| count as f64 / counts.gets.max(1) as f64;
        Point {
            stream: stream.name.clone(),
            rule,
            memory_hits: of_gets(counts.memory_hits),
            flash_hits: of_gets(counts.flash_hits),
            written: of_gets(counts.written) * 1000.0,
            rewritten: of_gets(counts.rewritten) * 1000.0,
            recalled: of_gets(counts.recalled) * 1000.0,
        }
    }
}
