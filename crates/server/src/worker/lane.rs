//! The usual visit, on a path of its own: a connection has sent nothing but whole `get`s of one key
//! each, and their replies are short.
//!
//! That is most of what a cache is asked, and it needs little of what a burst knows how to do. What
//! comes is taken in here where it is found to be such, and looked up some keys at a time, so that
//! the waiting times for memory overlap. A visit that turns out to be an unusual one when it is
//! executed (a large value, no room for the reply) has changed nothing by then; it goes the way of
//! all others from its beginning.

use coua_protocol::Parser;
use coua_store::{Ahead, Burst, Intent, Key, KeyHash, Store};

use super::input::Active;
use super::{BURST_LEN, Worker};
use crate::clock::Now;
use crate::execute::{Answers, Executor, Outcome};
use crate::output::Flushed;

/// Keys that are looked up together, about.
const GROUP: usize = 32;

/// Keys of one visit at most.
const VISIT_KEYS_MAX: usize = 32;

/// Keys of a turn at most, and visits.
const KEYS_MAX: usize = BURST_LEN;

/// Visits that wait to be executed, and their keys.
pub(super) struct Lane {
    keys: Vec<LaneKey>,
    visits: Vec<LaneVisit>,
    /// Visits that end in another way than the usual.
    unusual: Vec<(LaneVisit, Outcome)>,
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

/// What has been counted and not been added to the worker's counters.
#[derive(Default)]
struct Counted {
    gets: u64,
    hits: u64,
}

impl Lane {
    /// Bytes of its lists.
    pub(super) const MEMORY: usize = KEYS_MAX
        * (size_of::<LaneKey>() + size_of::<LaneVisit>() + size_of::<(LaneVisit, Outcome)>());

    pub(super) fn new() -> Lane {
        Lane {
            keys: Vec::with_capacity(KEYS_MAX),
            visits: Vec::with_capacity(KEYS_MAX),
            unusual: Vec::with_capacity(KEYS_MAX),
        }
    }

    /// Takes what a connection has sent, `input` in the buffer `bytes`, where it is nothing but
    /// whole `get`s of one key, `keys_max` at most. False where it is not; nothing has changed then.
    #[inline]
    pub(super) fn take(
        &mut self,
        parser: &mut Parser,
        input: Active,
        bytes: &[u8],
        store: &Store,
        keys_max: usize,
    ) -> bool {
        let first = self.keys.len();
        let keys_max = keys_max.min(VISIT_KEYS_MAX).min(KEYS_MAX - first);
        // Between requests, the parser does not change with requests of one key.
        if !parser.is_between_requests() {
            return false;
        }
        let mut at = input.start;
        while at < input.end {
            let get = match parser.next_get(&bytes[at..input.end]) {
                Some(get) if self.keys.len() - first < keys_max => get,
                _ => {
                    self.keys.truncate(first);
                    return false;
                }
            };
            self.keys.push(LaneKey {
                start: u32::try_from(at).expect("below INPUT_LEN") + get.key.start,
                len: get.key.len,
                cas: get.cas,
                hash: store.key(get.key.of(&bytes[at..])).hash,
                ahead: Ahead::NONE,
            });
            at += get.consumed as usize;
        }
        let keys_end = self.keys.len();
        self.visits.push(LaneVisit { input, keys_end });
        true
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
        let (mut looked_to, mut executed_to) = (0, 0);
        for visit in &self.lane.visits {
            if looked_to < visit.keys_end {
                let to = self
                    .lane
                    .keys
                    .len()
                    .min(looked_to.max(visit.keys_end) + GROUP);
                look_ahead(&executor.burst, &mut self.lane.keys[looked_to..to]);
                looked_to = to;
            }
            let keys = &self.lane.keys[executed_to..visit.keys_end];
            executed_to = visit.keys_end;
            let Some(session) = self.sessions.get(visit.input.id) else {
                continue;
            };
            let mut hits = 0;
            let is_usual = keys.iter().all(|key| {
                let found = executor.get_briefly(&key.of(bytes), key.ahead, key.cas);
                hits += u64::from(found == Some(true));
                found.is_some()
            });
            if !is_usual {
                executor.answers.output.truncate(0);
                self.lane.unusual.push((*visit, Outcome::Wait));
                continue;
            }
            counted.gets += keys.len() as u64;
            counted.hits += hits;
            session.connection.note_request(now.unix);
            let flushed = executor
                .answers
                .output
                .flush(session, executor.answers.pool);
            if flushed != Flushed::All || session.readable {
                self.lane.unusual.push((*visit, flushed.into()));
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
            let (visit, outcome) = self.lane.unusual[at];
            let Active { id, end, .. } = visit.input;
            match (outcome, self.sessions.get(id)) {
                (Outcome::Wait, Some(session)) => {
                    session.is_active = true;
                    self.input.active.push_back(visit.input);
                }
                _ => self.leave(id, outcome, (end, end), now),
            }
        }
        self.lane.unusual.clear();
        self.input.reuse();
        true
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
        key.ahead = burst.look_again(key.hash, key.ahead);
    }
}
