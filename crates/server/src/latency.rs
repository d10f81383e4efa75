//! How long requests take: a histogram for each worker and kind of request.
//!
//! A worker executes requests in batches, so it looks at the clock twice a turn, not twice a
//! request. Every request of a batch counts with the time from when the worker had seen what was
//! ready until the last reply of the batch was on its way. That is at least the time that the
//! request itself took in the server. What a request waits before that, in the socket or the card
//! while an earlier turn is under way, is not in it.
//!
//! ```text
//! bucket   0        1             2     3     4     5          …     104
//! from   < 256 ns   256 ns        320   384   448   512        …     15 s and more
//!                   four buckets for each doubling: a value is known to a quarter of itself
//! ```

use std::time::Duration;

use crate::counters::{Counter, Counters};

/// Kinds of requests that are told apart.
pub const KINDS: [&str; 3] = ["get", "set", "other"];

/// The first doubling that has buckets of its own, as a power of two of nanoseconds.
const FIRST_POWER: u32 = 8;
/// The first that has none any more.
const LAST_POWER: u32 = 34;
/// Buckets for each doubling, as a power of two.
const PARTS_POWER: u32 = 2;
/// All buckets.
const BUCKETS: usize = 1 + ((LAST_POWER - FIRST_POWER) << PARTS_POWER) as usize;

/// The histograms of one worker. Only that worker writes to them.
#[derive(Debug)]
#[repr(align(128))]
pub struct Latency {
    counts: [[Counter; BUCKETS]; KINDS.len()],
    sum_ns: [Counter; KINDS.len()],
}

impl Default for Latency {
    fn default() -> Latency {
        Latency {
            counts: std::array::from_fn(|_| std::array::from_fn(|_| Counter::default())),
            sum_ns: Default::default(),
        }
    }
}

/// How many requests of each kind a worker has executed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Executed([u64; KINDS.len()]);

impl Executed {
    /// What the counters say at this moment.
    #[inline]
    pub fn of(counters: &Counters) -> Executed {
        let all = counters.requests.value();
        let [gets, sets] = [counters.cmd_get.value(), counters.cmd_set.value()];
        Executed([gets, sets, all.saturating_sub(gets).saturating_sub(sets)])
    }
}

impl Latency {
    /// Counts what was executed between two moments, in a turn that took `took`.
    #[inline]
    pub fn note(&self, before: Executed, after: Executed, took: Duration) {
        let took_ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        let bucket = bucket_of(took_ns);
        for kind in 0..KINDS.len() {
            let count = after.0[kind].saturating_sub(before.0[kind]);
            if count > 0 {
                self.counts[kind][bucket].add(count);
                self.sum_ns[kind].add(took_ns.saturating_mul(count));
            }
        }
    }
}

/// The bucket of a time.
#[inline]
fn bucket_of(ns: u64) -> usize {
    let power = ns.max(1).ilog2();
    if power < FIRST_POWER {
        return 0;
    }
    if power >= LAST_POWER {
        return BUCKETS - 1;
    }
    let part = (ns >> (power - PARTS_POWER) & ((1 << PARTS_POWER) - 1)) as usize;
    1 + (((power - FIRST_POWER) << PARTS_POWER) as usize) + part
}

/// The shortest time that is beyond a bucket, in nanoseconds.
fn end_of(bucket: usize) -> u64 {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "there are a hundred buckets"
    )]
    let power = FIRST_POWER + (bucket >> PARTS_POWER) as u32;
    let part = (bucket & ((1 << PARTS_POWER) - 1)) as u64;
    (1 << power) + (part << (power - PARTS_POWER))
}

/// Histograms as they were at one moment: of one worker, or of several added up.
#[derive(Clone, Debug)]
pub struct Latencies {
    counts: [[u64; BUCKETS]; KINDS.len()],
    sum_ns: [u64; KINDS.len()],
}

impl Default for Latencies {
    fn default() -> Latencies {
        Latencies {
            counts: [[0; BUCKETS]; KINDS.len()],
            sum_ns: [0; KINDS.len()],
        }
    }
}

