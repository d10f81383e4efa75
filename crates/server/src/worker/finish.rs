//! What happens to a session after its part of a batch: it waits for input, continues in a later
//! turn, or closes. Also keeps the input that is left for a later turn.

use super::batch::{Pause, Unfinished};
use super::input::{SESSION_INPUT_LEN, SessionInput};
use super::{Worker, session_token};
use crate::buffers::BLOCK_SIZE_MAX;
use crate::clock::Now;
use crate::closing::CloseCause;
use crate::connections::Activity;
use crate::outcome::Outcome;
use crate::session::{Leftover, Listed, SessionId};

/// How long a request may wait for memory before it is refused.
pub(super) const WAIT_MS_MAX: u64 = 1000;

impl Worker {
    /// Decides what happens to a session whose part of the batch needs more work. Every part of a
    /// batch ends here, except parts of which nothing is left and datagrams that have been
    /// answered.
    pub(super) fn finish(&mut self, unfinished: Unfinished, now: Now) {
        let part = &self.batch.sessions[unfinished.number];
        let (id, pause, outcome) = (part.input.id, part.pause, unfinished.outcome);
        let Some(session) = self.sessions.get(id) else {
            return;
        };
        let is_whole = unfinished.executed_to == part.entries_end;
        let mut rest = SessionInput {
            start: part.parsed_to,
            ..part.input
        };
        if !is_whole {
            let limits = &self.shared.settings.limits;
            let bytes = self.input.bytes();
            (session.parser, rest.start) =
                self.batch.rest(unfinished, session.parser, bytes, limits);
        }
        let yields = !is_whole || pause == Pause::Yields;
        if session.message.is_some() && !session.serves_rdma() {
            if outcome == Outcome::Wait {
                session.wait_for_memory(now.since_start_ms);
            }
            session.listed = match outcome {
                Outcome::WaitForFlash => Listed::InputForFlash,
                _ => Listed::Input,
            };
            self.inputs_for_flash += usize::from(outcome == Outcome::WaitForFlash);
            self.input.active.push_back(rest);
            return;
        }
        // Of a dump, this turn has produced its share.
        if let Some(watch) = session.watch() {
            watch.serve(self.index, session_token(id));
        }
        // Who has gone already is found out by the way.
        let goes_on_dumping = session.goes_on_dumping() || session.watches() && session.ended;
        let closes = outcome == Outcome::CloseWhenSent || is_whole && pause == Pause::Closes;
        match outcome {
            Outcome::Close | Outcome::CloseForMemory | Outcome::CloseForLoss => {
                self.leave(outcome, rest, now);
            }
            _ if closes && !session.is_blocked() => self.close(id),
            _ if closes => {
                session.connection.set_activity(Activity::Writing);
                session.closes_when_sent = true;
            }
            Outcome::Wait if !session.is_blocked() => {
                self.counters().requests_deferred.add(1);
                self.keep_for_memory(rest, now);
            }
            Outcome::WaitForFlash if !session.is_blocked() => self.keep_for_flash(rest, now),
            Outcome::Done if yields => {
                session.listed = Listed::Input;
                self.input.active.push_back(rest);
                self.counters().conn_yields.add(1);
            }
            _ => self.leave(outcome, rest, now),
        }
        if goes_on_dumping {
            // After `leave`: if the rest is parked, the dump goes on when there is a block for it.
            self.list(id);
        }
    }

    /// Stops serving a connection for this turn and keeps its remaining input `rest`.
    fn leave(&mut self, outcome: Outcome, rest: SessionInput, now: Now) {
        let id = rest.id;
        match outcome {
            Outcome::Close => self.close(id),
            Outcome::CloseForLoss => self.close_for(id, CloseCause::Loss),
            Outcome::CloseForMemory => self.close_for_memory(id),
            Outcome::Blocked | Outcome::Wait | Outcome::WaitForFlash => {
                if let Some(session) = self.sessions.get(id) {
                    session.connection.set_activity(session.blocked_activity());
                    session.stalled_since_ms = now.since_start_ms;
                    let is_held = session.is_held;
                    self.keep(rest, now);
                    if is_held {
                        self.hold(id, now);
                    }
                }
            }
            Outcome::Done | Outcome::CloseWhenSent => {
                self.keep(rest, now);
                self.await_input(id);
            }
        }
    }

