//! A connection.

mod encrypted;
mod given;

use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use encrypted::Encrypted;
use given::Given;

use crate::kernel;
use crate::outcome::{Handshake, Received, Sent, StreamFailure};
use crate::peer_address::PeerAddress;
#[cfg(feature = "simulated")]
use crate::simulated;
use crate::source::Source;
use crate::tls::encryption::Encryption;
use crate::tls::{ClientCertificate, Tls};
use crate::userspace;

/// One connected, non-blocking stream socket. Dropping it closes the connection.
pub struct Stream {
    end: End,
}

enum End {
    Kernel(OwnedFd),
    Userspace(userspace::StreamEnd),
    Tls(Box<Encrypted>),
    /// Bytes that have all come, or none.
    Given(Option<Box<Given>>),
    #[cfg(feature = "simulated")]
    Simulated(simulated::StreamEnd),
}

impl Stream {
    pub(super) fn userspace(end: userspace::StreamEnd) -> Stream {
        Stream {
            end: End::Userspace(end),
        }
    }

    /// A stream that no socket stands behind: `bytes` come from it, and then its end. What is sent to it is lost.
    pub fn of_bytes(bytes: impl AsRef<[u8]> + 'static) -> Stream {
        let given = Given {
            bytes: Box::new(bytes),
            at: std::cell::Cell::new(0),
        };
        Stream {
            end: End::Given(Some(Box::new(given))),
        }
    }

    /// As [`Stream::of_bytes`], of none.
    pub fn of_nothing() -> Stream {
        Stream {
            end: End::Given(None),
        }
    }

    /// The same stream, encrypted, where a client has just opened it.
    ///
    /// # Errors
    /// The stream itself, if `tls` cannot ask the client for what it must be asked for.
    pub fn encrypted(self, tls: &Tls, of: ClientCertificate) -> Result<Stream, Stream> {
        let Some(encryption) = Encryption::new(tls, of) else {
            return Err(self);
        };
        Ok(Stream {
            end: End::Tls(Box::new(Encrypted {
                stream: self,
                encryption,
            })),
        })
    }

    /// Whether its encryption is still being agreed on. To receive then may take a millisecond of computing.
    #[inline]
    pub fn is_handshaking(&self) -> bool {
        match &self.end {
            End::Tls(end) => end.encryption.is_handshaking(),
            _ => false,
        }
    }

    /// Goes on with agreeing on its encryption, without receiving. What the peer has sent behind its part of
    /// that is received as ever.
    pub fn shake_hands(&self) -> Handshake {
        match &self.end {
            End::Tls(end) => end.shake_hands(),
            _ => Handshake::Done,
        }
    }

    /// The names in the certificate that the peer has proved to be its own ([`names`](crate::tls::names));
    /// none before the handshake is done, or where no certificate was shown.
    pub fn peer_names(&self) -> Vec<String> {
        match &self.end {
            End::Tls(end) if !end.encryption.is_handshaking() => end.encryption.peer_names(),
            _ => Vec::new(),
        }
    }

    /// Whether there is something to receive of which no event tells.
    #[inline(always)]
    pub fn has_more(&self) -> bool {
        matches!(self.end, End::Tls(_) | End::Given(_)) && self.keeps_more()
    }

    /// As [`Stream::has_more`], for those that keep some themselves.
    #[cold]
    fn keeps_more(&self) -> bool {
        match &self.end {
            End::Tls(end) => end.encryption.has_more(),
            End::Given(end) => end.as_ref().is_some_and(|end| end.has_more()),
            _ => false,
        }
    }

    /// Whether bytes that it has taken wait to be sent ([`Stream::flush`]).
    #[inline]
    pub fn has_unsent(&self) -> bool {
        match &self.end {
            End::Tls(end) => end.encryption.has_unsent(),
            _ => false,
        }
    }

