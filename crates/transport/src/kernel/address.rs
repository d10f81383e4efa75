//! Addresses of sockets.

use std::ffi::OsString;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use rustix::net::{AddressFamily, SocketAddrAny, SocketAddrUnix, getpeername, getsockname};

use crate::peer_address::PeerAddress;

/// The IP address that a socket is bound to.
///
/// # Errors
/// If it is not bound to one.
pub(crate) fn bound(fd: &OwnedFd) -> io::Result<SocketAddr> {
    let address: SocketAddrAny = getsockname(fd)?;
    Ok(SocketAddr::try_from(address)?)
}

/// The path that a unix socket is bound to.
pub(crate) fn path(fd: &OwnedFd) -> Option<PathBuf> {
    let address = SocketAddrUnix::try_from(getsockname(fd).ok()?).ok()?;
    let path = address.path()?.into_owned().into_bytes();
    Some(PathBuf::from(OsString::from_vec(path)))
}

/// The address of the other end of a connection.
pub(crate) fn peer(fd: &OwnedFd) -> PeerAddress {
    getpeername(fd).map_or(PeerAddress::Unknown, from_any)
}

/// The address of this end of a connection.
pub(crate) fn local(fd: &OwnedFd) -> PeerAddress {
    getsockname(fd).map_or(PeerAddress::Unknown, |address| from_any(Some(address)))
}

fn from_any(address: Option<SocketAddrAny>) -> PeerAddress {
    let Some(address) = address else {
        return PeerAddress::Unix(String::new());
    };
    if address.address_family() == AddressFamily::UNIX {
        let path = SocketAddrUnix::try_from(address)
            .ok()
            .and_then(|unix| unix.path().map(|path| path.to_string_lossy().into_owned()));
        return PeerAddress::Unix(path.unwrap_or_default());
    }
    match SocketAddr::try_from(address) {
        Ok(address) => PeerAddress::from(address),
        Err(_) => PeerAddress::Unknown,
    }
}
