//! `stats threads`: what each worker has, and has done since the start, so that a skew shows.

use super::Stats;
use crate::clock::Now;
use crate::output::Output;
use crate::shared::Shared;

/// The most workers that are shown one by one, so that the answer is bounded.
const WORKERS_MAX: usize = 64;

pub(super) fn write(shared: &Shared, _now: Now, output: &mut Output) {
    let mut stats = Stats::new(output);
    for worker in 0..shared.settings.workers.min(WORKERS_MAX) {
        let counters = shared.counters(worker);
        for (name, value) in [
            ("connections", shared.registry.share(worker) as u64),
            ("connections_total", counters.total_connections.value()),
            ("requests", counters.requests.value()),
            ("turns", counters.turns.value()),
            ("bytes_read", counters.bytes_read.value()),
            ("bytes_written", counters.bytes_written.value()),
        ] {
            stats.add(&format!("worker:{worker}:{name}"), value);
        }
    }
    stats.end();
}
