//! Executes the batch: the entries of all sessions in order. The replies of each session are sent
//! after its last entry.
//!
//! An entry is tried on the fast path first, which answers a `get` and a plain `set` if three
//! things hold: the reply fits, the value is short, and there is memory for the item. The fast path
//! checks all of them before it changes anything. Entries that it does not take are executed on the
//! general path, which takes every entry; the next entry may take the fast path again.

use std::mem;
use std::ops::Range;
use std::time::Duration;

use coua_protocol::PlainSet;
use coua_store::{Access, Intent, Key};

use super::Worker;
use super::batch::{Entry, Operation, Pause, SessionBatch, Unfinished, What};
use super::finish::WAIT_MS_MAX;
use super::input::SessionInput;
use super::look_ahead::LookAhead;
use super::slow::{SlowRequests, name_of};
use crate::clock::Now;
use crate::counters::Counters;
use crate::execute::{Answers, Executor, KeyRoom, Request, key_of, needs_record, stored_key};
use crate::hot_keys::{Chosen, Sample};
use crate::outcome::Outcome;
use crate::output::Flushed;
use crate::session::Session;
use crate::shared::Shared;
use crate::watch::LogStreams;

/// Bytes of replies after which a connection yields to others, and after which the batch ends:
/// large values must not keep small requests waiting.
const SESSION_REPLY_LEN: u64 = 256 << 10;
const BATCH_REPLY_LEN: u64 = 4 << 20;

/// What entries refer to.
#[derive(Clone, Copy)]
struct Requests<'b> {
    sets: &'b [PlainSet],
    operations: &'b [Operation],
    /// The input buffer.
    bytes: &'b [u8],
}

impl<'b> Requests<'b> {
    /// The key of an entry, if it has one.
    fn key<'k>(&self, entry: &Entry, room: &'k mut KeyRoom) -> Option<&'k [u8]>
    where
        'b: 'k,
    {
        Some(match entry.what {
            What::Get { key, .. } => key.of(self.bytes),
            What::Set(number) => self.sets[usize::from(number)].key.of(self.bytes),
            What::Other(number) => {
                let Operation { base, op } = &self.operations[usize::from(number)];
                let (key, base64, _) = key_of(op)?;
                stored_key(key, base64, &self.bytes[*base..], room)
            }
        })
    }

    /// Whether an entry looks an item up.
    fn reads(&self, entry: &Entry) -> bool {
        match entry.what {
            What::Get { .. } => true,
            What::Set(_) => false,
            What::Other(number) => {
                let Operation { op, .. } = &self.operations[usize::from(number)];
                key_of(op).is_some_and(|(.., intent)| intent == Intent::Read)
            }
        }
    }

    /// What an entry asks for, as memcached calls it.
    fn command(&self, entry: &Entry) -> &'static str {
        match entry.what {
            What::Get { .. } => "get",
            What::Set(_) => "set",
            What::Other(number) => name_of(&self.operations[usize::from(number)].op),
        }
    }
}

/// Counts of the fast path that have not been added to the worker's counters yet.
#[derive(Default)]
struct Counted {
    requests: u64,
    /// Sets among the requests; the others are gets.
    sets: u64,
    hits: u64,
}

/// The result of executing a session's entries.
pub(super) struct Executed {
    /// End of the entries that have been executed (exclusive).
    pub(super) to: usize,
    /// The outcome of the last one.
    pub(super) outcome: Outcome,
    /// All have taken the fast path.
    is_fast: bool,
}

impl Executed {
    /// Entry `first` and what follows it have not been executed.
    fn nothing(first: usize) -> Executed {
        Executed {
            to: first,
            outcome: Outcome::Done,
            is_fast: false,
        }
    }
}

/// A batch under execution.
struct Run<'w, 'b> {
    executor: Executor<'w, 'b>,
    requests: Requests<'w>,
    look_ahead: LookAhead,
    counted: Counted,
    /// See [`has_fast_path`].
    has_fast_path: bool,
    slow: Option<SlowRequests>,
}

