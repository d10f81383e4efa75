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
///
/// # Errors
/// Where another process has the address, or the kernel refuses it.
pub(crate) fn bind(address: SocketAddr, count: usize) -> io::Result<Vec<OwnedFd>> {
    let probe = udp_socket(address)?;
    rustix::net::bind(&probe, &address)?;
    let bound = address::bound(&probe)?;
    drop(probe);
    (0..count)
        .map(|_| {
            let fd = udp_socket(bound)?;
            sockopt::set_socket_reuseport(&fd, true)?;
            rustix::net::bind(&fd, &bound)?;
            Ok(fd)
        })
        .collect()
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
