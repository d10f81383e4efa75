//! One burst: requests of all active connections, looked up together, executed in order.
//!
//! Before a request is executed its buckets and then its item have been asked for from memory,
//! while requests before it were executed, so that the waiting times for memory overlap:
//!
//! ```text
//! request i + 32   hash the key, prefetch its buckets
//! request i + 16   look into the buckets, prefetch the item
//! request i        execute
//! ```
//! All that is a hint; a request's answer looks at the store as it is when it is executed.

use coua_protocol::{KEY_LEN_MAX, Op, Parser, Step};
use coua_store::KeyHash;

use super::input::{Active, SESSION_INPUT_LEN};
use super::{BURST_LEN, Worker};
use crate::clock::Now;
use crate::connections::Activity;
use crate::execute::{Answers, Executor, Outcome, Request, key_of, stored_key};
use crate::output::Flushed;
use crate::session::{Leftover, SessionId};

/// How many requests lie between a key's hash and its execution.
const LOOK_AHEAD: usize = 32;

/// How many requests lie between the look into the buckets and the execution.
const LOOK_AHEAD_ITEM: usize = 16;

/// Bursts shorter than this are executed without a look ahead, which would find nothing to
/// overlap with.
const LOOK_AHEAD_LEN_MIN: usize = 2;

/// Bytes of replies after which a connection lets others have their turn, and after which the
/// burst ends: large values must not keep small requests waiting.
const VISIT_REPLY_LEN: u64 = 256 << 10;
const BURST_REPLY_LEN: u64 = 4 << 20;

/// How long a request may wait for memory before it is refused.
const WAIT_MS_MAX: u64 = 1000;

/// A request of the burst.
pub(super) struct Planned {
    /// Whose: its place among the visits.
    visit: u16,
    /// Where in the input buffer the slice begins that its spans count from.
    base: u32,
    /// Its key's hash, once it has been made.
    hash: Option<KeyHash>,
    op: Op,
}

/// A connection's part of the burst.
pub(super) struct Visit {
    input: Active,
    /// The parser as it was before the burst.
    parser_before: Parser,
    /// Requests of this connection.
    planned: usize,
    /// How many of them have been executed.
    executed: usize,
    /// Behind the last byte that has been parsed.
    parsed_to: usize,
    /// Why no more was parsed.
    pause: Pause,
    /// Why no more was executed; [`Outcome::Done`] where everything was.
    outcome: Outcome,
    /// Its next request has waited for memory for as long as it may.
    gives_up: bool,
    /// It was not executed to its end, so that others have their turn.
    lets_others: bool,
}

/// Why parsing paused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pause {
    /// What is left is no whole request.
    NeedsMore,
    /// Others have their turn.
    Yields,
    /// The connection closes behind what has been parsed.
    Closes,
}

impl Worker {
    /// Parses a burst, executes it, and sees to what it leaves.
    pub(super) fn run_burst(&mut self, now: Now) {
        if self.input.is_idle() && self.uploads.is_empty() {
            // Flushes that are due, and the store's own work, need a burst too.
            self.store.burst(now.unix);
            return;
        }
        self.plan(now);
        self.execute(now);
        for number in 0..self.visits.len() {
            self.settle(number, now);
        }
        self.plan.clear();
        self.visits.clear();
        self.input.reuse();
        self.receive_values(now);
    }

    fn plan(&mut self, now: Now) {
        if self.input.is_idle() {
            return;
        }
        // A connection alone may fill the burst; many get what -R says, or an equal share.
        let share =
            (BURST_LEN / self.input.active.len()).max(self.shared.settings.requests_per_turn);
        let logs = self.shared.verbosity() >= 2;
        while self.plan.len() < BURST_LEN {
            let Some(input) = self.input.active.pop_front() else {
                break;
            };
            let Some(session) = self.sessions.get(input.id) else {
                continue;
            };
            let number = u16::try_from(self.visits.len()).expect("fewer visits than BURST_LEN");
            let mut visit = Visit {
                input,
                parser_before: session.parser,
                planned: 0,
                executed: 0,
                parsed_to: input.start,
                pause: Pause::NeedsMore,
                outcome: Outcome::Done,
                gives_up: session
                    .waits_since_ms
                    .is_some_and(|since| now.since_start_ms - since >= WAIT_MS_MAX),
                lets_others: false,
            };
            let bytes = self.input.bytes();
            let mut requests = 0;
            while visit.parsed_to < input.end {
                if requests >= share || self.plan.len() >= BURST_LEN {
                    visit.pause = Pause::Yields;
                    break;
                }
                let rest = &bytes[visit.parsed_to..input.end];
                match session.parser.next(rest, &self.shared.settings.limits) {
                    Step::Op { consumed, op } => {
                        if logs {
                            log_request(session.connection.stream.descriptor(), rest, consumed);
                        }
                        let base = u32::try_from(visit.parsed_to).expect("below INPUT_LEN");
                        self.plan.push(Planned {
                            visit: number,
                            base,
                            hash: None,
                            op,
                        });
                        visit.planned += 1;
                        visit.parsed_to += consumed as usize;
                        requests += usize::from(ends_request(&op));
                        if matches!(op, Op::Quit | Op::Shutdown { .. }) {
                            visit.pause = Pause::Closes;
                            break;
                        }
                    }
                    Step::Skip { consumed } => visit.parsed_to += consumed as usize,
                    Step::More { .. } => break,
                    Step::Close { .. } => {
                        visit.pause = Pause::Closes;
                        break;
                    }
                }
            }
            self.visits.push(visit);
        }
    }

