//! The usual visit, on a path of its own: a connection has sent nothing but whole `get`s, and their
//! replies are short.
//!
//! That is most of what a cache is asked, and it needs little of what a burst knows how to do. What
//! comes is taken in here where it is found to be such, and looked up some keys at a time, so that
//! the waiting times for memory overlap. A visit that turns out to be an unusual one when it is
//! executed (a large value, no room for the reply) goes the way of all others from that key on.

use coua_protocol::{Dialect, GetKey, Limits, Op, Parser, Step};
use coua_store::{Ahead, Burst, Intent, Key, KeyHash, Store};

use super::burst::replay;
use super::input::Active;
use super::{BURST_LEN_MAX, Worker};
use crate::clock::Now;
use crate::execute::{Answers, Executor, Outcome};
use crate::output::Flushed;

/// Keys that are looked up together.
const GROUP: usize = 32;

/// Keys of one visit at most.
const VISIT_KEYS_MAX: usize = 256;

/// Keys of a turn at most, and visits.
const KEYS_MAX: usize = BURST_LEN_MAX;

/// Visits that wait to be executed, and their keys.
pub(super) struct Lane {
    keys: Vec<LaneKey>,
    visits: Vec<LaneVisit>,
    /// Visits that end in another way than the usual.
    unusual: Vec<Unusual>,
}

/// A key to be looked up.
#[derive(Clone, Copy)]
struct LaneKey {
    /// Where it begins in the input buffer.
    start: u32,
    /// Bytes of it.
    len: u32,
    /// Answer with the CAS.
    cas: bool,
    /// `END` follows.
    last: bool,
    hash: KeyHash,
    /// What looking ahead has seen.
    ahead: Ahead,
}

/// What a connection has asked.
#[derive(Clone, Copy)]
struct LaneVisit {
    /// Its input.
    input: Active,
    /// Behind its last key.
    keys_end: usize,
}

/// A visit that ends in another way than the usual.
#[derive(Clone, Copy)]
struct Unusual {
    input: Active,
    /// Keys that have been executed; all where that is `None`.
    executed: Option<usize>,
    /// What sending their replies came to.
    flushed: Flushed,
}

/// What has been counted and not been added to the worker's counters.
#[derive(Default)]
struct Counted {
    gets: u64,
    hits: u64,
}

impl Lane {
    /// Bytes of its lists.
    pub(super) const MEMORY: usize =
        KEYS_MAX * (size_of::<LaneKey>() + size_of::<LaneVisit>() + size_of::<Unusual>());

    pub(super) fn new() -> Lane {
        Lane {
            keys: Vec::with_capacity(KEYS_MAX),
            visits: Vec::with_capacity(KEYS_MAX),
            unusual: Vec::with_capacity(KEYS_MAX),
        }
    }

    /// Takes what a connection has sent, `input` in the buffer `bytes`, where it is nothing but
    /// whole `get`s, with `keys_max` keys at most. False where it is not; nothing has changed then.
    #[inline]
    pub(super) fn take(
        &mut self,
        parser: &mut Parser,
        input: Active,
        bytes: &[u8],
        store: &Store,
        limits: &Limits,
        keys_max: usize,
    ) -> bool {
        if !parser.is_between_requests() || parser.dialect() != Dialect::Text {
            return false;
        }
        let first = self.keys.len();
        let end = KEYS_MAX.min(first + keys_max.min(VISIT_KEYS_MAX));
        let mut at = input.start;
        while at < input.end {
            let rest = &bytes[at..input.end];
            let next = parser.next_get(rest);
            let next = next.or_else(|| first_of_many(parser, rest, limits));
            let Some(get) = next.filter(|_| self.keys.len() < end) else {
                self.keys.truncate(first);
                *parser = Parser::of(Dialect::Text);
                return false;
            };
            self.keys.push(LaneKey {
                start: u32::try_from(at).expect("below INPUT_LEN") + get.key.start,
                len: get.key.len,
                cas: get.cas,
                last: get.last,
                hash: store.key(get.key.of(rest)).hash,
                ahead: Ahead::NONE,
            });
            at += get.consumed as usize;
        }
        let keys_end = self.keys.len();
        self.visits.push(LaneVisit { input, keys_end });
        true
    }
}

