//! How much of what was sent has not reached the peer's system.
#![allow(
    unsafe_code,
    reason = "an ioctl says what it writes only by its number"
)]

use std::ffi::c_int;
use std::os::fd::OwnedFd;

use rustix::ioctl::{Getter, Opcode, ioctl};
use rustix::net::{AddressFamily, sockopt};

/// tcp(7): the same number as `TIOCOUTQ`. It counts the end of the stream as a byte.
#[expect(
    clippy::cast_possible_truncation,
    reason = "numbers of ioctls have 32 bits"
)]
const SIOCOUTQ: Opcode = libc::TIOCOUTQ as Opcode;

/// Bytes that were sent, the end of the stream included, and that the peer's system has not
/// acknowledged; 0 of a unix socket, whose peer can read what was sent after this end has closed.
pub(crate) fn len(fd: &OwnedFd) -> usize {
    if sockopt::socket_domain(fd) == Ok(AddressFamily::UNIX) {
        return 0;
    }
    // SAFETY: `SIOCOUTQ` of a socket writes one `int`.
    let question = unsafe { Getter::<SIOCOUTQ, c_int>::new() };
    // SAFETY: as above; a descriptor of another kind answers with an error.
    let unsent = unsafe { ioctl(fd, question) };
    // An error says that there is no connection.
    unsent.map_or(0, |len| usize::try_from(len).unwrap_or(0))
}
