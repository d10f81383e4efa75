//! Where a server listens, and a blocking or non-blocking stream to it.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, ToSocketAddrs, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::str::FromStr;

/// The address of a server: `HOST:PORT`, or `unix:PATH`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// A TCP address; host names are resolved when the text is parsed.
    Tcp(SocketAddr),
    /// The path of a stream socket.
    Unix(PathBuf),
}

impl Target {
    /// Connects; TCP streams send without delay (`TCP_NODELAY`).
    pub(crate) fn connect(&self) -> io::Result<Stream> {
        match self {
            Target::Tcp(address) => {
                let stream = TcpStream::connect(address)?;
                if stream.local_addr()? == *address {
                    // Nothing listens, and the kernel chose this very port for our end: the port is
                    // connected to itself.
                    return Err(io::ErrorKind::ConnectionRefused.into());
                }
                stream.set_nodelay(true)?;
                Ok(Stream::Tcp(stream))
            }
            Target::Unix(path) => UnixStream::connect(path).map(Stream::Unix),
        }
    }

    /// A UDP socket that is connected to the address; a unix socket's path is refused.
    pub(crate) fn connect_datagrams(&self) -> io::Result<UdpSocket> {
        let Target::Tcp(address) = self else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let any: SocketAddr = match address {
            SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
            SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
        };
        let socket = UdpSocket::bind(any)?;
        socket.connect(address)?;
        Ok(socket)
    }
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Target::Tcp(address) => write!(f, "{address}"),
            Target::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Target, String> {
        if let Some(path) = text.strip_prefix("unix:") {
            return Ok(Target::Unix(PathBuf::from(path)));
        }
        let why = |error: io::Error| format!("{error}; expected HOST:PORT or unix:PATH");
        let address = text.to_socket_addrs().map_err(why)?.next();
        address
            .map(Target::Tcp)
            .ok_or_else(|| "the host has no address".to_owned())
    }
}

/// A connected stream of either family.
#[derive(Debug)]
pub(crate) enum Stream {
    /// Over TCP.
    Tcp(TcpStream),
    /// Over a unix socket.
    Unix(UnixStream),
}

impl Stream {
    /// Switches between blocking (the state after [`Target::connect`]) and non-blocking.
    pub(crate) fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        match self {
            Stream::Tcp(stream) => stream.set_nonblocking(nonblocking),
            Stream::Unix(stream) => stream.set_nonblocking(nonblocking),
        }
    }
}

impl From<Stream> for OwnedFd {
    fn from(stream: Stream) -> OwnedFd {
        match stream {
            Stream::Tcp(stream) => stream.into(),
            Stream::Unix(stream) => stream.into(),
        }
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Stream::Tcp(stream) => stream.as_fd(),
            Stream::Unix(stream) => stream.as_fd(),
        }
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.read(buffer),
            Stream::Unix(stream) => stream.read(buffer),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.write(bytes),
            Stream::Unix(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_families_are_told_apart() {
        let tcp: Target = "127.0.0.1:11211".parse().unwrap();
        assert_eq!(tcp, Target::Tcp(SocketAddr::from(([127, 0, 0, 1], 11211))));
        let unix: Target = "unix:/run/coua".parse().unwrap();
        assert_eq!(unix, Target::Unix(PathBuf::from("/run/coua")));
        assert!("127.0.0.1".parse::<Target>().is_err());
    }
}
