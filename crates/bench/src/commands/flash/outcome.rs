//! What came of it: tables, and all values as CSV.

use std::fmt::Display;

use serde::Serialize;

use super::sides::Side;
use crate::load::Latencies;
use crate::report::{Csv, Table, median};

/// All that was measured.
#[derive(Debug, Serialize)]
pub(super) struct Outcome {
    pub(super) memory: u64,
    pub(super) flash: u64,
    load_average: String,
    pub(super) capacity: Vec<Capacity>,
    pub(super) hits: Vec<Hits>,
    pub(super) latency: Vec<Latency>,
    pub(super) throughput: Vec<Throughput>,
}

/// A server that was filled with more than it can hold.
#[derive(Debug, Serialize)]
pub(super) struct Capacity {
    pub(super) side: Side,
    pub(super) stored: u32,
    pub(super) refused: u64,
    pub(super) retrievable: u64,
    pub(super) on_flash: u64,
    pub(super) evictions: u64,
    pub(super) flash_used: u64,
    pub(super) resident_empty_kib: u64,
    pub(super) resident_kib: u64,
    pub(super) bytes_written: u64,
    pub(super) index_bytes: Option<u64>,
}

/// A stream on one side.
#[derive(Debug, Serialize)]
pub(super) struct Hits {
    pub(super) side: Side,
    pub(super) stream: String,
    pub(super) keys: u32,
    pub(super) value_size: u64,
    pub(super) gets: u64,
    pub(super) misses: u64,
    pub(super) from_flash: u64,
    pub(super) bytes_written: u64,
    pub(super) resident_kib: u64,
}

/// One request at a time, for keys on flash.
#[derive(Debug, Serialize)]
pub(super) struct Latency {
    pub(super) side: Side,
    pub(super) emptied: bool,
    pub(super) repetition: u32,
    pub(super) gets: u64,
    pub(super) hits: u64,
    pub(super) from_flash: u64,
    pub(super) bytes_written: u64,
    #[serde(flatten)]
    pub(super) latencies: Latencies,
}

/// As many requests as there are connections.
#[derive(Debug, Serialize)]
pub(super) struct Throughput {
    pub(super) side: Side,
    pub(super) emptied: bool,
    pub(super) workers: usize,
    pub(super) sets: f64,
    pub(super) repetition: u32,
    pub(super) gets: u64,
    pub(super) hits: u64,
    pub(super) from_flash: u64,
    pub(super) bytes_written: u64,
    pub(super) cpu_us_per_request: f64,
    pub(super) requests_per_second: f64,
    #[serde(flatten)]
    pub(super) latencies: Latencies,
}

fn name(side: Side, emptied: bool) -> String {
    match emptied {
        true => format!("{}, no page cache", side.name()),
        false => side.name().to_owned(),
    }
}

fn percent(part: u64, whole: u64) -> f64 {
    part as f64 * 100.0 / whole.max(1) as f64
}

fn mib(bytes: u64) -> String {
    format!("{:.0}", bytes as f64 / f64::from(1 << 20))
}

/// The median of a value over the rows of a case, and of the first case's over it, pair by pair.
fn medians<R>(rows: &[&R], others: &[&R], value: impl Fn(&R) -> f64) -> (f64, f64) {
    let pairs = rows
        .iter()
        .zip(others)
        .map(|(row, other)| value(other) / value(row));
    (median(rows.iter().map(|row| value(row))), median(pairs))
}

const SIDES: [(Side, bool); 3] = [
    (Side::Coua, false),
    (Side::Memcached, false),
    (Side::Memcached, true),
];

impl Outcome {
    pub(super) fn new(memory: u64, flash: u64) -> std::io::Result<Outcome> {
        Ok(Outcome {
            memory,
            flash,
            load_average: std::fs::read_to_string("/proc/loadavg")?.trim().to_owned(),
            capacity: Vec::new(),
            hits: Vec::new(),
            latency: Vec::new(),
            throughput: Vec::new(),
        })
    }

