//! The outcome of a stretch of load.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use super::absence::Absences;
use super::clock::nanoseconds;
use super::histogram;
use super::plan::Plan;
use super::series::{Counts, Row, Series};
use crate::workload::Op;

/// Counts and latencies of one stretch of load, of one thread or of several. serde leaves the
/// latencies out.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Measured {
    /// Time from start to end.
    pub(crate) elapsed: Duration,
    /// CPU time of this machine's load threads without the time that they spent polling.
    pub(crate) client_cpu: Duration,
    /// How busy agents were.
    #[serde(skip)]
    pub(crate) agents: Vec<AgentBusy>,
    /// Replies of any kind; a multi-get counts once.
    pub(crate) replies: u64,
    /// How many of them were to requests for values.
    pub(crate) gets: u64,
    /// Replies by operation, indexed by [`Op`].
    pub(crate) by_op: [u64; Op::NAMES.len()],
    /// Values that were returned and right, and other operations that found their key.
    pub(crate) hits: u64,
    /// Keys that were asked for and not found.
    pub(crate) misses: u64,
    /// Values that the server stored.
    pub(crate) stored: u64,
    /// Values that were not stored for a reason of the operation, such as an add of an existing
    /// key.
    pub(crate) not_stored: u64,
    /// Requests that the server answered with an error.
    pub(crate) refused: u64,
    /// Values that were returned and do not match their key.
    pub(crate) wrong: u64,
    /// Requests in datagrams whose reply did not arrive in time.
    pub(crate) lost: u64,
    /// Requests that were due but not sent when an open loop ended. Their latency is how long they
    /// had waited by then.
    pub(crate) unsent: u64,
    /// Requests that were sent more than [`LATE`](Self::LATE) after they were due although a
    /// connection was free: a fault of the load generator.
    pub(crate) late: u64,
    /// Bytes received.
    pub(crate) received: u64,
    /// Bytes sent.
    pub(crate) sent: u64,
    /// Latencies in nanoseconds, to three digits. In a closed loop they count from the sending of a
    /// burst to each of its replies; in an open loop from when a request was due.
    #[serde(skip, default = "Measured::no_latencies")]
    pub(crate) latency_ns: Histogram<u64>,
    /// Slow replies since the last turn, if `--gaps` examines them.
    #[serde(skip)]
    slow: Option<Slow>,
    /// Which side had no CPU when replies were slow, with `--gaps`.
    pub(crate) absences: Option<Absences>,
    /// Latencies second by second, if they are kept.
    #[serde(skip)]
    series: Option<Series>,
    /// The first error, or the first wrong value.
    pub(crate) example: Option<Box<str>>,
}

/// Replies that took longer than a limit, since [`Measured::take_slow`] last took them.
#[derive(Clone, Copy, Debug)]
struct Slow {
    limit_ns: u64,
    replies: u64,
    longest_ns: u64,
}

impl Slow {
    fn note(&mut self, latency_ns: u64, replies: u64) {
        if latency_ns > self.limit_ns {
            self.replies += replies;
            self.longest_ns = self.longest_ns.max(latency_ns);
        }
    }
}

/// The latencies that are reported, in microseconds.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Latencies {
    #[serde(rename = "latency_us_p50")]
    pub(crate) p50: f64,
    #[serde(rename = "latency_us_p99")]
    pub(crate) p99: f64,
    #[serde(rename = "latency_us_p999")]
    pub(crate) p999: f64,
    #[serde(rename = "latency_us_max")]
    pub(crate) max: f64,
}

impl Latencies {
    /// Those of a load.
    pub(crate) fn of(measured: &Measured) -> Latencies {
        Latencies {
            p50: microseconds(measured.latency(0.5)),
            p99: microseconds(measured.latency(0.99)),
            p999: microseconds(measured.latency(0.999)),
            max: microseconds(measured.latency_max()),
        }
    }
}

/// A time in microseconds.
pub(crate) fn microseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

/// How busy the load threads of an agent were.
#[derive(Clone, Debug)]
pub(crate) struct AgentBusy {
    /// Its address.
    pub(crate) agent: String,
    /// The average share of their time in which they worked.
    pub(crate) busy: f64,
}

