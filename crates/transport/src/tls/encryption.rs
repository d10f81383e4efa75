//! The encryption of one connection: records in and out on one side, plain bytes on the other. Whose records they
//! are is the caller's business: it gives `wire`, which reads and writes them without waiting.
//!
//! ```text
//!             receive ◀── plain bytes ◀── rustls ◀── records ◀─┐
//!   worker                                                     ├── stream
//!              send  ──▶ plain bytes ──▶ rustls ──▶ records ──▶┘
//!                                          └─ unsent records wait here
//! ```
//!
//! # Invariants
//! - `receive` gives less than there was room for only when nothing is left to read, neither plain
//!   bytes nor records: the caller waits for an event then, which tells of records alone.
//!   [`Encryption::has_more`] tells of the exceptions: the end of the stream, and a call that has become too long.
//! - `send` takes bytes only when no record waits. So one batch of records waits at most, and who sends
//!   on is told to wait.

use std::cell::RefCell;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::sync::Arc;

use rustls::{HandshakeKind, ServerConnection};

use super::{ClientCertificate, Tls, TlsEvents, names};
use crate::outcome::{Handshake, Received, Sent};

/// What records are read from and written to. `WouldBlock` says that nothing is there, or taken, now.
pub(crate) trait Wire: Read + Write {}

impl<W: Read + Write> Wire for W {}

/// Reads of records for one call, each of up to 4 KiB. Without a bound a client that sends nothing but empty
/// records, faster than they are decrypted, would keep its worker for ever.
const READS_MAX: usize = 64;

/// Pieces that are encrypted at once.
const PIECES_MAX: usize = 64;

/// The encryption of a connection.
pub(crate) struct Encryption {
    state: RefCell<State>,
    unsent_max: usize,
    events: Arc<TlsEvents>,
}

struct State {
    connection: Box<ServerConnection>,
    is_handshaking: bool,
    /// No more plain bytes will come.
    has_ended: bool,
    /// Receiving has paused although there may be more records.
    has_paused: bool,
    /// No more records will come.
    have_records_ended: bool,
    /// The peer has been told that nothing more comes.
    has_said_end: bool,
    /// The peer broke the protocol, or the connection is gone.
    is_broken: bool,
}

impl Encryption {
    /// Encrypts a connection that a client has just opened; `None` if the client cannot be asked for what it
    /// must be asked for.
    pub(crate) fn new(tls: &Tls, of: ClientCertificate) -> Option<Encryption> {
        let mut connection = ServerConnection::new(tls.config(of)?).ok()?;
        connection.set_buffer_limit(Some(tls.unsent_max()));
        Some(Encryption {
            state: RefCell::new(State {
                connection: Box::new(connection),
                is_handshaking: true,
                has_ended: false,
                has_paused: false,
                have_records_ended: false,
                has_said_end: false,
                is_broken: false,
            }),
            unsent_max: tls.unsent_max(),
            events: Arc::clone(&tls.events),
        })
    }

    /// Whether the handshake is not finished: receiving may take long.
    pub(crate) fn is_handshaking(&self) -> bool {
        self.state.borrow().is_handshaking
    }

    /// Whether there is something to receive of which no event tells: the end, or what a call has left.
    pub(crate) fn has_more(&self) -> bool {
        let state = self.state.borrow();
        state.has_ended || state.has_paused
    }

    /// Whether records wait for the stream to take them.
    pub(crate) fn has_unsent(&self) -> bool {
        let state = self.state.borrow();
        state.connection.wants_write() && !state.is_broken
    }

    /// Goes on with the handshake, and takes no plain bytes out.
    pub(crate) fn shake_hands(&self, wire: &mut impl Wire) -> Handshake {
        let state = &mut *self.state.borrow_mut();
        let mut reads = 0;
        state.has_paused = false;
        while state.is_handshaking && !state.has_ended {
            if reads == READS_MAX {
                state.has_paused = true;
                break;
            }
            reads += 1;
            if !self.receive_records(state, wire) {
                break;
            }
            state.has_ended |= state.have_records_ended && state.is_handshaking;
        }
        if state.connection.wants_write() {
            send_records(state, wire);
        }
        match state.is_handshaking {
            false => Handshake::Done,
            true if state.has_ended => Handshake::Ended,
            true => Handshake::Waits,
        }
    }

    /// The names in the certificate that the peer has shown; see [`names`].
    pub(crate) fn peer_names(&self) -> Vec<String> {
        let state = self.state.borrow();
        let chain = state.connection.peer_certificates().unwrap_or_default();
        chain.first().map_or(Vec::new(), |own| names::of(own))
    }

