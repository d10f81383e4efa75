//! What a stretch of load came to.

use std::time::Duration;

use hdrhistogram::Histogram;

/// Counts and latencies of one stretch of load, of one thread or of several.
#[derive(Clone, Debug)]
pub(crate) struct Measured {
    /// Time from start to end.
    pub(crate) elapsed: Duration,
    /// CPU time of the load threads.
    pub(crate) client_cpu: Duration,
    /// Replies, whatever they were; a multi-get counts once.
    pub(crate) replies: u64,
    /// Get requests among them.
    pub(crate) gets: u64,
    /// Values that came back.
    pub(crate) hits: u64,
    /// Sets that the server refused.
    pub(crate) refused: u64,
    /// Time from the write of a burst to the read of each of its replies, in nanoseconds, to three
    /// digits.
    pub(crate) latency_ns: Histogram<u64>,
}

impl Measured {
    const LATENCY_NS_MAX: u64 = 60_000_000_000;

    /// Nothing yet.
    pub(crate) fn new() -> Measured {
        Measured {
            elapsed: Duration::ZERO,
            client_cpu: Duration::ZERO,
            replies: 0,
            gets: 0,
            hits: 0,
            refused: 0,
            latency_ns: Histogram::new_with_max(Self::LATENCY_NS_MAX, 3)
                .expect("the bounds are in order"),
        }
    }

    /// Records `replies` replies that came back after `latency`.
    pub(crate) fn record(&mut self, latency: Duration, replies: u64) {
        let nanoseconds = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        self.latency_ns.saturating_record_n(nanoseconds, replies);
        self.replies += replies;
    }

    /// Adds what another thread measured in the same time.
    pub(crate) fn add(&mut self, other: &Measured) {
        self.elapsed = self.elapsed.max(other.elapsed);
        self.client_cpu += other.client_cpu;
        self.replies += other.replies;
        self.gets += other.gets;
        self.hits += other.hits;
        self.refused += other.refused;
        self.latency_ns
            .add(&other.latency_ns)
            .expect("both have the same bounds");
    }

    /// Replies a second.
    pub(crate) fn rate(&self) -> f64 {
        self.replies as f64 / self.elapsed.as_secs_f64().max(1e-9)
    }

    /// The latency that this fraction of replies was not above.
    pub(crate) fn latency(&self, quantile: f64) -> Duration {
        Duration::from_nanos(self.latency_ns.value_at_quantile(quantile))
    }

    /// The longest latency.
    pub(crate) fn latency_max(&self) -> Duration {
        Duration::from_nanos(self.latency_ns.max())
    }
}
