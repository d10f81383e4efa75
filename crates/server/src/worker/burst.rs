//! One burst: requests of all active connections, looked up together, executed in order.

use coua_protocol::{Limits, Op, Parser, Span, Step};

use super::input::Active;
use super::look_ahead::LookAhead;
use super::{BURST_LEN, BURST_LEN_MAX, VISITS_MAX, Worker, list_session};
use crate::clock::Now;
use crate::closing::CloseCause;
use crate::execute::{Answers, Executor, Outcome, Request};
use crate::output::Flushed;

/// Bytes of replies after which a connection lets others have their turn, and after which the
/// burst ends: large values must not keep small requests waiting.
const VISIT_REPLY_LEN: u64 = 256 << 10;
const BURST_REPLY_LEN: u64 = 4 << 20;

/// How long a request may wait for memory before it is refused.
pub(super) const WAIT_MS_MAX: u64 = 1000;

/// A request of the burst, or one key of it.
#[derive(Clone, Copy)]
pub(super) struct Planned {
    /// Where in the input buffer the slice begins that its spans count from.
    pub(super) base: u32,
    /// What it is.
    pub(super) what: What,
}

/// What is to be done. Keys of gets are by far the most, so they take little room.
#[derive(Clone, Copy)]
pub(super) enum What {
    /// As [`Op::Get`].
    Get {
        /// The key.
        key: Span,
        /// Answer with the CAS.
        cas: bool,
        /// `END` follows.
        last: bool,
    },
    /// Anything else.
    Other {
        /// Its place among the burst's operations.
        op: u16,
    },
}

