//! What attempts to receive, send and accept come to.

use std::io;

use crate::sender::Sender;

/// What an attempt to receive came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// So many bytes came, at least one.
    Bytes(usize),
    /// Nothing is there at the moment; the poller tells when something is.
    Nothing,
    /// The peer has ended its stream, or the connection is broken.
    Ended,
}

/// What an attempt to send came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// The transport took so many bytes, at least one unless none were offered.
    Bytes(usize),
    /// The transport takes nothing at the moment; the poller tells when it does.
    Full,
    /// The connection is broken.
    Broken,
}

/// What an attempt to accept a connection came to.
#[derive(Debug)]
pub enum Accepted<S> {
    /// A new connection.
    Stream(S),
    /// None waits.
    Nothing,
    /// One waits, but the process or the system has no descriptor or memory for it.
    Exhausted(io::Error),
}

impl<S> Accepted<S> {
    /// The same with the connection in another form.
    pub fn map<T>(self, form: impl FnOnce(S) -> T) -> Accepted<T> {
        match self {
            Accepted::Stream(stream) => Accepted::Stream(form(stream)),
            Accepted::Nothing => Accepted::Nothing,
            Accepted::Exhausted(error) => Accepted::Exhausted(error),
        }
    }
}

/// What an attempt to receive a datagram came to.
#[derive(Clone, Copy, Debug)]
pub enum Arrived {
    /// One came.
    Datagram {
        /// Its bytes, of which there is as much as there was room for.
        len: usize,
        /// Who sent it.
        from: Sender,
    },
    /// Something came that is no datagram from an address, or an error of an earlier reply.
    Useless,
    /// Nothing is there at the moment.
    Nothing,
}