    fn execute(&mut self, now: Now) {
        let bytes = self.input.bytes();
        let counters = self.shared.counters(self.index);
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
        let plan = &mut self.plan[..];
        let len = plan.len();
        let (ahead, ahead_item) = match len < LOOK_AHEAD_LEN_MIN {
            true => (0, 0),
            false => (LOOK_AHEAD, LOOK_AHEAD_ITEM),
        };
        let mut visit_began_at = 0;
        for at in 0..len + ahead {
            if let Some(planned) = plan.get_mut(at) {
                let input = &bytes[planned.base as usize..];
                if let Some((key, base64, intent)) = key_of(&planned.op) {
                    let mut room = [0; KEY_LEN_MAX];
                    let key = executor
                        .burst
                        .key(stored_key(key, base64, input, &mut room));
                    planned.hash = Some(key.hash);
                    if ahead > 0 {
                        executor.burst.prefetch_buckets(key.hash, intent);
                    }
                }
            }
            if ahead > 0
                && let Some(planned) = at
                    .checked_sub(ahead - ahead_item)
                    .and_then(|at| plan.get(at))
                && let Some(hash) = planned.hash
            {
                executor.burst.prefetch_item(hash);
            }
            let Some(at) = at.checked_sub(ahead) else {
                continue;
            };
            let planned = &plan[at];
            let visit = &mut self.visits[usize::from(planned.visit)];
            let Some(session) = self.sessions.get(visit.input.id) else {
                continue;
            };
            if is_first(plan, at) {
                visit_began_at = executor.answers.output.bytes_sent;
            }
            let sent = executor.answers.output.bytes_sent;
            if sent - visit_began_at >= VISIT_REPLY_LEN || sent >= BURST_REPLY_LEN {
                visit.lets_others = true;
            }
            if visit.outcome == Outcome::Done && !visit.lets_others {
                let request = Request {
                    session: &mut *session,
                    input: &bytes[planned.base as usize..visit.input.end],
                    hash: planned.hash,
                    gives_up: visit.gives_up,
                };
                visit.outcome = executor.execute(request, &planned.op);
                if visit.outcome != Outcome::Wait {
                    visit.executed += 1;
                    visit.gives_up = false;
                }
            }
            let is_last = plan
                .get(at + 1)
                .is_none_or(|next| next.visit != planned.visit);
            if is_last {
                let keeps = matches!(
                    visit.outcome,
                    Outcome::Done | Outcome::Wait | Outcome::CloseWhenSent
                );
                let flushed = match keeps && !session.is_blocked() {
                    true => executor
                        .answers
                        .output
                        .flush(session, executor.answers.pool),
                    false => {
                        executor.answers.output.truncate(0);
                        Flushed::All
                    }
                };
                match (flushed, visit.outcome) {
                    (Flushed::All, _) => {}
                    // The request waits for memory or the connection for its end; either way the
                    // replies go first.
                    (Flushed::Blocked, Outcome::Wait | Outcome::CloseWhenSent) => {}
                    (flushed, _) => visit.outcome = flushed.into(),
                }
            }
        }
        counters
            .bytes_written
            .add(std::mem::take(&mut self.output.bytes_sent));
    }

