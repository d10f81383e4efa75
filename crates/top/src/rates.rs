//! What happened between two answers of a server, by second.

use coua::metrics::status::Status;

/// See the module.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rates {
    /// Requests.
    pub(crate) requests: f64,
    /// Keys that were found.
    pub(crate) hits: f64,
    /// Keys that were not.
    pub(crate) misses: f64,
    /// Store commands.
    pub(crate) sets: f64,
    /// Items evicted.
    pub(crate) evicted: f64,
    /// Lookups that flash has answered, and items that went there.
    pub(crate) flash: [f64; 2],
    /// Bytes received.
    pub(crate) received: f64,
    /// Bytes sent.
    pub(crate) sent: f64,
    /// Processors in use.
    pub(crate) processors: f64,
    /// Connections accepted.
    pub(crate) accepted: f64,
    /// Requests of each worker.
    pub(crate) by_worker: Vec<f64>,
    /// Nanoseconds within which half of the requests, 99 of 100 and 999 of 1000 were answered; `None`
    /// without requests.
    pub(crate) quantiles_ns: Option<[u64; 3]>,
    /// Errors by cause, those that happened.
    pub(crate) errors: Vec<(String, f64)>,
}

impl Rates {
    /// From the earlier answer to the later one.
    pub(crate) fn between(before: &Status, after: &Status) -> Rates {
        let seconds = after.uptime_ms.saturating_sub(before.uptime_ms).max(1) as f64 / 1000.0;
        let rate = |before: u64, after: u64| after.saturating_sub(before) as f64 / seconds;
        let (was, is) = (&before.commands, &after.commands);
        let workers = || before.workers.iter().zip(&after.workers);
        let by_worker = workers().map(|(was, is)| rate(was.requests, is.requests));
        let by_worker: Vec<f64> = by_worker.collect();
        let errors = after.errors.iter().filter_map(|(cause, count)| {
            let was = before.errors.get(cause).copied().unwrap_or_default();
            let rate = rate(was, *count);
            (rate > 0.0).then(|| (cause.clone(), rate))
        });
        Rates {
            requests: by_worker.iter().sum(),
            hits: rate(was.get_hits, is.get_hits),
            misses: rate(was.get_misses, is.get_misses),
            sets: rate(was.sets, is.sets),
            evicted: rate(before.removed.evicted, after.removed.evicted),
            flash: match (&before.flash, &after.flash) {
                (Some(was), Some(is)) => [rate(was.hits, is.hits), rate(was.written, is.written)],
                _ => [0.0; 2],
            },
            received: workers()
                .map(|(was, is)| rate(was.received_bytes, is.received_bytes))
                .sum(),
            sent: workers()
                .map(|(was, is)| rate(was.sent_bytes, is.sent_bytes))
                .sum(),
            processors: (after.cpu_seconds - before.cpu_seconds).max(0.0) / seconds,
            accepted: rate(before.connections.accepted, after.connections.accepted),
            by_worker,
            quantiles_ns: quantiles(before, after),
            errors: errors.collect(),
        }
    }

    /// The share of hits among gets; `None` without gets.
    pub(crate) fn hit_share(&self) -> Option<f64> {
        let gets = self.hits + self.misses;
        (gets > 0.0).then(|| self.hits / gets)
    }
}

fn quantiles(before: &Status, after: &Status) -> Option<[u64; 3]> {
    let counts = before.latency.counts.iter().zip(&after.latency.counts);
    let counts: Vec<u64> = counts.map(|(was, is)| is.saturating_sub(*was)).collect();
    let all = counts
        .iter()
        .fold(0_u64, |sum, count| sum.saturating_add(*count));
    if all == 0 {
        return None;
    }
    let within = |share: f64| {
        let rank = (all as f64 * share).ceil();
        let mut seen = 0_u64;
        let ends = after.latency.le_ns.iter().zip(&counts);
        for (end, count) in ends {
            seen = seen.saturating_add(*count);
            if seen as f64 >= rank {
                return *end;
            }
        }
        u64::MAX
    };
    Some([within(0.5), within(0.99), within(0.999)])
}
