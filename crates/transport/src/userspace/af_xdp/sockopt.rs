//! The socket options of AF_XDP that `rustix` does not have.
#![expect(unsafe_code, reason = "setsockopt takes an address and a size")]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use super::options::BusyPoll;

/// From kernel 6.17 on.
const XDP_MAX_TX_SKB_BUDGET: libc::c_int = 9;

/// Has system calls on the socket run the driver, and interrupts wait meanwhile.
pub(super) fn set_busy_poll(socket: BorrowedFd<'_>, how: BusyPoll) -> io::Result<()> {
    set(
        socket,
        libc::SOL_SOCKET,
        libc::SO_BUSY_POLL,
        how.duration_us,
    )?;
    let budget = u32::from(how.budget);
    set(socket, libc::SOL_SOCKET, libc::SO_BUSY_POLL_BUDGET, budget)?;
    // Last: with this one the kernel wakes no driver by other means.
    set(socket, libc::SOL_SOCKET, libc::SO_PREFER_BUSY_POLL, 1)
}

/// Lets one call send so many frames in copy mode, instead of 32. Old kernels do not know it.
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
    // SAFETY: all of these options are one number of four bytes, which the kernel reads.
    let result = unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, value.cast(), 4) };
    if result == -1 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
