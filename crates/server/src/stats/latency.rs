//! `stats latency`: how long requests take in the server; see [`crate::latency`].

use super::Stats;
use crate::clock::Now;
use crate::latency::{KINDS, Latencies};
use crate::output::Output;
use crate::shared::Shared;

/// The most workers that are shown one by one, so that the answer is bounded.
const WORKERS_MAX: usize = 32;

/// What is shown of a histogram.
const QUANTILES: [(&str, f64); 5] = [
    ("p50_us", 0.5),
    ("p90_us", 0.9),
    ("p99_us", 0.99),
    ("p999_us", 0.999),
    ("longest_us", 1.0),
];

pub(super) fn write(shared: &Shared, _now: Now, output: &mut Output) {
    let mut stats = Stats::new(output);
    let all = shared.latencies();
    for (kind, name) in KINDS.into_iter().enumerate() {
        let count = all.count(kind);
        stats.add(&format!("{name}_count"), count);
        let mean_ns = all.sum_ns(kind).checked_div(count).unwrap_or(0);
        stats.add(&format!("{name}_mean_us"), micros(mean_ns));
        for (quantile, share) in QUANTILES {
            let value = micros(all.quantile_ns(kind, share));
            stats.add(&format!("{name}_{quantile}"), value);
        }
    }
    for worker in 0..shared.settings.workers.min(WORKERS_MAX) {
        let mut own = Latencies::default();
        own.add(shared.latency(worker));
        for (kind, name) in KINDS.into_iter().enumerate() {
            stats.add(&format!("worker:{worker}:{name}_count"), own.count(kind));
            for (quantile, share) in [QUANTILES[0], QUANTILES[2]] {
                let value = micros(own.quantile_ns(kind, share));
                stats.add(&format!("worker:{worker}:{name}_{quantile}"), value);
            }
        }
    }
    stats.end();
}

/// Microseconds with one digit behind the point.
fn micros(ns: u64) -> String {
    format!("{}.{}", ns / 1000, ns / 100 % 10)
}