impl Measured {
    /// How late a request may leave before it counts as late.
    pub(crate) const LATE: Duration = Duration::from_millis(1);

    /// An empty one.
    pub(crate) fn new() -> Measured {
        Measured {
            elapsed: Duration::ZERO,
            client_cpu: Duration::ZERO,
            agents: Vec::new(),
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
            latency_ns: Self::no_latencies(),
            slow: None,
            absences: None,
            series: None,
            example: None,
        }
    }

    fn no_latencies() -> Histogram<u64> {
        histogram::empty(3)
    }

    /// The latencies as an agent sends them: the length of the histogram, 8 bytes LE; the histogram
    /// in HdrHistogram's V2 format; and those of each second ([`Series::append`]), if they are
    /// kept.
    pub(super) fn latencies(&self) -> Vec<u8> {
        let histogram = histogram::to_v2(&self.latency_ns);
        let mut bytes = (histogram.len() as u64).to_le_bytes().to_vec();
        bytes.extend_from_slice(&histogram);
        if let Some(series) = &self.series {
            series.append(&mut bytes);
        }
        bytes
    }

    /// Reads latencies in that format; `None` if they are malformed or have other bounds.
    pub(super) fn read_latencies(&mut self, bytes: &[u8]) -> Option<()> {
        let (len, bytes) = bytes.split_first_chunk()?;
        let len = usize::try_from(u64::from_le_bytes(*len)).ok()?;
        let (histogram, series) = bytes.split_at_checked(len)?;
        self.latency_ns = histogram::from_v2(histogram, &Self::no_latencies())?;
        self.series = match series.is_empty() {
            true => None,
            false => Some(Series::read(series)?),
        };
        Some(())
    }

    /// From now on, notes replies that take longer than this.
    pub(super) fn note_slow(&mut self, limit: Duration) {
        self.slow = Some(Slow {
            limit_ns: nanoseconds(limit),
            replies: 0,
            longest_ns: 0,
        });
    }

    /// How many replies took longer since the last call, and how long the slowest took; `None` if
    /// none did.
    pub(super) fn take_slow(&mut self) -> Option<(u64, u64)> {
        let slow = self.slow.as_mut().filter(|slow| slow.replies > 0)?;
        let replies = std::mem::take(&mut slow.replies);
        Some((std::mem::take(&mut slow.longest_ns), replies))
    }

    /// From now on, also keeps latencies second by second.
    pub(super) fn begin_series(&mut self, now_ns: u64) {
        self.series = Some(Series::begin(now_ns));
    }

    /// Begins the next second if it is due. To be called in each turn of an event loop.
    #[inline]
    pub(super) fn tick(&mut self, now_ns: u64) {
        let is_due = self.series.as_ref().is_some_and(|s| s.is_due(now_ns));
        if is_due {
            let total = self.counts();
            if let Some(series) = &mut self.series {
                series.advance(now_ns, total);
            }
        }
    }

    /// The stretch is over: replies that still arrive belong to its last second.
    pub(super) fn end_series(&mut self) {
        if let Some(series) = &mut self.series {
            series.end(self.elapsed);
        }
    }

    /// The outcome of each second; empty if it was not kept.
    pub(crate) fn by_second(&self) -> Vec<Row> {
        let series = self.series.as_ref();
        series.map_or_else(Vec::new, |series| series.rows(self.elapsed, self.counts()))
    }

    /// Forgets what it came to by the second: measurements that follow each other have none together.
    pub(crate) fn without_seconds(mut self) -> Measured {
        self.series = None;
        self
    }

    fn counts(&self) -> Counts {
        Counts {
            replies: self.replies,
            errors: self.refused + self.wrong + self.lost,
        }
    }

    /// The share of their time that so many load threads worked, on average.
    pub(crate) fn client_busy(&self, threads: usize) -> f64 {
        let seconds = self.elapsed.as_secs_f64().max(1e-9);
        self.client_cpu.as_secs_f64() / seconds / threads.max(1) as f64
    }

