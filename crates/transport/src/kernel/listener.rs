//! TCP sockets that listen.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketFlags, SocketType, accept_with, bind, ipproto, listen, socket_with,
    sockopt,
};

use super::address;
use crate::outcome::Accepted;

/// Listens on `address` with `count` sockets that share one port, each with room for `backlog`
/// connections that wait. One alone does not share it.
///
/// # Errors
/// Where another process has the address, or the kernel refuses it.
pub(crate) fn tcp(address: SocketAddr, count: usize, backlog: i32) -> io::Result<Vec<OwnedFd>> {
    // The first socket does not share its port until it listens: so it tells whether somebody has
    // the port, and of two servers that start at the same time only one gets it. Sharing ones
    // would silently take half of another server's connections.
    let first = tcp_socket(address)?;
    bind(&first, &address)?;
    listen(&first, backlog)?;
    let bound = address::bound(&first)?;
    if count > 1 {
        sockopt::set_socket_reuseport(&first, true)?;
    }
    let mut all = vec![first];
    for _ in 1..count {
        all.push(listen_shared(bound, backlog)?);
    }
    Ok(all)
}

/// Makes sure that a descriptor is a socket of TCP or a unix socket that listens, and sets it up as
/// the others are. Says whether it is TCP's.
///
/// # Errors
/// Where it is none.
pub(crate) fn adopt(fd: &OwnedFd) -> io::Result<bool> {
    let is_tcp = match sockopt::socket_domain(fd)? {
        AddressFamily::INET | AddressFamily::INET6 => true,
        AddressFamily::UNIX => false,
        _ => return Err(io::ErrorKind::InvalidInput.into()),
    };
    if !sockopt::socket_acceptconn(fd)? || sockopt::socket_type(fd)? != SocketType::STREAM {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    rustix::io::fcntl_setfd(fd, rustix::io::FdFlags::CLOEXEC)?;
    rustix::io::ioctl_fionbio(fd, true)?;
    Ok(is_tcp)
}

/// Takes a waiting connection.
pub(crate) fn accept(listener: &OwnedFd, is_tcp: bool) -> Accepted<OwnedFd> {
    loop {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        return match accept_with(listener, flags) {
            Ok(fd) => {
                if is_tcp {
                    // A connection that is gone already tells so at its first use.
                    let _ = sockopt::set_tcp_nodelay(&fd, true);
                    let _ = sockopt::set_socket_keepalive(&fd, true);
                }
                Accepted::Stream(fd)
            }
            Err(Errno::AGAIN) => Accepted::Nothing,
            Err(errno @ (Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM)) => {
                Accepted::Exhausted(errno.into())
            }
            // All others tell about the connection that was to be accepted, not about the
            // listener (accept(2)); it is gone from the queue.
            Err(_) => continue,
        };
    }
}

fn listen_shared(address: SocketAddr, backlog: i32) -> io::Result<OwnedFd> {
    let fd = tcp_socket(address)?;
    sockopt::set_socket_reuseport(&fd, true)?;
    bind(&fd, &address)?;
    listen(&fd, backlog)?;
    Ok(fd)
}

fn tcp_socket(address: SocketAddr) -> io::Result<OwnedFd> {
    let family = if address.is_ipv4() {
        AddressFamily::INET
    } else {
        AddressFamily::INET6
    };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let fd = socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP))?;
    sockopt::set_socket_reuseaddr(&fd, true)?;
    if address.is_ipv6() {
        sockopt::set_ipv6_v6only(&fd, true)?;
    }
    Ok(fd)
}