    /// The connection's input has been used up: lists, closes or leaves it to wait for the poller.
    fn await_input(&mut self, id: SessionId) {
        let Some(session) = self.sessions.get(id) else {
            return;
        };
        session.show_awaited();
        if session.has_no_more_input {
            self.close(id);
        } else if session.readable {
            self.list(id);
        }
    }

    /// Keeps input whose first request waits for memory: in a block, or in the input buffer if
    /// there is no memory for a block either.
    fn keep_for_memory(&mut self, input: SessionInput, now: Now) {
        let id = input.id;
        let Some(session) = self.sessions.get(id) else {
            return;
        };
        session.wait_for_memory(now.since_start_ms);
        session.stalled_since_ms = now.since_start_ms;
        if self.keep_in_block(input) {
            self.list_for_memory(id, now);
        } else if let Some(session) = self.sessions.get(input.id) {
            session.listed = Listed::Input;
            self.input.active.push_back(input);
        }
    }

    /// Keeps input whose first request waits for reads of flash.
    fn keep_for_flash(&mut self, input: SessionInput, now: Now) {
        self.keep(input, now);
        let Some(session) = self.sessions.get(input.id) else {
            return;
        };
        match session.listed {
            // Where the input is parked, the session is listed when there is a block for it.
            Listed::Nowhere if session.fetches.is_waiting() => session.listed = Listed::ForFlash,
            _ => self.list(input.id),
        }
    }

    /// Keeps input for a later turn: in a block, or in the input buffer until there is memory for a
    /// block.
    fn keep(&mut self, input: SessionInput, now: Now) {
        let Some(session) = self.sessions.get(input.id).filter(|_| !input.is_empty()) else {
            return;
        };
        session.stalled_since_ms = now.since_start_ms;
        if self.keep_in_block(input) {
            return;
        }
        if !self.input.park(input) {
            self.keep_by_force(input);
        } else if let Some(session) = self.sessions.get(input.id) {
            session.listed = Listed::Input;
        }
    }

    /// Moves parked input into blocks, as far as there is memory.
    pub(super) fn unpark(&mut self, now: Now) {
        while let Some(input) = self.input.parked() {
            if let Some(session) = self.sessions.get(input.id) {
                let waits_ms = now.since_start_ms - session.stalled_since_ms;
                if !self.keep_in_block(input) {
                    if waits_ms < WAIT_MS_MAX {
                        return;
                    }
                    self.keep_by_force(input);
                }
            }
            self.input.unpark();
            let Some(session) = self.sessions.get(input.id) else {
                continue;
            };
            session.listed = Listed::Nowhere;
            // While the input was parked, neither an event nor the end of a hold has listed it.
            self.list(input.id);
        }
    }

    /// Keeps input in a block. False where there is no memory for one.
    fn keep_in_block(&mut self, SessionInput { id, start, end }: SessionInput) -> bool {
        let len = end - start;
        let Some(block) = self.pool.take(len) else {
            return false;
        };
        self.pool.bytes_mut(&block)[..len].copy_from_slice(&self.input.bytes()[start..end]);
        if let Some(session) = self.sessions.get(id) {
            let len = u32::try_from(len).expect("within the input buffer");
            session.leftover = Some(Leftover { block, len });
        } else {
            self.pool.give_back(block);
        }
        true
    }

    /// Keeps input in a block, and closes other connections to get one.
    #[cold]
    fn keep_by_force(&mut self, input: SessionInput) {
        while self.shed(input.id) {
            if self.keep_in_block(input) {
                return;
            }
        }
        self.close_for_memory(input.id);
    }
}

const _: () = assert!(SESSION_INPUT_LEN <= BLOCK_SIZE_MAX);
