//! What a stretch of load came to.

use std::time::Duration;

use hdrhistogram::Histogram;

use super::plan::Plan;
use crate::workload::Op;

/// Counts and latencies of one stretch of load, of one thread or of several.
#[derive(Clone, Debug)]
pub(crate) struct Measured {
    /// Time from start to end.
    pub(crate) elapsed: Duration,
    /// CPU time of the load threads, less what they spent looking at the clock.
    pub(crate) client_cpu: Duration,
    /// Replies, whatever they were; a multi-get counts once.
    pub(crate) replies: u64,
    /// Requests for values among them.
    pub(crate) gets: u64,
    /// Replies by operation, at the place of [`Op`].
    pub(crate) by_op: [u64; Op::NAMES.len()],
    /// Values that came back and were right, and other operations that found their key.
    pub(crate) hits: u64,
    /// Keys that were asked for and not found.
    pub(crate) misses: u64,
    /// Values that the server stored.
    pub(crate) stored: u64,
    /// Values that it did not store for a reason of the operation, as an add to a key that is there.
    pub(crate) not_stored: u64,
    /// Requests that the server answered with an error.
    pub(crate) refused: u64,
    /// Values that came back and do not belong to their key.
    pub(crate) wrong: u64,
    /// Requests in datagrams whose reply did not come in time.
    pub(crate) lost: u64,
    /// Requests that were due and had not been sent when an open loop ended; their latency is the
    /// time for which they had waited then.
    pub(crate) unsent: u64,
    /// Requests that left more than [`LATE`](Self::LATE) after they were due though a connection was
    /// free: the load generator's own fault.
    pub(crate) late: u64,
    /// Bytes received.
    pub(crate) received: u64,
    /// Bytes sent.
    pub(crate) sent: u64,
    /// In a closed loop the time from the write of a burst to the read of each of its replies, in an
    /// open loop that from when a request was due; in nanoseconds, to three digits.
    pub(crate) latency_ns: Histogram<u64>,
    /// What the first error, or the first wrong value, looked like.
    pub(crate) example: Option<Box<str>>,
}

impl Measured {
    const LATENCY_NS_MAX: u64 = 60_000_000_000;
    /// How late a request may leave before it counts as late.
    pub(crate) const LATE: Duration = Duration::from_millis(1);

    /// Nothing yet.
    pub(crate) fn new() -> Measured {
        Measured {
            elapsed: Duration::ZERO,
            client_cpu: Duration::ZERO,
            replies: 0,
            gets: 0,
            by_op: [0; Op::NAMES.len()],
            hits: 0,
            misses: 0,
            stored: 0,
            not_stored: 0,
            refused: 0,
            wrong: 0,
            lost: 0,
            unsent: 0,
            late: 0,
            received: 0,
            sent: 0,
            latency_ns: Histogram::new_with_max(Self::LATENCY_NS_MAX, 3)
                .expect("the bounds are in order"),
            example: None,
        }
    }

    /// Records `replies` replies that came back after the latency.
    #[inline]
    pub(crate) fn record(&mut self, latency_ns: u64, replies: u64) {
        self.latency_ns.saturating_record_n(latency_ns, replies);
    }

    /// Counts a reply.
    #[inline]
    pub(super) fn reply(&mut self, op: Op) {
        self.replies += 1;
        self.gets += u64::from(op.reads());
        self.by_op[op as usize] += 1;
    }

    /// Counts a value that came back.
    #[inline]
    pub(super) fn value(&mut self, plan: &Plan, number: u32, right: bool) {
        if right {
            self.hits += 1;
            return;
        }
        self.wrong += 1;
        self.example.get_or_insert_with(|| {
            let mut key = Vec::new();
            plan.keys.append(number, &mut key);
            let key = String::from_utf8_lossy(&key);
            format!("the value of {key} is not the one that belongs to it").into()
        });
    }

    /// Counts an error of the server.
    pub(super) fn error(&mut self, op: Op, text: &[u8]) {
        const SHOWN: usize = 100;
        self.refused += 1;
        self.example.get_or_insert_with(|| {
            let text = String::from_utf8_lossy(&text[..text.len().min(SHOWN)]);
            format!("{} was answered with {text:?}", op.name()).into()
        });
    }

    /// Adds what another thread measured in the same time.
    pub(crate) fn add(&mut self, other: &Measured) {
        self.elapsed = self.elapsed.max(other.elapsed);
        self.client_cpu += other.client_cpu;
        for (sum, count) in self.by_op.iter_mut().zip(other.by_op) {
            *sum += count;
        }
        for (sum, count) in [
            (&mut self.replies, other.replies),
            (&mut self.gets, other.gets),
            (&mut self.hits, other.hits),
            (&mut self.misses, other.misses),
            (&mut self.stored, other.stored),
            (&mut self.not_stored, other.not_stored),
            (&mut self.refused, other.refused),
            (&mut self.wrong, other.wrong),
            (&mut self.lost, other.lost),
            (&mut self.unsent, other.unsent),
            (&mut self.late, other.late),
            (&mut self.received, other.received),
            (&mut self.sent, other.sent),
        ] {
            *sum += count;
        }
        self.latency_ns
            .add(&other.latency_ns)
            .expect("both have the same bounds");
        if self.example.is_none() {
            self.example.clone_from(&other.example);
        }
    }

    /// Replies a second.
    pub(crate) fn rate(&self) -> f64 {
        self.replies as f64 / self.elapsed.as_secs_f64().max(1e-9)
    }

    /// The latency that this fraction of replies was not above.
    pub(crate) fn latency(&self, quantile: f64) -> Duration {
        Duration::from_nanos(self.latency_ns.value_at_quantile(quantile))
    }

    /// The mean latency.
    pub(crate) fn latency_mean(&self) -> Duration {
        Duration::from_secs_f64(self.latency_ns.mean() / 1e9)
    }

    /// The longest latency.
    pub(crate) fn latency_max(&self) -> Duration {
        Duration::from_nanos(self.latency_ns.max())
    }
}

/// Latencies on their way into the histogram: those that are equal go in together, as all of a burst
/// do.
#[derive(Debug, Default)]
pub(super) struct Run {
    at_ns: u64,
    replies: u64,
}

impl Run {
    /// A reply came now to a request of then.
    #[inline]
    pub(super) fn count(&mut self, at_ns: u64, now_ns: u64, measured: &mut Measured) {
        if at_ns != self.at_ns {
            self.flush(now_ns, measured);
            self.at_ns = at_ns;
        }
        self.replies += 1;
    }

    /// Records what has gathered.
    #[inline]
    pub(super) fn flush(&mut self, now_ns: u64, measured: &mut Measured) {
        if self.replies > 0 {
            measured.record(now_ns.saturating_sub(self.at_ns), self.replies);
            self.replies = 0;
        }
    }
}
