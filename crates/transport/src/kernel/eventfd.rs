//! Event descriptors.

use std::io;
use std::os::fd::OwnedFd;

use rustix::event::EventfdFlags;

/// A new one, which is not readable.
///
/// # Errors
/// If the process or the system has no descriptor left.
pub(crate) fn new() -> io::Result<OwnedFd> {
    let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
    Ok(rustix::event::eventfd(0, flags)?)
}

/// Makes it readable.
pub(crate) fn set(fd: &OwnedFd) {
    // It fails if the counter is full; then it is readable already.
    let _ = rustix::io::write(fd, &1_u64.to_ne_bytes());
}

/// Makes it unreadable.
pub(crate) fn clear(fd: &OwnedFd) {
    // It fails if the counter is zero; then it is not readable.
    let _ = rustix::io::read(fd, &mut [0_u8; 8]);
}
