//! The socket options of AF_XDP that `rustix` lacks.
#![expect(unsafe_code, reason = "setsockopt takes an address and a size")]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use super::options::BusyPoll;

/// Since kernel 6.17.
const XDP_MAX_TX_SKB_BUDGET: libc::c_int = 9;

/// Lets system calls on the socket run the driver, and holds interrupts back meanwhile.
pub(super) fn set_busy_poll(socket: BorrowedFd<'_>, how: BusyPoll) -> io::Result<()> {
    set(
        socket,
        libc::SOL_SOCKET,
        libc::SO_BUSY_POLL,
        how.duration_us,
    )?;
    let budget = u32::from(how.budget);
    set(socket, libc::SOL_SOCKET, libc::SO_BUSY_POLL_BUDGET, budget)?;
    // Last: once it is set, the kernel wakes the driver in no other way.
    set(socket, libc::SOL_SOCKET, libc::SO_PREFER_BUSY_POLL, 1)
}

/// Lets one call send `frames` frames in copy mode, instead of 32. Old kernels do not know this.
pub(super) fn set_copies_per_call(socket: BorrowedFd<'_>, frames: u32) -> io::Result<()> {
    set(socket, libc::SOL_XDP, XDP_MAX_TX_SKB_BUDGET, frames)
}

fn set(
    socket: BorrowedFd<'_>,
    level: libc::c_int,
    option: libc::c_int,
    value: u32,
) -> io::Result<()> {
    let value: *const u32 = &raw const value;
    // SAFETY: each of these options is a number of four bytes, which the kernel only reads.
    let result = unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, value.cast(), 4) };
    if result == -1 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
