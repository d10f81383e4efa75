//! Sockets for datagrams.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendFlags, SocketFlags, SocketType, bind,
    ipproto, recvfrom, sendmsg_addr, socket_with, sockopt,
};

use super::listener::{ListenError, local_address};
use super::stream::Stream;

/// A UDP socket.
pub struct Datagrams {
    fd: OwnedFd,
}

/// What an attempt to receive a datagram came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrived {
    /// One came.
    Datagram {
        /// Its bytes, of which there is as much as there was room for.
        len: usize,
        /// Who sent it, or says so.
        from: SocketAddr,
    },
    /// Something came that is no datagram from an address, or an error of an earlier reply.
    Useless,
    /// Nothing is there at the moment.
    Nothing,
}

impl Datagrams {
    /// Binds `count` sockets to `address`, among which the kernel spreads the senders: all
    /// datagrams of one sender come to the same.
    ///
    /// Fails where another process has the address. Port 0 takes any free port, the same one for
    /// all sockets.
    pub fn bind(address: SocketAddr, count: usize) -> Result<Vec<Datagrams>, ListenError> {
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
                Ok(Datagrams { fd })
            })
            .collect()
    }

    /// The address it is bound to.
    pub fn address(&self) -> Option<SocketAddr> {
        local_address(&self.fd).ok()
    }

    /// Receives a datagram into `room`.
    pub fn receive(&self, room: &mut [u8]) -> Arrived {
        loop {
            return match recvfrom(&self.fd, &mut *room, RecvFlags::empty()) {
                Ok((_, len, from)) => match from.map(SocketAddr::try_from) {
                    Some(Ok(from)) => Arrived::Datagram { len, from },
                    _ => Arrived::Useless,
                },
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => Arrived::Nothing,
                Err(_) => Arrived::Useless,
            };
        }
    }

    /// Sends one datagram. What the kernel does not take at the moment is lost, as a datagram may
    /// be anywhere.
    pub fn send(&self, pieces: &[IoSlice<'_>], to: SocketAddr) -> bool {
        loop {
            let mut control = SendAncillaryBuffer::default();
            return match sendmsg_addr(&self.fd, &to, pieces, &mut control, SendFlags::empty()) {
                Ok(_) => true,
                Err(Errno::INTR) => continue,
                Err(_) => false,
            };
        }
    }

    /// The same socket as one end of a connection, for statistics only.
    pub fn as_stream(&self) -> io::Result<Stream> {
        Ok(Stream::new(self.fd.try_clone()?))
    }
}

impl AsFd for Datagrams {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
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
