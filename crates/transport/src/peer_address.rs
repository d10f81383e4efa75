//! The address of one end of a connection.

use std::fmt;
use std::net::SocketAddr;

/// One end of a connection, shown as memcached's `stats conns` shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PeerAddress {
    /// IPv4, or IPv6 that carries IPv4.
    Tcp4(SocketAddr),
    /// IPv6.
    Tcp6(SocketAddr),
    /// A unix socket and its path, empty for an unnamed one.
    Unix(String),
    /// The kernel does not report it: the connection is gone.
    Unknown,
}

impl From<SocketAddr> for PeerAddress {
    fn from(address: SocketAddr) -> PeerAddress {
        match address.is_ipv4() {
            true => PeerAddress::Tcp4(address),
            false => PeerAddress::Tcp6(address),
        }
    }
}

impl fmt::Display for PeerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PeerAddress::Tcp4(address) => write!(f, "tcp:{address}"),
            PeerAddress::Tcp6(address) => write!(f, "tcp6:{address}"),
            PeerAddress::Unix(path) => write!(f, "unix:{path}"),
            PeerAddress::Unknown => f.write_str("unknown"),
        }
    }
}
