//! What a burst leaves of a connection's input for a later turn, and where that is kept meanwhile.

use super::Worker;
use super::burst::WAIT_MS_MAX;
use super::input::{Active, SESSION_INPUT_LEN};
use crate::buffers::BLOCK_SIZE_MAX;
use crate::clock::Now;
use crate::closing::CloseCause;
use crate::connections::Activity;
use crate::execute::Outcome;
use crate::session::{Leftover, SessionId};

impl Worker {
    /// Leaves a connection for now, with the input `rest` that is for a later turn.
    pub(super) fn leave(
        &mut self,
        id: SessionId,
        outcome: Outcome,
        rest: (usize, usize),
        now: Now,
    ) {
        match outcome {
            Outcome::Close => self.close(id),
            Outcome::CloseForMemory => {
                self.counters().connections_shed.add(1);
                self.close_for(id, CloseCause::Memory);
            }
            Outcome::Blocked | Outcome::Wait => {
                if let Some(session) = self.sessions.get(id) {
                    session.connection.set_activity(Activity::Writing);
                    session.stalled_since_ms = now.since_start_ms;
                    self.keep(id, rest, now);
                }
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
    pub(super) fn keep_for_memory(
        &mut self,
        id: SessionId,
        (start, end): (usize, usize),
        now: Now,
    ) {
        let Some(session) = self.sessions.get(id) else {
            return;
        };
        let input = Active { id, start, end };
        session.wait_for_memory(now.since_start_ms);
        session.stalled_since_ms = now.since_start_ms;
        if self.keep_in_block(input) {
            self.list_for_memory(id, now);
        } else if let Some(session) = self.sessions.get(id) {
            session.is_active = true;
            self.input.active.push_back(input);
        }
    }

    /// Keeps input that has not been executed for a later turn: in a block, or where it lies until
    /// there is memory for one.
    fn keep(&mut self, id: SessionId, (start, end): (usize, usize), now: Now) {
        let Some(session) = self.sessions.get(id).filter(|_| start < end) else {
            return;
        };
        session.stalled_since_ms = now.since_start_ms;
        let input = Active { id, start, end };
        if self.keep_in_block(input) {
            return;
        }
        if !self.input.park(input) {
            self.keep_by_force(input);
        } else if let Some(session) = self.sessions.get(id) {
            session.is_active = true;
        }
    }

    /// Moves input that was parked into blocks, as far as there is memory.
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
            session.is_active = false;
            match session.is_blocked() {
                // Nobody has noted whether it could send again meanwhile.
                true => self.list(input.id),
                false => self.await_input(input.id),
            }
        }
    }

    /// Keeps input in a block. False where there is no memory for one.
    fn keep_in_block(&mut self, Active { id, start, end }: Active) -> bool {
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

    /// Keeps input in a block that others are closed for.
    #[cold]
    fn keep_by_force(&mut self, input: Active) {
        while self.shed(input.id) {
            if self.keep_in_block(input) {
                return;
            }
        }
        self.counters().connections_shed.add(1);
        self.close_for(input.id, CloseCause::Memory);
    }
}

const _: () = assert!(SESSION_INPUT_LEN <= BLOCK_SIZE_MAX);
