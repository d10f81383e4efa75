//! The requests of one turn, from all connections and datagrams, in one list.
//!
//! A session's input is parsed as soon as it is received, while it is still in the nearest cache.
//! Each request becomes an [`Entry`]; a request with many keys becomes one entry per key. An entry
//! holds all that the later steps need: the key's hash, what the look-ahead found, and where the
//! request ends. A session whose requests are not all executed in this turn resumes exactly there.
//!
//! ```text
//! entries   | get a | get b | set c | mg d | get e … last key |     one a request, or a key of it
//!             \____ session 1 ____/ \_ 2 _/ \____ 3 ________/
//! sessions  | input, entries_end, …| …    | …               |     one a connection or datagram
//! ```
//!
//! # Invariants
//! - The entries of a session are in the order of its requests. Sessions are in the order in which
//!   their input came.
//! - Spans of gets and sets count from the start of the input buffer; spans of other operations
//!   count from the operation's own base.
//! - The lists are allocated at full size at the start.
//!
//! # Not here
//! How entries are executed is in `run`; what happens to a session after its last entry is in
//! `finish`.

use coua_protocol::{Front, GetKey, Limits, Op, Parser, PlainSet, Step};
use coua_store::{Ahead, Intent, KeyHash, Store};

use super::input::SessionInput;
use crate::closing::CloseCause;
use crate::connections::ConnectionInfo;
use crate::execute::{key_of, stored_key};
use crate::session::Session;
use crate::shared::Shared;

mod entry;

pub(super) use entry::{Entry, Operation, Pause, SessionBatch, Unfinished, What};

/// At this number of entries parsing stops, so that other sessions get their turn soon.
const BATCH_LEN: usize = 1024;

/// Entries at most. A request of many keys that begins below [`BATCH_LEN`] is parsed to its end if
/// there is room, so that its reply leaves in one piece.
const BATCH_LEN_MAX: usize = BATCH_LEN + BATCH_LEN / 2;

/// Sessions at most. A session has no entry if its input is not a whole request.
const SESSIONS_MAX: usize = BATCH_LEN;

/// The requests of one turn.
pub(super) struct Batch {
    pub(super) entries: Vec<Entry>,
    pub(super) sets: Vec<PlainSet>,
    pub(super) operations: Vec<Operation>,
    pub(super) sessions: Vec<SessionBatch>,
    /// For sessions whose input begins in the middle of a request: the session's number and its
    /// parser.
    resumed: Vec<(usize, Parser)>,
    /// Sessions that need more than to wait for input after their entries have been executed.
    pub(super) unfinished: Vec<Unfinished>,
}

/// Requests that each of `sessions` may have in a batch: a single session may fill it; each of many
/// gets an equal share, but at least `-R`.
pub(super) fn share(sessions: usize, requests_per_turn: usize) -> usize {
    (BATCH_LEN / sessions.max(1)).max(requests_per_turn)
}

impl Batch {
    /// Bytes of the lists.
    pub(super) const MEMORY: usize = BATCH_LEN_MAX
        * (size_of::<Entry>() + size_of::<PlainSet>() + size_of::<Operation>())
        + SESSIONS_MAX
            * (size_of::<SessionBatch>() + size_of::<(usize, Parser)>() + size_of::<Unfinished>());

    pub(super) fn new() -> Batch {
        Batch {
            entries: Vec::with_capacity(BATCH_LEN_MAX),
            sets: Vec::with_capacity(BATCH_LEN_MAX),
            operations: Vec::with_capacity(BATCH_LEN_MAX),
            sessions: Vec::with_capacity(SESSIONS_MAX),
            resumed: Vec::with_capacity(SESSIONS_MAX),
            unfinished: Vec::with_capacity(SESSIONS_MAX),
        }
    }

