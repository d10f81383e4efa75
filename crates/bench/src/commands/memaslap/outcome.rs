//! What both programs measured, side by side.

use std::fmt::{self, Display};

use serde::Serialize;

use super::distribution::Distribution;
use crate::load::Measured;
use crate::report::{Table, median};

/// One measurement. Latencies are in microseconds.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Sample {
    pub(super) requests_per_second: f64,
    pub(super) mean_us: f64,
    pub(super) geometric_mean_us: f64,
    pub(super) least_us: f64,
    pub(super) longest_us: f64,
    pub(super) distribution: Distribution,
}

impl Sample {
    /// A measurement by this program's own load.
    pub(super) fn of(measured: &Measured) -> Sample {
        let latency_ns = &measured.latency_ns;
        let logarithms = latency_ns.iter_recorded().map(|step| {
            let us = step.value_iterated_to() as f64 / 1000.0;
            step.count_since_last_iteration() as f64 * us.max(1.0).ln()
        });
        let logarithms: f64 = logarithms.sum();
        let count = latency_ns.len().max(1) as f64;
        Sample {
            requests_per_second: measured.rate(),
            mean_us: latency_ns.mean() / 1000.0,
            geometric_mean_us: (logarithms / count).exp(),
            least_us: latency_ns.min() as f64 / 1000.0,
            longest_us: latency_ns.max() as f64 / 1000.0,
            distribution: Distribution::of(latency_ns),
        }
    }

    /// Mean requests in flight, as rate × mean latency (Little's law). A value below the number of
    /// connections means that the latency leaves out some of their time.
    fn under_way(&self) -> f64 {
        self.requests_per_second * self.mean_us / 1e6
    }
}

/// The outcome, for programs and for people.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Outcome {
    /// The load in words.
    pub(super) load: String,
    /// The server.
    pub(super) version: String,
    memaslap: Vec<Sample>,
    coua_bench: Vec<Sample>,
    figures: Vec<Figure>,
}

/// A figure of both.
#[derive(Clone, Debug, Serialize)]
struct Figure {
    name: String,
    digits: usize,
    memaslap: Spread,
    coua_bench: Spread,
    /// coua-bench's median divided by memaslap's.
    ratio: f64,
    /// Whether the ranges of both overlap.
    is_within: bool,
}

/// Median, least and greatest of some measurements.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
struct Spread {
    median: f64,
    least: f64,
    greatest: f64,
}

impl Spread {
    fn of(values: &[f64]) -> Spread {
        Spread {
            median: median(values.iter().copied()),
            least: values.iter().copied().fold(f64::INFINITY, f64::min),
            greatest: values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        }
    }

    fn meets(&self, other: &Spread) -> bool {
        self.least <= other.greatest && other.least <= self.greatest
    }

    fn show(&self, digits: usize) -> String {
        let Spread {
            median,
            least,
            greatest,
        } = self;
        format!("{median:.digits$} ({least:.digits$}–{greatest:.digits$})")
    }
}

/// Reads a figure from a measurement.
type Reader = Box<dyn Fn(&Sample) -> f64>;

/// Percentiles that are compared.
const QUANTILES: [(&str, f64); 4] = [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999)];