/// Whether the fast path may be used. It may not when each reply is logged, requests are counted by
/// prefix, somebody watches them, or each is timed: then all take the general path.
fn has_fast_path(shared: &Shared) -> bool {
    shared.verbosity() < 2
        && !shared.prefixes.is_enabled()
        && shared.settings.slow_us.is_none()
        && !shared.watchers.see(LogStreams::OF_REQUESTS)
}

impl Worker {
    /// Executes the turn's requests and handles the sessions that are not done.
    /// `began` is when the turn began, since the server's start.
    pub(super) fn run_batch(&mut self, now: Now, began: Duration) {
        if self.batch.sessions.is_empty() && self.uploads.is_empty() {
            // Flushes that are due and the store's own work need a burst too.
            self.store.burst(now.time);
            return;
        }
        self.execute(now, began);
        for number in 0..self.batch.unfinished.len() {
            self.finish(self.batch.unfinished[number], now);
        }
        self.batch.clear();
        self.input.reuse();
        self.receive_values(now);
    }

    fn execute(&mut self, now: Now, began: Duration) {
        let counters = self.shared.counters(self.index);
        let mut run = Run {
            executor: Executor {
                burst: self.store.burst(now.time),
                answers: Answers {
                    output: &mut self.output,
                    pool: &mut self.pool,
                    rdma: self.rdma.as_deref_mut(),
                    counters,
                    shared: &self.shared,
                    now,
                },
                fetches: &mut self.fetches,
                spare_streaming_sets: &mut self.spare_streaming_sets,
            },
            requests: Requests {
                sets: &self.batch.sets,
                operations: &self.batch.operations,
                bytes: self.input.bytes(),
            },
            look_ahead: LookAhead::new(self.batch.entries.len()),
            counted: Counted::default(),
            has_fast_path: has_fast_path(&self.shared),
            slow: SlowRequests::of_turn(&self.shared, began),
        };
        let entries = &mut self.batch.entries[..];
        let mut first = 0;
        // Bits of the senders that have a datagram which continues in a later turn. Their later
        // datagrams are executed after it, in that turn.
        let mut held_back = 0;
        for (number, part) in self.batch.sessions.iter().enumerate() {
            let all = mem::replace(&mut first, part.entries_end)..part.entries_end;
            let id = part.input.id;
            let Some(session) = self.sessions.get(id) else {
                continue;
            };
            let executed = match held_back == 0 || session.sender_bit() & held_back == 0 {
                true => run.entries(entries, all.clone(), session, part),
                false => Executed::nothing(all.start),
            };
            let is_whole = executed.to == all.end;
            if !executed.is_fast && session.has_fetches {
                run.executor.end_fetches(session, is_whole);
            }
            let mut outcome = executed.outcome;
            if session.message.is_some() {
                if session.serves_rdma() {
                    let left = run.executor.end_rdma(session, &executed, part, all.end);
                    if let Some(left) = left {
                        self.batch.unfinished.push(Unfinished {
                            number,
                            first: all.start,
                            executed_to: executed.to,
                            outcome: left,
                        });
                    } else {
                        self.sessions.remove(id);
                    }
                    continue;
                }
                let yields = !is_whole || part.pause == Pause::Yields;
                let waits = matches!(outcome, Outcome::Wait | Outcome::WaitForFlash);
                let goes_on = waits || outcome == Outcome::Done && yields;
                if goes_on {
                    outcome = run.send(session, &executed);
                }
                if !goes_on || outcome != executed.outcome {
                    run.executor.abandon_fetches(session);
                    let answers = &mut run.executor.answers;
                    self.datagrams.finish(id, session, outcome, answers);
                    continue;
                }
                held_back |= session.sender_bit();
            } else {
                match run.end(session, &executed, is_whole && part.is_exhausted) {
                    Some(left) => {
                        outcome = left;
                        if session.has_fetches && session.is_blocked() {
                            // Its client may never read, and others need the memory.
                            run.executor.end_fetches(session, true);
                        }
                    }
                    None => continue,
                }
            }
            self.batch.unfinished.push(Unfinished {
                number,
                first: all.start,
                executed_to: executed.to,
                outcome,
            });
        }
        mem::take(&mut run.counted).add_to(counters);
        if let Some(chosen) = self.chooser.choose(entries.len()) {
            run.count_hot_keys(self.index, entries, chosen);
        }
        counters
            .bytes_written
            .add(mem::take(&mut self.output.bytes_sent));
    }
}

