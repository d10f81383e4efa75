//! The usual visit, on a path of its own: a connection has sent nothing but whole `get`s and plain
//! sets, or a datagram holds nothing else, and their replies are short.
//!
//! That is most of what a cache is asked, and it needs little of what a burst knows how to do. What
//! comes is taken in here where it is found to be such, and looked up some keys at a time, so that
//! the waiting times for memory overlap. A visit that turns out to be an unusual one when it is
//! executed (a large value, no room for the reply, no memory for an item) goes the way of all others
//! from that key on; what follows from a refusal is said there alone.
//!
//! Connections are independent of each other, and of one no more than one visit is under way. Of
//! whoever sends datagrams there may be several, which are executed in the order in which they came:
//! once one goes the long way, those behind it follow it there.

use coua_protocol::{Dialect, GetKey, Limits, Op, Parser, PlainSet, Span, Step};
use coua_store::{Ahead, Burst, Intent, Key, KeyHash, Store};

use super::burst::replay;
use super::input::Active;
use super::{BURST_LEN_MAX, Worker};
use crate::clock::Now;
use crate::execute::{Answers, Executor, Outcome};
use crate::output::Flushed;
use crate::server::Shared;

/// Keys that are looked up together.
const GROUP: usize = 32;

/// Keys of one visit at most.
const VISIT_KEYS_MAX: usize = 256;

/// Keys of a turn at most, and visits.
const KEYS_MAX: usize = BURST_LEN_MAX;

/// Visits that wait to be executed, and their keys.
pub(super) struct Lane {
    keys: Vec<LaneKey>,
    /// What is set, in the order of the keys that it is set to.
    sets: Vec<PlainSet>,
    visits: Vec<LaneVisit>,
    /// Visits that end in another way than the usual.
    unusual: Vec<Unusual>,
}

/// A key to be looked up, or set.
#[derive(Clone, Copy)]
struct LaneKey {
    /// Where in the input buffer the key lies.
    key: Span,
    asked: Asked,
    hash: KeyHash,
    /// What looking ahead has seen.
    ahead: Ahead,
}

/// What is asked of a key.
#[derive(Clone, Copy)]
enum Asked {
    Get {
        /// Answer with the CAS.
        cas: bool,
        /// `END` follows.
        last: bool,
    },
    /// The set of this number.
    Set(u16),
}

/// What a connection, or a datagram, has asked.
#[derive(Clone, Copy)]
struct LaneVisit {
    /// Its input.
    input: Active,
    /// Behind its last key. A datagram that the lane has not taken has none.
    keys_end: usize,
}

/// A visit that ends in another way than the usual.
#[derive(Clone, Copy)]
struct Unusual {
    input: Active,
    /// Keys that have been executed; everything where that is `None`.
    executed: Option<usize>,
    /// What sending their replies came to.
    flushed: Flushed,
}

/// What has been counted and not been added to the worker's counters.
#[derive(Default)]
struct Counted {
    requests: u64,
    hits: u64,
    sets: u64,
}

impl Lane {
    /// Bytes of its lists.
    pub(super) const MEMORY: usize = KEYS_MAX
        * (size_of::<LaneKey>()
            + size_of::<PlainSet>()
            + size_of::<LaneVisit>()
            + size_of::<Unusual>());

    pub(super) fn new() -> Lane {
        Lane {
            keys: Vec::with_capacity(KEYS_MAX),
            sets: Vec::with_capacity(KEYS_MAX),
            visits: Vec::with_capacity(KEYS_MAX),
            unusual: Vec::with_capacity(KEYS_MAX),
        }
    }