    /// Every value, a line each.
    pub(super) fn csv(&self) -> Csv {
        let mut csv = Csv::new([
            "part",
            "server",
            "page_cache",
            "case",
            "repetition",
            "name",
            "value",
        ]);
        let mut add =
            |part: &str, side: Side, emptied, case: &str, nth: u32, name: &str, value: f64| {
                let cache = if emptied { "emptied" } else { "kept" };
                let (nth, value) = (nth.to_string(), value.to_string());
                csv.row([part, side.name(), cache, case, &nth, name, &value]);
            };
        for row in &self.capacity {
            for (name, value) in [
                ("stored", f64::from(row.stored)),
                ("retrievable", row.retrievable as f64),
                ("on_flash", row.on_flash as f64),
                ("evictions", row.evictions as f64),
                ("resident_kib", row.resident_kib as f64),
                ("bytes_written", row.bytes_written as f64),
            ] {
                add("capacity", row.side, false, "", 0, name, value);
            }
        }
        for row in &self.hits {
            for (name, value) in [
                ("value_size", row.value_size as f64),
                ("gets", row.gets as f64),
                ("misses", row.misses as f64),
                ("from_flash", row.from_flash as f64),
                ("resident_kib", row.resident_kib as f64),
                ("bytes_written", row.bytes_written as f64),
            ] {
                add("hits", row.side, false, &row.stream, 0, name, value);
            }
        }
        for row in &self.latency {
            for (name, value) in [
                ("gets", row.gets as f64),
                ("from_flash", row.from_flash as f64),
                ("p50_us", row.latencies.p50),
                ("p99_us", row.latencies.p99),
                ("p999_us", row.latencies.p999),
            ] {
                add(
                    "latency",
                    row.side,
                    row.emptied,
                    "",
                    row.repetition,
                    name,
                    value,
                );
            }
        }
        for row in &self.throughput {
            let case = format!("-t {} sets {}", row.workers, row.sets);
            for (name, value) in [
                ("requests_per_second", row.requests_per_second),
                ("gets", row.gets as f64),
                ("hits", row.hits as f64),
                ("from_flash", row.from_flash as f64),
                ("cpu_us_per_request", row.cpu_us_per_request),
                ("bytes_written", row.bytes_written as f64),
                ("p50_us", row.latencies.p50),
                ("p99_us", row.latencies.p99),
                ("p999_us", row.latencies.p999),
            ] {
                add(
                    "throughput",
                    row.side,
                    row.emptied,
                    &case,
                    row.repetition,
                    name,
                    value,
                );
            }
        }
        csv
    }

    fn show_capacity(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut table = Table::new([
            "capacity",
            "stored",
            "found again",
            "on flash",
            "resident, MiB",
            "bytes of -m a found item",
            "resident bytes a found item",
            "written, MiB",
        ]);
        for row in &self.capacity {
            let found = row.retrievable.max(1) as f64;
            let resident = row.resident_kib << 10;
            table.row([
                row.side.name().to_owned(),
                row.stored.to_string(),
                row.retrievable.to_string(),
                row.on_flash.to_string(),
                mib(resident),
                format!("{:.1}", (self.memory << 20) as f64 / found),
                format!("{:.1}", resident as f64 / found),
                mib(row.bytes_written),
            ]);
        }
        writeln!(f, "{table}")?;
        for row in &self.capacity {
            if let Some(bytes) = row.index_bytes {
                writeln!(
                    f,
                    "coua's index: {} MiB, {:.1} bytes for each item found.",
                    mib(bytes),
                    bytes as f64 / row.retrievable.max(1) as f64
                )?;
            }
        }
        writeln!(f)
    }

    fn show_hits(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut table = Table::new([
            "stream",
            "keys",
            "value",
            "server",
            "hits, %",
            "from flash, %",
            "resident, MiB",
            "written, MiB",
        ]);
        for row in &self.hits {
            table.row([
                row.stream.clone(),
                row.keys.to_string(),
                row.value_size.to_string(),
                row.side.name().to_owned(),
                format!("{:.2}", percent(row.gets - row.misses, row.gets)),
                format!("{:.1}", percent(row.from_flash, row.gets)),
                mib(row.resident_kib << 10),
                mib(row.bytes_written),
            ]);
        }
        writeln!(f, "{table}")
    }

