//! The outcome of a comparison: medians, and ratios to the first server with their spread.

use std::fmt::{self, Display};

use serde::Serialize;

use super::contest::Side;
use crate::commands::load_flags::LoadFlags;
use crate::commands::run::Sample;
use crate::report::{Table, median};

/// The outcome, for programs and for people.
#[derive(Debug, Serialize)]
pub(super) struct Outcome {
    pub(super) servers: Vec<Side>,
    /// Ratios to the first server.
    ratios: Vec<Ratio>,
    /// The load in words.
    #[serde(skip)]
    load: String,
    /// What the rates are.
    #[serde(skip)]
    headline: String,
}

/// One figure of one server, divided by that of the first.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Ratio {
    server: String,
    figure: String,
    /// The ratio of the medians.
    pub(super) ratio: f64,
    /// The least and the greatest of the repetitions' own ratios.
    pub(super) least: f64,
    pub(super) greatest: f64,
}

/// A figure of a measurement, with its unit.
struct Figure {
    name: &'static str,
    unit: &'static str,
    digits: usize,
    of: fn(&Sample) -> f64,
}

/// The figures from the second column on; the first column has the rates.
const FIGURES: [Figure; 6] = [
    figure("server's CPU a request", "µs", 2, Sample::cpu_us),
    figure("latency, mean", "µs", 1, |s| s.latency_us_mean),
    figure("p50", "µs", 1, |s| s.latency_us_p50),
    figure("p99", "µs", 1, |s| s.latency_us_p99),
    figure("p99.9", "µs", 1, |s| s.latency_us_p999),
    figure("longest", "µs", 1, |s| s.latency_us_max),
];

const fn figure(
    name: &'static str,
    unit: &'static str,
    digits: usize,
    of: fn(&Sample) -> f64,
) -> Figure {
    Figure {
        name,
        unit,
        digits,
        of,
    }
}

impl Outcome {
    /// From the measurements of servers that had this load.
    pub(super) fn new(load: &LoadFlags, servers: Vec<Side>) -> Outcome {
        let headline = match load.find_max {
            true => format!("requests/s with {}", load.bound),
            false => "requests/s".to_owned(),
        };
        let mut outcome = Outcome {
            ratios: Vec::new(),
            load: servers.first().map_or_else(String::new, |side| {
                let pace = match load.rate {
                    Some(rate) => format!("open loop, {rate:.0} requests/s"),
                    None if load.find_max => "open loop, the highest rate searched".to_owned(),
                    None => "closed loop".to_owned(),
                };
                format!("{}\n{pace}", side.outcome.load)
            }),
            headline,
            servers,
        };
        outcome.ratios = outcome.compare();
        outcome
    }

    /// Values that were not those of their keys.
    pub(super) fn wrong(&self) -> u64 {
        self.servers.iter().map(|side| side.outcome.wrong()).sum()
    }

    fn compare(&self) -> Vec<Ratio> {
        let Some((base, others)) = self.servers.split_first() else {
            return Vec::new();
        };
        let mut ratios = Vec::new();
        for side in others {
            let mut add = |figure: &str, values: Vec<f64>, of_base: Vec<f64>| {
                ratios.extend(Ratio::new(&side.name, figure, &values, &of_base));
            };
            add(
                &self.headline,
                side.requests_per_second.clone(),
                base.requests_per_second.clone(),
            );
            for figure in &FIGURES {
                let values = |side: &Side| side.outcome.repetitions.iter().map(figure.of).collect();
                add(figure.name, values(side), values(base));
            }
        }
        ratios
    }