    /// Whether there is no room for another session.
    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.entries.len() >= BATCH_LEN || self.sessions.len() >= SESSIONS_MAX
    }

    /// Empties the lists for the next turn.
    pub(super) fn clear(&mut self) {
        self.entries.clear();
        self.sets.clear();
        self.operations.clear();
        self.sessions.clear();
        self.resumed.clear();
        self.unfinished.clear();
    }

    /// Parses a session's `input` in the buffer `bytes`, up to the session's `share` of the batch
    /// ([`share`]). The caller has checked that there is room ([`Batch::is_full`]).
    #[inline]
    pub(super) fn plan(
        &mut self,
        session: &mut Session,
        input: SessionInput,
        bytes: &[u8],
        share: usize,
        shared: &Shared,
    ) {
        let (store, limits) = (&*shared.store, &shared.settings.limits);
        let first = self.entries.len();
        // Below this number of entries no limit can be reached.
        let unbounded = BATCH_LEN.min(first + share);
        let mut at = input.start;
        let front = front_of(&session.parser, shared);
        if let Some(front) = front {
            while at < input.end && self.entries.len() < unbounded {
                let rest = &bytes[at..input.end];
                at += if let Some(get) = front.next_get(rest) {
                    self.push_get(get, store.key(get.key.of(rest)).hash, at);
                    get.consumed as usize
                } else if let Some(set) = front.next_set(rest, limits) {
                    self.push_set(set, store.key(set.key.of(rest)).hash, at);
                    set.consumed as usize
                } else {
                    break;
                };
            }
        }
        let mut pause = Pause::NeedsMore;
        if front.is_none() || at < input.end {
            let from = SessionInput { start: at, ..input };
            (at, pause) = self.plan_others(session, from, bytes, first, share, shared);
        }
        self.sessions.push(SessionBatch {
            input,
            entries_end: self.entries.len(),
            parsed_to: at,
            pause,
            is_exhausted: pause == Pause::NeedsMore && at == input.end,
        });
    }

    /// Parses what [`Batch::plan`] has left of a session's input: all of it, or the rest from the
    /// first request that the parser's fast path does not take. `first` is the session's first
    /// entry. Returns the end of what it has parsed, and why it stopped there.
    ///
    /// A separate function, so that the loop over the most common requests keeps its registers.
    #[inline(never)]
    fn plan_others(
        &mut self,
        session: &mut Session,
        input: SessionInput,
        bytes: &[u8],
        first: usize,
        share: usize,
        shared: &Shared,
    ) -> (usize, Pause) {
        let (store, limits) = (&*shared.store, &shared.settings.limits);
        let logs = shared.verbosity() >= 2;
        let log = |connection: &ConnectionInfo, rest: &[u8], consumed, is_secret: bool| {
            if is_secret && logs {
                tracing::trace!("<{} (before login)", connection.descriptor);
            } else if logs {
                log_request(connection.descriptor, rest, consumed);
            }
        };
        let mut front = front_of(&session.parser, shared);
        if front.is_none() && !session.parser.is_between_requests() {
            self.resumed.push((self.sessions.len(), session.parser));
        }
        let unbounded = BATCH_LEN.min(first + share);
        // Keys that are not the last of their request.
        let mut inner_keys = 0;
        let mut is_within = false;
        let mut at = input.start;
        let pause = loop {
            if at == input.end {
                break Pause::NeedsMore;
            }
            let len = self.entries.len();
            if len >= unbounded {
                let is_full = len >= BATCH_LEN_MAX || len >= BATCH_LEN && !is_within;
                if is_full || len - first - inner_keys >= share {
                    break Pause::Yields;
                }
            }
            let rest = &bytes[at..input.end];
            if let Some(front) = front {
                if let Some(get) = front.next_get(rest) {
                    let hash = store.key(get.key.of(rest)).hash;
                    self.push_get(get, hash, at);
                    at += get.consumed as usize;
                    continue;
                }
                if let Some(set) = front.next_set(rest, limits) {
                    let hash = store.key(set.key.of(rest)).hash;
                    self.push_set(set, hash, at);
                    at += set.consumed as usize;
                    continue;
                }
            } else if let Some(get) = session.parser.next_get(rest) {
                is_within = !get.last;
                inner_keys += usize::from(is_within);
                let hash = store.key(get.key.of(rest)).hash;
                log(&session.connection, rest, get.consumed, false);
                self.push_get(get, hash, at);
                at += get.consumed as usize;
                front = front_of(&session.parser, shared);
                continue;
            }
            let was_locked = session.parser.is_locked();
            let step = next_step(&mut session.parser, rest, limits);
            front = front_of(&session.parser, shared);
            match step {
                Step::Op { consumed, op } => {
                    is_within = !ends_request(&op);
                    inner_keys += usize::from(is_within);
                    let is_login = matches!(op, Op::Login(_));
                    log(&session.connection, rest, consumed, was_locked || is_login);
                    let is_boundary = session.parser.is_between_requests();
                    self.push_operation(&op, consumed, is_boundary, at, rest, store);
                    at += consumed as usize;
                    if op.closes() {
                        break Pause::Closes;
                    }
                    if is_login && at < input.end {
                        // What follows is parsed when it is known what may follow.
                        break Pause::Yields;
                    }
                }
                Step::Skip { consumed } => {
                    at += consumed as usize;
                    if at == input.end {
                        break Pause::Skips;
                    }
                }
                Step::More { .. } => break Pause::NeedsMore,
                Step::Close { .. } => {
                    session.close_cause = Some(CloseCause::Protocol);
                    break Pause::Closes;
                }
            }
        };
        (at, pause)
    }

    /// Appends a key of a `get` whose spans count from `base`.
    #[inline(always)]
    fn push_get(&mut self, get: GetKey, hash: KeyHash, base: usize) {
        self.entries.push(Entry {
            what: What::Get {
                key: get.key.shifted(offset(base)),
                cas: get.cas,
                last: get.last,
            },
            intent: Intent::Read,
            has_key: true,
            is_boundary: get.last,
            end: offset(base) + get.consumed,
            hash,
            ahead: Ahead::NONE,
        });
    }

    /// Appends a plain set whose spans count from `base`.
    #[inline(always)]
    fn push_set(&mut self, set: PlainSet, hash: KeyHash, base: usize) {
        let number = number(self.sets.len());
        self.sets.push(PlainSet {
            key: set.key.shifted(offset(base)),
            value: set.value.shifted(offset(base)),
            ..set
        });
        self.entries.push(Entry {
            what: What::Set(number),
            intent: Intent::Write,
            has_key: true,
            is_boundary: true,
            end: offset(base) + set.consumed,
            hash,
            ahead: Ahead::NONE,
        });
    }

    /// Appends an operation of `consumed` bytes whose spans count from `base`, where `rest` begins.
    fn push_operation(
        &mut self,
        op: &Op,
        consumed: u32,
        is_boundary: bool,
        base: usize,
        rest: &[u8],
        store: &Store,
    ) {
        if let Op::Get { key, cas, last } = *op {
            let hash = store.key(key.of(rest)).hash;
            let get = GetKey {
                consumed,
                key,
                cas,
                last,
            };
            self.push_get(get, hash, base);
            return;
        }
        let mut room = None;
        let key = key_of(op).map(|(key, base64, intent)| {
            let key = stored_key(key, base64, rest, &mut room);
            (store.key(key).hash, intent)
        });
        let number = number(self.operations.len());
        self.operations.push(Operation { base, op: *op });
        self.entries.push(Entry {
            what: What::Other(number),
            intent: key.map_or(Intent::Read, |(_, intent)| intent),
            has_key: key.is_some(),
            is_boundary,
            end: offset(base) + consumed,
            hash: key.map_or(KeyHash::default(), |(hash, _)| hash),
            ahead: Ahead::NONE,
        });
    }

    /// The parser and the offset in the input buffer from which the session of `unfinished`
    /// resumes. `parser` is the session's parser after the whole batch.
    pub(super) fn rest(
        &self,
        unfinished: Unfinished,
        parser: Parser,
        bytes: &[u8],
        limits: &Limits,
    ) -> (Parser, usize) {
        let input = self.sessions[unfinished.number].input;
        let executed = &self.entries[unfinished.first..unfinished.executed_to];
        let at_front = Parser::of(parser.dialect());
        let (parser, from, left) = match executed.iter().rposition(|entry| entry.is_boundary) {
            Some(at) => (at_front, executed[at].end as usize, executed.len() - at - 1),
            None => {
                let mut resumed = self.resumed.iter();
                let before = resumed.find(|(number, _)| *number == unfinished.number);
                let before = before.map_or(at_front, |(_, parser)| *parser);
                (before, input.start, executed.len())
            }
        };
        let (parser, used) = replay(parser, &bytes[from..input.end], left, limits);
        (parser, from + used)
    }
}

