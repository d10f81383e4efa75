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

/// Bytes of payload that a UDP datagram has at most.
pub(crate) const PAYLOAD_LEN_MAX: usize = u16::MAX as usize - 28;

/// Binds `count` sockets to `address` that share one port: the kernel spreads the senders among them.
/// One alone does not share it.
///
/// # Errors
/// Where another process has the address, or the kernel refuses it.
pub(crate) fn bind(address: SocketAddr, count: usize) -> io::Result<Vec<OwnedFd>> {
    // As for TCP: the first one tells whether somebody has the port, and keeps it from then on.
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

/// Sends one datagram, made of `pieces`. False where the kernel does not take it at once.
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
