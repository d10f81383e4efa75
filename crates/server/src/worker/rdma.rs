//! RDMA as a worker's turn meets it: polled before it waits, its requests among the others.

use std::io;
use std::time::Duration;

use coua_transport::{Poller, Source};

use super::batch::{Pause, SessionBatch};
use super::run::Executed;
use super::{DEVICE_TOKEN, NET_COUNTERS_MS, SLEEP_FOR_MEMORY, Worker, list_session};
use crate::closing::CloseCause;
use crate::execute::Executor;
use crate::message::Message;
use crate::outcome::Outcome;
use crate::rdma::{Ending, Next, WorkerRdma};
use crate::session::{Listed, Session, SessionId};
use crate::shared::Shared;

/// How long a worker sleeps while what there is to know of its RDMA was not published.
const TELL_SLEEP: Duration = Duration::from_millis(NET_COUNTERS_MS);

/// Begins to listen for clients, if the settings say so.
pub(super) fn start(
    shared: &Shared,
    index: usize,
    poller: &Poller,
) -> io::Result<Option<Box<WorkerRdma>>> {
    let settings = &shared.settings;
    let Some(rdma) = &settings.rdma else {
        return Ok(None);
    };
    let item_size_max = settings.limits.item_size_max as usize;
    let of = (index, settings.workers);
    let rdma = WorkerRdma::new(rdma, of, item_size_max, &shared.store).map_err(io::Error::other)?;
    for descriptor in rdma.descriptors() {
        poller.add_source(Source::Kernel(descriptor), DEVICE_TOKEN, false)?;
    }
    Ok(Some(Box::new(rdma)))
}

impl Worker {
    /// Sees to what has happened, and says how long the worker may sleep if everything else lets it for `most`.
    #[inline(never)]
    pub(super) fn poll_rdma(&mut self, most: Duration) -> Duration {
        let now = self.shared.clock.now();
        while let Some(id) = self.rdma.as_mut().and_then(|rdma| rdma.take_ended()) {
            self.close_for(id, CloseCause::Protocol);
        }
        let Some(rdma) = &mut self.rdma else {
            return most;
        };
        let mut is_busy = rdma.poll(now.since_start_ms);
        let dialect = self.shared.settings.dialect;
        while rdma.has_waiting()
            && let Some(room) = self.input.room()
        {
            let Some(next) = rdma.next(room, dialect) else {
                break;
            };
            is_busy = true;
            match next {
                Next::InRoom(mut session, len) => {
                    session.listed = Listed::Input;
                    let id = self.sessions.insert(session);
                    let input = self.input.occupy(id, 0, len);
                    self.input.active.push_back(input);
                }
                Next::InStream(mut session) => {
                    session.listed = Listed::Nowhere;
                    let id = self.sessions.insert(session);
                    if let Some(session) = self.sessions.get(id) {
                        list_session(session, id, &mut self.ready);
                    }
                }
            }
        }
        let moment = now.since_start_ms / NET_COUNTERS_MS;
        if self.rdma_told != moment
            && let Some(report) = rdma.take_report()
        {
            self.rdma_told = moment;
            self.shared.tell_rdma(self.index, report);
        }
        let most = match (is_busy, rdma.is_untold()) {
            (true, _) => Duration::ZERO,
            // What is left waits for room in the input buffer.
            _ if rdma.has_waiting() => most.min(SLEEP_FOR_MEMORY),
            _ if !most.is_zero() && !rdma.may_sleep() => Duration::ZERO,
            (_, true) => most.min(TELL_SLEEP),
            _ => most,
        };
        most
    }

    /// A session has left the table: ends what its client may do over RDMA. True if it was a request's, which is answered
    /// with an error.
    #[cold]
    pub(super) fn close_rdma(&mut self, id: SessionId, session: &mut Session) -> bool {
        let Some(rdma) = &mut self.rdma else {
            return false;
        };
        let message = match session.message.take() {
            None => {
                rdma.end_session(id);
                return false;
            }
            Some(message) if matches!(*message, Message::Rdma(_)) => message,
            other => {
                session.message = other;
                return false;
            }
        };
        let ending = match session.has_no_more_input {
            true => Ending::Incomplete,
            false => Ending::Refused,
        };
        rdma.answer(message, &[], &mut self.output.message_room, ending);
        session.release(&mut self.pool);
        self.fetches.abandon(&mut session.fetches);
        self.waiting_for_memory -= usize::from(session.listed == Listed::ForMemory);
        true
    }
}

impl Executor<'_, '_> {
    /// A session of RDMA after its `part` of the batch, which ends at `end`: what is still to be done for it, or `None` where
    /// it has been answered.
    #[cold]
    pub(super) fn end_rdma(
        &mut self,
        session: &mut Session,
        executed: &Executed,
        part: &SessionBatch,
        end: usize,
    ) -> Option<Outcome> {
        let answers = &mut self.answers;
        let outcome = executed.outcome;
        let is_whole = executed.to == end;
        let closes = outcome == Outcome::CloseWhenSent || is_whole && part.pause == Pause::Closes;
        let waits = matches!(outcome, Outcome::Wait | Outcome::WaitForFlash);
        let has_more = !is_whole || part.pause == Pause::Yields || session.stream.has_more();
        let goes_on = waits || outcome == Outcome::Done && has_more && !closes;
        let mut ending = match outcome {
            Outcome::Done | Outcome::CloseWhenSent => Ending::Answered,
            _ => Ending::Refused,
        };
        if goes_on {
            let message = session.message.as_deref_mut()?;
            if answers.output.gather(message) {
                return Some(outcome);
            }
            ending = Ending::Refused;
        } else if !(closes || part.is_exhausted && session.parser.is_between_requests()) {
            ending = Ending::Incomplete;
        }
        self.abandon_fetches(session);
        let answers = &mut self.answers;
        session.release(answers.pool);
        if let (Some(message), Some(rdma)) = (session.message.take(), answers.rdma.as_deref_mut()) {
            let mut room = answers.output.message_room;
            rdma.answer(message, answers.output.written_from(0), &mut room, ending);
            if closes {
                rdma.end_client_of(&session.connection);
            }
            answers.output.bytes_sent += answers.output.written_from(0).len() as u64;
            answers.output.message_room = room;
        }
        answers.output.truncate(0);
        None
    }
}
