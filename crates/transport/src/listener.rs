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
    is_shared: bool,
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
            is_shared: false,
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
                is_shared: false,
            })
            .map_err(|source| ListenError::Unix {
                path: path.to_owned(),
                source,
            })
    }

    /// The same socket for `count` workers, all of which wait for its connections.
    ///
    /// # Errors
    /// Where the process or the system has no descriptor left.
    pub fn shared_by(self, count: usize) -> io::Result<Vec<Listener>> {
        let again = || {
            Ok(Listener {
                socket: match &self.socket {
                    Socket::Kernel(fd) => Socket::Kernel(fd.try_clone()?),
                    #[cfg(feature = "simulated")]
                    Socket::Simulated(end) => Socket::Simulated(end.clone()),
                },
                is_tcp: self.is_tcp,
                is_shared: true,
            })
        };
        let mut all = (1..count)
            .map(|_| again())
            .collect::<io::Result<Vec<Listener>>>()?;
        all.push(Listener {
            is_shared: count > 1,
            ..self
        });
        Ok(all)
    }

    /// A socket of TCP or a unix socket that listens already.
    ///
    /// # Errors
    /// The descriptor itself, where it is none.
    pub fn adopt(fd: OwnedFd) -> Result<Listener, OwnedFd> {
        match kernel::listener::adopt(&fd) {
            Ok(is_tcp) => Ok(Listener {
                socket: Socket::Kernel(fd),
                is_tcp,
                is_shared: false,
            }),
            Err(_) => Err(fd),
        }
    }

    /// Another descriptor of the socket, which keeps it open.
    ///
    /// # Errors
    /// Where it is none of the kernel's, or there is no descriptor left.
    pub fn duplicate(&self) -> io::Result<OwnedFd> {
        match &self.socket {
            Socket::Kernel(fd) => fd.try_clone(),
            #[cfg(feature = "simulated")]
            Socket::Simulated(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Whether several workers wait for its connections.
    pub fn is_shared(&self) -> bool {
        self.is_shared
    }

    /// The path that it is bound to, of a unix socket.
    pub fn path(&self) -> Option<PathBuf> {
        match &self.socket {
            Socket::Kernel(fd) => kernel::address::path(fd),
            #[cfg(feature = "simulated")]
            Socket::Simulated(_) => None,
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
            is_shared: !end.is_tcp(),
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
