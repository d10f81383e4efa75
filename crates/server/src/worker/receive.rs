//! From ready connections to requests: a session's bytes go into the input buffer and are parsed
//! into the batch at once.

use coua_transport::{Handshake, Received, Sent};

use super::batch::share;
use super::input::SESSION_INPUT_LEN;
use super::{Worker, list_session};
use crate::clock::Now;
use crate::closing::CloseCause;
use crate::connections::Activity;
use crate::execute::login;
use crate::outcome::Outcome;
use crate::reply_queue::Drained;
use crate::session::{Listed, SessionId};
use crate::stats;

/// Connections whose TLS handshake goes on in one turn, at most: a step of one may take as long as thousands
/// of requests.
const HANDSHAKES_PER_TURN: usize = 4;

impl Worker {
    /// Begins the turn's batch with input left by earlier turns.
    pub(super) fn begin_batch(&mut self) {
        let waiting = self.input.active.len();
        let most = self.shared.live.requests_per_turn();
        self.share = share(waiting + self.ready.len(), most);
        for _ in 0..waiting {
            if self.batch.is_full() {
                break;
            }
            let Some(input) = self.input.active.pop_front() else {
                break;
            };
            if let Some(session) = self.sessions.get(input.id) {
                let before = std::mem::take(&mut session.listed);
                self.inputs_for_flash -= usize::from(before == Listed::InputForFlash);
                let bytes = self.input.bytes();
                (self.batch).plan(session, input, bytes, self.share, &self.shared);
            }
        }
    }

    /// Receives from every listed session, as far as the input buffer and the batch have room.
    pub(super) fn receive(&mut self, now: Now) {
        let mut bytes_read = 0;
        let mut handshakes = 0;
        for _ in 0..self.ready.len() {
            if !self.input.has_room() || self.batch.is_full() {
                break;
            }
            let Some(id) = self.ready.pop_front() else {
                break;
            };
            let Some(session) = self.sessions.get(id) else {
                continue;
            };
            if std::mem::take(&mut session.listed) == Listed::ForMemory {
                self.waiting_for_memory -= 1;
            }
            let is_handshaking = session.stream.is_handshaking();
            if session.is_blocked() && !self.finish_replies(id, now) {
                continue;
            }
            if is_handshaking {
                if handshakes == HANDSHAKES_PER_TURN {
                    self.list(id);
                    continue;
                }
                handshakes += 1;
                if !self.shake_hands(id, now) {
                    continue;
                }
            }
            bytes_read += self.receive_from(id);
        }
        let counters = self.shared.counters(self.index);
        counters.bytes_read.add(bytes_read as u64);
    }

    /// Goes on with the handshake of TLS. True if it is done.
    #[inline(never)]
    fn shake_hands(&mut self, id: SessionId, now: Now) -> bool {
        let Some(session) = self.sessions.get(id) else {
            return false;
        };
        match session.stream.shake_hands() {
            Handshake::Done => {
                login::by_certificate(session, &self.shared, self.index, now);
                true
            }
            Handshake::Waits => {
                session.readable = session.stream.has_more();
                if session.readable {
                    list_session(session, id, &mut self.ready);
                }
                false
            }
            Handshake::Ended => {
                session.readable = false;
                session.has_no_more_input = true;
                self.close(id);
                false
            }
        }
    }

    /// Sends the replies that wait, if any. True if the session may go on.
    #[inline(never)]
    fn finish_replies(&mut self, id: SessionId, now: Now) -> bool {
        let Some(session) = self.sessions.get(id) else {
            return false;
        };
        if session.watches() && session.ended {
            self.close(id);
            return false;
        }
        if session.stream.has_unsent() {
            match session.stream.flush() {
                Sent::Bytes(_) => {}
                Sent::Full => return false,
                Sent::Broken => {
                    self.close(id);
                    return false;
                }
            }
        }
        if let Some(queue) = &mut session.queue {
            let mut sent = 0;
            let drained = queue.drain(&mut self.pool, &session.stream, &mut sent);
            self.shared.counters(self.index).bytes_written.add(sent);
            match drained {
                Drained::All => session.queue = None,
                Drained::Blocked => return false,
                Drained::Broken => {
                    self.close(id);
                    return false;
                }
                Drained::Lost => {
                    self.close_for(id, CloseCause::Loss);
                    return false;
                }
            }
        }
        if session.dump.is_some() {
            let (output, pool) = (&mut self.output, &mut self.pool);
            let burst = self.store.burst(now.time);
            let produced = stats::produce(&self.shared, now, &burst, output, session, pool);
            burst.close();
            let outcome = match produced {
                Outcome::Done => output.flush(session, pool).into(),
                other => other,
            };
            self.shared
                .counters(self.index)
                .bytes_written
                .add(std::mem::take(&mut output.bytes_sent));
            match outcome {
                Outcome::Done => {}
                Outcome::Blocked => {
                    if session.goes_on_dumping() {
                        list_session(session, id, &mut self.ready);
                    }
                    return false;
                }
                Outcome::CloseForMemory => {
                    self.close_for_memory(id);
                    return false;
                }
                _ => {
                    self.close(id);
                    return false;
                }
            }
        }
        if session.closes_when_sent {
            self.close(id);
            return false;
        }
        if session.is_held {
            return false;
        }
        session.connection.set_activity(Activity::Reading);
        true
    }

    /// Puts a session's leftover input and the bytes that the kernel holds into the input buffer,
    /// and parses them. Returns the number of bytes received from the kernel.
    #[inline(always)]
    fn receive_from(&mut self, id: SessionId) -> usize {
        let (Some(session), Some(room)) = (self.sessions.get(id), self.input.room()) else {
            return 0;
        };
        if session.leftover.is_none() && session.takes_value_directly() {
            self.uploads.push(id);
            return 0;
        }
        let mut len = 0;
        let mut received = 0;
        if let Some(leftover) = session.take_leftover() {
            len = leftover.len as usize;
            room[..len].copy_from_slice(&self.pool.bytes(&leftover.block)[..len]);
            let is_lost = self.pool.is_lost(&leftover.block);
            self.pool.give_back(leftover.block);
            if is_lost {
                self.close_for(id, CloseCause::Loss);
                return 0;
            }
        }
        if session.readable && len < SESSION_INPUT_LEN {
            match session.stream.receive(&mut room[len..]) {
                Received::Bytes(count) => {
                    // If less came than there was room for, the kernel holds no more, except the
                    // end of the stream.
                    session.readable = count == SESSION_INPUT_LEN - len
                        || session.ended
                        || session.stream.has_more();
                    len += count;
                    received = count;
                }
                Received::Nothing => session.readable = session.stream.has_more(),
                Received::Ended => {
                    session.readable = false;
                    session.has_no_more_input = true;
                }
            }
        }
        if len > 0 {
            let input = self.input.occupy(id, 0, len);
            // The batch has room: `receive` has checked it.
            let bytes = self.input.bytes();
            (self.batch).plan(session, input, bytes, self.share, &self.shared);
        } else if session.has_no_more_input {
            self.close(id);
        } else if session.readable {
            list_session(session, id, &mut self.ready);
        }
        received
    }
}
