//! The outcome of a stretch of load, second by second, so that stalls show.
//!
//! A percentile over a whole run says how many requests were slow, but not when. Latencies are
//! therefore recorded a second time, to two digits, in a histogram of the current second. Counts
//! cost nothing: only the totals at the beginning of each second are kept.
//!
//! # Invariants
//! - There are [`Series::LEN_MAX`] intervals at most. When they are used up, they are merged two by
//!   two, so memory is bounded, however long a run takes.

use std::time::Duration;

use hdrhistogram::Histogram;

use super::clock::nanoseconds;
use super::histogram;

/// Counts and latencies by the second.
#[derive(Clone, Debug)]
pub(super) struct Series {
    interval_ns: u64,
    /// When the current interval ends; `u64::MAX` once the stretch is over.
    until_ns: u64,
    intervals: Vec<Interval>,
}

#[derive(Clone, Debug)]
struct Interval {
    /// Totals when the interval began.
    before: Counts,
    latency_ns: Histogram<u32>,
}

/// Totals of a stretch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) replies: u64,
    pub(super) errors: u64,
}

impl Counts {
    fn add(&mut self, other: Counts) {
        self.replies += other.replies;
        self.errors += other.errors;
    }
}

/// One interval in plain numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Row {
    /// Time from the start of the stretch to that of the interval.
    pub(crate) from: Duration,
    /// Its length: a second, or a power of two of seconds in a long run. The last one may be
    /// shorter, or up to half as long again.
    pub(crate) length: Duration,
    /// Replies that arrived in it.
    pub(crate) replies: u64,
    /// Errors, wrong values, and replies that did not come.
    pub(crate) errors: u64,
    /// Median latency of the replies that arrived in it.
    pub(crate) p50: Duration,
    /// Their 99th percentile.
    pub(crate) p99: Duration,
    /// The longest of them.
    pub(crate) longest: Duration,
}

impl Series {
    const SECOND_NS: u64 = 1_000_000_000;
    /// Most intervals. Each has a histogram of 15 KiB.
    const LEN_MAX: usize = 600;

    /// The series of a stretch that begins at `now_ns`.
    pub(super) fn begin(now_ns: u64) -> Series {
        Series {
            interval_ns: Self::SECOND_NS,
            until_ns: now_ns + Self::SECOND_NS,
            intervals: vec![Interval::new(Counts::default())],
        }
    }

    /// Records latencies in the current interval.
    #[inline]
    pub(super) fn record(&mut self, latency_ns: u64, replies: u64) {
        if let Some(interval) = self.intervals.last_mut() {
            let replies = u32::try_from(replies).unwrap_or(u32::MAX);
            interval.latency_ns.saturating_record_n(latency_ns, replies);
        }
    }

    /// Whether an interval is over.
    #[inline]
    pub(super) fn is_due(&self, now_ns: u64) -> bool {
        now_ns >= self.until_ns
    }

    /// Begins the intervals that are due, with the totals so far. Intervals without replies stay
    /// empty.
    #[cold]
    pub(super) fn advance(&mut self, now_ns: u64, total: Counts) {
        while self.is_due(now_ns) {
            if self.intervals.len() == Self::LEN_MAX {
                self.coarsen();
            }
            self.intervals.push(Interval::new(total));
            self.until_ns = self.until_ns.saturating_add(self.interval_ns);
        }
    }

    /// Merges intervals two by two; those to come are twice as long. If the current one is the
    /// second of a pair, it ends when it would have; otherwise it lasts longer.
    fn coarsen(&mut self) {
        if self.intervals.len() % 2 == 1 {
            self.until_ns = self.until_ns.saturating_add(self.interval_ns);
        }
        self.interval_ns *= 2;
        let mut merged: Vec<Interval> = Vec::with_capacity(self.intervals.len());
        for (place, interval) in self.intervals.drain(..).enumerate() {
            match merged.last_mut() {
                Some(first) if place % 2 == 1 => first.add_latencies(&interval),
                _ => merged.push(interval),
            }
        }
        self.intervals = merged;
    }

