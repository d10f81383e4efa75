//! A connection.

use std::fmt;
use std::io::{self, IoSlice, IoSliceMut};
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvFlags, SendAncillaryBuffer, SendFlags, SocketAddrAny,
    recv, recvmsg, send, sendmsg,
};

use super::poller::Source;
#[cfg(feature = "simulated")]
use super::simulated;
use crate::userspace;

/// One connected, non-blocking stream socket. Dropping it closes the connection.
pub struct Stream {
    end: End,
}

enum End {
    Kernel(OwnedFd),
    Userspace(userspace::StreamEnd),
    #[cfg(feature = "simulated")]
    Simulated(simulated::StreamEnd),
}

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
    /// The kernel took so many bytes, at least one unless none were offered.
    Bytes(usize),
    /// The kernel takes nothing at the moment; the poller tells when it does.
    Full,
    /// The connection is broken.
    Broken,
}

impl Stream {
    pub(super) fn new(fd: OwnedFd) -> Stream {
        Stream {
            end: End::Kernel(fd),
        }
    }

    pub(super) fn userspace(end: userspace::StreamEnd) -> Stream {
        Stream {
            end: End::Userspace(end),
        }
    }

    #[cfg(feature = "simulated")]
    pub(super) fn simulated(end: simulated::StreamEnd) -> Stream {
        Stream {
            end: End::Simulated(end),
        }
    }

    /// Whether the connection is there, where [`Poller::connect`](super::Poller::connect) has begun
    /// to open it; true of all others.
    ///
    /// # Errors
    /// Where it has failed. `AddrNotAvailable` is that its answers come to another worker's queue:
    /// they may come to this one's if it is opened again, which is from another port.
    pub fn is_open(&self) -> io::Result<bool> {
        match &self.end {
            End::Userspace(end) => end.is_open(),
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
            End::Kernel(fd) => received(|| {
                let (_, count) = recv(fd, &mut *space, RecvFlags::empty())?;
                Ok(count)
            }),
            End::Userspace(end) => end.receive(std::iter::once(space)),
            #[cfg(feature = "simulated")]
            End::Simulated(end) => end.receive(&mut [IoSliceMut::new(space)]),
        }
    }

    /// Receives into several spaces, one after the other; they must not all be empty.
    pub fn receive_vectored(&self, spaces: &mut [IoSliceMut<'_>]) -> Received {
        match &self.end {
            End::Kernel(fd) => received(|| {
                let mut control = RecvAncillaryBuffer::default();
                Ok(recvmsg(fd, spaces, &mut control, RecvFlags::empty())?.bytes)
            }),
            End::Userspace(end) => end.receive(spaces.iter_mut().map(|space| &mut **space)),
            #[cfg(feature = "simulated")]
            End::Simulated(end) => end.receive(spaces),
        }
    }

    /// Sends from the front of `bytes`.
    pub fn send(&self, bytes: &[u8]) -> Sent {
        match &self.end {
            End::Kernel(fd) => sent(|| send(fd, bytes, SendFlags::NOSIGNAL)),
            End::Userspace(end) => end.send(std::iter::once(bytes)),
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
        match &self.end {
            End::Kernel(fd) => sent(|| {
                let mut control = SendAncillaryBuffer::default();
                sendmsg(fd, pieces, &mut control, SendFlags::NOSIGNAL)
            }),
            End::Userspace(end) => end.send(pieces.iter().map(|piece| &**piece)),
            #[cfg(feature = "simulated")]
            End::Simulated(end) => end.send(pieces),
        }
    }

    /// The descriptor's number, for statistics only.
    pub fn descriptor(&self) -> i32 {
        match &self.end {
            End::Kernel(fd) => fd.as_raw_fd(),
            End::Userspace(end) => end.number(),
            #[cfg(feature = "simulated")]
            End::Simulated(end) => end.descriptor(),
        }
    }

    /// The address at the other end.
    pub fn peer(&self) -> PeerAddress {
        match &self.end {
            End::Kernel(fd) => {
                rustix::net::getpeername(fd).map_or(PeerAddress::Unknown, PeerAddress::from_any)
            }
            End::Userspace(end) => end.peer(),
            #[cfg(feature = "simulated")]
            End::Simulated(end) => end.peer(),
        }
    }

    /// The address at this end.
    pub fn local(&self) -> PeerAddress {
        match &self.end {
            End::Kernel(fd) => rustix::net::getsockname(fd)
                .map_or(PeerAddress::Unknown, |address| {
                    PeerAddress::from_any(Some(address))
                }),
            End::Userspace(end) => end.local(),
            #[cfg(feature = "simulated")]
            End::Simulated(end) => end.local(),
        }
    }
}

/// A connected, non-blocking stream socket.
impl From<OwnedFd> for Stream {
    fn from(fd: OwnedFd) -> Stream {
        Stream::new(fd)
    }
}

impl<'s> From<&'s Stream> for Source<'s> {
    fn from(stream: &'s Stream) -> Source<'s> {
        match &stream.end {
            End::Kernel(fd) => Source::Kernel(fd.as_fd()),
            End::Userspace(end) => Source::Userspace(end.id()),
            #[cfg(feature = "simulated")]
            End::Simulated(end) => Source::Simulated(end.id()),
        }
    }
}

fn received(mut receive: impl FnMut() -> Result<usize, Errno>) -> Received {
    loop {
        return match receive() {
            Ok(0) => Received::Ended,
            Ok(count) => Received::Bytes(count),
            Err(Errno::INTR) => continue,
            Err(Errno::AGAIN) => Received::Nothing,
            Err(_) => Received::Ended,
        };
    }
}

fn sent(mut send: impl FnMut() -> Result<usize, Errno>) -> Sent {
    loop {
        return match send() {
            Ok(count) => Sent::Bytes(count),
            Err(Errno::INTR) => continue,
            Err(Errno::AGAIN) => Sent::Full,
            Err(_) => Sent::Broken,
        };
    }
}

/// One end of a connection, shown as memcached's `stats conns` shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PeerAddress {
    /// IPv4, or IPv6 that carries IPv4.
    Tcp4(SocketAddr),
    /// IPv6.
    Tcp6(SocketAddr),
    /// A unix socket and its path, empty for an unnamed one.
    Unix(String),
    /// The kernel would not tell: the connection is gone.
    Unknown,
}

impl From<SocketAddr> for PeerAddress {
    fn from(address: SocketAddr) -> PeerAddress {
        match address.is_ipv4() {
            true => PeerAddress::Tcp4(address),
            false => PeerAddress::Tcp6(address),
        }
    }
}

impl PeerAddress {
    fn from_any(address: Option<SocketAddrAny>) -> PeerAddress {
        let Some(address) = address else {
            return PeerAddress::Unix(String::new());
        };
        if address.address_family() == AddressFamily::UNIX {
            let path = rustix::net::SocketAddrUnix::try_from(address)
                .ok()
                .and_then(|unix| unix.path().map(|path| path.to_string_lossy().into_owned()));
            return PeerAddress::Unix(path.unwrap_or_default());
        }
        match SocketAddr::try_from(address) {
            Ok(address) => PeerAddress::from(address),
            Err(_) => PeerAddress::Unknown,
        }
    }
}

impl fmt::Display for PeerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PeerAddress::Tcp4(address) => write!(f, "tcp:{address}"),
            PeerAddress::Tcp6(address) => write!(f, "tcp6:{address}"),
            PeerAddress::Unix(path) => write!(f, "unix:{path}"),
            PeerAddress::Unknown => f.write_str("unknown"),
        }
    }
}