    /// Records `replies` replies that came back after the latency.
    #[inline]
    pub(crate) fn record(&mut self, latency_ns: u64, replies: u64) {
        self.latency_ns.saturating_record_n(latency_ns, replies);
        if let Some(series) = &mut self.series {
            series.record(latency_ns, replies);
        }
        if let Some(slow) = &mut self.slow {
            slow.note(latency_ns, replies);
        }
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

    /// Adds what another thread, or an agent, measured in the same time.
    pub(crate) fn add(&mut self, other: &Measured) {
        self.add_series(other);
        self.elapsed = self.elapsed.max(other.elapsed);
        self.client_cpu += other.client_cpu;
        self.agents.extend_from_slice(&other.agents);
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
        if let Some(absences) = &other.absences {
            self.absences
                .get_or_insert_with(Absences::default)
                .add(absences);
        }
        self.latency_ns
            .add(&other.latency_ns)
            .expect("both have the same bounds");
        if self.example.is_none() {
            self.example.clone_from(&other.example);
        }
    }

    /// Adds what came by the second, before the totals are added.
    fn add_series(&mut self, other: &Measured) {
        let total = self.counts();
        match (&mut self.series, &other.series) {
            (Some(series), Some(others)) => series.add(total, others, other.counts()),
            // The first one that is added to nothing.
            (None, Some(others)) if total == Counts::default() => {
                self.series = Some(others.clone());
            }
            (_, None) if other.counts() == Counts::default() => {}
            _ => self.series = None,
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
pub(crate) struct Run {
    at_ns: u64,
    replies: u64,
}

impl Run {
    /// So many replies came now to requests of then.
    #[inline]
    pub(crate) fn count(&mut self, at_ns: u64, now_ns: u64, replies: u64, measured: &mut Measured) {
        if at_ns != self.at_ns {
            self.flush(now_ns, measured);
            self.at_ns = at_ns;
        }
        self.replies += replies;
    }

    /// Records what has gathered.
    #[inline]
    pub(crate) fn flush(&mut self, now_ns: u64, measured: &mut Measured) {
        if self.replies > 0 {
            measured.record(now_ns.saturating_sub(self.at_ns), self.replies);
            self.replies = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_are_written_and_read() {
        let mut measured = Measured::new();
        for latency_ns in [1, 5_000, 70_000_000_000] {
            measured.record(latency_ns, 3);
        }
        let bytes = measured.latencies();
        let mut read = Measured::new();
        read.read_latencies(&bytes).unwrap();
        assert_eq!(read.latency_ns, measured.latency_ns);
        let mut read = |change: &dyn Fn(&mut Vec<u8>)| {
            let mut bytes = bytes.clone();
            change(&mut bytes);
            read.read_latencies(&bytes)
        };
        assert!(read(&|_| {}).is_some());
        assert!(read(&|bytes| bytes.truncate(20)).is_none());
        assert!(read(&|bytes| bytes.push(0)).is_none());
        // A length, and an upper bound, that would take memory.
        for at in [7, 12, 32] {
            assert!(read(&|bytes| bytes[at] = 0x7f).is_none());
        }
    }

    #[test]
    fn seconds_add_up_as_the_totals_do() {
        let thread = |replies: u64| {
            let mut measured = Measured::new();
            measured.begin_series(0);
            for second in 0..3 {
                measured.tick(second * 1_000_000_000);
                measured.replies += replies;
                measured.refused += second;
                measured.record(1000, replies);
            }
            measured.elapsed = Duration::from_secs(3);
            measured.end_series();
            measured
        };
        let mut total = Measured::new();
        for replies in [10, 200] {
            let mut sent = Measured::new();
            let measured = thread(replies);
            sent.read_latencies(&measured.latencies()).unwrap();
            let counted = Measured {
                latency_ns: sent.latency_ns,
                series: sent.series,
                ..measured
            };
            total.add(&counted);
        }
        let of = |row: Row| (row.replies, row.errors);
        let rows: Vec<(u64, u64)> = total.by_second().into_iter().map(of).collect();
        assert_eq!(rows, [(210, 0), (210, 2), (210, 4)]);
        total.add(&Measured::new());
        assert_eq!(total.by_second().len(), 3);
        assert!(total.without_seconds().by_second().is_empty());
    }
}
