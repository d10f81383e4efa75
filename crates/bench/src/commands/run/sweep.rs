//! A sweep: the same load at several rates, for one server or for several beside each other.

use std::fmt::{self, Display};

use anyhow::ensure;
use serde::Serialize;

use super::csv;
use super::outcome::Outcome;
use super::sample::Sample;
use crate::chart::{Axis, Chart, Panel, Point, Scale, Series};
use crate::commands::load_flags::ReportFlags;
use crate::report::{self, Table};

/// The outcome of a sweep, for programs and for people.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Sweep {
    servers: Vec<Swept>,
}

/// One server, rate by rate.
#[derive(Clone, Debug, Serialize)]
struct Swept {
    name: String,
    rates: Vec<Outcome>,
}

impl Sweep {
    /// From the outcomes of the named servers, all at the same rates.
    pub(crate) fn new(servers: Vec<(String, Vec<Outcome>)>) -> Sweep {
        let servers = servers.into_iter();
        let servers = servers.map(|(name, rates)| Swept { name, rates });
        Sweep {
            servers: servers.collect(),
        }
    }

    /// Each server's outcome at each rate.
    pub(crate) fn outcomes(&self) -> impl Iterator<Item = (&str, &Outcome)> {
        let servers = self.servers.iter();
        servers.flat_map(|server| {
            let rates = server.rates.iter();
            rates.map(|outcome| (server.name.as_str(), outcome))
        })
    }

    /// p99 and p50 over the offered load, on logarithmic axes.
    pub(crate) fn chart(&self, title: &str) -> Chart {
        let panel = |name: &str, of: fn(&Sample) -> f64| Panel {
            title: name.to_owned(),
            x: Axis::new("offered load, requests/s", Scale::Log),
            y: Axis::new("latency from when a request was due, µs", Scale::Log),
            series: self
                .servers
                .iter()
                .map(|server| server.series(of))
                .collect(),
        };
        let load = self.outcomes().next();
        let load = load.map_or_else(String::new, |(_, outcome)| outcome.load.to_string());
        Chart {
            title: title.to_owned(),
            caption: load.lines().map(str::to_owned).collect(),
            panels: vec![
                panel("p99", |s| s.latency_us_p99),
                panel("p50", |s| s.latency_us_p50),
            ],
        }
    }

    /// Prints it as the flags say.
    ///
    /// # Errors
    /// If a value was wrong; everything is printed first.
    pub(crate) fn tell(&self, flags: &ReportFlags) -> anyhow::Result<()> {
        match flags.csv {
            true => report::print(csv::rows(self.outcomes(), flags.by_second))?,
            false => report::show(self, flags.json)?,
        }
        if flags.by_second && !flags.csv && !flags.json {
            for (name, outcome) in self.outcomes() {
                let rate = outcome.rate.unwrap_or(0.0);
                let table = outcome.seconds_table();
                report::print(format_args!("\n{name}, {rate:.0} requests/s\n\n{table}"))?;
            }
        }
        let wrong: u64 = self.outcomes().map(|(_, outcome)| outcome.wrong()).sum();
        ensure!(wrong == 0, "{wrong} values are not those of their keys");
        Ok(())
    }

    fn table(&self) -> Table {
        let mut table = Table::new([
            "",
            "offered/s",
            "answered/s",
            "p50, µs",
            "p99, µs",
            "p99.9, µs",
            "longest, µs",
            "errors",
            "not sent",
            "late, %",
        ]);
        for (name, outcome) in self.outcomes() {
            let show =
                |digits: usize, of: fn(&Sample) -> f64| format!("{:.digits$}", outcome.median(of));
            table.row([
                name.to_owned(),
                format!("{:.0}", outcome.rate.unwrap_or(0.0)),
                show(0, |s| s.requests_per_second),
                show(1, |s| s.latency_us_p50),
                show(1, |s| s.latency_us_p99),
                show(1, |s| s.latency_us_p999),
                show(1, |s| s.latency_us_max),
                show(0, |s| s.errors as f64),
                show(0, |s| s.unsent as f64),
                show(2, |s| 100.0 * s.late as f64 / s.requests.max(1) as f64),
            ]);
        }
        table
    }
}

impl Swept {
    /// One figure over the offered load, with the spread of the measurements, up to the first rate
    /// that the server does not keep up with: above it, latency grows for as long as it is
    /// measured.
    fn series(&self, of: fn(&Sample) -> f64) -> Series {
        /// The share of the offered requests from which on a server keeps up.
        const KEPT: f64 = 0.95;
        let keeps = |outcome: &Outcome| {
            let answered = outcome.median(|sample| sample.requests_per_second);
            answered >= KEPT * outcome.rate.unwrap_or(0.0)
        };
        let kept = self.rates.iter().take_while(|outcome| keeps(outcome));
        let shown = kept.count() + 1;
        let points = self.rates.iter().take(shown).map(|outcome| {
            let values: Vec<f64> = outcome.repetitions.iter().map(of).collect();
            let note = format!("bottleneck: {}", outcome.bottleneck);
            Point::of(outcome.rate.unwrap_or(0.0), &values, note)
        });
        let points = points.filter(|point| point.x > 0.0 && point.least > 0.0);
        Series::measured(self.name.clone(), points.collect())
    }
}

impl Display for Sweep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((_, outcome)) = self.outcomes().next() {
            writeln!(f, "{}", outcome.load)?;
            let count = outcome.repetitions.len();
            writeln!(
                f,
                "open loop, {}; medians of {count}\n",
                outcome.load.arrivals()
            )?;
        }
        write!(f, "{}", self.table())?;
        for (name, outcome) in self.outcomes() {
            let rate = outcome.rate.unwrap_or(0.0);
            for warning in &outcome.warnings {
                write!(f, "\n{name}, {rate:.0}/s: warning: {warning}")?;
            }
        }
        Ok(())
    }
}
