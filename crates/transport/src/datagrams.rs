//! Where datagrams are received, and how replies are sent.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use crate::kernel;
use crate::listener::ListenError;
use crate::outcome::Arrived;
use crate::sender::{Sender, Way};
use crate::source::Source;
use crate::stream::Stream;
use crate::userspace;

/// A UDP socket that no worker has yet.
pub struct DatagramSocket {
    fd: OwnedFd,
}

/// Where a worker receives datagrams: a UDP socket, or its stack in user space.
pub struct Datagrams {
    end: End,
}

enum End {
    Kernel(OwnedFd),
    Userspace(userspace::DatagramEnd),
}

impl DatagramSocket {
    /// Binds `count` sockets to `address`. The kernel spreads the senders over them: all datagrams
    /// of one sender come to the same socket.
    ///
    /// Port 0 takes any free port, the same one for all sockets.
    ///
    /// # Errors
    /// If another process has the address, even one that would share it, or if the kernel refuses
    /// it.
    pub fn bind(address: SocketAddr, count: usize) -> Result<Vec<DatagramSocket>, ListenError> {
        let sockets = kernel::datagrams::bind(address, count)
            .map_err(|source| ListenError::Udp { address, source })?;
        Ok(sockets
            .into_iter()
            .map(|fd| DatagramSocket { fd })
            .collect())
    }

    /// A UDP socket that is bound already.
    ///
    /// # Errors
    /// The descriptor itself, where it is none.
    pub fn adopt(fd: OwnedFd) -> Result<DatagramSocket, OwnedFd> {
        match kernel::datagrams::adopt(&fd) {
            Ok(()) => Ok(DatagramSocket { fd }),
            Err(_) => Err(fd),
        }
    }

    /// Another descriptor of the socket, which keeps it open.
    ///
    /// # Errors
    /// Where there is no descriptor left.
    pub fn duplicate(&self) -> io::Result<OwnedFd> {
        self.fd.try_clone()
    }

    /// The address it is bound to.
    pub fn address(&self) -> Option<SocketAddr> {
        kernel::address::bound(&self.fd).ok()
    }

    /// The descriptor's number, for statistics only.
    pub fn descriptor(&self) -> i32 {
        self.fd.as_raw_fd()
    }

    /// The number by which the kernel lists it, for [`dropped_by_kernel`](crate::dropped_by_kernel).
    pub fn inode(&self) -> Option<u64> {
        kernel::datagrams::inode(&self.fd)
    }
}

impl From<DatagramSocket> for Datagrams {
    fn from(socket: DatagramSocket) -> Datagrams {
        Datagrams {
            end: End::Kernel(socket.fd),
        }
    }
}

impl Datagrams {
    pub(super) fn userspace(end: userspace::DatagramEnd) -> Datagrams {
        Datagrams {
            end: End::Userspace(end),
        }
    }

    /// Whether what is not received in a turn is still there in the next one.
    pub fn keeps(&self) -> bool {
        matches!(self.end, End::Kernel(_))
    }

    /// The most bytes that one datagram can carry.
    pub fn payload_len_max(&self) -> usize {
        match &self.end {
            End::Kernel(_) => kernel::datagrams::PAYLOAD_LEN_MAX,
            End::Userspace(end) => end.payload_len_max(),
        }
    }

    /// Receives a datagram into `room`.
    #[inline]
    pub fn receive(&self, room: &mut [u8]) -> Arrived {
        match &self.end {
            End::Kernel(fd) => kernel::datagrams::receive_from(fd, room),
            End::Userspace(end) => end.receive(room),
        }
    }

    /// Drops what has arrived and would not last until the next turn, and returns the number of
    /// these datagrams.
    pub fn discard(&self) -> u64 {
        match &self.end {
            End::Kernel(_) => 0,
            End::Userspace(end) => end.discard(),
        }
    }

    /// Sends one datagram, made of `pieces`, to the sender of another one that was received here.
    /// If it cannot be sent at the moment it is lost, as any datagram may be.
    #[inline]
    pub fn send(&self, pieces: [&[u8]; 2], to: &Sender) -> bool {
        match (&self.end, to.way()) {
            (End::Kernel(fd), _) => kernel::datagrams::send_to(fd, pieces, to.address()),
            (End::Userspace(end), Way::Userspace(datagram)) => end.answer(datagram, pieces),
            (End::Userspace(_), Way::Kernel(_)) => false,
        }
    }

    /// Sends one datagram, made of `pieces`, that answers none, from a port of the stack in user
    /// space. From then on datagrams are received at that port. Call it within a turn. False if it
    /// does not leave in this turn.
    ///
    /// # Errors
    /// If there is no stack, or no route to `to`.
    pub fn ask(&self, from: u16, to: SocketAddr, pieces: [&[u8]; 2]) -> io::Result<bool> {
        match &self.end {
            End::Kernel(_) => Err(io::ErrorKind::Unsupported.into()),
            End::Userspace(end) => end.ask(from, to, pieces).map_err(userspace::as_io),
        }
    }

    /// A stand-in for the stream that a connection has, for statistics only.
    ///
    /// # Errors
    /// If the process or the system has no descriptor left.
    pub fn as_stream(&self) -> io::Result<Stream> {
        Ok(match &self.end {
            End::Kernel(fd) => Stream::from(fd.try_clone()?),
            End::Userspace(end) => Stream::userspace(userspace::StreamEnd::of_none(end.host())),
        })
    }
}

impl<'s> From<&'s Datagrams> for Source<'s> {
    fn from(socket: &'s Datagrams) -> Source<'s> {
        match &socket.end {
            End::Kernel(fd) => Source::Kernel(fd.as_fd()),
            End::Userspace(_) => Source::UserspaceDatagrams,
        }
    }
}
