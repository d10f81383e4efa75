//! UDP sockets.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendFlags, SocketFlags, SocketType, ipproto,
    recvfrom, sendmsg_addr, socket_with, sockopt,
};

use super::address;
use crate::outcome::Arrived;

/// The most bytes of payload in a UDP datagram.
pub(crate) const PAYLOAD_LEN_MAX: usize = u16::MAX as usize - 28;

/// Binds `count` sockets to `address`. They share one port, and the kernel spreads the senders over
/// them. A single socket does not share its port.
///
/// # Errors
/// If another process has the address, or the kernel refuses it.
pub(crate) fn bind(address: SocketAddr, count: usize) -> io::Result<Vec<OwnedFd>> {
    // As for TCP: the first socket shows whether another process has the port, and reserves it.
    let first = udp_socket(address)?;
    rustix::net::bind(&first, &address)?;
    let bound = address::bound(&first)?;
    if count > 1 {
        sockopt::set_socket_reuseport(&first, true)?;
    }
    let mut all = vec![first];
    for _ in 1..count {
        let fd = udp_socket(bound)?;
        sockopt::set_socket_reuseport(&fd, true)?;
        rustix::net::bind(&fd, &bound)?;
        all.push(fd);
    }
    all.iter().for_each(enlarge_queue);
    Ok(all)
}

/// Makes sure that a descriptor is a UDP socket with an address, and sets it up as [`bind`] does.
///
/// # Errors
/// Where it is none.
pub(crate) fn adopt(fd: &OwnedFd) -> io::Result<()> {
    address::bound(fd)?;
    if sockopt::socket_type(fd)? != SocketType::DGRAM {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    rustix::io::fcntl_setfd(fd, rustix::io::FdFlags::CLOEXEC)?;
    rustix::io::ioctl_fionbio(fd, true)?;
    enlarge_queue(fd);
    Ok(())
}

/// Receives a datagram into `room`.
pub(crate) fn receive_from(socket: &OwnedFd, room: &mut [u8]) -> Arrived {
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

/// Sends one datagram, made of `pieces`. False if the kernel does not take it at once.
pub(crate) fn send_to(socket: &OwnedFd, pieces: [&[u8]; 2], to: SocketAddr) -> bool {
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

/// The number by which the kernel lists a socket, for [`dropped_by_kernel`].
pub(crate) fn inode(socket: &OwnedFd) -> Option<u64> {
    rustix::fs::fstat(socket).ok().map(|status| status.st_ino)
}

/// Bytes of datagrams, as the kernel counts them, that may wait in a socket. All datagrams of a
/// sender come to the same socket, and a client that waits for no answer may send some thousand in
/// a burst.
const QUEUE_LEN: usize = 8 << 20;

/// Asks the kernel to queue more datagrams than by default, as many as this user may have.
fn enlarge_queue(fd: &OwnedFd) {
    // The limit net.core.rmem_max can only be exceeded with CAP_NET_ADMIN; a shorter queue will do.
    if sockopt::set_socket_recv_buffer_size_force(fd, QUEUE_LEN).is_err() {
        let _ = sockopt::set_socket_recv_buffer_size(fd, QUEUE_LEN);
    }
}

/// How many datagrams the kernel has dropped because the queues of these sockets were full or
/// because a checksum was wrong.
pub fn dropped_by_kernel(inodes: &[u64]) -> u64 {
    let tables = ["/proc/thread-self/net/udp", "/proc/thread-self/net/udp6"];
    let tables = tables.map(|path| std::fs::read_to_string(path).unwrap_or_default());
    let lines = tables.iter().flat_map(|table| table.lines().skip(1));
    lines.filter_map(|line| dropped(line, inodes)).sum()
}

/// The number in one line of such a table, if the line is about one of these sockets.
fn dropped(line: &str, inodes: &[u64]) -> Option<u64> {
    let mut fields = line.split_ascii_whitespace();
    let inode = fields.nth(9)?.parse().ok()?;
    match inodes.contains(&inode) {
        true => fields.nth(2)?.parse().ok(),
        false => None,
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
