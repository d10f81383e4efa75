//! Where datagrams come from and where replies to them go.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use coua_tcp::stack::Datagram;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendFlags, SocketFlags, SocketType, bind,
    ipproto, recvfrom, sendmsg_addr, socket_with, sockopt,
};

use super::listener::{ListenError, local_address};
use super::poller::Source;
use super::stream::Stream;
use crate::userspace;

/// Bytes of payload that a UDP datagram has at most.
const PAYLOAD_LEN_MAX: usize = u16::MAX as usize - 28;

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

/// Who sent a datagram, or says so, and the way back to there.
#[derive(Clone, Copy, Debug)]
pub struct Sender(Way);

#[derive(Clone, Copy, Debug)]
enum Way {
    /// The kernel finds it.
    Kernel(SocketAddr),
    /// The one that the datagram came.
    Userspace(Datagram),
}

impl Sender {
    /// The address from which the datagram came.
    #[inline]
    pub fn address(&self) -> SocketAddr {
        match &self.0 {
            Way::Kernel(address) => *address,
            Way::Userspace(datagram) => datagram.source(),
        }
    }

    /// The port at which the datagram came, where that is a stack's in user space.
    pub fn port(&self) -> Option<u16> {
        match &self.0 {
            Way::Kernel(_) => None,
            Way::Userspace(datagram) => Some(datagram.destination().port()),
        }
    }
}

impl From<SocketAddr> for Sender {
    fn from(address: SocketAddr) -> Sender {
        Sender(Way::Kernel(address))
    }
}

impl From<Datagram> for Sender {
    #[inline]
    fn from(datagram: Datagram) -> Sender {
        Sender(Way::Userspace(datagram))
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

impl DatagramSocket {
    /// Binds `count` sockets to `address`, among which the kernel spreads the senders: all
    /// datagrams of one sender come to the same.
    ///
    /// Fails where another process has the address. Port 0 takes any free port, the same one for
    /// all sockets.
    pub fn bind(address: SocketAddr, count: usize) -> Result<Vec<DatagramSocket>, ListenError> {
        let failed = |source: io::Error| ListenError::Udp { address, source };
        let probe = udp_socket(address).map_err(failed)?;
        bind(&probe, &address).map_err(|errno| failed(errno.into()))?;
        let bound = local_address(&probe).map_err(failed)?;
        drop(probe);
        (0..count)
            .map(|_| {
                let fd = udp_socket(bound).map_err(failed)?;
                sockopt::set_socket_reuseport(&fd, true).map_err(|errno| failed(errno.into()))?;
                bind(&fd, &bound).map_err(|errno| failed(errno.into()))?;
                enlarge_queue(&fd);
                Ok(DatagramSocket { fd })
            })
            .collect()
    }

    /// The address it is bound to.
    pub fn address(&self) -> Option<SocketAddr> {
        local_address(&self.fd).ok()
    }

    /// The descriptor's number, for statistics only.
    pub fn descriptor(&self) -> i32 {
        self.fd.as_raw_fd()
    }

    /// The number by which the kernel lists it, for [`dropped_by_kernel`].
    pub fn inode(&self) -> Option<u64> {
        rustix::fs::fstat(&self.fd).ok().map(|status| status.st_ino)
    }
}

/// Bytes of datagrams, as the kernel counts them, that may wait in a socket. All of one sender's come
/// to the same socket, and a burst of some thousand is what a client sends that waits for no answer.
const QUEUE_LEN: usize = 8 << 20;

/// Has the kernel keep more datagrams than it does by itself, as many as it lets this user.
fn enlarge_queue(fd: &OwnedFd) {
    // Only with the right to do so (CAP_NET_ADMIN) beyond net.core.rmem_max; a shorter queue will do.
    if sockopt::set_socket_recv_buffer_size_force(fd, QUEUE_LEN).is_err() {
        let _ = sockopt::set_socket_recv_buffer_size(fd, QUEUE_LEN);
    }
}

/// How many datagrams the kernel has thrown away because the queues of these sockets were full, or a
/// checksum was wrong.
pub fn dropped_by_kernel(inodes: &[u64]) -> u64 {
    let tables = ["/proc/thread-self/net/udp", "/proc/thread-self/net/udp6"];
    let tables = tables.map(|path| std::fs::read_to_string(path).unwrap_or_default());
    let lines = tables.iter().flat_map(|table| table.lines().skip(1));
    lines.filter_map(|line| dropped(line, inodes)).sum()
}

/// The number of one line of such a table, where it is of one of these sockets.
fn dropped(line: &str, inodes: &[u64]) -> Option<u64> {
    let mut fields = line.split_ascii_whitespace();
    let inode = fields.nth(9)?.parse().ok()?;
    match inodes.contains(&inode) {
        true => fields.nth(2)?.parse().ok(),
        false => None,
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
            End::Kernel(_) => PAYLOAD_LEN_MAX,
            End::Userspace(end) => end.payload_len_max(),
        }
    }

    /// Receives a datagram into `room`.
    #[inline]
    pub fn receive(&self, room: &mut [u8]) -> Arrived {
        match &self.end {
            End::Kernel(fd) => receive_from(fd, room),
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
        match (&self.end, &to.0) {
            (End::Kernel(fd), _) => send_to(fd, pieces, to.address()),
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
    pub fn as_stream(&self) -> io::Result<Stream> {
        Ok(match &self.end {
            End::Kernel(fd) => Stream::new(fd.try_clone()?),
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

fn receive_from(socket: &OwnedFd, room: &mut [u8]) -> Arrived {
    loop {
        return match recvfrom(socket, &mut *room, RecvFlags::empty()) {
            Ok((_, len, from)) => match from.map(SocketAddr::try_from) {
                Some(Ok(from)) => Arrived::Datagram {
                    len,
                    from: from.into(),
                },
                _ => Arrived::Useless,
            },
            Err(Errno::INTR) => continue,
            Err(Errno::AGAIN) => Arrived::Nothing,
            Err(_) => Arrived::Useless,
        };
    }
}

fn send_to(socket: &OwnedFd, pieces: [&[u8]; 2], to: SocketAddr) -> bool {
    let pieces = pieces.map(IoSlice::new);
    loop {
        let mut control = SendAncillaryBuffer::default();
        return match sendmsg_addr(socket, &to, &pieces, &mut control, SendFlags::empty()) {
            Ok(_) => true,
            Err(Errno::INTR) => continue,
            Err(_) => false,
        };
    }
}

fn udp_socket(address: SocketAddr) -> io::Result<OwnedFd> {
    let family = if address.is_ipv4() {
        AddressFamily::INET
    } else {
        AddressFamily::INET6
    };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let fd = socket_with(family, SocketType::DGRAM, flags, Some(ipproto::UDP))?;
    if address.is_ipv6() {
        sockopt::set_ipv6_v6only(&fd, true)?;
    }
    Ok(fd)
}