    /// Takes what a connection or a datagram has sent, `input` in the buffer `bytes`, where it is
    /// nothing but whole `get`s and plain sets, with as many keys as `-R` allows at most. False where it
    /// is not; nothing has changed then.
    #[inline]
    pub(super) fn take(
        &mut self,
        parser: &mut Parser,
        input: Active,
        bytes: &[u8],
        shared: &Shared,
    ) -> bool {
        let is_full = self.visits.len() == KEYS_MAX;
        if is_full || !parser.is_between_requests() || parser.dialect() != Dialect::Text {
            return false;
        }
        let (store, limits) = (&*shared.store, &shared.settings.limits);
        let keys_max = shared.settings.requests_per_turn.min(VISIT_KEYS_MAX);
        let first = (self.keys.len(), self.sets.len());
        let end = KEYS_MAX.min(first.0 + keys_max);
        let mut at = input.start;
        while at < input.end {
            let rest = &bytes[at..input.end];
            let base = u32::try_from(at).expect("below INPUT_LEN");
            let consumed = if self.keys.len() == end {
                None
            } else if rest[0] == b's'
                && let Some(set) = parser.next_set(rest, limits)
            {
                Some(self.take_set(set, rest, base, store))
            } else if let Some(get) = parser.next_get(rest) {
                Some(self.take_get(get, rest, base, store))
            } else {
                first_of_many(parser, rest, limits).map(|get| self.take_get(get, rest, base, store))
            };
            let Some(consumed) = consumed else {
                self.keys.truncate(first.0);
                self.sets.truncate(first.1);
                *parser = Parser::of(Dialect::Text);
                return false;
            };
            at += consumed as usize;
        }
        let keys_end = self.keys.len();
        self.visits.push(LaneVisit { input, keys_end });
        true
    }

    /// Notes a datagram that takes the long way, so that those before it come before it and those
    /// behind it behind it. False where there are too many.
    #[inline]
    pub(super) fn pass(&mut self, input: Active) -> bool {
        let is_noted = self.visits.len() < KEYS_MAX;
        if is_noted {
            let keys_end = self.keys.len();
            self.visits.push(LaneVisit { input, keys_end });
        }
        is_noted
    }

    /// Takes a key to be looked up from the front of `rest`, which begins at byte `base` of the input
    /// buffer. Returns the bytes used up.
    #[inline(always)]
    fn take_get(&mut self, get: GetKey, rest: &[u8], base: u32, store: &Store) -> u32 {
        let (cas, last) = (get.cas, get.last);
        self.keys.push(LaneKey {
            key: get.key.shifted(base),
            asked: Asked::Get { cas, last },
            hash: store.key(get.key.of(rest)).hash,
            ahead: Ahead::NONE,
        });
        get.consumed
    }

    /// As [`Lane::take_get`], with a key that is set.
    #[inline(always)]
    fn take_set(&mut self, set: PlainSet, rest: &[u8], base: u32, store: &Store) -> u32 {
        let number = u16::try_from(self.sets.len()).expect("below KEYS_MAX");
        self.keys.push(LaneKey {
            key: set.key.shifted(base),
            asked: Asked::Set(number),
            hash: store.key(set.key.of(rest)).hash,
            ahead: Ahead::NONE,
        });
        let value = set.value.shifted(base);
        self.sets.push(PlainSet { value, ..set });
        set.consumed
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

impl Counted {
    /// Executes what is asked of `key`, and counts it. False where it takes the long way; nothing has
    /// changed then.
    #[inline(always)]
    fn execute(
        &mut self,
        executor: &mut Executor<'_, '_>,
        key: &LaneKey,
        sets: &[PlainSet],
        bytes: &[u8],
    ) -> bool {
        match key.asked {
            Asked::Get { cas, last } => {
                let found = executor.get_briefly(&key.of(bytes), key.ahead, cas, last);
                self.hits += u64::from(found == Some(true));
                found.is_some()
            }
            Asked::Set(number) => {
                let set = &sets[usize::from(number)];
                let value = set.value.of(bytes);
                let is_set = executor.set_briefly(&key.of(bytes), key.ahead, set, value);
                self.sets += u64::from(is_set);
                is_set
            }
        }
    }
}

impl LaneKey {
    #[inline]
    fn of<'b>(&self, bytes: &'b [u8]) -> Key<'b> {
        Key {
            bytes: self.key.of(bytes),
            hash: self.hash,
        }
    }