impl Latencies {
    /// Adds a worker's histograms.
    pub fn add(&mut self, worker: &Latency) {
        for kind in 0..KINDS.len() {
            for (sum, count) in self.counts[kind].iter_mut().zip(&worker.counts[kind]) {
                *sum = sum.wrapping_add(count.value());
            }
            self.sum_ns[kind] = self.sum_ns[kind].wrapping_add(worker.sum_ns[kind].value());
        }
    }

    /// What has been counted since `before`.
    pub fn since(mut self, before: &Latencies) -> Latencies {
        for kind in 0..KINDS.len() {
            for (count, before) in self.counts[kind].iter_mut().zip(&before.counts[kind]) {
                *count = count.wrapping_sub(*before);
            }
            self.sum_ns[kind] = self.sum_ns[kind].wrapping_sub(before.sum_ns[kind]);
        }
        self
    }

    /// Requests of a kind, by its place in [`KINDS`].
    pub fn count(&self, kind: usize) -> u64 {
        self.counts[kind].iter().sum()
    }

    /// The sum of their times, in nanoseconds.
    pub fn sum_ns(&self, kind: usize) -> u64 {
        self.sum_ns[kind]
    }

    /// The time within which `share` of the requests of a kind were answered, in nanoseconds: the
    /// end of the bucket that it falls into. 0 without requests.
    pub fn quantile_ns(&self, kind: usize, share: f64) -> u64 {
        let all = self.count(kind);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a share of a count is at most the count"
        )]
        let rank = ((all as f64 * share).ceil() as u64).clamp(1, all.max(1));
        let mut seen = 0;
        for (bucket, count) in self.counts[kind].iter().enumerate() {
            seen += count;
            if seen >= rank {
                return end_of(bucket);
            }
        }
        0
    }

    /// Where each bucket ends, in nanoseconds, and how many requests of all kinds are in it.
    pub fn by_bucket(&self) -> impl Iterator<Item = (u64, u64)> {
        (0..BUCKETS).map(|bucket| {
            let counts = self.counts.iter().map(|kind| kind[bucket]);
            (end_of(bucket), counts.sum())
        })
    }

    /// How many requests of a kind took less than each power of four of nanoseconds, from about a
    /// microsecond to four seconds; each with that power.
    pub fn by_powers_of_four(&self, kind: usize) -> impl Iterator<Item = (u64, u64)> {
        (10..=32).step_by(2).map(move |power: u32| {
            let end = 1 + ((power - FIRST_POWER) << PARTS_POWER) as usize;
            (1 << power, self.counts[kind][..end].iter().sum())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_in_the_bucket_that_ends_behind_it() {
        assert_eq!(bucket_of(0), 0);
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
        let mut last = 0;
        for ns in (0..20_000).chain((15..33).flat_map(|power| [1 << power, (1 << power) + 7])) {
            let bucket = bucket_of(ns);
            assert!(bucket >= last, "{ns}");
            assert!(ns < end_of(bucket), "{ns} is beyond its bucket");
            assert!(bucket == 0 || ns >= end_of(bucket - 1), "{ns} is before it");
            last = bucket;
        }
        assert_eq!(bucket_of((1 << LAST_POWER) - 1), BUCKETS - 1);
    }

    #[test]
    fn requests_count_by_kind_and_time() {
        let worker = Latency::default();
        let before = Executed([5, 1, 0]);
        worker.note(before, Executed([104, 1, 0]), Duration::from_nanos(1000));
        worker.note(before, Executed([6, 2, 0]), Duration::from_millis(3));
        let mut all = Latencies::default();
        all.add(&worker);
        assert_eq!([all.count(0), all.count(1), all.count(2)], [100, 1, 0]);
        assert_eq!(all.sum_ns(0), 99 * 1000 + 3_000_000);
        // A quarter of a doubling beyond the time at most.
        assert_eq!(all.quantile_ns(0, 0.5), 1024);
        assert_eq!(all.quantile_ns(0, 0.99), 1024);
        assert!((3_000_000..4_000_000).contains(&all.quantile_ns(0, 1.0)));
        assert_eq!(all.quantile_ns(2, 0.5), 0);
        let powers: Vec<_> = all.by_powers_of_four(0).collect();
        assert_eq!(powers[0], (1024, 99));
        assert_eq!(powers.last(), Some(&(1 << 32, 100)));
        let none = all.clone().since(&all);
        assert_eq!(none.count(0), 0);
    }
}