    /// Sends what it has taken and not sent yet. [`Sent::Bytes`] if nothing is left.
    pub fn flush(&self) -> Sent {
        match &self.end {
            End::Tls(end) => end.flush(),
            _ => Sent::Bytes(0),
        }
    }

    /// Whether the connection is there, where [`Poller::connect`](crate::Poller::connect) has begun
    /// to open it; true of all others.
    ///
    /// # Errors
    /// Where it has failed. `AddrNotAvailable` is that its answers come to another worker's queue:
    /// they may come to this one's if it is opened again, which is from another port.
    pub fn is_open(&self) -> io::Result<bool> {
        match &self.end {
            End::Userspace(end) => end.is_open(),
            End::Tls(end) => end.stream.is_open(),
            _ => Ok(true),
        }
    }

    /// Takes the descriptor out, so that another thread can make a stream of it again.
    ///
    /// # Errors
    /// The stream itself, where it is none of the kernel's: those stay with their thread.
    pub fn into_descriptor(self) -> Result<OwnedFd, Stream> {
        match self.end {
            End::Kernel(fd) => Ok(fd),
            end => Err(Stream { end }),
        }
    }

    /// Receives into `space`, which must not be empty.
    pub fn receive(&self, space: &mut [u8]) -> Received {
        match &self.end {
            End::Kernel(fd) => kernel::stream::receive(fd, space),
            End::Userspace(end) => end.receive(std::iter::once(space)),
            End::Tls(end) => end.receive(space),
            End::Given(end) => end
                .as_ref()
                .map_or(Received::Ended, |end| end.receive(space)),
            #[cfg(feature = "simulated")]
            End::Simulated(end) => end.receive(&mut [IoSliceMut::new(space)]),
        }
    }