impl Run<'_, '_> {
    /// Counts the requests at the chosen places for `stats hotkeys`, and those that missed for `stats
    /// misses`. After execution their items are in the nearest caches.
    #[cold]
    fn count_hot_keys(&self, worker: usize, entries: &[Entry], chosen: Chosen<'_>) {
        let Answers { shared, now, .. } = &self.executor.answers;
        let Some(mut counts) = shared.hot_keys.of_worker(worker, now.since_start_ms) else {
            return;
        };
        for place in chosen {
            let mut room = None;
            let Some(key) = self.requests.key(&entries[place], &mut room) else {
                continue;
            };
            let hash = entries[place].hash;
            let unseen = Access {
                bump: false,
                cas: false,
            };
            let burst = &self.executor.burst;
            let item = burst.get(&Key { bytes: key, hash }, unseen);
            let is_missed = item.is_err() && self.requests.reads(&entries[place]);
            counts.count(&Sample {
                hash,
                key,
                value_len: item.map_or(0, |item| item.value_len()),
            });
            if is_missed
                && let Some(mut missed) = shared.missed.of_worker(worker, now.since_start_ms)
            {
                let prefix = shared.prefixes.prefix_of(key).unwrap_or_default();
                missed.count(&Sample {
                    hash: burst.key(prefix).hash,
                    key: prefix,
                    value_len: 0,
                });
            }
        }
    }

    /// Executes the entries `all` of a session until one of them stops it.
    #[inline(always)]
    fn entries(
        &mut self,
        entries: &mut [Entry],
        all: Range<usize>,
        session: &mut Session,
        part: &SessionBatch,
    ) -> Executed {
        let mut tries_fast = self.has_fast_path && session.takes_fast_path();
        let mut executed = Executed {
            is_fast: tries_fast,
            ..Executed::nothing(all.start)
        };
        let began_at = self.executor.answers.output.bytes_sent;
        while executed.to < all.end {
            self.look_ahead
                .reach(executed.to, entries, &self.executor.burst);
            let entry = &entries[executed.to];
            if tries_fast && (self.counted).try_fast(&mut self.executor, entry, self.requests) {
                executed.to += 1;
                continue;
            }
            let sent = self.executor.answers.output.bytes_sent;
            if sent - began_at >= SESSION_REPLY_LEN || sent >= BATCH_REPLY_LEN {
                break;
            }
            executed.is_fast = false;
            let is_first = executed.to == all.start;
            executed.outcome = self.execute_other(entry, session, part.input, is_first);
            match executed.outcome {
                Outcome::Done => executed.to += 1,
                Outcome::Wait => break,
                Outcome::WaitForFlash => {
                    if !session.is_blocked() {
                        let later = &entries[executed.to + 1..all.end];
                        self.fetch_ahead(later, session, part.input);
                    }
                    break;
                }
                _ => {
                    executed.to += 1;
                    break;
                }
            }
            tries_fast = self.has_fast_path && session.takes_fast_path();
        }
        if executed.to > all.start {
            if session.has_fetches {
                session.fetches.waits = 0;
            }
            session.note_request(self.executor.answers.now.unix);
            session.wait_no_more();
        }
        executed
    }

