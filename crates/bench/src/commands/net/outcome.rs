//! The outcome of a comparison, for people and for programs.

use std::fmt::{self, Display};
use std::str::FromStr;
use std::time::Duration;

use serde::Serialize;

use super::cases::Case;
use super::{Flags, Rates};
use crate::commands::net_load;
use crate::commands::programs::Versions;
use crate::load::{Latencies, Measured};
use crate::report::{Table, median, saturated};

/// Who is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Side {
    /// coua over the link.
    Coua,
    /// memcached on the kernel's TCP.
    Memcached,
    /// The bare service over the link.
    Echo,
    /// coua on the kernel's TCP.
    KernelCoua,
    /// The bare server on the kernel's TCP.
    KernelEcho,
}

impl Side {
    pub(super) fn name(self) -> &'static str {
        match self {
            Side::Coua => "coua",
            Side::Memcached => "memcached",
            Side::Echo => "echo",
            Side::KernelCoua => "coua on the kernel's TCP",
            Side::KernelEcho => "echo on the kernel's TCP",
        }
    }
}

/// A fixed rate.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Rate {
    part: f64,
    of: Side,
}

impl Rate {
    /// The share of a side's highest rate above which it is not tried.
    pub(super) const BEYOND: f64 = 1.05;
}

impl FromStr for Rate {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Rate, &'static str> {
        const EXPECTED: &str = "expected a fraction of memcached's rate (0.5m) or of coua's (0.9c)";
        let (number, of) = match (text.strip_suffix('m'), text.strip_suffix('c')) {
            (Some(number), _) => (number, Side::Memcached),
            (_, Some(number)) => (number, Side::Coua),
            _ => return Err(EXPECTED),
        };
        match number.parse::<f64>() {
            Ok(part) if part > 0.0 && part.is_finite() => Ok(Rate { part, of }),
            _ => Err(EXPECTED),
        }
    }
}

impl Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} × {}'s highest", self.part, self.of.name())
    }
}

/// One measurement of one side.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Sample {
    requests_per_second: f64,
    /// Share of its time in which the server had something to do; if it does not poll, of its core.
    server_busy: Option<f64>,
    client_busy: f64,
    /// Mean frames per turn of the server.
    server_burst: Option<f64>,
    /// The load's time per request, in nanoseconds.
    client_ns: f64,
    hit_ratio: f64,
    retransmitted: u64,
    #[serde(flatten)]
    latency: Latencies,
}

impl Sample {
    pub(super) fn of_link(outcome: &net_load::Outcome) -> Sample {
        Sample {
            requests_per_second: outcome.requests_per_second,
            server_busy: outcome.server.map(|server| server.busy),
            client_busy: outcome.client_busy,
            server_burst: outcome.server.map(|server| server.burst),
            client_ns: outcome.client_ns,
            hit_ratio: outcome.hits as f64 / outcome.gets.max(1) as f64,
            retransmitted: outcome.retransmitted,
            latency: outcome.latency,
        }
    }

    pub(super) fn of_kernel(measured: &Measured, server_cpu: Duration) -> Sample {
        let elapsed = measured.elapsed.as_secs_f64().max(1e-9);
        let client = measured.client_cpu.as_secs_f64();
        Sample {
            requests_per_second: measured.rate(),
            server_busy: Some(server_cpu.as_secs_f64() / elapsed),
            client_busy: client / elapsed,
            server_burst: None,
            client_ns: client * 1e9 / measured.replies.max(1) as f64,
            hit_ratio: measured.hits as f64 / measured.gets.max(1) as f64,
            retransmitted: 0,
            latency: Latencies::of(measured),
        }
    }
}

/// All measurements of one side at one rate, in the order of time.
#[derive(Debug, Serialize)]
struct Series {
    side: Side,
    /// None: as many requests as the side answers.
    rate: Option<Rate>,
    samples: Vec<Sample>,
}

impl Series {
    fn middle(&self, figure: impl Fn(&Sample) -> f64) -> f64 {
        median(self.samples.iter().map(figure))
    }

    /// Which side was saturated.
    fn saturated(&self) -> String {
        let busy: Option<Vec<f64>> = self.samples.iter().map(|s| s.server_busy).collect();
        saturated(busy.map(median), self.middle(|sample| sample.client_busy))
    }
}

/// All measurements of a case.
#[derive(Debug, Serialize)]
pub(super) struct CaseOutcome {
    name: String,
    connections: usize,
    depth: usize,
    series: Vec<Series>,
}

impl CaseOutcome {
    pub(super) fn new(case: &Case) -> CaseOutcome {
        CaseOutcome {
            name: case.name.clone(),
            connections: case.connections,
            depth: case.depth,
            series: Vec::new(),
        }
    }

    pub(super) fn add(&mut self, side: Side, rate: Option<Rate>, sample: Sample) {
        let is_it = |series: &&mut Series| series.side == side && series.rate == rate;
        match self.series.iter_mut().find(is_it) {
            Some(series) => series.samples.push(sample),
            None => self.series.push(Series {
                side,
                rate,
                samples: vec![sample],
            }),
        }
    }

    fn series(&self, side: Side) -> Option<&Series> {
        self.series
            .iter()
            .find(|series| series.side == side && series.rate.is_none())
    }

    /// The highest rate of a side, in requests a second.
    pub(super) fn highest(&self, side: Side) -> f64 {
        self.series(side).map_or(0.0, |series| {
            series.middle(|sample| sample.requests_per_second)
        })
    }

