//! A connection.

use std::fmt;
use std::io::{IoSlice, IoSliceMut};
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvFlags, SendAncillaryBuffer, SendFlags, SocketAddrAny,
    recv, recvmsg, send, sendmsg,
};

/// One connected, non-blocking stream socket. Dropping it closes the connection.
pub struct Stream {
    fd: OwnedFd,
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
        Stream { fd }
    }

    /// Receives into `space`, which must not be empty.
    pub fn receive(&self, space: &mut [u8]) -> Received {
        loop {
            return match recv(&self.fd, &mut *space, RecvFlags::empty()) {
                Ok((_, 0)) => Received::Ended,
                Ok((_, count)) => Received::Bytes(count),
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => Received::Nothing,
                Err(_) => Received::Ended,
            };
        }
    }

    /// Receives into several spaces, one after the other; they must not all be empty.
    pub fn receive_vectored(&self, spaces: &mut [IoSliceMut<'_>]) -> Received {
        loop {
            let mut control = RecvAncillaryBuffer::default();
            return match recvmsg(&self.fd, spaces, &mut control, RecvFlags::empty()) {
                Ok(message) if message.bytes == 0 => Received::Ended,
                Ok(message) => Received::Bytes(message.bytes),
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => Received::Nothing,
                Err(_) => Received::Ended,
            };
        }
    }

    /// Sends from the front of `bytes`.
    pub fn send(&self, bytes: &[u8]) -> Sent {
        loop {
            return match send(&self.fd, bytes, SendFlags::NOSIGNAL) {
                Ok(count) => Sent::Bytes(count),
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => Sent::Full,
                Err(_) => Sent::Broken,
            };
        }
    }

    /// Sends several pieces, one after the other. At most 1024 pieces.
    pub fn send_vectored(&self, pieces: &[IoSlice<'_>]) -> Sent {
        loop {
            let mut control = SendAncillaryBuffer::default();
            return match sendmsg(&self.fd, pieces, &mut control, SendFlags::NOSIGNAL) {
                Ok(count) => Sent::Bytes(count),
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => Sent::Full,
                Err(_) => Sent::Broken,
            };
        }
    }

    /// The descriptor's number, for statistics only.
    pub fn descriptor(&self) -> i32 {
        self.fd.as_raw_fd()
    }

    /// The address at the other end.
    pub fn peer(&self) -> PeerAddress {
        rustix::net::getpeername(&self.fd).map_or(PeerAddress::Unknown, PeerAddress::from_any)
    }

    /// The address at this end.
    pub fn local(&self) -> PeerAddress {
        rustix::net::getsockname(&self.fd).map_or(PeerAddress::Unknown, |address| {
            PeerAddress::from_any(Some(address))
        })
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
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
            Ok(address) if address.is_ipv4() => PeerAddress::Tcp4(address),
            Ok(address) => PeerAddress::Tcp6(address),
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
