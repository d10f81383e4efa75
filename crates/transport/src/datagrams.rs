//! Where datagrams come from and where replies to them go.

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
    /// Binds `count` sockets to `address`, among which the kernel spreads the senders: all
    /// datagrams of one sender come to the same.
    ///
    /// Port 0 takes any free port, the same one for all sockets.
    ///
    /// # Errors
    /// Where another process has the address, also where that process would share it, or the kernel refuses
    /// it.
    pub fn bind(address: SocketAddr, count: usize) -> Result<Vec<DatagramSocket>, ListenError> {
        let sockets = kernel::datagrams::bind(address, count)
            .map_err(|source| ListenError::Udp { address, source })?;
        Ok(sockets
            .into_iter()
            .map(|fd| DatagramSocket { fd })
            .collect())
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

    /// Whether what is not received in a turn is still there in the next.
    pub fn keeps(&self) -> bool {
        matches!(self.end, End::Kernel(_))
    }

    /// Bytes that one datagram can carry.
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

    /// Gives up what has come and does not keep until the next turn, and says how many datagrams
    /// those were.
    pub fn discard(&self) -> u64 {
        match &self.end {
            End::Kernel(_) => 0,
            End::Userspace(end) => end.discard(),
        }
    }

    /// Sends one datagram, made of `pieces`, to where another came from that was received here. What
    /// is not taken at the moment is lost, as a datagram may be anywhere.
    #[inline]
    pub fn send(&self, pieces: [&[u8]; 2], to: &Sender) -> bool {
        match (&self.end, to.way()) {
            (End::Kernel(fd), _) => kernel::datagrams::send_to(fd, pieces, to.address()),
            (End::Userspace(end), Way::Userspace(datagram)) => end.answer(datagram, pieces),
            (End::Userspace(_), Way::Kernel(_)) => false,
        }
    }

    /// Sends one datagram, made of `pieces`, that answers none, from a port of the stack in user space,
    /// at which datagrams are received from then on; within a turn. False where it does not leave in
    /// this turn.
    ///
    /// # Errors
    /// Where there is no stack, or no way to `to`.
    pub fn ask(&self, from: u16, to: SocketAddr, pieces: [&[u8]; 2]) -> io::Result<bool> {
        match &self.end {
            End::Kernel(_) => Err(io::ErrorKind::Unsupported.into()),
            End::Userspace(end) => end.ask(from, to, pieces).map_err(userspace::as_io),
        }
    }

    /// What stands for it where others have a connection, for statistics only.
    ///
    /// # Errors
    /// Where the process or the system has no descriptor left.
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
