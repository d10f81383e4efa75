//! The results of receiving, sending and accepting.

use std::io;

use crate::sender::Sender;

/// The result of receiving.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// So many bytes were received, at least one.
    Bytes(usize),
    /// There is nothing at the moment; the poller reports when there is.
    Nothing,
    /// The peer has ended its stream, or the connection is broken.
    Ended,
}

/// The result of sending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// The transport took so many bytes, at least one unless none were offered.
    Bytes(usize),
    /// The transport takes nothing at the moment; the poller reports when it does.
    Full,
    /// The connection is broken.
    Broken,
}

/// How far the two ends of a stream have come with agreeing on its encryption.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handshake {
    /// They have agreed.
    Done,
    /// The peer's next part has not come.
    Waits,
    /// They will not agree: the connection has ended, or one of them has refused.
    Ended,
}

/// Why a connection broke, if not by an orderly close.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamFailure {
    /// The peer, or a host in between, has reset it, or no answer came.
    Peer,
    /// The stack in user space has ended it, because the peer received too slowly while memory was
    /// short.
    Memory,
}

/// The result of accepting a connection.
#[derive(Debug)]
pub enum Accepted<S> {
    /// A new connection.
    Stream(S),
    /// No connection is waiting.
    Nothing,
    /// A connection is waiting, but the process or the system has no descriptor or memory for it.
    Exhausted(io::Error),
}

impl<S> Accepted<S> {
    /// The same, with the connection converted.
    pub fn map<T>(self, form: impl FnOnce(S) -> T) -> Accepted<T> {
        match self {
            Accepted::Stream(stream) => Accepted::Stream(form(stream)),
            Accepted::Nothing => Accepted::Nothing,
            Accepted::Exhausted(error) => Accepted::Exhausted(error),
        }
    }
}

/// The result of receiving a datagram.
#[derive(Clone, Copy, Debug)]
pub enum Arrived {
    /// A datagram has arrived.
    Datagram {
        /// Bytes of it that were received: as many as there was room for.
        len: usize,
        /// Who sent it.
        from: Sender,
    },
    /// Something arrived that is not a datagram from an address, or the error of an earlier reply.
    Useless,
    /// There is nothing at the moment.
    Nothing,
}