    #[inline]
    fn intent(&self) -> Intent {
        match self.asked {
            Asked::Get { .. } => Intent::Read,
            Asked::Set(_) => Intent::Write,
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
        let (keys, sets) = (&mut self.lane.keys[..], &self.lane.sets[..]);
        let (mut looked_to, mut at) = (0, 0);
        // Bits of those of whom a datagram has gone the long way.
        let mut astray = 0;
        for visit in &self.lane.visits {
            let first = std::mem::replace(&mut at, visit.keys_end);
            let Some(session) = self.sessions.get(visit.input.id) else {
                continue;
            };
            let datagram = session.datagram.as_deref();
            let follows =
                astray != 0 && datagram.is_some_and(|datagram| datagram.sender_bit() & astray != 0);
            let end = if follows { first } else { at };
            let mut executed = first;
            while executed < end {
                if looked_to <= executed {
                    looked_to = keys.len().min(executed + GROUP);
                    look_ahead(&executor.burst, &mut keys[executed..looked_to]);
                }
                if !counted.execute(&mut executor, &keys[executed], sets, bytes) {
                    break;
                }
                executed += 1;
            }
            counted.requests += (executed - first) as u64;
            if executed > first {
                session.note_request(now.unix);
            }
            let is_whole = first < executed && executed == at;
            let (output, pool) = (&mut *executor.answers.output, &mut *executor.answers.pool);
            if let Some(datagram) = session.datagram.as_deref() {
                if is_whole {
                    let (id, reply) = (visit.input.id, output.written_from(0));
                    self.datagrams.answer(id, datagram, reply, counters, now);
                    output.bytes_sent += reply.len() as u64;
                    output.truncate(0);
                    continue;
                }
                astray |= datagram.sender_bit();
            }
            let flushed = output.flush(session, pool);
            if flushed != Flushed::All || !is_whole || session.readable {
                self.lane.unusual.push(Unusual {
                    input: visit.input,
                    executed: (!is_whole).then(|| executed - first),
                    flushed,
                });
            }
        }
        counters.requests.add(counted.requests);
        counters.cmd_set.add(counted.sets);
        let gets = counted.requests - counted.sets;
        counters.cmd_get.add(gets);
        counters.get_hits.add(counted.hits);
        counters.get_misses.add(gets - counted.hits);
        counters
            .bytes_written
            .add(std::mem::take(&mut self.output.bytes_sent));
        self.lane.keys.clear();
        self.lane.sets.clear();
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
            rest.start = start;
            // Where nothing has been executed the parser stands at the front.
            if executed > 0 {
                let input = &self.input.bytes()[start..end];
                let limits = &self.shared.settings.limits;
                let (parser, used) = replay(Parser::of(Dialect::Text), input, executed, limits);
                session.parser = parser;
                rest.start += used;
            }
            if visit.flushed == Flushed::All {
                session.is_active = true;
                self.input.active.push_back(rest);
                return;
            }
        }
        let is_datagrams = session.datagram.is_some();
        let (outcome, rest) = (Outcome::from(visit.flushed), (rest.start, rest.end));
        match is_datagrams {
            true => self.settle_datagram(id, rest, outcome, false, now),
            false => self.leave(id, outcome, rest, now),
        }
    }
}

/// Has memory fetch what the keys' requests need: buckets, then items.
#[inline]
fn look_ahead(burst: &Burst<'_>, keys: &mut [LaneKey]) {
    for key in &mut *keys {
        key.ahead = burst.prefetch(key.hash, key.intent());
    }
    for key in &mut *keys {
        key.ahead = burst.look(key.hash, key.intent(), key.ahead);
    }
    for key in keys {
        key.ahead = burst.look_again(key.hash, key.intent(), key.ahead);
    }
}
