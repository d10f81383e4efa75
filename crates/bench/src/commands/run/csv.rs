//! Measurements as comma-separated values, a column for each figure.

use super::Outcome;
use super::sample::{Sample, Second};
use crate::report::Csv;

/// A column, and the value of a measurement in it; empty where it is not known.
type Column<T> = (&'static str, fn(&T) -> Option<f64>);

const COLUMNS: [Column<Sample>; 25] = [
    ("seconds", |s| Some(s.seconds)),
    ("requests", |s| Some(s.requests as f64)),
    ("requests_per_second", |s| Some(s.requests_per_second)),
    ("hits", |s| Some(s.hits as f64)),
    ("misses", |s| Some(s.misses as f64)),
    ("stored", |s| Some(s.stored as f64)),
    ("not_stored", |s| Some(s.not_stored as f64)),
    ("errors", |s| Some(s.errors as f64)),
    ("wrong", |s| Some(s.wrong as f64)),
    ("lost", |s| Some(s.lost as f64)),
    ("unsent", |s| Some(s.unsent as f64)),
    ("late", |s| Some(s.late as f64)),
    ("bytes_sent_per_second", |s| Some(s.bytes_sent_per_second)),
    ("bytes_received_per_second", |s| {
        Some(s.bytes_received_per_second)
    }),
    ("latency_us_mean", |s| Some(s.latency_us_mean)),
    ("latency_us_p50", |s| Some(s.latency_us_p50)),
    ("latency_us_p90", |s| Some(s.latency_us_p90)),
    ("latency_us_p99", |s| Some(s.latency_us_p99)),
    ("latency_us_p999", |s| Some(s.latency_us_p999)),
    ("latency_us_p9999", |s| Some(s.latency_us_p9999)),
    ("latency_us_max", |s| Some(s.latency_us_max)),
    ("client_busy", |s| Some(s.client_busy)),
    ("server_cores", |s| s.server_cores),
    ("server_busiest_thread", |s| s.server_busiest_thread),
    ("server_busy", |s| s.server_busy),
];

const SECONDS: [Column<Second>; 7] = [
    ("from_seconds", |s| Some(s.from_seconds)),
    ("seconds", |s| Some(s.seconds)),
    ("requests_per_second", |s| Some(s.requests_per_second)),
    ("errors_per_second", |s| Some(s.errors_per_second)),
    ("latency_us_p50", |s| Some(s.latency_us_p50)),
    ("latency_us_p99", |s| Some(s.latency_us_p99)),
    ("latency_us_max", |s| Some(s.latency_us_max)),
];

/// A row for each measurement of each server, or for each second of it.
pub(crate) fn rows<'a>(
    outcomes: impl IntoIterator<Item = (&'a str, &'a Outcome)>,
    by_second: bool,
) -> Csv {
    const FIRST: [&str; 3] = ["server", "rate", "measurement"];
    let names: Vec<&str> = match by_second {
        true => SECONDS.iter().map(|(name, _)| *name).collect(),
        false => COLUMNS.iter().map(|(name, _)| *name).collect(),
    };
    let mut csv = Csv::new(FIRST.into_iter().chain(names));
    for (server, outcome) in outcomes {
        for (sample, number) in outcome.repetitions.iter().zip(1u32..) {
            let rate = outcome.rate.map_or(String::new(), |rate| rate.to_string());
            let first = [server.to_owned(), rate, number.to_string()];
            match by_second {
                true => {
                    for second in &sample.by_second {
                        csv.row(first.iter().cloned().chain(fields(&SECONDS, second)));
                    }
                }
                false => csv.row(first.into_iter().chain(fields(&COLUMNS, sample))),
            }
        }
    }
    csv
}

fn fields<T>(columns: &[Column<T>], of: &T) -> impl Iterator<Item = String> {
    let values = columns.iter().map(|(_, value)| value(of));
    let texts = values.map(|value| value.map_or(String::new(), |value| value.to_string()));
    texts.collect::<Vec<String>>().into_iter()
}