    /// Receives plain bytes.
    pub(crate) fn receive(&self, wire: &mut impl Wire, space: &mut [u8]) -> Received {
        let mut state = self.state.borrow_mut();
        let mut filled = 0;
        let mut reads = 0;
        state.has_paused = false;
        if state.has_said_end {
            return drop_records(&mut state, wire, space);
        }
        while filled < space.len() && !state.has_ended {
            match state.connection.reader().read(&mut space[filled..]) {
                Ok(0) => state.has_ended = true,
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if reads == READS_MAX {
                        state.has_paused = true;
                        break;
                    }
                    reads += 1;
                    if !self.receive_records(&mut state, wire) {
                        break;
                    }
                }
                // The stream has ended without a word.
                Err(_) => state.has_ended = true,
            }
        }
        if state.connection.wants_write() {
            send_records(&mut state, wire);
        }
        match filled {
            0 if state.has_ended => Received::Ended,
            0 => Received::Nothing,
            _ => Received::Bytes(filled),
        }
    }

    /// As [`Encryption::receive`], into several spaces.
    pub(crate) fn receive_vectored(
        &self,
        wire: &mut impl Wire,
        spaces: &mut [IoSliceMut<'_>],
    ) -> Received {
        let mut filled = 0;
        for space in spaces.iter_mut().filter(|space| !space.is_empty()) {
            match self.receive(wire, space) {
                Received::Bytes(count) => {
                    filled += count;
                    if count < space.len() {
                        break;
                    }
                }
                // It is told with the next attempt.
                _ if filled > 0 => break,
                other => return other,
            }
        }
        Received::Bytes(filled)
    }

    /// Receives records and decrypts them. False if there is nothing to receive.
    fn receive_records(&self, state: &mut State, wire: &mut impl Wire) -> bool {
        match state.connection.read_tls(wire) {
            Ok(count) => state.have_records_ended = count == 0,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
            Err(_) => {
                (state.has_ended, state.is_broken) = (true, true);
                return true;
            }
        }
        if state.connection.process_new_packets().is_err() {
            let events = &self.events;
            TlsEvents::count(match state.is_handshaking {
                true => &events.handshake_errors,
                false => &events.protocol_errors,
            });
            // What rustls has to say about it leaves first.
            send_records(state, wire);
            (state.has_ended, state.is_broken) = (true, true);
            return true;
        }
        if state.is_handshaking && !state.connection.is_handshaking() {
            state.is_handshaking = false;
            TlsEvents::count(match state.connection.handshake_kind() {
                Some(HandshakeKind::Resumed) => &self.events.resumed_sessions,
                _ => &self.events.new_sessions,
            });
        }
        true
    }

    /// Sends plain bytes.
    pub(crate) fn send(&self, wire: &mut impl Wire, pieces: &[IoSlice<'_>]) -> Sent {
        let state = &mut *self.state.borrow_mut();
        match send_records(state, wire) {
            Sent::Bytes(_) => {}
            waits => return waits,
        }
        if state.has_ended && state.is_broken {
            return Sent::Broken;
        }
        let mut slices = [IoSlice::new(&[]); PIECES_MAX];
        let mut room = self.unsent_max;
        for (slice, piece) in slices.iter_mut().zip(pieces) {
            *slice = IoSlice::new(&piece[..piece.len().min(room)]);
            room -= slice.len();
        }
        let Ok(taken) = state.connection.writer().write_vectored(&slices) else {
            return Sent::Broken;
        };
        match send_records(state, wire) {
            Sent::Broken => Sent::Broken,
            // What waits has been taken.
            _ => Sent::Bytes(taken),
        }
    }

    /// Sends the records that wait.
    pub(crate) fn flush(&self, wire: &mut impl Wire) -> Sent {
        send_records(&mut self.state.borrow_mut(), wire)
    }

    /// Tells the peer that nothing more comes, as far as the stream takes it.
    pub(crate) fn say_end(&self, wire: &mut impl Wire) {
        let state = &mut *self.state.borrow_mut();
        if !state.is_handshaking && !state.is_broken {
            state.connection.send_close_notify();
            state.has_said_end = true;
            // Whoever does not read does not hear of it.
            let _ = send_records(state, wire);
        }
    }
}

/// Receives what comes behind this side's end. Nobody acts on it, so it is not decrypted: rustls would have to answer a bad
/// record, and has said its last word.
fn drop_records(state: &mut State, wire: &mut impl Wire, space: &mut [u8]) -> Received {
    for _ in 0..READS_MAX {
        match wire.read(space) {
            Ok(1..) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Received::Nothing,
            Ok(0) | Err(_) => {
                state.has_ended = true;
                return Received::Ended;
            }
        }
    }
    state.has_paused = true;
    Received::Nothing
}

/// Sends the records that wait.
fn send_records(state: &mut State, wire: &mut impl Wire) -> Sent {
    if state.is_broken {
        return Sent::Broken;
    }
    while state.connection.wants_write() {
        match state.connection.write_tls(wire) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Sent::Full,
            Err(_) => {
                state.is_broken = true;
                return Sent::Broken;
            }
        }
    }
    Sent::Bytes(0)
}
