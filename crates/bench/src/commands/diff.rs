//! `coua-bench diff`: two saved runs beside each other, and whether the second is worse.

mod interval;
mod saved;

use std::fmt::{self, Display};
use std::path::PathBuf;

use clap::Args;
use serde::Serialize;
use serde_json::Value;

use crate::report::{self, Table, Worse, WrongFlags, require};
use interval::Interval;
use saved::Saved;

/// Compares two runs that `run --json` or `compare --json` printed
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Flags {
    /// The run before
    #[arg(value_name = "OLD.json")]
    old: PathBuf,
    /// The run after
    #[arg(value_name = "NEW.json")]
    new: PathBuf,
    /// Compare even if the runs had different settings
    #[arg(long)]
    force: bool,
    /// Ignore differences of up to so many per cent, however sure they are
    #[arg(long, default_value_t = 0.0, value_name = "PERCENT", value_parser = percent)]
    tolerance: f64,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  Before and after a change, five measurements each
    coua-bench run --keys 1000000 --rate 50000 --repetitions 5 --json > old.json
    coua-bench run --keys 1000000 --rate 50000 --repetitions 5 --json > new.json
    coua-bench diff old.json new.json
  The same of several servers, each with itself; changes of less than 2 % are ignored
    coua-bench compare coua memcached --json > old.json
    coua-bench diff old.json new.json --tolerance 2

Exit status: 0 if the second run is the same or better; 1 if a figure of it is worse and its whole
confidence interval lies on that side; 2 if the runs cannot be compared, as when they had different
settings and there is no --force.

Each ratio has a confidence interval; all intervals of a server hold at once with 95 % confidence
(Welch's, on logarithms, with Bonferroni's correction). Two runs at different times may differ
because the machine did: where that matters, measure both servers in turns with coua-bench compare.";

fn percent(text: &str) -> Result<f64, String> {
    let percent = text.trim_end_matches('%').parse().ok();
    percent
        .filter(|percent| (0.0..=1000.0).contains(percent))
        .ok_or_else(|| "expected a percentage, as in 2".to_owned())
}

/// A figure that is compared.
struct Figure {
    name: &'static str,
    of: fn(&Saved) -> Vec<f64>,
    more_is_better: bool,
}

macro_rules! latency {
    ($name:literal, $key:literal) => {
        Figure {
            name: $name,
            of: |saved| saved.values(|sample| sample[$key].as_f64()),
            more_is_better: false,
        }
    };
}

/// The longest latency of a run says nothing about that of the next one, and is left out.
const FIGURES: [Figure; 7] = [
    Figure {
        name: "requests/s",
        of: Saved::rates,
        more_is_better: true,
    },
    latency!("latency, mean", "latency_us_mean"),
    latency!("p50", "latency_us_p50"),
    latency!("p99", "latency_us_p99"),
    latency!("p99.9", "latency_us_p999"),
    Figure {
        name: "server's CPU a request",
        of: |saved| saved.values(cpu_us),
        more_is_better: false,
    },
    Figure {
        name: "hits",
        of: |saved| saved.values(hit_share),
        more_is_better: true,
    },
];

fn cpu_us(sample: &Value) -> Option<f64> {
    let rate = sample["requests_per_second"].as_f64()?;
    Some(sample["server_cores"].as_f64()? * 1e6 / rate)
}

fn hit_share(sample: &Value) -> Option<f64> {
    let (hits, misses) = (sample["hits"].as_f64()?, sample["misses"].as_f64()?);
    Some(hits / (hits + misses).max(1.0))
}

/// Whether a figure has changed, as far as one can tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Verdict {
    Same,
    Better,
    Worse,
}

/// One figure of one server.
#[derive(Clone, Debug, Serialize)]
struct Change {
    server: String,
    figure: &'static str,
    old: f64,
    new: f64,
    ratio: f64,
    least: f64,
    most: f64,
    verdict: Verdict,
}

/// The whole comparison, for programs and for people.
#[derive(Debug, Serialize)]
struct Outcome {
    changes: Vec<Change>,
    /// Settings that differ between the runs.
    differences: Vec<String>,
    /// What is worse, one sentence each.
    worse: Vec<String>,
}

/// Compares and prints.
pub(crate) fn run(flags: &Flags) -> anyhow::Result<()> {
    let read = |path: &PathBuf| Saved::read(path).map_err(|error| WrongFlags(format!("{error:#}")));
    let (old, new) = (read(&flags.old)?, read(&flags.new)?);
    let outcome = compare(&old, &new, flags)?;
    report::show(&outcome, flags.json)?;
    match outcome.worse.is_empty() {
        true => Ok(()),
        false => Err(Worse(outcome.worse.join("; ")).into()),
    }
}