    /// Ends the stretch, which took `elapsed`. Replies that come later belong to the last interval.
    /// A remainder of less than half an interval becomes part of the interval before.
    pub(super) fn end(&mut self, elapsed: Duration) {
        self.until_ns = u64::MAX;
        let begun = self.intervals.len() as u64 - 1;
        let rest = nanoseconds(elapsed).saturating_sub(begun * self.interval_ns);
        if begun > 0
            && rest < self.interval_ns / 2
            && let Some(last) = self.intervals.pop()
            && let Some(before) = self.intervals.last_mut()
        {
            before.add_latencies(&last);
        }
    }

    /// Adds what another thread measured in the same time. The totals are those of each thread so
    /// far.
    pub(super) fn add(&mut self, total: Counts, other: &Series, total_of_other: Counts) {
        let mut other = other.clone();
        while self.interval_ns < other.interval_ns {
            self.coarsen();
        }
        while other.interval_ns < self.interval_ns {
            other.coarsen();
        }
        while self.intervals.len() < other.intervals.len() {
            self.intervals.push(Interval::new(total));
        }
        while other.intervals.len() < self.intervals.len() {
            other.intervals.push(Interval::new(total_of_other));
        }
        for (interval, other) in self.intervals.iter_mut().zip(&other.intervals) {
            interval.before.add(other.before);
            interval.add_latencies(other);
        }
    }

    /// All intervals of a stretch that took `elapsed` and came to `total`.
    pub(super) fn rows(&self, elapsed: Duration, total: Counts) -> Vec<Row> {
        let ends = self.intervals.iter().skip(1).map(|next| next.before);
        let ends = ends.chain([total]);
        let interval = Duration::from_nanos(self.interval_ns);
        let mut from = Duration::ZERO;
        let rows = self.intervals.iter().zip(ends).zip(1..);
        let rows = rows.map(|((this, end), place)| {
            let length = match place == self.intervals.len() {
                true => elapsed.saturating_sub(from),
                false => interval,
            };
            let latency = |quantile| this.latency_ns.value_at_quantile(quantile);
            let row = Row {
                from,
                length,
                replies: end.replies.saturating_sub(this.before.replies),
                errors: end.errors.saturating_sub(this.before.errors),
                p50: Duration::from_nanos(latency(0.5)),
                p99: Duration::from_nanos(latency(0.99)),
                longest: Duration::from_nanos(this.latency_ns.max()),
            };
            from += interval;
            row
        });
        rows.collect()
    }

    /// Appends the series as an agent sends it: the interval's length in nanoseconds and the number
    /// of intervals; then for each interval the totals before it, the length of its histogram, and
    /// the histogram in V2 format. All numbers have 8 bytes, little-endian.
    pub(super) fn append(&self, bytes: &mut Vec<u8>) {
        let mut put = |number: u64| bytes.extend_from_slice(&number.to_le_bytes());
        put(self.interval_ns);
        put(self.intervals.len() as u64);
        for interval in &self.intervals {
            let histogram = histogram::to_v2(&interval.latency_ns);
            for number in [
                interval.before.replies,
                interval.before.errors,
                histogram.len() as u64,
            ] {
                bytes.extend_from_slice(&number.to_le_bytes());
            }
            bytes.extend_from_slice(&histogram);
        }
    }

    /// Reads what [`append`](Self::append) wrote; none if the bytes are anything else. Trusts no
    /// number in them.
    pub(super) fn read(mut bytes: &[u8]) -> Option<Series> {
        let bytes = &mut bytes;
        let interval_ns = number(bytes)?;
        let is_known = (interval_ns / Self::SECOND_NS).is_power_of_two()
            && interval_ns.is_multiple_of(Self::SECOND_NS);
        let count = usize::try_from(number(bytes)?).ok()?;
        if !is_known || !(1..=Self::LEN_MAX).contains(&count) {
            return None;
        }
        let mut intervals = Vec::new();
        for _ in 0..count {
            let (replies, errors) = (number(bytes)?, number(bytes)?);
            let len = usize::try_from(number(bytes)?).ok()?;
            let (histogram, rest) = bytes.split_at_checked(len)?;
            *bytes = rest;
            intervals.push(Interval {
                before: Counts { replies, errors },
                latency_ns: histogram::from_v2(histogram, &Interval::no_latencies())?,
            });
        }
        bytes.is_empty().then_some(Series {
            interval_ns,
            until_ns: u64::MAX,
            intervals,
        })
    }
}