    /// Receives into several spaces, one after the other; they must not all be empty.
    pub fn receive_vectored(&self, spaces: &mut [IoSliceMut<'_>]) -> Received {
        match &self.end {
            End::Kernel(fd) => kernel::stream::receive_vectored(fd, spaces),
            End::Userspace(end) => end.receive(spaces.iter_mut().map(|space| &mut **space)),
            End::Tls(end) => end.receive_vectored(spaces),
            End::Given(end) => end
                .as_ref()
                .map_or(Received::Ended, |end| end.receive_vectored(spaces)),
            #[cfg(feature = "simulated")]
            End::Simulated(end) => end.receive(spaces),
        }
    }

    /// Sends from the front of `bytes`.
    pub fn send(&self, bytes: &[u8]) -> Sent {
        match &self.end {
            End::Kernel(fd) => kernel::stream::send(fd, bytes),
            End::Userspace(end) => end.send(std::iter::once(bytes)),
            End::Tls(end) => end.send(&[IoSlice::new(bytes)]),
            End::Given(_) => Sent::Broken,
            #[cfg(feature = "simulated")]
            End::Simulated(end) => end.send(&[IoSlice::new(bytes)]),
        }
    }

    /// As [`Stream::send`], for bytes behind which none come in this turn: they may leave at once.
    pub fn send_now(&self, bytes: &[u8]) -> Sent {
        match &self.end {
            End::Userspace(end) => end.send_now(bytes),
            _ => self.send(bytes),
        }
    }

    /// Sends several pieces, one after the other. At most 1024 pieces.
    pub fn send_vectored(&self, pieces: &[IoSlice<'_>]) -> Sent {
        self.send_pieces(pieces, false)
    }

    /// As [`Stream::send_vectored`], for bytes behind which others come in this turn: the last of them may
    /// wait for these.
    pub fn send_vectored_more(&self, pieces: &[IoSlice<'_>]) -> Sent {
        self.send_pieces(pieces, true)
    }

    fn send_pieces(&self, pieces: &[IoSlice<'_>], more: bool) -> Sent {
        match &self.end {
            End::Kernel(fd) => kernel::stream::send_vectored(fd, pieces, more),
            End::Userspace(end) => end.send(pieces.iter().map(|piece| &**piece)),
            End::Tls(end) => end.send(pieces),
            End::Given(_) => Sent::Broken,
            #[cfg(feature = "simulated")]
            End::Simulated(end) => end.send(pieces),
        }
    }

    /// Ends what this side sends: behind all that was sent, the peer reads the end of the stream.
    /// Input is still received. A stack in user space calls for it within a turn.
    pub fn end_output(&self) {
        match &self.end {
            End::Kernel(fd) => kernel::stream::end_output(fd),
            End::Userspace(end) => end.end_output(),
            End::Tls(end) => {
                end.say_end();
                end.stream.end_output();
            }
            End::Given(_) => {}
            // Dropping it has the same effect.
            #[cfg(feature = "simulated")]
            End::Simulated(_) => {}
        }
    }

    /// Whether the peer's system has all that was sent, and the end behind it; also where nothing
    /// more can reach it.
    pub fn has_delivered(&self) -> bool {
        match &self.end {
            End::Kernel(fd) => {
                kernel::unsent::len(fd) == 0 || kernel::address::peer(fd) == PeerAddress::Unknown
            }
            End::Userspace(end) => end.has_delivered(),
            End::Tls(end) => end.stream.has_delivered(),
            End::Given(_) => true,
            #[cfg(feature = "simulated")]
            End::Simulated(_) => true,
        }
    }

    /// The descriptor's number, for statistics only.
    pub fn descriptor(&self) -> i32 {
        match &self.end {
            End::Kernel(fd) => fd.as_raw_fd(),
            End::Userspace(end) => end.number(),
            End::Tls(end) => end.stream.descriptor(),
            End::Given(_) => -1,
            #[cfg(feature = "simulated")]
            End::Simulated(end) => end.descriptor(),
        }
    }

    /// The address at the other end.
    pub fn peer(&self) -> PeerAddress {
        match &self.end {
            End::Kernel(fd) => kernel::address::peer(fd),
            End::Userspace(end) => end.peer(),
            End::Tls(end) => end.stream.peer(),
            End::Given(_) => PeerAddress::Unknown,
            #[cfg(feature = "simulated")]
            End::Simulated(end) => end.peer(),
        }
    }

    /// Why the connection broke, if it did and this is still known.
    pub fn failure(&self) -> Option<StreamFailure> {
        match &self.end {
            End::Userspace(end) => end.failure(),
            End::Tls(end) => end.stream.failure(),
            End::Given(_) => None,
            // The kernel forgets the peer only of a broken connection.
            _ => (self.peer() == PeerAddress::Unknown).then_some(StreamFailure::Peer),
        }
    }

    /// The address at this end.
    pub fn local(&self) -> PeerAddress {
        match &self.end {
            End::Kernel(fd) => kernel::address::local(fd),
            End::Userspace(end) => end.local(),
            End::Tls(end) => end.stream.local(),
            End::Given(_) => PeerAddress::Unknown,
            #[cfg(feature = "simulated")]
            End::Simulated(end) => end.local(),
        }
    }
}

/// A connected, non-blocking stream socket.
impl From<OwnedFd> for Stream {
    fn from(fd: OwnedFd) -> Stream {
        Stream {
            end: End::Kernel(fd),
        }
    }
}

#[cfg(feature = "simulated")]
impl From<simulated::StreamEnd> for Stream {
    fn from(end: simulated::StreamEnd) -> Stream {
        Stream {
            end: End::Simulated(end),
        }
    }
}

impl<'s> From<&'s Stream> for Source<'s> {
    fn from(stream: &'s Stream) -> Source<'s> {
        match &stream.end {
            End::Kernel(fd) => Source::Kernel(fd.as_fd()),
            End::Userspace(end) => Source::Userspace(end.id()),
            End::Tls(end) => Source::from(&end.stream),
            End::Given(_) => Source::Nothing,
            #[cfg(feature = "simulated")]
            End::Simulated(end) => Source::Simulated(end.id()),
        }
    }
}