/// A connection's part of the burst.
pub(super) struct Visit {
    input: Active,
    /// The parser as it was before the burst.
    parser_before: Parser,
    /// Its first request in the plan.
    first: usize,
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

impl Visit {
    /// The usual case: all that came was parsed, and nothing of it stands in the way of more.
    #[inline]
    fn leaves_nothing(&self) -> bool {
        self.outcome == Outcome::Done
            && self.pause == Pause::NeedsMore
            && self.parsed_to == self.input.end
    }
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
        let was_used = self.run_lane(now);
        if self.input.is_idle() && self.uploads.is_empty() {
            if !was_used {
                // Flushes that are due, and the store's own work, need a burst too.
                self.store.burst(now.unix);
            }
            return;
        }
        self.plan(now);
        self.execute(now);
        for number in 0..self.visits.len() {
            self.settle(number, now);
        }
        self.plan.clear();
        self.ops.clear();
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
        while self.plan.len() < BURST_LEN && self.visits.len() < VISITS_MAX {
            let Some(input) = self.input.active.pop_front() else {
                break;
            };
            let Some(session) = self.sessions.get(input.id) else {
                continue;
            };
            let mut visit = Visit {
                input,
                parser_before: session.parser,
                first: self.plan.len(),
                planned: 0,
                executed: 0,
                parsed_to: input.start,
                pause: Pause::NeedsMore,
                outcome: Outcome::Done,
                gives_up: session
                    .waits_since_ms()
                    .is_some_and(|since| now.since_start_ms - since >= WAIT_MS_MAX),
                lets_others: false,
            };
            let bytes = self.input.bytes();
            let limits = &self.shared.settings.limits;
            let mut requests = 0;
            let mut is_within = false;
            while visit.parsed_to < input.end {
                // A request that has begun is planned to its end where there is room, so that its
                // reply leaves in one piece.
                let is_full = self.plan.len() >= BURST_LEN && !is_within;
                if requests >= share || is_full || self.plan.len() >= BURST_LEN_MAX {
                    visit.pause = Pause::Yields;
                    break;
                }
                let rest = &bytes[visit.parsed_to..input.end];
                let base = u32::try_from(visit.parsed_to).expect("below INPUT_LEN");
                let (consumed, what) = match session.parser.next_get(rest) {
                    Some(get) => {
                        let (key, cas, last) = (get.key, get.cas, get.last);
                        is_within = !last;
                        (get.consumed, What::Get { key, cas, last })
                    }
                    None => match session.parser.next(rest, &limits_for(rest, limits)) {
                        Step::Op { consumed, op } => {
                            is_within = !ends_request(&op);
                            if op.closes() {
                                visit.pause = Pause::Closes;
                            }
                            (consumed, what(&op, &mut self.ops))
                        }
                        Step::Skip { consumed } => {
                            visit.parsed_to += consumed as usize;
                            continue;
                        }
                        Step::More { .. } => break,
                        Step::Close { .. } => {
                            session.close_cause = Some(CloseCause::Protocol);
                            visit.pause = Pause::Closes;
                            break;
                        }
                    },
                };
                if logs {
                    log_request(session.connection.descriptor, rest, consumed);
                }
                self.plan.push(Planned { base, what });
                visit.planned += 1;
                visit.parsed_to += consumed as usize;
                requests += usize::from(!is_within);
                if visit.pause == Pause::Closes {
                    break;
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
        let (plan, ops) = (&self.plan[..], &self.ops[..]);
        let mut look = LookAhead::new(plan, ops, bytes);
        for visit in &mut self.visits {
            let Some(session) = self.sessions.get(visit.input.id) else {
                continue;
            };
            let began_at = executor.answers.output.bytes_sent;
            let all = visit.first..visit.first + visit.planned;
            for (at, planned) in all.clone().zip(&plan[all]) {
                let seen = look.seen(&executor.burst, at);
                let sent = executor.answers.output.bytes_sent;
                if sent - began_at >= VISIT_REPLY_LEN || sent >= BURST_REPLY_LEN {
                    visit.lets_others = true;
                }
                if visit.outcome != Outcome::Done || visit.lets_others {
                    continue;
                }
                let request = Request {
                    session: &mut *session,
                    input: &bytes[planned.base as usize..visit.input.end],
                    hash: seen.hash(),
                    ahead: seen.ahead,
                    gives_up: visit.gives_up,
                };
                visit.outcome = match planned.what {
                    What::Get { key, cas, last } => executor.execute_get(request, key, cas, last),
                    What::Other { op } => executor.execute(request, &ops[usize::from(op)]),
                };
                if visit.outcome != Outcome::Wait {
                    visit.executed += 1;
                    visit.gives_up = false;
                }
            }
            if visit.planned == 0 {
                continue;
            }
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
            session.note_request(now.unix);
            session.wait_no_more();
        }
        let everything = visit.executed == visit.planned;
        if everything && visit.leaves_nothing() && session.awaits_input() {
            return;
        }
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
        if session.datagram.is_some() {
            let goes_on = match visit.outcome {
                Outcome::Wait => true,
                Outcome::Done => !everything || visit.pause == Pause::Yields,
                _ => false,
            };
            let outcome = visit.outcome;
            self.settle_datagram(id, rest, outcome, goes_on, now);
            return;
        }
        if session.dump.is_some() && session.queue.is_none() {
            // A long answer, of which this turn has produced its share.
            list_session(session, id, &mut self.ready);
        }
        let closes =
            visit.outcome == Outcome::CloseWhenSent || everything && visit.pause == Pause::Closes;
        match visit.outcome {
            outcome @ (Outcome::Close | Outcome::CloseForMemory) => {
                self.leave(id, outcome, rest, now);
            }
            _ if closes && !session.is_blocked() => self.close(id),
            _ if closes => session.closes_when_sent = true,
            Outcome::Wait if !session.is_blocked() => {
                counters.requests_deferred.add(1);
                self.keep_for_memory(id, rest, now);
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
            outcome => self.leave(id, outcome, rest, now),
        }
    }
}

/// An operation as the plan has it; where it takes more room, it is put behind `ops`.
fn what(op: &Op, ops: &mut Vec<Op>) -> What {
    if let Op::Get { key, cas, last } = *op {
        return What::Get { key, cas, last };
    }
    ops.push(*op);
    What::Other {
        op: u16::try_from(ops.len() - 1).expect("fewer than BURST_LEN_MAX"),
    }
}

/// The parser and the bytes used after `executed` requests of an input that has been parsed once.
pub(super) fn replay(
    mut parser: Parser,
    input: &[u8],
    executed: usize,
    limits: &Limits,
) -> (Parser, usize) {
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
        // Three keys, a value, a refusal and its answer, a meta lookup, the beginning and a part of a
        // large value.
        assert_eq!(all.len(), 9, "{all:?}");
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
