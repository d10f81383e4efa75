//! `watch`: lines about requests, items and connections, for clients that want to see them live.
//!
//! Whoever has something to tell looks at one number first: which streams anybody watches. If somebody
//! does, the line is written into the queue of each such watcher, and the workers that serve them
//! send it, as they send any long answer ([`Dump`](crate::dump::Dump)). A queue is bounded: lines for
//! which it has no room are left out and counted, so a watcher that does not read slows nobody down.
//!
//! # Concurrency
//! One lock covers all queues, so lines stand in the order of their numbers. It is taken for each line
//! that somebody watches, and never while nobody does. Nothing is waited for under it.

mod evictions;
pub mod lines;

pub use evictions::EvictionTeller;

use std::collections::VecDeque;
use std::io::Write;
use std::ops::BitOr;
use std::sync::atomic::{AtomicU16, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use coua_transport::{Token, Waker};

/// How many clients may watch at a time, as in memcached.
const WATCHERS_MAX: usize = 20;

/// Bytes of lines that wait for one watcher, where `-o watcher_logbuf_size` does not say.
pub const QUEUE_LEN: usize = 256 << 10;

/// What is kept free of them for the line that tells how many were left out.
const SKIPPED_LEN: usize = 128;

/// Streams of lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogStreams(u16);

impl LogStreams {
    /// None.
    pub const NONE: LogStreams = LogStreams(0);
    /// Items that are looked up.
    pub const FETCHERS: LogStreams = LogStreams(1 << 0);
    /// Items that are to be stored.
    pub const MUTATIONS: LogStreams = LogStreams(1 << 1);
    /// Connections that open and close.
    pub const CONNECTIONS: LogStreams = LogStreams(1 << 2);
    /// Items that are evicted.
    pub const EVICTIONS: LogStreams = LogStreams(1 << 3);
    /// Items that clients delete.
    pub const DELETIONS: LogStreams = LogStreams(1 << 4);
    /// Requests that take longer than `-o slow_us` says.
    pub const SLOW: LogStreams = LogStreams(1 << 5);
    /// What memcached tells of its own mechanisms, and its proxy of requests: nothing is told here.
    const ABSENT: LogStreams = LogStreams(1 << 6);
    /// Those that are told of while requests are executed.
    pub const OF_REQUESTS: LogStreams =
        LogStreams(Self::FETCHERS.0 | Self::MUTATIONS.0 | Self::DELETIONS.0);

    /// Their names. memcached takes any beginning of a name, and the first name that fits counts.
    const NAMES: [(&'static [u8], LogStreams); 11] = [
        (b"rawcmds", LogStreams::ABSENT),
        (b"evictions", LogStreams::EVICTIONS),
        (b"fetchers", LogStreams::FETCHERS),
        (b"mutations", LogStreams::MUTATIONS),
        (b"sysevents", LogStreams::ABSENT),
        (b"connevents", LogStreams::CONNECTIONS),
        (b"proxyreqs", LogStreams::ABSENT),
        (b"proxyevents", LogStreams::ABSENT),
        (b"proxyuser", LogStreams::ABSENT),
        (b"deletions", LogStreams::DELETIONS),
        (b"slowreqs", LogStreams::SLOW),
    ];

    /// The stream that `word` names, if one does.
    pub fn named(word: &[u8]) -> Option<LogStreams> {
        let found = Self::NAMES.iter().find(|(name, _)| name.starts_with(word));
        found.map(|&(_, streams)| streams)
    }

    fn overlap(self, others: LogStreams) -> bool {
        self.0 & others.0 != 0
    }
}

impl BitOr for LogStreams {
    type Output = LogStreams;

    fn bitor(self, others: LogStreams) -> LogStreams {
        LogStreams(self.0 | others.0)
    }
}

/// What has been counted of lines.
#[derive(Clone, Copy, Debug, Default)]
pub struct WatchCounts {
    /// Lines that were told.
    pub written: u64,
    /// Lines that a watcher's queue has taken.
    pub sent: u64,
    /// Lines for which a watcher's queue had no room.
    pub skipped: u64,
}

/// Everybody who watches, on all workers.
pub struct Watchers {
    /// The streams that somebody watches.
    watched: AtomicU16,
    inner: Mutex<Inner>,
    /// The workers' wakers.
    wakers: Arc<[Waker]>,
    queue_len: usize,
}

#[derive(Default)]
struct Inner {
    watchers: Vec<Watcher>,
    /// The number of the last line.
    gid: u64,
    last_watcher: u64,
    counts: WatchCounts,
    /// A line that is being written.
    line: Vec<u8>,
}

struct Watcher {
    number: u64,
    streams: LogStreams,
    lines: VecDeque<u8>,
    /// Lines left out since the last one that was not.
    skipped: u64,
    /// The worker that serves it, and the token of its session there, from the end of its request on.
    served_by: Option<(usize, Token)>,
    /// Its session has found no lines: its worker is to be woken for the next one.
    sleeps: bool,
}

impl Watchers {
    /// Nobody watches. At most `queue_len` bytes of lines wait for each watcher.
    pub fn new(wakers: Arc<[Waker]>, queue_len: usize) -> Watchers {
        Watchers {
            watched: AtomicU16::new(0),
            inner: Mutex::default(),
            wakers,
            queue_len,
        }
    }

    /// Whether somebody watches one of these streams.
    #[inline]
    pub fn see(&self, streams: LogStreams) -> bool {
        LogStreams(self.watched.load(Relaxed)).overlap(streams)
    }

    /// Tells those who watch `stream` a line, if anybody does. `write` appends what stands behind the
    /// time and the number; it must not watch or tell.
    #[inline]
    pub fn tell(&self, stream: LogStreams, write: impl FnOnce(&mut Vec<u8>)) {
        if self.see(stream) {
            self.write_line(stream, write);
        }
    }

    #[cold]
    fn write_line(&self, stream: LogStreams, write: impl FnOnce(&mut Vec<u8>)) {
        let mut guard = self.inner();
        let inner = &mut *guard;
        inner.gid += 1;
        let time = SystemTime::now().duration_since(UNIX_EPOCH);
        let time = time.unwrap_or_default();
        inner.line.clear();
        // Writing to memory does not fail. memcached does not pad the microseconds either.
        let _ = write!(
            inner.line,
            "ts={}.{} gid={} ",
            time.as_secs(),
            time.subsec_micros(),
            inner.gid
        );
        write(&mut inner.line);
        inner.line.push(b'\n');
        inner.counts.written += 1;
        let watchers = inner.watchers.iter_mut();
        for watcher in watchers.filter(|watcher| watcher.streams.overlap(stream)) {
            if !watcher.take_line(&inner.line, self.queue_len) {
                inner.counts.skipped += 1;
                continue;
            }
            inner.counts.sent += 1;
            if watcher.sleeps
                && let Some((worker, _)) = watcher.served_by
            {
                watcher.sleeps = false;
                self.wakers[worker].wake();
            }
        }
    }

    /// One more watcher of these streams, to whom `OK` is told first.
    ///
    /// # Errors
    /// [`Unwatched`]: there are too many, or there is no memory for one more.
    pub fn watch(self: &Arc<Watchers>, streams: LogStreams) -> Result<Watch, Unwatched> {
        let mut inner = self.inner();
        if inner.watchers.len() >= WATCHERS_MAX {
            return Err(Unwatched::TooMany);
        }
        let mut lines = VecDeque::new();
        let room = lines.try_reserve_exact(self.queue_len);
        room.map_err(|_| Unwatched::NoMemory)?;
        lines.extend(b"OK\r\n");
        inner.last_watcher += 1;
        // As in memcached, a number is taken.
        inner.gid += 1;
        let number = inner.last_watcher;
        inner.watchers.push(Watcher {
            number,
            streams,
            lines,
            skipped: 0,
            served_by: None,
            sleeps: false,
        });
        self.note_watched(&inner);
        Ok(Watch {
            watchers: Arc::clone(self),
            number,
        })
    }

    /// The tokens of the sessions of a worker for which there are lines.
    pub fn sessions_of(&self, worker: usize) -> Vec<Token> {
        if LogStreams(self.watched.load(Relaxed)) == LogStreams::NONE {
            return Vec::new();
        }
        let inner = self.inner();
        let watchers = inner.watchers.iter().filter(|one| !one.lines.is_empty());
        let sessions = watchers.filter_map(|watcher| watcher.served_by);
        let own = sessions.filter(|&(served_by, _)| served_by == worker);
        own.map(|(_, session)| session).collect()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.inner().watchers.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What has been counted since the start, or since [`Watchers::reset_counts`].
    pub fn counts(&self) -> WatchCounts {
        self.inner().counts
    }

    /// Counts from 0 again.
    pub fn reset_counts(&self) {
        self.inner().counts = WatchCounts::default();
    }

    fn note_watched(&self, inner: &Inner) {
        let all = inner.watchers.iter();
        let all = all.fold(LogStreams::NONE, |all, watcher| all | watcher.streams);
        self.watched.store(all.0, Relaxed);
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        // It is whole after every statement, so a panic elsewhere does not spoil it.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Why nobody can watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unwatched {
    /// As many watch as may.
    TooMany,
    /// There is no memory for its lines.
    NoMemory,
}

impl Watcher {
    /// Takes a line, and before it how many were left out. False if it is left out as well.
    fn take_line(&mut self, line: &[u8], queue_len: usize) -> bool {
        if self.lines.len() + line.len() + SKIPPED_LEN > queue_len {
            self.skipped += 1;
            return false;
        }
        if self.skipped > 0 {
            // Writing to memory does not fail.
            let _ = writeln!(self.lines, "skipped={}", self.skipped);
            self.skipped = 0;
        }
        self.lines.extend(line);
        true
    }
}

/// A place among those who watch, which its connection has. Dropping it leaves the place.
pub struct Watch {
    watchers: Arc<Watchers>,
    number: u64,
}

impl Watch {
    /// From now on, the session with this token of `worker` sends the lines.
    pub fn serve(&self, worker: usize, session: Token) {
        self.with(|watcher| watcher.served_by = Some((worker, session)));
    }

    /// Whether there are lines. If not, the worker that serves them is woken for the next one.
    pub fn has_lines(&self) -> bool {
        let has_lines = self.with(|watcher| {
            watcher.sleeps = watcher.lines.is_empty();
            !watcher.sleeps
        });
        has_lines.unwrap_or(false)
    }

    /// Moves at most `most` bytes of lines to the end of `text`.
    pub fn take(&self, most: usize, text: &mut Vec<u8>) {
        self.with(|watcher| {
            let most = most.min(watcher.lines.len());
            text.extend(watcher.lines.drain(..most));
        });
    }

    fn with<T>(&self, act: impl FnOnce(&mut Watcher) -> T) -> Option<T> {
        let mut inner = self.watchers.inner();
        let mut watchers = inner.watchers.iter_mut();
        let own = watchers.find(|watcher| watcher.number == self.number);
        own.map(act)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let mut inner = self.watchers.inner();
        (inner.watchers).retain(|watcher| watcher.number != self.number);
        self.watchers.note_watched(&inner);
    }
}

#[cfg(test)]
mod tests {
    use super::{LogStreams, Unwatched, WATCHERS_MAX, Watchers};
    use std::sync::Arc;

    fn watchers(queue_len: usize) -> Arc<Watchers> {
        Arc::new(Watchers::new(Arc::new([]), queue_len))
    }

    fn read(watch: &super::Watch, most: usize) -> String {
        let mut text = Vec::new();
        watch.take(most, &mut text);
        String::from_utf8(text).expect("text")
    }

    #[test]
    fn only_who_watches_a_stream_gets_its_lines() {
        let watchers = watchers(4096);
        assert!(!watchers.see(LogStreams::FETCHERS));
        let both = watchers.watch(LogStreams::FETCHERS | LogStreams::EVICTIONS);
        let both = both.expect("room");
        let one = watchers.watch(LogStreams::EVICTIONS).expect("room");
        watchers.tell(LogStreams::FETCHERS, |line| line.extend(b"first"));
        watchers.tell(LogStreams::MUTATIONS, |_| panic!("nobody watches"));
        assert!(read(&both, 4096).ends_with(" gid=3 first\n"));
        assert_eq!(read(&one, 4096), "OK\r\n");
        assert!(!both.has_lines());
        drop(both);
        assert!(!watchers.see(LogStreams::FETCHERS) && watchers.see(LogStreams::EVICTIONS));
        drop(one);
        assert!(watchers.is_empty() && !watchers.see(LogStreams::EVICTIONS));
    }

    #[test]
    fn lines_without_room_are_counted_where_they_are_missing() {
        let watchers = watchers(1024);
        let watch = watchers.watch(LogStreams::FETCHERS).expect("room");
        let tell = || {
            watchers.tell(LogStreams::FETCHERS, |line| {
                line.extend([b'x'; 100]);
            });
        };
        for _ in 0..20 {
            tell();
        }
        let counts = watchers.counts();
        assert_eq!((counts.written, counts.sent + counts.skipped), (20, 20));
        assert!(counts.skipped > 10, "{counts:?}");
        let before = read(&watch, 4096);
        assert_eq!(before.lines().count() as u64, counts.sent + 1);
        assert!(!before.contains("skipped="));
        tell();
        let skipped = format!("skipped={}\nts=", counts.skipped);
        assert!(read(&watch, 4096).starts_with(&skipped));
    }

    #[test]
    fn there_is_room_for_twenty() {
        let watchers = watchers(1024);
        let watch = || watchers.watch(LogStreams::SLOW);
        let mut all: Vec<_> = (0..WATCHERS_MAX).map(|_| watch().expect("room")).collect();
        assert_eq!(watch().err(), Some(Unwatched::TooMany));
        all.pop();
        assert!(watch().is_ok());
    }

    #[test]
    fn any_beginning_of_a_name_will_do() {
        let named = |word: &str| LogStreams::named(word.as_bytes());
        assert_eq!(named("f"), Some(LogStreams::FETCHERS));
        assert_eq!(named("deletions"), Some(LogStreams::DELETIONS));
        assert_eq!(named("slow"), Some(LogStreams::SLOW));
        assert_eq!((named("fetcherss"), named("x")), (None, None));
    }
}
