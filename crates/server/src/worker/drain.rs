//! The end of a worker's connections when the server stops: each one finishes what its client has
//! begun, and then ends where no request is half done.
//!
//! ```text
//!             a request is executed, its replies are with the system
//!  serving ───────────────────────────────────────────────────────▶ ending ──▶ closed
//!     │       (at once, if none has been begun)                     end of output is sent, input
//!     │                                                             is dropped unexecuted
//!     └── drain_timeout ──▶ cut off
//! ```
//! A connection ends by the end of its output (FIN), behind all replies. What the client sends from
//! then on is dropped, so a client that finds the end of the stream in place of a reply knows that
//! the request was not executed. The socket closes when the client's system has acknowledged that
//! end and nothing is left to read: a socket that closes with unread input sends a reset, and that
//! may destroy replies which the client has not read yet (RFC 1122, section 4.2.2.13).
//!
//! # Concurrency
//! A worker leaves when no worker accepts any more and no connection is open: until then another
//! one may hand it a connection.

use std::mem;
use std::time::Duration;

use coua_protocol::Awaited;
use coua_transport::{PeerAddress, Received, Stream};

use super::Worker;
use crate::clock::Now;
use crate::session::{Drained, Listed, Session, SessionId};

/// How long a worker sleeps between two looks at its connections.
pub(super) const DRAIN_SLEEP: Duration = Duration::from_millis(2);

/// What is received at once to be dropped.
const DROP_LEN: usize = 16 << 10;

/// Receives from one connection in one look, at most.
const DROPS_PER_LOOK: usize = 8;

/// What is left of a worker's connections.
pub(super) struct Drain {
    /// Their output has ended, and their input is dropped.
    ending: Vec<Stream>,
    /// Room for what is dropped.
    dropped: Box<[u8]>,
    /// When the connections were last looked at (milliseconds since the server's start).
    looked_ms: u64,
    /// Sessions that end now; empty between two looks.
    finished: Vec<SessionId>,
}

impl Worker {
    /// Takes the connections a step nearer to their end. Called in each turn of a server that stops.
    #[cold]
    pub(super) fn drain(&mut self, now: Now) {
        let Some(mut drain) = self.drain.take() else {
            self.begin_drain();
            return;
        };
        // A client whose connection ended while another worker still accepts would come to that one,
        // and have to connect twice.
        if drain.looked_ms != now.since_start_ms && self.shared.accepts_no_more() {
            drain.looked_ms = now.since_start_ms;
            self.end_finished(&mut drain);
            drain.close_delivered();
        }
        self.drain = Some(drain);
    }

    /// Whether the worker can leave: all is finished, or the time is over.
    pub(super) fn has_drained(&self) -> bool {
        let now_ms = self.shared.clock.now().since_start_ms;
        if now_ms >= self.shared.drain_end_ms() {
            let ending = self.drain.as_ref().map_or(0, |drain| drain.ending.len());
            self.shared.note_cut_off(ending + self.connections());
            return true;
        }
        self.drain
            .as_ref()
            .is_some_and(|drain| drain.ending.is_empty())
            && self.shared.accepts_no_more()
            && self.shared.registry.open() == 0
            && self.input.is_idle()
            && !self.flash_is_busy()
            && !self.poller.sends_for_closed()
    }

    /// Marks the connections that have begun a request, and looks once more whether others have.
    fn begin_drain(&mut self) {
        let connections: Vec<SessionId> = self
            .sessions
            .iter()
            .filter(|(_, session)| session.message.is_none())
            .map(|(id, _)| id)
            .collect();
        for id in connections {
            if let Some(session) = self.sessions.get(id) {
                if session.watches() {
                    // It has no request to finish, and may not read what waits for it.
                    self.close(id);
                    continue;
                }
                session.begin_drain();
                if !session.is_blocked() {
                    session.readable = true;
                    self.list(id);
                }
            }
        }
        self.stop_accepting();
        self.shared.note_accepts_no_more();
        self.drain = Some(Drain {
            ending: Vec::new(),
            dropped: vec![0; DROP_LEN].into_boxed_slice(),
            looked_ms: u64::MAX,
            finished: Vec::new(),
        });
    }

    /// Ends the output of the connections that have finished.
    fn end_finished(&mut self, drain: &mut Drain) {
        let finished = self
            .sessions
            .iter()
            .filter(|(_, session)| is_finished(session));
        drain.finished.extend(finished.map(|(id, _)| id));
        for id in mem::take(&mut drain.finished) {
            if self.rdma.as_mut().is_some_and(|rdma| !rdma.may_end(id)) {
                continue;
            }
            if let Some(mut session) = self.sessions.remove(id) {
                tracing::trace!(
                    "<{} connection ends: the server stops",
                    session.connection.descriptor
                );
                session.release(&mut self.pool);
                self.fetches.abandon(&mut session.fetches);
                self.waiting_for_memory -= usize::from(session.listed == Listed::ForMemory);
                self.shared.registry.remove(self.index, id.slot as usize);
                session.stream.end_output();
                drain.ending.push(session.stream);
            }
        }
    }

    /// How many connections are open.
    fn connections(&self) -> usize {
        let sessions = self.sessions.iter();
        sessions
            .filter(|(_, session)| session.message.is_none())
            .count()
    }
}

/// Whether the connection can end without leaving a request half done.
fn is_finished(session: &Session) -> bool {
    if session.message.is_some() || session.listed == Listed::Input || session.is_blocked() {
        return false;
    }
    let is_between_requests = session.leftover.is_none()
        && session.parser.awaits() == Awaited::Request
        && session.refused_value.is_none();
    let has_executed = session.has_executed_since_mark();
    match session.drained {
        _ if session.waits_since_ms().is_some() || session.listed == Listed::ForFlash => false,
        _ if is_between_requests => has_executed || session.listed == Listed::Nowhere,
        // What is left over behind executed requests is the beginning of a later one.
        Drained::No => has_executed,
        Drained::HadBegun => has_executed && session.parser.awaits() == Awaited::Request,
    }
}

impl Drain {
    /// Drops what has come to the connections, and closes those whose peers have all replies.
    fn close_delivered(&mut self) {
        let dropped = &mut self.dropped;
        self.ending.retain(|stream| {
            for _ in 0..DROPS_PER_LOOK {
                match stream.receive(dropped) {
                    Received::Bytes(_) => {}
                    Received::Nothing => return !stream.has_delivered(),
                    Received::Ended => {
                        return !stream.has_delivered() && stream.peer() != PeerAddress::Unknown;
                    }
                }
            }
            true
        });
    }
}