/// Takes the next number off what an agent sent.
fn number(bytes: &mut &[u8]) -> Option<u64> {
    let (number, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(u64::from_le_bytes(*number))
}

impl Interval {
    fn new(before: Counts) -> Interval {
        Interval {
            before,
            latency_ns: Self::no_latencies(),
        }
    }

    fn no_latencies() -> Histogram<u32> {
        histogram::empty(2)
    }

    fn add_latencies(&mut self, other: &Interval) {
        self.latency_ns
            .add(&other.latency_ns)
            .expect("both have the same bounds");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = Series::SECOND_NS;

    fn counts(replies: u64, errors: u64) -> Counts {
        Counts { replies, errors }
    }

    fn seconds(count: u64) -> Duration {
        Duration::from_secs(count)
    }

    /// A hundred replies of a microsecond in the first second, none in the second one, and one
    /// reply of a second in the third.
    fn stalled() -> Series {
        let mut series = Series::begin(7);
        series.record(1000, 100);
        assert!(!series.is_due(SECOND));
        series.advance(2 * SECOND + 7, counts(100, 0));
        series.record(SECOND, 1);
        series
    }

    #[test]
    fn a_stall_is_a_second_without_replies() {
        let mut series = stalled();
        series.end(seconds(3));
        let rows = series.rows(seconds(3), counts(101, 1));
        let of = |row: &Row| (row.from.as_secs(), row.replies, row.errors);
        assert_eq!(
            rows.iter().map(of).collect::<Vec<_>>(),
            [(0, 100, 0), (1, 0, 0), (2, 1, 1)]
        );
        assert_eq!(rows[1].longest, Duration::ZERO);
        assert!(rows[2].longest >= seconds(1) && rows[2].length == seconds(1));
    }

    #[test]
    fn a_short_rest_belongs_to_the_second_before() {
        let mut series = stalled();
        let elapsed = Duration::from_millis(2400);
        series.end(elapsed);
        let rows = series.rows(elapsed, counts(101, 0));
        assert_eq!(rows.len(), 2);
        assert_eq!(rows[1].length, Duration::from_millis(1400));
        assert!(rows[1].replies == 1 && rows[1].longest >= seconds(1));
    }

    #[test]
    fn long_runs_have_longer_intervals() {
        let mut series = Series::begin(0);
        let count = 3 * Series::LEN_MAX as u64;
        for second in 1..=count {
            series.record(1000, 1);
            series.advance(second * SECOND, counts(second, 0));
        }
        series.end(seconds(count));
        let rows = series.rows(seconds(count), counts(count, 0));
        assert!(rows.len() <= Series::LEN_MAX);
        assert_eq!(rows.iter().map(|row| row.replies).sum::<u64>(), count);
        assert!(rows.iter().all(|row| row.length == seconds(row.replies)));
    }

    #[test]
    fn threads_add_up_whatever_their_intervals() {
        let mut sum = stalled();
        let mut other = Series::begin(0);
        other.record(5000, 40);
        other.coarsen();
        sum.add(counts(101, 0), &other, counts(40, 2));
        let rows = sum.rows(seconds(3), counts(141, 2));
        let of = |row: &Row| (row.replies, row.errors);
        assert_eq!(rows.iter().map(of).collect::<Vec<_>>(), [(140, 2), (1, 0)]);
    }

    #[test]
    fn an_agents_series_is_read_and_nothing_else() {
        let mut bytes = Vec::new();
        stalled().append(&mut bytes);
        let read = Series::read(&bytes).unwrap();
        let total = counts(101, 0);
        assert_eq!(
            read.rows(seconds(3), total),
            stalled().rows(seconds(3), total)
        );
        let changes: [fn(&mut Vec<u8>); 5] = [
            |bytes| bytes.truncate(30),
            |bytes| bytes.push(0),
            |bytes| bytes[0] ^= 1,
            |bytes| bytes[15] = 0x7f,
            |bytes| bytes[39] = 0x7f,
        ];
        for change in changes {
            let mut bytes = bytes.clone();
            change(&mut bytes);
            assert!(Series::read(&bytes).is_none());
        }
    }
}