/// The first key of a `get` of several, which is not seen at a glance. `None` where there is
/// something else, which the parser may have passed over.
#[inline(never)]
fn first_of_many(parser: &mut Parser, rest: &[u8], limits: &Limits) -> Option<GetKey> {
    if !rest.starts_with(b"get") {
        return None;
    }
    match parser.next(rest, limits) {
        Step::Op {
            consumed,
            op: Op::Get { key, cas, last },
        } => Some(GetKey {
            consumed,
            key,
            cas,
            last,
        }),
        _ => None,
    }
}

impl LaneKey {
    #[inline]
    fn of<'b>(&self, bytes: &'b [u8]) -> Key<'b> {
        Key {
            bytes: &bytes[self.start as usize..][..self.len as usize],
            hash: self.hash,
        }
    }
}

impl Worker {
    /// Whether the lane is open: where each request is logged, or counted by its prefix, all take
    /// the long way.
    pub(super) fn has_lane(&self) -> bool {
        self.shared.verbosity() < 2 && !self.shared.prefixes.is_enabled()
    }

    /// Executes what the lane has taken. False where that is nothing.
    pub(super) fn run_lane(&mut self, now: Now) -> bool {
        if self.lane.visits.is_empty() {
            return false;
        }
        let counters = self.shared.counters(self.index);
        let bytes = self.input.bytes();
        let mut executor = Executor {
            burst: self.store.burst(now.unix),
            answers: Answers {
                output: &mut self.output,
                pool: &mut self.pool,
                counters,
                shared: &self.shared,
                now,
            },
            spare_upstreams: &mut self.spare_upstreams,
        };
        let mut counted = Counted::default();
        let keys = &mut self.lane.keys[..];
        let (mut looked_to, mut at) = (0, 0);
        for visit in &self.lane.visits {
            let first = std::mem::replace(&mut at, visit.keys_end);
            let Some(session) = self.sessions.get(visit.input.id) else {
                continue;
            };
            let mut executed = first;
            while executed < at {
                if looked_to <= executed {
                    looked_to = keys.len().min(executed + GROUP);
                    look_ahead(&executor.burst, &mut keys[executed..looked_to]);
                }
                let key = keys[executed];
                let (cas, last) = (key.cas, key.last);
                match executor.get_briefly(&key.of(bytes), key.ahead, cas, last) {
                    Some(found) => counted.hits += u64::from(found),
                    None => break,
                }
                executed += 1;
            }
            counted.gets += (executed - first) as u64;
            if executed > first {
                session.note_request(now.unix);
            }
            let flushed = executor
                .answers
                .output
                .flush(session, executor.answers.pool);
            if flushed != Flushed::All || executed < at || session.readable {
                self.lane.unusual.push(Unusual {
                    input: visit.input,
                    executed: (executed < at).then(|| executed - first),
                    flushed,
                });
            }
        }
        counters.requests.add(counted.gets);
        counters.cmd_get.add(counted.gets);
        counters.get_hits.add(counted.hits);
        counters.get_misses.add(counted.gets - counted.hits);
        counters
            .bytes_written
            .add(std::mem::take(&mut self.output.bytes_sent));
        self.lane.keys.clear();
        self.lane.visits.clear();
        for at in 0..self.lane.unusual.len() {
            self.go_on(self.lane.unusual[at], now);
        }
        self.lane.unusual.clear();
        self.input.reuse();
        true
    }

    /// Goes on with a visit that has not ended in the usual way.
    #[cold]
    fn go_on(&mut self, visit: Unusual, now: Now) {
        let Active { id, start, end } = visit.input;
        let Some(session) = self.sessions.get(id) else {
            return;
        };
        let mut rest = Active {
            start: end,
            ..visit.input
        };
        if let Some(executed) = visit.executed {
            let input = &self.input.bytes()[start..end];
            let limits = &self.shared.settings.limits;
            let (parser, used) = replay(Parser::of(Dialect::Text), input, executed, limits);
            session.parser = parser;
            rest.start = start + used;
            if visit.flushed == Flushed::All {
                session.is_active = true;
                self.input.active.push_back(rest);
                return;
            }
        }
        let outcome = Outcome::from(visit.flushed);
        self.leave(id, outcome, (rest.start, rest.end), now);
    }
}

/// Has memory fetch what the keys' requests need: buckets, then items.
#[inline]
fn look_ahead(burst: &Burst<'_>, keys: &mut [LaneKey]) {
    for key in &mut *keys {
        key.ahead = burst.prefetch(key.hash, Intent::Read);
    }
    for key in &mut *keys {
        key.ahead = burst.look(key.hash, Intent::Read, key.ahead);
    }
    for key in keys {
        key.ahead = burst.look_again(key.hash, Intent::Read, key.ahead);
    }
}
