//! Unix sockets that listen.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{FileType, Mode};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with,
};

/// Listens on a unix socket of type `kind` at `path` with the access bits `mode`. A socket that lies
/// there already is replaced where nobody listens on it, as a server that was killed leaves it
/// behind; a live server's is not, nor is anything else.
///
/// # Errors
/// Where somebody listens there (`ADDRINUSE`), or there can be no socket.
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
