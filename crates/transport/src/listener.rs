//! Sockets that take connections.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::net::SocketType;

use crate::kernel;
use crate::outcome::Accepted;
#[cfg(feature = "simulated")]
use crate::simulated;
use crate::source::Source;
use crate::stream::Stream;

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

impl Listener {
    /// Listens on `address` with `count` sockets, among which the kernel spreads the connections.
    ///
    /// Port 0 takes any free port, the same one for all sockets.
    ///
    /// # Errors
    /// Where another process listens on the address, also where that process would share it, or the kernel
    /// refuses the address.
    pub fn tcp(
        address: SocketAddr,
        count: usize,
        options: TcpOptions,
    ) -> Result<Vec<Listener>, ListenError> {
        let sockets = kernel::listener::tcp(address, count, options.backlog)
            .map_err(|source| ListenError::Tcp { address, source })?;
        let listeners = sockets.into_iter().map(|fd| Listener {
            socket: Socket::Kernel(fd),
            is_tcp: true,
        });
        Ok(listeners.collect())
    }

    /// Listens on a unix socket at `path` with the access bits `mode`. A socket that lies there
    /// already is replaced where nobody listens on it, as a server that was killed leaves it
    /// behind; a live server's is not, nor is anything else.
    ///
    /// # Errors
    /// Where a server listens at `path`, or no socket can be made there.
    pub fn unix(path: &Path, mode: u32, backlog: i32) -> Result<Listener, ListenError> {
        kernel::unix::unix_socket(path, SocketType::STREAM, mode, backlog)
            .map(|fd| Listener {
                socket: Socket::Kernel(fd),
                is_tcp: false,
            })
            .map_err(|source| ListenError::Unix {
                path: path.to_owned(),
                source,
            })
    }

    /// The same socket once more, for another worker.
    ///
    /// # Errors
    /// Where the process or the system has no descriptor left.
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

    /// A socket of TCP that listens already.
    ///
    /// # Errors
    /// Where it is no such socket.
    pub fn adopt(fd: OwnedFd) -> io::Result<Listener> {
        kernel::listener::adopt(&fd)?;
        Ok(Listener {
            socket: Socket::Kernel(fd),
            is_tcp: true,
        })
    }

    /// Has the socket outlive this program, should the process execute another. Gives its number there.
    ///
    /// # Errors
    /// Where it is none of the kernel's.
    pub fn keep_open(&self) -> io::Result<i32> {
        match &self.socket {
            Socket::Kernel(fd) => {
                rustix::io::fcntl_setfd(fd, rustix::io::FdFlags::empty())?;
                Ok(fd.as_raw_fd())
            }
            #[cfg(feature = "simulated")]
            Socket::Simulated(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Whether it listens on TCP rather than on a unix socket.
    pub fn is_tcp(&self) -> bool {
        self.is_tcp
    }

    /// The address it is bound to, for TCP.
    pub fn address(&self) -> Option<SocketAddr> {
        match &self.socket {
            Socket::Kernel(fd) => kernel::address::bound(fd).ok(),
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
    pub fn accept(&self) -> Accepted<Stream> {
        match &self.socket {
            Socket::Kernel(fd) => kernel::listener::accept(fd, self.is_tcp).map(Stream::from),
            #[cfg(feature = "simulated")]
            Socket::Simulated(end) => end.accept().map(Stream::from),
        }
    }
}

#[cfg(feature = "simulated")]
impl From<simulated::ListenerEnd> for Listener {
    fn from(end: simulated::ListenerEnd) -> Listener {
        Listener {
            is_tcp: end.is_tcp(),
            socket: Socket::Simulated(end),
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