fn compare(old: &[Saved], new: &[Saved], flags: &Flags) -> anyhow::Result<Outcome> {
    let mut outcome = Outcome {
        changes: Vec::new(),
        differences: Vec::new(),
        worse: Vec::new(),
    };
    let named = |name: &str| new.iter().find(|saved| saved.name == name);
    for old in old {
        let Some(new) = named(&old.name) else {
            outcome
                .differences
                .push(format!("{}: not in the second run", old.name));
            continue;
        };
        outcome.differences.extend(old.differences(new));
        require!(
            old.len() >= 2 && new.len() >= 2,
            "one measurement has no spread: run both with --repetitions 5"
        );
        outcome.add(old, new, flags.tolerance);
    }
    require!(
        flags.force || outcome.differences.is_empty(),
        "the runs had different settings ({}); --force compares them all the same",
        outcome.differences.join("; ")
    );
    require!(!outcome.changes.is_empty(), "no server is in both runs");
    Ok(outcome)
}

impl Outcome {
    fn add(&mut self, old: &Saved, new: &Saved, tolerance: f64) {
        /// The probability that all intervals of a server hold.
        const PROBABILITY: f64 = 0.95;
        let each = 1.0 - (1.0 - PROBABILITY) / FIGURES.len() as f64;
        let server = &old.name;
        let of = match server.is_empty() {
            true => String::new(),
            false => format!("{server}: "),
        };
        for figure in &FIGURES {
            let (before, after) = ((figure.of)(old), (figure.of)(new));
            let Some(interval) = Interval::of_ratio(&before, &after, each) else {
                continue;
            };
            let verdict = judge(&interval, figure.more_is_better, tolerance);
            if verdict == Verdict::Worse {
                self.worse.push(format!(
                    "{of}{} is {:+.1} % ({:+.1} to {:+.1})",
                    figure.name,
                    per_cent(interval.ratio),
                    per_cent(interval.least),
                    per_cent(interval.most)
                ));
            }
            self.changes.push(Change {
                server: server.clone(),
                figure: figure.name,
                old: geometric_mean(&before),
                new: geometric_mean(&after),
                ratio: interval.ratio,
                least: interval.least,
                most: interval.most,
                verdict,
            });
        }
        let (before, after) = (old.failures(), new.failures());
        // A count that is mostly 0 has no interval: one more failure in a hundred thousand is
        // reported.
        if after > before + 1e-5 {
            self.worse.push(format!(
                "{of}{:.3} % of the requests failed, {:.3} % before",
                after * 100.0,
                before * 100.0
            ));
        }
    }
}

/// A figure has changed if its whole interval lies on one side, beyond the tolerance.
fn judge(interval: &Interval, more_is_better: bool, tolerance: f64) -> Verdict {
    let margin = 1.0 + tolerance / 100.0 + 1e-9;
    let (is_above, is_below) = (interval.least > margin, interval.most < 1.0 / margin);
    match (is_above, is_below) {
        (true, _) if more_is_better => Verdict::Better,
        (_, true) if more_is_better => Verdict::Worse,
        (true, _) => Verdict::Worse,
        (_, true) => Verdict::Better,
        (false, false) => Verdict::Same,
    }
}

fn per_cent(ratio: f64) -> f64 {
    (ratio - 1.0) * 100.0
}

fn geometric_mean(values: &[f64]) -> f64 {
    let sum: f64 = values.iter().map(|value| value.ln()).sum();
    (sum / values.len().max(1) as f64).exp()
}

impl Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = Table::new(["", "old", "new", "change, %", "from", "to", ""]);
        for change in &self.changes {
            let name = match change.server.is_empty() {
                true => change.figure.to_owned(),
                false => format!("{}: {}", change.server, change.figure),
            };
            let show = |value: f64| match value < 1000.0 {
                true => format!("{value:.3}"),
                false => format!("{value:.0}"),
            };
            let verdict = match change.verdict {
                Verdict::Same => "",
                Verdict::Better => "better",
                Verdict::Worse => "worse",
            };
            table.row([
                name,
                show(change.old),
                show(change.new),
                format!("{:+.1}", per_cent(change.ratio)),
                format!("{:+.1}", per_cent(change.least)),
                format!("{:+.1}", per_cent(change.most)),
                verdict.to_owned(),
            ]);
        }
        write!(f, "{table}")?;
        for difference in &self.differences {
            write!(f, "\nwarning: different settings: {difference}")?;
        }
        match self.worse.is_empty() {
            true => write!(f, "\nthe same or better"),
            false => write!(f, "\nworse"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interval(least: f64, most: f64) -> Interval {
        Interval {
            ratio: f64::midpoint(least, most),
            least,
            most,
        }
    }

    #[test]
    fn only_a_whole_interval_is_a_verdict() {
        for (least, most, more_is_better, tolerance, expected) in [
            (0.9, 1.1, true, 0.0, Verdict::Same),
            (0.8, 0.9, true, 0.0, Verdict::Worse),
            (0.8, 0.9, false, 0.0, Verdict::Better),
            (1.1, 1.2, true, 0.0, Verdict::Better),
            (1.1, 1.2, false, 0.0, Verdict::Worse),
            (1.01, 1.02, false, 2.0, Verdict::Same),
        ] {
            let verdict = judge(&interval(least, most), more_is_better, tolerance);
            assert_eq!(verdict, expected, "{least} {most} {more_is_better}");
        }
    }
}
