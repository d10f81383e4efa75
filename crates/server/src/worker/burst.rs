//! One burst: requests of all active connections, looked up together, executed in order.
//!
//! Before a request is executed its buckets and then its item have been asked for from memory,
//! while requests before it were executed, so that the waiting times for memory overlap:
//!
//! ```text
//! request i + 24   hash the key, prefetch its first bucket
//! request i + 16   look into it, prefetch the item, or else the second bucket
//! request i + 8    look into that, prefetch the item
//! request i        execute
//! ```
//! All that is a hint; a request's answer looks at the store as it is when it is executed.

use coua_protocol::{Limits, Op, Parser, Step};
use coua_store::{Ahead, Intent, KeyHash};

use super::input::{Active, SESSION_INPUT_LEN};
use super::{BURST_LEN, Worker};
use crate::clock::Now;
use crate::connections::Activity;
use crate::execute::{Answers, Executor, Outcome, Request, key_of, stored_key};
use crate::output::Flushed;
use crate::session::{Leftover, SessionId};

/// How many requests lie between two steps of the look ahead.
const STEP: usize = 8;

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
    /// Its key's hash, once it has been made, and what is going to be done to the key.
    hash: Option<(KeyHash, Intent)>,
    /// What the look ahead has seen.
    ahead: Ahead,
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
            let limits = &self.shared.settings.limits;
            let mut requests = 0;
            while visit.parsed_to < input.end {
                if requests >= share || self.plan.len() >= BURST_LEN {
                    visit.pause = Pause::Yields;
                    break;
                }
                let rest = &bytes[visit.parsed_to..input.end];
                match session.parser.next(rest, &limits_for(rest, limits)) {
                    Step::Op { consumed, op } => {
                        if logs {
                            log_request(session.connection.stream.descriptor(), rest, consumed);
                        }
                        let base = u32::try_from(visit.parsed_to).expect("below INPUT_LEN");
                        self.plan.push(Planned {
                            visit: number,
                            base,
                            hash: None,
                            ahead: Ahead::NONE,
                            op,
                        });
                        visit.planned += 1;
                        visit.parsed_to += consumed as usize;
                        requests += usize::from(ends_request(&op));
                        if matches!(op, Op::Quit) {
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
        let step = if len < LOOK_AHEAD_LEN_MIN { 0 } else { STEP };
        let mut visit_began_at = 0;
        for at in 0..len + 3 * step {
            if let Some(planned) = plan.get_mut(at) {
                let input = &bytes[planned.base as usize..];
                if let Some((key, base64, intent)) = key_of(&planned.op) {
                    let mut room = None;
                    let key = executor
                        .burst
                        .key(stored_key(key, base64, input, &mut room));
                    planned.hash = Some((key.hash, intent));
                    if step > 0 {
                        executor.burst.prefetch(key.hash, intent);
                    }
                }
            }
            if step > 0 {
                if let Some(planned) = at.checked_sub(step).and_then(|at| plan.get_mut(at))
                    && let Some((hash, intent)) = planned.hash
                {
                    planned.ahead = executor.burst.look(hash, intent);
                }
                if let Some(planned) = at.checked_sub(2 * step).and_then(|at| plan.get_mut(at))
                    && let Some((hash, _)) = planned.hash
                {
                    planned.ahead = executor.burst.look_again(hash, planned.ahead);
                }
            }
            let Some(at) = at.checked_sub(3 * step) else {
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
                    hash: planned.hash.map(|(hash, _)| hash),
                    ahead: planned.ahead,
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
fn replay(mut parser: Parser, input: &[u8], executed: usize, limits: &Limits) -> (Parser, usize) {
    let mut used = 0;
    let mut requests = 0;
    while requests < executed {
        match parser.next(&input[used..], &limits_for(&input[used..], limits)) {
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

/// The limits for parsing the front of `rest`: a value that is there as a whole need not be stored
/// in pieces, however long it is.
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

#[cfg(test)]
mod tests {
    use coua_protocol::{Limits, Parser, Step};

    use super::{limits_for, replay};

    /// Whatever the number of requests that were executed, the parser goes on at the next.
    #[test]
    fn a_parser_that_is_taken_back_finds_the_same_requests_again() {
        let limits = Limits {
            gather_max: 64,
            line_max: 4096,
            item_size_max: 1024,
            ..Limits::default()
        };
        let input = [
            &b"get a b c\r\nset k 0 0 2\r\nhi\r\nset no 0 0 2000\r\n"[..],
            &[b'z'; 2000],
            b"\r\nmg k v\r\nset big 0 0 900\r\n",
            &[b'v'; 500],
        ]
        .concat();
        let all = requests(Parser::new(), &input, &limits);
        // Three keys, a value, a refusal, a meta lookup, the beginning and a part of a large value.
        assert_eq!(all.len(), 8, "{all:?}");
        for executed in 0..=all.len() {
            let (parser, used) = replay(Parser::new(), &input, executed, &limits);
            assert_eq!(
                requests(parser, &input[used..], &limits),
                all[executed..],
                "{executed}"
            );
        }
    }

    fn requests(mut parser: Parser, mut input: &[u8], limits: &Limits) -> Vec<String> {
        let mut found = Vec::new();
        while !input.is_empty() {
            match parser.next(input, &limits_for(input, limits)) {
                Step::Op { consumed, op } => {
                    found.push(format!("{op:?}"));
                    input = &input[consumed as usize..];
                }
                Step::Skip { consumed } => input = &input[consumed as usize..],
                Step::More { .. } | Step::Close { .. } => break,
            }
        }
        found
    }
}