    /// A session waits for flash: begins to read what its later requests need too.
    #[cold]
    fn fetch_ahead(&mut self, later: &[Entry], session: &mut Session, input: SessionInput) {
        if session.is_restricted {
            // Perhaps it may not read them.
            return;
        }
        let Requests {
            operations, bytes, ..
        } = self.requests;
        for entry in later {
            let mut room = None;
            let bytes = match entry.what {
                What::Get { key, .. } => key.of(bytes),
                What::Set(_) => continue,
                What::Other(number) => {
                    let Operation { base, op } = &operations[usize::from(number)];
                    let Some((key, base64, _)) = key_of(op).filter(|_| needs_record(op)) else {
                        continue;
                    };
                    stored_key(key, base64, &bytes[*base..], &mut room)
                }
            };
            let hash = entry.hash;
            let key = Key { bytes, hash };
            if !self.executor.fetch_ahead(input.id, session, &key) {
                return;
            }
        }
    }

    /// Executes and counts an entry that the fast path does not take; `is_first` says whether it is
    /// the first of its session, whose input is `input`. A separate function, so that the loop around the fast path
    /// keeps its registers.
    #[inline(never)]
    fn execute_other(
        &mut self,
        entry: &Entry,
        session: &mut Session,
        input: SessionInput,
        is_first: bool,
    ) -> Outcome {
        // The entry may read or reset the counters, so they must be up to date.
        mem::take(&mut self.counted).add_to(self.executor.answers.counters);
        let gives_up = is_first && self.has_waited_long(session);
        let started = match &self.slow {
            Some(slow) => Some(slow.start(session, self.executor.answers.shared)),
            None => None,
        };
        let outcome = (self.executor).execute_entry(entry, self.requests, session, input, gives_up);
        if !matches!(outcome, Outcome::Wait | Outcome::WaitForFlash) {
            self.executor.answers.counters.requests.add(1);
            if let Some(slow) = &self.slow
                && let Some(started) = started
            {
                let answers = &self.executor.answers;
                if let Some(took) = slow.took(&started, answers.shared) {
                    let mut room = None;
                    let key = self.requests.key(entry, &mut room);
                    let command = self.requests.command(entry);
                    took.tell(command, key.unwrap_or_default(), session, answers);
                }
            }
        }
        if outcome == Outcome::Done {
            self.has_fast_path = has_fast_path(self.executor.answers.shared);
        }
        outcome
    }

    /// Sends a connection's replies after its last entry, and returns the outcome of its part of
    /// the batch: `None` if there is nothing left to do for it. `is_exhausted` says that its input
    /// is used up.
    #[inline(always)]
    fn end(
        &mut self,
        session: &mut Session,
        executed: &Executed,
        is_exhausted: bool,
    ) -> Option<Outcome> {
        let outcome = self.send(session, executed);
        let is_over = outcome == Outcome::Done && is_exhausted && session.awaits_input();
        (!is_over).then_some(outcome)
    }

    /// Sends a session's replies after its last entry, or gathers a datagram's, and returns the
    /// outcome of its part of the batch.
    #[inline(always)]
    fn send(&mut self, session: &mut Session, executed: &Executed) -> Outcome {
        let answers = &mut self.executor.answers;
        match executed.is_fast {
            true => answers.output.flush(session, answers.pool).into(),
            false => answers.send_behind(session, executed.outcome),
        }
    }

    /// Whether the next request has waited for memory for as long as it may.
    fn has_waited_long(&self, session: &Session) -> bool {
        let now_ms = self.executor.answers.now.since_start_ms;
        let since_ms = session.waits_since_ms();
        since_ms.is_some_and(|since_ms| now_ms - since_ms >= WAIT_MS_MAX)
    }
}