    /// Decides what becomes of a connection after its part of the burst.
    fn settle(&mut self, number: usize, now: Now) {
        let visit = &mut self.visits[number];
        let id = visit.input.id;
        let counters = self.shared.counters(self.index);
        counters.requests.add(visit.executed as u64);
        let Some(session) = self.sessions.get(id) else {
            return;
        };
        session.is_active = false;
        if visit.executed > 0 {
            session.connection.note_request(now.unix);
            session.waits_since_ms = None;
        }
        let everything = visit.executed == visit.planned;
        let mut rest_from = visit.parsed_to;
        if !everything {
            let input = &self.input.bytes()[visit.input.start..visit.input.end];
            let (parser, used) = replay(
                visit.parser_before,
                input,
                visit.executed,
                &self.shared.settings.limits,
            );
            session.parser = parser;
            rest_from = visit.input.start + used;
        }
        let rest = (rest_from, visit.input.end);
        let closes =
            visit.outcome == Outcome::CloseWhenSent || everything && visit.pause == Pause::Closes;
        match visit.outcome {
            Outcome::Close => self.close(id),
            Outcome::CloseForMemory => {
                counters.connections_shed.add(1);
                self.close(id);
            }
            _ if closes && !session.is_blocked() => self.close(id),
            _ if closes => session.closes_when_sent = true,
            Outcome::Wait if !session.is_blocked() => {
                counters.requests_deferred.add(1);
                self.keep_for_memory(id, rest, now);
            }
            Outcome::Blocked | Outcome::Wait => {
                session.connection.set_activity(Activity::Writing);
                session.stalled_since_ms = now.since_start_ms;
                self.keep(id, rest, now);
            }
            Outcome::Done if !everything || visit.pause == Pause::Yields => {
                session.is_active = true;
                if self.visits.len() > 1 || !self.ready.is_empty() {
                    counters.conn_yields.add(1);
                }
                self.input.active.push_back(Active {
                    id,
                    start: rest.0,
                    end: rest.1,
                });
            }
            Outcome::Done | Outcome::CloseWhenSent => {
                self.keep(id, rest, now);
                self.await_input(id);
            }
        }
    }

    /// A connection has been served as far as its input goes.
    fn await_input(&mut self, id: SessionId) {
        let Some(session) = self.sessions.get(id) else {
            return;
        };
        if session.has_no_more_input {
            self.close(id);
        } else if session.readable {
            self.list(id);
        }
    }

    /// Keeps input whose first request waits for memory: where buffers have none either, it stays
    /// where it is.
    fn keep_for_memory(&mut self, id: SessionId, (start, end): (usize, usize), now: Now) {
        let Some(session) = self.sessions.get(id) else {
            return;
        };
        match self.pool.take(end - start) {
            Some(block) => {
                let len = end - start;
                self.pool.bytes_mut(&block)[..len].copy_from_slice(&self.input.bytes()[start..end]);
                session.leftover = Some(Leftover { block, len });
                session.stalled_since_ms = now.since_start_ms;
                self.list_for_memory(id, now);
            }
            None => {
                session.waits_since_ms.get_or_insert(now.since_start_ms);
                session.is_active = true;
                self.input.active.push_back(Active { id, start, end });
            }
        }
    }

    /// Keeps input that has not been executed for a later turn.
    fn keep(&mut self, id: SessionId, (start, end): (usize, usize), now: Now) {
        let len = end - start;
        if len == 0 {
            return;
        }
        let mut block = self.pool.take(len);
        while block.is_none() && self.shed(id) {
            block = self.pool.take(len);
        }
        let Some(block) = block else {
            self.counters().connections_shed.add(1);
            self.close(id);
            return;
        };
        self.pool.bytes_mut(&block)[..len].copy_from_slice(&self.input.bytes()[start..end]);
        if let Some(session) = self.sessions.get(id) {
            session.leftover = Some(Leftover { block, len });
            session.stalled_since_ms = now.since_start_ms;
        }
    }
}

/// Whether a request is the first of its connection.
fn is_first(plan: &[Planned], at: usize) -> bool {
    at.checked_sub(1)
        .is_none_or(|before| plan[before].visit != plan[at].visit)
}

/// The parser and the bytes used after `executed` requests of an input that has been parsed once.
fn replay(
    mut parser: Parser,
    input: &[u8],
    executed: usize,
    limits: &coua_protocol::Limits,
) -> (Parser, usize) {
    let mut used = 0;
    let mut requests = 0;
    while requests < executed {
        match parser.next(&input[used..], limits) {
            Step::Op { consumed, .. } => {
                used += consumed as usize;
                requests += 1;
            }
            Step::Skip { consumed } => used += consumed as usize,
            Step::More { .. } | Step::Close { .. } => break,
        }
    }
    (parser, used)
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

#[cold]
fn log_request(descriptor: i32, input: &[u8], consumed: u32) {
    let request = &input[..consumed as usize];
    let line = request
        .split(|&byte| byte == b'\n')
        .next()
        .unwrap_or_default();
    tracing::trace!("<{descriptor} {}", line.trim_ascii_end().escape_ascii());
}

const _: () = assert!(SESSION_INPUT_LEN <= crate::buffers::BLOCK_SIZE_MAX);