    fn show_latency(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut table = Table::new([
            "latency, us",
            "from flash, %",
            "p50",
            "p99",
            "p99.9",
            "coua's p50 / it",
            "p99 / it",
            "p99.9 / it",
        ]);
        let of = |case| -> Vec<&Latency> {
            self.latency
                .iter()
                .filter(|row| (row.side, row.emptied) == case)
                .collect()
        };
        let coua = of(SIDES[0]);
        for case in SIDES {
            let rows = of(case);
            let all =
                |value: fn(&Latency) -> u64| -> u64 { rows.iter().map(|row| value(row)).sum() };
            let p50 = medians(&rows, &coua, |row| row.latencies.p50);
            let p99 = medians(&rows, &coua, |row| row.latencies.p99);
            let p999 = medians(&rows, &coua, |row| row.latencies.p999);
            table.row([
                name(case.0, case.1),
                format!(
                    "{:.1}",
                    percent(all(|row| row.from_flash), all(|row| row.gets))
                ),
                format!("{:.0}", p50.0),
                format!("{:.0}", p99.0),
                format!("{:.0}", p999.0),
                format!("{:.2}", p50.1),
                format!("{:.2}", p99.1),
                format!("{:.2}", p999.1),
            ]);
        }
        writeln!(f, "{table}")
    }

    fn show_throughput(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut table = Table::new([
            "throughput",
            "-t",
            "sets, %",
            "hits, %",
            "from flash, %",
            "requests/s",
            "coua / it",
            "CPU, us a request",
            "p99, us",
            "written, MiB",
        ]);
        let mut cases: Vec<(usize, f64)> = Vec::new();
        for row in &self.throughput {
            if !cases.contains(&(row.workers, row.sets)) {
                cases.push((row.workers, row.sets));
            }
        }
        for (workers, sets) in cases {
            let of = |case| -> Vec<&Throughput> {
                let rows = self.throughput.iter();
                let rows = rows.filter(|row| (row.workers, row.sets) == (workers, sets));
                rows.filter(|row| (row.side, row.emptied) == case).collect()
            };
            let coua = of(SIDES[0]);
            for case in SIDES {
                let rows = of(case);
                let all = |value: fn(&Throughput) -> u64| -> u64 {
                    rows.iter().map(|row| value(row)).sum()
                };
                let rate = medians(&rows, &coua, |row| row.requests_per_second);
                let gets = all(|row| row.gets);
                table.row([
                    name(case.0, case.1),
                    workers.to_string(),
                    format!("{:.0}", sets * 100.0),
                    format!("{:.1}", percent(all(|row| row.hits), gets)),
                    format!("{:.1}", percent(all(|row| row.from_flash), gets)),
                    format!("{:.0}", rate.0),
                    format!("{:.2}", rate.1),
                    format!(
                        "{:.1}",
                        median(rows.iter().map(|row| row.cpu_us_per_request))
                    ),
                    format!("{:.0}", median(rows.iter().map(|row| row.latencies.p99))),
                    mib(all(|row| row.bytes_written) / rows.len().max(1) as u64),
                ]);
            }
        }
        writeln!(f, "{table}")
    }
}

impl Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(
            f,
            "-m {} and {} MiB of flash for both (hits: four times -m). Load average before: {}.\n",
            self.memory, self.flash, self.load_average
        )?;
        if !self.capacity.is_empty() {
            self.show_capacity(f)?;
        }
        if !self.hits.is_empty() {
            self.show_hits(f)?;
        }
        if !self.latency.is_empty() {
            self.show_latency(f)?;
        }
        if !self.throughput.is_empty() {
            self.show_throughput(f)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_of_pairs() {
        let (rows, others) = ([2.0, 4.0, 8.0], [1.0, 4.0, 16.0]);
        let rows: Vec<&f64> = rows.iter().collect();
        let others: Vec<&f64> = others.iter().collect();
        assert_eq!(medians(&rows, &others, |value| *value), (4.0, 1.0));
    }
}