    fn medians(&self) -> Table {
        let headings = ["", self.headline.as_str()].into_iter().map(str::to_owned);
        let figures = FIGURES
            .iter()
            .map(|figure| format!("{}, {}", figure.name, figure.unit));
        let rest = ["hits, %", "server's cores", "busiest thread, %", "load, %"];
        let rest = rest.into_iter().map(str::to_owned);
        let mut table = Table::new(headings.chain(figures).chain(rest));
        for side in &self.servers {
            let samples = &side.outcome.repetitions;
            let show = |digits: usize, of: &dyn Fn(&Sample) -> f64| {
                let value = median(samples.iter().map(of));
                match value.is_finite() {
                    true => format!("{value:.digits$}"),
                    false => String::new(),
                }
            };
            let mut row = vec![
                side.name.clone(),
                format!("{:.0}", median(side.requests_per_second.iter().copied())),
            ];
            row.extend(FIGURES.iter().map(|figure| show(figure.digits, &figure.of)));
            row.push(show(1, &|s| {
                100.0 * s.hits as f64 / (s.hits + s.misses) as f64
            }));
            row.push(show(2, &|s| s.server_cores.unwrap_or(f64::NAN)));
            row.push(show(0, &|s| {
                100.0 * s.server_busiest_thread.unwrap_or(f64::NAN)
            }));
            row.push(show(0, &|s| 100.0 * s.client_busy));
            table.row(row);
        }
        table
    }

    fn ratio_table(&self) -> Option<Table> {
        let base = &self.servers.first()?.name;
        let mut table = Table::new([
            format!("÷ {base}"),
            "ratio of medians".to_owned(),
            "least".to_owned(),
            "greatest".to_owned(),
        ]);
        for ratio in &self.ratios {
            table.row([
                format!("{}: {}", ratio.server, ratio.figure),
                format!("{:.3}", ratio.ratio),
                format!("{:.3}", ratio.least),
                format!("{:.3}", ratio.greatest),
            ]);
        }
        (!self.ratios.is_empty()).then_some(table)
    }
}

impl Ratio {
    /// None if a figure is not known on both sides.
    fn new(server: &str, figure: &str, values: &[f64], of_base: &[f64]) -> Option<Ratio> {
        let each = values.iter().zip(of_base).map(|(value, base)| value / base);
        let each: Vec<f64> = each.collect();
        let ratio = median(values.iter().copied()) / median(of_base.iter().copied());
        let is_known = ratio.is_finite() && each.iter().all(|ratio| ratio.is_finite());
        is_known.then(|| Ratio {
            server: server.to_owned(),
            figure: figure.to_owned(),
            ratio,
            least: each.iter().copied().fold(f64::INFINITY, f64::min),
            greatest: each.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        })
    }
}

impl Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rounds = self.servers.first();
        let rounds = rounds.map_or(0, |side| side.outcome.repetitions.len());
        writeln!(f, "{}; medians of {rounds}, in turns\n", self.load)?;
        writeln!(f, "{}", self.medians())?;
        if let Some(table) = self.ratio_table() {
            writeln!(f, "{table}")?;
        }
        for (index, side) in self.servers.iter().enumerate() {
            let (end, name) = (if index > 0 { "\n" } else { "" }, &side.name);
            let version = side.version.as_deref().unwrap_or("no version asked");
            write!(f, "{end}{name}: {version}, `{}`", side.command)?;
            write!(f, "\n{name}: bottleneck: {}", side.outcome.bottleneck)?;
            if let Some(absences) = side.outcome.absences() {
                write!(f, "\n{name}: {absences}")?;
            }
            for warning in &side.outcome.warnings {
                write!(f, "\n{name}: warning: {warning}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_has_the_spread_of_its_rounds() {
        let ratio = Ratio::new("b", "requests/s", &[10.0, 30.0, 20.0], &[10.0, 10.0, 40.0]);
        let ratio = ratio.unwrap();
        assert_eq!((ratio.ratio, ratio.least, ratio.greatest), (2.0, 0.5, 3.0));
        assert!(Ratio::new("b", "CPU", &[f64::NAN], &[1.0]).is_none());
        assert!(Ratio::new("b", "requests/s", &[1.0], &[0.0]).is_none());
    }
}
