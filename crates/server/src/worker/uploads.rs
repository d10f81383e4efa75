//! Receives large values straight into the store.

use coua_memory_errors::check;
use coua_protocol::{Limits, Parser, Step};
use coua_store::{Burst, Refused};
use coua_transport::Received;

use super::Worker;
use crate::clock::Now;
use crate::closing::CloseCause;
use crate::session::Session;

/// Bytes received from one connection in a turn.
const VISIT_LEN: usize = 256 << 10;

/// How receiving a value ended for this turn.
enum Progress {
    /// There may be more to receive, or only the end of the value is missing.
    More,
    /// The kernel holds no more for now.
    Drained,
    /// The connection is gone.
    Ended,
    /// The machine has lost the memory that the value was received into.
    Lost,
    /// There is no memory now, or no longer any chance of it; the general path answers.
    NoMemory,
}

impl Worker {
    /// Receives for the sessions that have much of a value still to come.
    pub(super) fn receive_values(&mut self, now: Now) {
        while let Some(id) = self.uploads.pop() {
            let Some(session) = self.sessions.get(id) else {
                continue;
            };
            let limits = &self.shared.settings.limits;
            let (progress, received) =
                receive_value(&mut self.store.burst(now.time), session, limits);
            self.shared
                .counters(self.index)
                .bytes_read
                .add(received as u64);
            session.note_request(now.unix);
            match progress {
                Progress::More => self.list(id),
                Progress::Drained => {
                    session.readable = session.ended || session.stream.has_more();
                    if session.readable {
                        self.list(id);
                    }
                }
                Progress::Ended => self.close(id),
                Progress::Lost => self.close_for(id, CloseCause::Loss),
                Progress::NoMemory => self.list_for_memory(id, now),
            }
        }
    }
}

fn receive_value(
    burst: &mut Burst<'_>,
    session: &mut Session,
    limits: &Limits,
) -> (Progress, usize) {
    let mut received = 0;
    let upload = session
        .upload
        .as_mut()
        .and_then(|streaming| streaming.upload.as_mut());
    let Some(upload) = upload else {
        return (Progress::More, received);
    };
    let tail = session.parser.streamed_tail_len();
    while received < VISIT_LEN && upload.remaining() > tail {
        let left = upload.remaining() - tail;
        let space = match burst.upload_space(upload) {
            Ok(space) => space,
            Err(Refused::Wait | Refused::OutOfMemory | Refused::TooLarge) => {
                return (Progress::NoMemory, received);
            }
        };
        let asked = space.len().min(left);
        match session.stream.receive(&mut space[..asked]) {
            Received::Bytes(count) => {
                pass_over(&mut session.parser, &space[..count], limits);
                upload.advance(count);
                received += count;
                if count < asked {
                    return (Progress::Drained, received);
                }
            }
            Received::Nothing => return (Progress::Drained, received),
            // The kernel does not receive into memory that is lost.
            Received::Ended if check(space) => return (Progress::Lost, received),
            Received::Ended => return (Progress::Ended, received),
        }
    }
    (Progress::More, received)
}

/// Advances the parser past bytes of a value that have been received.
fn pass_over(parser: &mut Parser, bytes: &[u8], limits: &Limits) {
    let step = parser.next(bytes, limits);
    debug_assert!(matches!(step, Step::Op { consumed, .. } if consumed as usize == bytes.len()));
}