impl Outcome {
    /// From measurements that were made in turns.
    pub(super) fn new(
        load: String,
        version: String,
        memaslap: Vec<Sample>,
        coua_bench: Vec<Sample>,
    ) -> Outcome {
        let mut readers: Vec<(String, usize, Reader)> = vec![
            (
                "requests/s".to_owned(),
                0,
                Box::new(|s| s.requests_per_second),
            ),
            ("latency, mean, µs".to_owned(), 0, Box::new(|s| s.mean_us)),
            (
                "geometric mean, µs".to_owned(),
                0,
                Box::new(|s| s.geometric_mean_us),
            ),
            ("least, µs".to_owned(), 0, Box::new(|s| s.least_us)),
        ];
        for (name, quantile) in QUANTILES {
            let read: Reader = Box::new(move |s| s.distribution.latency_us(quantile));
            readers.push((format!("{name}, µs"), 0, read));
        }
        readers.push(("longest, µs".to_owned(), 0, Box::new(|s| s.longest_us)));
        readers.push((
            "requests under way".to_owned(),
            1,
            Box::new(Sample::under_way),
        ));
        let powers = memaslap.iter().chain(&coua_bench);
        let powers = powers.map(|sample| sample.distribution.len()).max();
        for place in 0..powers.unwrap_or(0) {
            let read: Reader = Box::new(move |s| 100.0 * s.distribution.share(place));
            let is_there = memaslap.iter().chain(&coua_bench).any(|s| read(s) >= 0.05);
            if is_there {
                let (above, to) = ((1_u64 << place) / 2, 1_u64 << place);
                readers.push((format!("{above}–{to} µs, %"), 1, read));
            }
        }
        let figures = readers.into_iter().map(|(name, digits, read)| {
            let of = |samples: &[Sample]| {
                let values: Vec<f64> = samples.iter().map(&read).collect();
                Spread::of(&values)
            };
            let (theirs, ours) = (of(&memaslap), of(&coua_bench));
            Figure {
                name,
                digits,
                ratio: ours.median / theirs.median,
                is_within: ours.meets(&theirs),
                memaslap: theirs,
                coua_bench: ours,
            }
        });
        Outcome {
            figures: figures.collect(),
            load,
            version,
            memaslap,
            coua_bench,
        }
    }
}

impl Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rounds = self.memaslap.len();
        writeln!(
            f,
            "{}\n{}; medians of {rounds}, in turns, with the least and the greatest\n",
            self.load, self.version
        )?;
        let headings = ["", "memaslap", "coua-bench", "ratio", "spreads meet"];
        let mut table = Table::new(headings);
        for figure in &self.figures {
            let ratio = match figure.ratio.is_finite() {
                true => format!("{:.2}", figure.ratio),
                false => String::new(),
            };
            table.row([
                figure.name.clone(),
                figure.memaslap.show(figure.digits),
                figure.coua_bench.show(figure.digits),
                ratio,
                if figure.is_within { "yes" } else { "no" }.to_owned(),
            ]);
        }
        writeln!(f, "{table}")?;
        write!(f, "{NOTES}")
    }
}

/// What one must know of both programs to compare them.
const NOTES: &str = "\
Both count from before a request is sent until its reply has been read, for each connection on its
own, and send its next request at once. memaslap looks at the clock after it has written the request
and after it has looked at the reply, coua-bench before the one and before the other. memaslap counts
latencies in powers of two of microseconds; percentiles of both are read from such counts, and so
are apart by less than they seem where most latencies are in one. A closed loop keeps as many
requests under way as there are connections: who serves fewer a second sees each take longer.
memaslap does not warm up: its first requests, and those that it waits for at the end, have fewer
beside them, and are the fastest.";

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(requests_per_second: f64) -> Sample {
        Sample {
            requests_per_second,
            mean_us: 10.0,
            geometric_mean_us: 9.0,
            least_us: 1.0,
            longest_us: 20.0,
            distribution: Distribution::new(vec![0, 0, 0, 5, 5]),
        }
    }

    #[test]
    fn what_lies_apart_is_told() {
        let theirs = [5.0, 6.0, 7.0].map(sample).to_vec();
        let ours = [8.0, 9.0].map(sample).to_vec();
        let outcome = Outcome::new(String::new(), String::new(), theirs, ours);
        let rate = &outcome.figures[0];
        assert_eq!((rate.memaslap.median, rate.coua_bench.least), (6.0, 8.0));
        assert!(!rate.is_within && outcome.figures[1].is_within);
        let shown = outcome.to_string();
        assert!(
            shown.contains(" 6 (5–7) |") && shown.contains("4–8 µs, %"),
            "{shown}"
        );
    }
}