/// The parser's fast path, where it is open. Requests that are logged are all found in one way.
#[inline(always)]
fn front_of(parser: &Parser, shared: &Shared) -> Option<Front> {
    match shared.verbosity() < 2 {
        true => parser.front(),
        false => None,
    }
}

/// What the parser finds at the start of `rest`.
#[inline(never)]
fn next_step(parser: &mut Parser, rest: &[u8], limits: &Limits) -> Step {
    parser.next(rest, &limits_for(rest, limits))
}

/// The parser and the bytes consumed after `entries` entries of an input that has been parsed
/// before.
fn replay(mut parser: Parser, input: &[u8], entries: usize, limits: &Limits) -> (Parser, usize) {
    let mut used = 0;
    let mut left = entries;
    while left > 0 {
        match next_step(&mut parser, &input[used..], limits) {
            Step::Op { consumed, .. } => {
                used += consumed as usize;
                left -= 1;
            }
            Step::Skip { consumed } => used += consumed as usize,
            Step::More { .. } | Step::Close { .. } => break,
        }
    }
    (parser, used)
}

/// The limits for parsing the start of `rest`: a value that has arrived whole need not be stored in
/// pieces, however long it is.
#[inline]
fn limits_for(rest: &[u8], limits: &Limits) -> Limits {
    let held = u32::try_from(rest.len()).unwrap_or(u32::MAX);
    Limits {
        gather_max: limits.gather_max.max(held),
        ..*limits
    }
}

/// Whether an operation is the last of its request.
fn ends_request(op: &Op) -> bool {
    !matches!(
        op,
        Op::Get { last: false, .. }
            | Op::GetAndTouch { last: false, .. }
            | Op::StoreStream(_)
            | Op::StoreBody { .. }
    )
}

/// An offset in the input buffer.
#[inline(always)]
fn offset(at: usize) -> u32 {
    u32::try_from(at).expect("below INPUT_LEN")
}

/// An index into a list.
#[inline(always)]
fn number(len: usize) -> u16 {
    u16::try_from(len).expect("below BATCH_LEN_MAX")
}

#[cold]
fn log_request(descriptor: i32, input: &[u8], consumed: u32) {
    let request = &input[..consumed as usize];
    let line = request
        .split(|&byte| byte == b'\n')
        .next()
        .unwrap_or_default();
    tracing::trace!("<{descriptor} {}", line.trim_ascii_end().escape_ascii());
}
#[cfg(test)]
mod tests;
