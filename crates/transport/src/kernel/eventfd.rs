//! Event descriptors.

use std::io;
use std::os::fd::OwnedFd;

use rustix::event::EventfdFlags;

/// Makes one that is not readable.
///
/// # Errors
/// Where the process or the system has no descriptor left.
pub(crate) fn new() -> io::Result<OwnedFd> {
    let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
    Ok(rustix::event::eventfd(0, flags)?)
}

/// Makes it readable.
pub(crate) fn set(fd: &OwnedFd) {
    // A full counter is readable already, which is all that is wanted.
    let _ = rustix::io::write(fd, &1_u64.to_ne_bytes());
}

/// Makes it unreadable.
pub(crate) fn clear(fd: &OwnedFd) {
    // An empty counter is unreadable already.
    let _ = rustix::io::read(fd, &mut [0_u8; 8]);
}
