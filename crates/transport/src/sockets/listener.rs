//! Sockets that take connections.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrAny, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind,
    connect, getsockname, ipproto, listen, socket_with, sockopt,
};

use super::poller::Source;
#[cfg(feature = "simulated")]
use super::simulated;
use super::stream::Stream;

/// How TCP listeners are set up.
#[derive(Clone, Copy, Debug)]
pub struct TcpOptions {
    /// Connections that may wait to be accepted.
    pub backlog: i32,
}

/// Why a listener could not be made.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// The kernel refused the TCP address.
    #[error("cannot listen on {address}: {source}")]
    Tcp {
        /// The address that was asked for.
        address: SocketAddr,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The kernel refused the UDP address.
    #[error("cannot receive datagrams on {address}: {source}")]
    Udp {
        /// The address that was asked for.
        address: SocketAddr,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The kernel refused the unix socket's path.
    #[error("cannot listen on {path}: {source}")]
    Unix {
        /// The path that was asked for.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
}

/// A listening socket.
pub struct Listener {
    socket: Socket,
    is_tcp: bool,
}

enum Socket {
    Kernel(OwnedFd),
    #[cfg(feature = "simulated")]
    Simulated(simulated::ListenerEnd),
}

/// What an attempt to accept came to.
pub enum Accepted {
    /// A new connection.
    Stream(Stream),
    /// None waits.
    Nothing,
    /// One waits, but the process or the system has no descriptor or memory for it.
    Exhausted(io::Error),
}

impl Listener {
    /// Listens on `address` with `count` sockets, among which the kernel spreads the connections.
    ///
    /// Fails where another process listens on the address already, also where that process would
    /// share it. Port 0 takes any free port, the same one for all sockets.
    pub fn tcp(
        address: SocketAddr,
        count: usize,
        options: TcpOptions,
    ) -> Result<Vec<Listener>, ListenError> {
        let failed = |source: io::Error| ListenError::Tcp { address, source };
        // The first socket does not share its port until it listens: so it tells whether somebody has
        // the port, and of two servers that start at the same time only one gets it. Sharing ones
        // would silently take half of another server's connections.
        let first = tcp_socket(address).map_err(failed)?;
        bind(&first, &address).map_err(|errno| failed(errno.into()))?;
        listen(&first, options.backlog).map_err(|errno| failed(errno.into()))?;
        let bound = local_address(&first).map_err(failed)?;
        sockopt::set_socket_reuseport(&first, true).map_err(|errno| failed(errno.into()))?;
        let mut all = vec![first];
        for _ in 1..count {
            all.push(listen_shared(bound, options).map_err(failed)?);
        }
        let listeners = all.into_iter().map(|fd| Listener {
            socket: Socket::Kernel(fd),
            is_tcp: true,
        });
        Ok(listeners.collect())
    }

    /// Listens on a unix socket at `path` with the access bits `mode`. A socket that lies there
    /// already is replaced where nobody listens on it, as a server that was killed leaves it
    /// behind; a live server's is not, nor is anything else.
    pub fn unix(path: &Path, mode: u32, backlog: i32) -> Result<Listener, ListenError> {
        unix_socket(path, SocketType::STREAM, mode, backlog)
            .map(|fd| Listener {
                socket: Socket::Kernel(fd),
                is_tcp: false,
            })
            .map_err(|source| ListenError::Unix {
                path: path.to_owned(),
                source,
            })
    }

    #[cfg(feature = "simulated")]
    pub(super) fn simulated(end: simulated::ListenerEnd, is_tcp: bool) -> Listener {
        Listener {
            socket: Socket::Simulated(end),
            is_tcp,
        }
    }

    /// The same socket once more, for another worker.
    pub fn share(&self) -> io::Result<Listener> {
        Ok(Listener {
            socket: match &self.socket {
                Socket::Kernel(fd) => Socket::Kernel(fd.try_clone()?),
                #[cfg(feature = "simulated")]
                Socket::Simulated(end) => Socket::Simulated(end.clone()),
            },
            is_tcp: self.is_tcp,
        })
    }

    /// Whether it listens on TCP rather than on a unix socket.
    pub fn is_tcp(&self) -> bool {
        self.is_tcp
    }

    /// The address it is bound to, for TCP.
    pub fn address(&self) -> Option<SocketAddr> {
        match &self.socket {
            Socket::Kernel(fd) => local_address(fd).ok(),
            #[cfg(feature = "simulated")]
            Socket::Simulated(_) => self.is_tcp.then_some(simulated::SERVER),
        }
    }

    /// The descriptor's number, for statistics only.
    pub fn descriptor(&self) -> i32 {
        match &self.socket {
            Socket::Kernel(fd) => fd.as_raw_fd(),
            #[cfg(feature = "simulated")]
            Socket::Simulated(end) => end.descriptor(),
        }
    }

    /// Takes a waiting connection.
    pub fn accept(&self) -> Accepted {
        match &self.socket {
            Socket::Kernel(fd) => accept_from(fd, self.is_tcp),
            #[cfg(feature = "simulated")]
            Socket::Simulated(end) => end.accept(),
        }
    }
}

impl<'s> From<&'s Listener> for Source<'s> {
    fn from(listener: &'s Listener) -> Source<'s> {
        match &listener.socket {
            Socket::Kernel(fd) => Source::Kernel(fd.as_fd()),
            #[cfg(feature = "simulated")]
            Socket::Simulated(end) => Source::Simulated(end.id()),
        }
    }
}

fn accept_from(listener: &OwnedFd, is_tcp: bool) -> Accepted {
    loop {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        return match accept_with(listener, flags) {
            Ok(fd) => {
                if is_tcp {
                    // A connection that is gone already tells so at its first use.
                    let _ = sockopt::set_tcp_nodelay(&fd, true);
                    let _ = sockopt::set_socket_keepalive(&fd, true);
                }
                Accepted::Stream(Stream::new(fd))
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

fn listen_shared(address: SocketAddr, options: TcpOptions) -> io::Result<OwnedFd> {
    let fd = tcp_socket(address)?;
    sockopt::set_socket_reuseport(&fd, true)?;
    bind(&fd, &address)?;
    listen(&fd, options.backlog)?;
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

/// Listens on a unix socket of a type: see [`Listener::unix`].
pub(crate) fn unix_socket(
    path: &Path,
    kind: SocketType,
    mode: u32,
    backlog: i32,
) -> io::Result<OwnedFd> {
    let address = SocketAddrUnix::new(path)?;
    remove_dead_socket(path, kind, &address)?;
    let fd = unbound_unix_socket(kind)?;
    // The mask acts while the path is made, so that nobody connects before the bits are right.
    let before = rustix::process::umask(!Mode::from_raw_mode(mode) & Mode::from_raw_mode(0o777));
    let bound = bind(&fd, &address);
    rustix::process::umask(before);
    bound?;
    listen(&fd, backlog)?;
    Ok(fd)
}

fn unbound_unix_socket(kind: SocketType) -> io::Result<OwnedFd> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let fd = socket_with(AddressFamily::UNIX, kind, flags, None)?;
    Ok(fd)
}

/// Removes a socket on which nobody listens. What is no socket is left for `bind` to refuse.
fn remove_dead_socket(path: &Path, kind: SocketType, address: &SocketAddrUnix) -> io::Result<()> {
    let is_socket = rustix::fs::lstat(path)
        .is_ok_and(|status| FileType::from_raw_mode(status.st_mode) == FileType::Socket);
    if !is_socket {
        return Ok(());
    }
    match connect(&unbound_unix_socket(kind)?, address) {
        Err(Errno::CONNREFUSED) => Ok(rustix::fs::unlink(path)?),
        // Somebody listens; if not even now, then with more waiting connections than it takes.
        // One of another type is somebody's too.
        Ok(()) | Err(Errno::AGAIN | Errno::PROTOTYPE) => Err(Errno::ADDRINUSE.into()),
        Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

pub(super) fn local_address(fd: &OwnedFd) -> io::Result<SocketAddr> {
    let address: SocketAddrAny = getsockname(fd)?;
    Ok(SocketAddr::try_from(address)?)
}