impl Answers<'_> {
    /// Sends a session's replies after an entry that came to `outcome`.
    #[inline(never)]
    fn send_behind(&mut self, session: &mut Session, outcome: Outcome) -> Outcome {
        let keeps = matches!(
            outcome,
            Outcome::Done | Outcome::Wait | Outcome::WaitForFlash | Outcome::CloseWhenSent
        );
        if !keeps || session.is_blocked() {
            self.output.truncate(0);
            return outcome;
        }
        match (self.output.flush(session, self.pool), outcome) {
            // The request waits for memory or flash, or the connection is about to close. Either way
            // the replies are sent first.
            (Flushed::All, _)
            | (Flushed::Blocked, Outcome::Wait | Outcome::WaitForFlash | Outcome::CloseWhenSent) => {
                outcome
            }
            (flushed, _) => flushed.into(),
        }
    }
}

impl Executor<'_, '_> {
    /// Executes an entry on the general path.
    fn execute_entry(
        &mut self,
        entry: &Entry,
        requests: Requests<'_>,
        session: &mut Session,
        input: SessionInput,
        gives_up: bool,
    ) -> Outcome {
        let base = match entry.what {
            What::Other(number) => requests.operations[usize::from(number)].base,
            _ => 0,
        };
        let mut request = Request {
            session,
            id: input.id,
            input: &requests.bytes[base..input.end],
            hash: entry.key_hash(),
            ahead: entry.ahead,
            gives_up,
            flash_tries: 0,
        };
        if request.session.is_restricted
            && let Some(denied) = self.deny(&mut request, entry.what, requests)
        {
            return denied;
        }
        if request.session.has_fetches && request.session.fetches.is_sending() {
            return self.send_large(request.id, request.session);
        }
        match entry.what {
            What::Get { key, cas, last } => self.execute_get(request, key, cas, last),
            What::Set(number) => self.execute_set(request, &requests.sets[usize::from(number)]),
            What::Other(number) => {
                self.execute(request, &requests.operations[usize::from(number)].op)
            }
        }
    }

    /// Answers an entry that the session's user may not execute; `None` where nothing forbids it.
    fn deny(
        &mut self,
        request: &mut Request<'_>,
        what: What,
        requests: Requests<'_>,
    ) -> Option<Outcome> {
        match what {
            What::Get { key, last, .. } => self.deny_get(request, key, last),
            What::Set(number) => self.deny_set(request, &requests.sets[usize::from(number)]),
            What::Other(number) => {
                self.deny_op(request, &requests.operations[usize::from(number)].op)
            }
        }
    }
}

impl Counted {
    /// Executes an entry on the fast path, and counts it. Returns false, and has changed nothing,
    /// if the fast path does not take it.
    #[inline(always)]
    fn try_fast(
        &mut self,
        executor: &mut Executor<'_, '_>,
        entry: &Entry,
        requests: Requests<'_>,
    ) -> bool {
        let hash = entry.hash;
        match entry.what {
            What::Get { key, cas, last } => {
                let bytes = key.of(requests.bytes);
                let key = Key { bytes, hash };
                let found = executor.try_get_fast(&key, entry.ahead, cas, last);
                self.requests += u64::from(found.is_some());
                self.hits += u64::from(found == Some(true));
                found.is_some()
            }
            What::Set(number) => {
                let set = &requests.sets[usize::from(number)];
                let bytes = set.key.of(requests.bytes);
                let key = Key { bytes, hash };
                let value = set.value.of(requests.bytes);
                let is_set = executor.try_set_fast(&key, entry.ahead, set, value);
                self.requests += u64::from(is_set);
                self.sets += u64::from(is_set);
                is_set
            }
            What::Other(..) => false,
        }
    }

    fn add_to(self, counters: &Counters) {
        counters.requests.add(self.requests);
        counters.cmd_set.add(self.sets);
        let gets = self.requests - self.sets;
        counters.cmd_get.add(gets);
        counters.get_hits.add(self.hits);
        counters.get_misses.add(gets - self.hits);
    }
}
