//! The connections of a driver's stack.

use std::io;
use std::net::SocketAddr;
use std::rc::Rc;

use coua_tcp::stack::{ConnectionId, ConnectionState, Failure};

use super::driver::{SharedStackDriver, as_io};
use crate::outcome::{Received, Sent, StreamFailure};
use crate::peer_address::PeerAddress;

/// A connection of a driver's stack. Dropping it closes the connection.
pub(crate) struct StreamEnd {
    host: SharedStackDriver,
    id: ConnectionId,
}

impl StreamEnd {
    /// The next connection that a client has opened.
    pub(crate) fn accept(host: &SharedStackDriver) -> Option<StreamEnd> {
        let id = host.borrow_mut().stack.next_accepted()?;
        let host = Rc::clone(host);
        Some(StreamEnd { host, id })
    }

    /// Begins a connection to `to`, from a port that `may_use` allows.
    pub(crate) fn connect(
        host: &SharedStackDriver,
        to: SocketAddr,
        mut may_use: impl FnMut(u16) -> bool,
    ) -> io::Result<StreamEnd> {
        let connected = (host.borrow_mut().stack).connect(to, |tuple| may_use(tuple.local_port));
        let id = connected.map_err(as_io)?;
        let host = Rc::clone(host);
        Ok(StreamEnd { host, id })
    }

    /// Whether the connection is established; an error if it has failed.
    pub(crate) fn is_open(&self) -> io::Result<bool> {
        let stack = &self.host.borrow().stack;
        let stands = stack.readiness(self.id).zip(stack.describe(self.id));
        let (readiness, described) = stands.ok_or(io::ErrorKind::NotConnected)?;
        match readiness.failure {
            None => Ok(described.state != ConnectionState::SynSent),
            Some(Failure::Reset) => Err(io::ErrorKind::ConnectionRefused.into()),
            Some(Failure::TimedOut) => Err(io::ErrorKind::TimedOut.into()),
            Some(Failure::Aborted | Failure::Shed) => Err(io::ErrorKind::ConnectionAborted.into()),
            Some(Failure::Misdirected) => Err(io::ErrorKind::AddrNotAvailable.into()),
        }
    }

    /// A stream without a connection, which always fails: it takes a stream's place for datagrams.
    pub(crate) fn of_none(host: &SharedStackDriver) -> StreamEnd {
        StreamEnd {
            host: Rc::clone(host),
            id: ConnectionId::from_bits(u64::MAX),
        }
    }

    /// Its id in the stack.
    pub(crate) fn id(&self) -> ConnectionId {
        self.id
    }

    /// Receives into several buffers, one after another.
    pub(crate) fn receive<'s>(&self, spaces: impl Iterator<Item = &'s mut [u8]>) -> Received {
        let host = &mut *self.host.borrow_mut();
        let mut len = 0;
        for space in spaces {
            match host.card.read(&mut host.stack, self.id, space) {
                coua_tcp::stack::Received::Bytes(count) => {
                    len += count;
                    if count < space.len() {
                        break;
                    }
                }
                coua_tcp::stack::Received::Nothing if len == 0 => return Received::Nothing,
                // The next attempt reports it.
                _ if len > 0 => break,
                _ => return Received::Ended,
            }
        }
        Received::Bytes(len)
    }

    /// Sends several pieces, one after another.
    pub(crate) fn send<'p>(&self, pieces: impl Iterator<Item = &'p [u8]>) -> Sent {
        let stack = &mut self.host.borrow_mut().stack;
        let (mut len, mut asked) = (0, 0);
        for piece in pieces {
            asked += piece.len();
            match stack.send(self.id, piece) {
                Ok(count) => {
                    len += count;
                    if count < piece.len() {
                        break;
                    }
                }
                Err(_) => return Sent::Broken,
            }
        }
        match len {
            0 if asked > 0 => Sent::Full,
            len => Sent::Bytes(len),
        }
    }

    /// As [`StreamEnd::send`] of one piece, when no other piece follows in this turn.
    pub(crate) fn send_now(&self, bytes: &[u8]) -> Sent {
        let host = &mut *self.host.borrow_mut();
        match host.card.send_now(&mut host.stack, self.id, bytes) {
            Ok(0) if !bytes.is_empty() => Sent::Full,
            Ok(len) => Sent::Bytes(len),
            Err(_) => Sent::Broken,
        }
    }

    /// Ends what this side sends.
    pub(crate) fn end_output(&self) {
        self.host.borrow_mut().stack.shut_down(self.id);
    }

    /// Whether the peer has acknowledged all that was sent, and the end.
    pub(crate) fn has_delivered(&self) -> bool {
        let host = &*self.host.borrow();
        let described = host.stack.describe(self.id);
        // The end counts as a byte.
        described.is_none_or(|described| {
            described.unacknowledged == 0 || described.state == ConnectionState::Closed
        })
    }

    /// The address at the other end.
    pub(crate) fn peer(&self) -> PeerAddress {
        self.address(|remote, _| remote)
    }

    /// The address at this end.
    pub(crate) fn local(&self) -> PeerAddress {
        self.address(|_, local| local)
    }

    fn address(&self, which: impl Fn(SocketAddr, SocketAddr) -> SocketAddr) -> PeerAddress {
        match self.host.borrow().stack.describe(self.id) {
            Some(described) => PeerAddress::from(which(described.remote, described.local)),
            None => PeerAddress::Unknown,
        }
    }

    /// Why the connection broke, if it did.
    pub(crate) fn failure(&self) -> Option<StreamFailure> {
        let readiness = self.host.borrow().stack.readiness(self.id)?;
        Some(match readiness.failure? {
            Failure::Shed => StreamFailure::Memory,
            Failure::Reset | Failure::TimedOut | Failure::Aborted | Failure::Misdirected => {
                StreamFailure::Peer
            }
        })
    }

    /// A number among the stack's connections; descriptors of the kernel's are other numbers.
    pub(crate) fn number(&self) -> i32 {
        i32::try_from(place(self.id)).map_or(-1, |place| -2 - place)
    }
}

impl Drop for StreamEnd {
    fn drop(&mut self) {
        let host = &mut *self.host.borrow_mut();
        host.stack.close(self.id);
    }
}

fn place(id: ConnectionId) -> usize {
    usize::try_from(id.to_bits() & u64::from(u32::MAX)).unwrap_or(usize::MAX)
}