    /// A side's measurements at its highest rate.
    pub(super) fn rates(&self, side: Side) -> Option<Rates> {
        self.series(side).map(|series| Rates {
            per_second: series
                .samples
                .iter()
                .map(|sample| sample.requests_per_second)
                .collect(),
            saturated: series.saturated(),
        })
    }

    /// A fixed rate in requests a second.
    pub(super) fn per_second(&self, rate: Rate) -> f64 {
        rate.part * self.highest(rate.of)
    }

    /// The median of the ratios of neighbours in time.
    fn ratio(&self, side: Side) -> Option<f64> {
        let (own, other) = (self.series(Side::Coua)?, self.series(side)?);
        let pairs = own.samples.iter().zip(&other.samples);
        Some(median(pairs.map(|(own, other)| {
            own.requests_per_second / other.requests_per_second
        })))
    }
}

/// All cases of a run.
#[derive(Debug, Serialize)]
pub(super) struct Outcome {
    #[serde(flatten)]
    pub(super) versions: Versions,
    link: &'static str,
    rounds: u32,
    seconds: f64,
    outstanding: usize,
    key_size: usize,
    pub(super) cases: Vec<CaseOutcome>,
}

impl Outcome {
    pub(super) fn new(flags: &Flags) -> Outcome {
        Outcome {
            versions: Versions::default(),
            link: flags.link.name(),
            rounds: flags.timing.rounds,
            seconds: flags.timing.seconds.as_secs_f64(),
            outstanding: flags.outstanding,
            key_size: flags.key_size,
            cases: Vec::new(),
        }
    }

    fn rates(&self) -> Table {
        let mut table = Table::new([
            "M requests/s",
            "coua",
            "echo",
            "memcached",
            "÷ memcached",
            "÷ echo",
            "frames a turn",
            "saturated: coua",
            "echo",
            "load, ns",
            "sent again",
            "hits",
        ]);
        for case in &self.cases {
            let millions = |side| {
                let series = case.series(side);
                series.map_or(String::new(), |_| {
                    let millions = case.highest(side) / 1e6;
                    let digits = if millions < 0.1 { 4 } else { 3 };
                    format!("{millions:.digits$}")
                })
            };
            let ratio = |side, digits: usize| {
                let ratio = case.ratio(side);
                ratio.map_or(String::new(), |ratio| format!("{ratio:.digits$}"))
            };
            let saturated = |side| case.series(side).map_or(String::new(), Series::saturated);
            let Some(own) = case.series(Side::Coua) else {
                continue;
            };
            let again: u64 = own.samples.iter().map(|sample| sample.retransmitted).sum();
            let burst = own.middle(|sample| sample.server_burst.unwrap_or(0.0));
            table.row([
                case.name.clone(),
                millions(Side::Coua),
                millions(Side::Echo),
                millions(Side::Memcached),
                ratio(Side::Memcached, 1),
                ratio(Side::Echo, 2),
                format!("{burst:.1}"),
                saturated(Side::Coua),
                saturated(Side::Echo),
                format!("{:.0}", own.middle(|sample| sample.client_ns)),
                again.to_string(),
                format!("{:.3}", own.middle(|sample| sample.hit_ratio)),
            ]);
        }
        table
    }

    fn latencies(&self) -> Table {
        let mut table = Table::new([
            "latency, µs",
            "requests/s",
            "asked for",
            "p50",
            "p99",
            "p99.9",
            "longest",
            "saturated",
        ]);
        for case in &self.cases {
            for series in &case.series {
                let asked = match series.rate {
                    Some(rate) => format!("{:.0} ({rate})", case.per_second(rate)),
                    None => "as many as can be".to_owned(),
                };
                let middle = |figure: fn(&Sample) -> f64| format!("{:.1}", series.middle(figure));
                table.row([
                    format!("{}, {}", case.name, series.side.name()),
                    format!("{:.0}", series.middle(|sample| sample.requests_per_second)),
                    asked,
                    middle(|sample| sample.latency.p50),
                    middle(|sample| sample.latency.p99),
                    middle(|sample| sample.latency.p999),
                    middle(|sample| sample.latency.max),
                    series.saturated(),
                ]);
            }
        }
        table
    }
}

impl Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "coua {} on its own TCP stack over {}, memcached {} on the kernel's; one worker each on \
             one core, the load on another.",
            self.versions.coua, self.link, self.versions.memcached
        )?;
        writeln!(
            f,
            "Keys of {} bytes; medians of {} interleaved measurements of {} s. Over the link at most \
             {} requests are under way; memcached has 64 connections, one request at a time on each.",
            self.key_size, self.rounds, self.seconds, self.outstanding
        )?;
        writeln!(
            f,
            "`Saturated` is who was busy for 95 % of the time, by turns that found frames; the echo \
             does not tell.\n"
        )?;
        writeln!(f, "{}", self.rates())?;
        write!(f, "{}", self.latencies())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_parts_of_a_sides_highest() {
        let half = "0.5m".parse();
        assert_eq!(
            half,
            Ok(Rate {
                part: 0.5,
                of: Side::Memcached
            })
        );
        assert_eq!(
            "1c".parse(),
            Ok(Rate {
                part: 1.0,
                of: Side::Coua
            })
        );
        for wrong in ["", "m", "0m", "1", "infc", "-1c"] {
            assert!(wrong.parse::<Rate>().is_err(), "{wrong}");
        }
    }
}
