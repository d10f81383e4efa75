//! The outcome: medians, and ratios to the first side with their spread.

use std::fmt::{self, Display};
use std::time::Duration;

use serde::Serialize;

use super::{Flags, Side};
use crate::link::Passed;
use crate::report::{Table, median};

/// One measurement of one side.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Sample {
    pub(super) requests_per_second: f64,
    /// Frames that the server received and sent.
    frames_in_per_second: f64,
    frames_out_per_second: f64,
    /// Share of the server's time in turns that found frames, where that is known.
    pub(super) server_busy: Option<f64>,
    /// Its time in such turns for each frame that came, in nanoseconds.
    pub(super) server_ns: Option<f64>,
    /// Share of the load's time in turns that found frames.
    pub(super) load_busy: f64,
    /// Frames that were retransmitted, or never answered.
    pub(super) again: u64,
}

impl Sample {
    /// From the number of requests, and the frames that the load sent and received meanwhile.
    pub(super) fn new(requests: u64, elapsed: Duration, passed: Passed) -> Sample {
        let rate = |count: u64| count as f64 / elapsed.as_secs_f64();
        Sample {
            requests_per_second: rate(requests),
            frames_in_per_second: rate(passed.sent),
            frames_out_per_second: rate(passed.received),
            server_busy: None,
            server_ns: None,
            load_busy: 0.0,
            again: 0,
        }
    }
}

/// All samples of a side.
#[derive(Clone, Debug, Serialize)]
struct Row {
    side: Side,
    samples: Vec<Sample>,
    /// Requests per second divided by those of the first side: of the medians, and the least and the
    /// greatest of the rounds.
    ratio: f64,
    ratio_least: f64,
    ratio_greatest: f64,
}

/// The outcome of all sides.
#[derive(Debug, Serialize)]
pub(super) struct Outcome {
    connections: usize,
    depth: usize,
    outstanding: usize,
    key_size: usize,
    value_size: usize,
    seconds: f64,
    rows: Vec<Row>,
}

impl Outcome {
    pub(super) fn new(flags: &Flags) -> Outcome {
        let shape = &flags.shape;
        let rows = flags.sides.iter().map(|&side| Row {
            side,
            samples: Vec::new(),
            ratio: 1.0,
            ratio_least: 1.0,
            ratio_greatest: 1.0,
        });
        Outcome {
            connections: shape.connections,
            depth: shape.depth,
            outstanding: shape.outstanding,
            key_size: shape.key_size,
            value_size: shape.value_size,
            seconds: flags.timing.seconds.as_secs_f64(),
            rows: rows.collect(),
        }
    }

    /// Adds a sample of the side of that number.
    pub(super) fn add(&mut self, at: usize, sample: Sample) {
        self.rows[at].samples.push(sample);
    }

    /// Works out the ratios.
    pub(super) fn finished(mut self) -> Outcome {
        let rates = |row: &Row| -> Vec<f64> {
            let rates = row.samples.iter();
            rates.map(|sample| sample.requests_per_second).collect()
        };
        let first = self.rows.first().map_or(Vec::new(), rates);
        for row in &mut self.rows {
            let own = rates(row);
            let each = || own.iter().zip(&first).map(|(own, first)| own / first);
            row.ratio = median(own.iter().copied()) / median(first.iter().copied());
            row.ratio_least = each().fold(f64::INFINITY, f64::min);
            row.ratio_greatest = each().fold(f64::NEG_INFINITY, f64::max);
        }
        self
    }
}

impl Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rounds = self.rows.first().map_or(0, |row| row.samples.len());
        writeln!(
            f,
            "{} connections, {} requests at once each, {} under way at most, keys of {} bytes, values of \
             {}; medians of {rounds} × {} s, in turns\n",
            self.connections,
            self.depth,
            self.outstanding,
            self.key_size,
            self.value_size,
            self.seconds
        )?;
        let first = self.rows.first().map_or("", |row| row.side.name());
        let ratio = format!("÷ {first}");
        let mut table = Table::new([
            "side",
            "M requests/s",
            "M frames/s in",
            "out",
            &ratio,
            "least",
            "greatest",
            "server busy, %",
            "server, ns a frame",
            "load busy, %",
            "sent again",
        ]);
        for row in &self.rows {
            let middle = |of: fn(&Sample) -> f64| median(row.samples.iter().map(of));
            let known = |of: fn(&Sample) -> Option<f64>| -> Option<f64> {
                let all: Option<Vec<f64>> = row.samples.iter().map(of).collect();
                all.map(median)
            };
            let shown = |value: Option<f64>| match value {
                Some(value) => format!("{value:.0}"),
                None => "?".to_owned(),
            };
            table.row([
                row.side.name().to_owned(),
                format!("{:.3}", middle(|s| s.requests_per_second) / 1e6),
                format!("{:.3}", middle(|s| s.frames_in_per_second) / 1e6),
                format!("{:.3}", middle(|s| s.frames_out_per_second) / 1e6),
                format!("{:.3}", row.ratio),
                format!("{:.3}", row.ratio_least),
                format!("{:.3}", row.ratio_greatest),
                shown(known(|s| s.server_busy.map(|busy| 100.0 * busy))),
                shown(known(|s| s.server_ns)),
                format!("{:.0}", 100.0 * middle(|s| s.load_busy)),
                format!("{:.0}", middle(|s| s.again as f64)),
            ]);
        }
        write!(f, "{table}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_to_the_first_side_in_the_same_round() {
        let row = |side, rates: [u64; 3]| Row {
            side,
            samples: rates
                .map(|rate| Sample::new(rate, Duration::from_secs(1), Passed::default()))
                .into(),
            ratio: 0.0,
            ratio_least: 0.0,
            ratio_greatest: 0.0,
        };
        let outcome = Outcome {
            connections: 1,
            depth: 1,
            outstanding: 1,
            key_size: 1,
            value_size: 1,
            seconds: 1.0,
            rows: vec![
                row(Side::Bare, [100, 200, 400]),
                row(Side::Coua, [80, 180, 200]),
            ],
        };
        let row = &outcome.finished().rows[1];
        let ratios = [row.ratio, row.ratio_least, row.ratio_greatest];
        assert_eq!(ratios, [0.9, 0.5, 0.9]);
    }
}
