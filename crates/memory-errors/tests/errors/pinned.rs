//! Memory that an io_uring has pinned, as a card's driver does too.
#![allow(unsafe_code, reason = "hands the kernel buffers by their address")]

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use crate::memory::Memory;

const IORING_REGISTER_BUFFERS: libc::c_int = 0;

/// Pins the memory as long as the ring is open.
pub(crate) fn pin(memory: &Memory) -> OwnedFd {
    // io_uring's parameters, all of which may be zero.
    let mut parameters = [0_u8; 120];
    // SAFETY: the kernel reads and writes the parameters' length.
    let fd = unsafe { libc::syscall(libc::SYS_io_uring_setup, 1, parameters.as_mut_ptr()) };
    let fd = i32::try_from(fd).expect("a descriptor");
    assert!(fd >= 0, "{}", std::io::Error::last_os_error());
    // SAFETY: the descriptor is new and nobody else's.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    let buffer = libc::iovec {
        iov_base: memory.page(0).as_ptr().cast(),
        iov_len: memory.pages() * memory.kind().page_size(),
    };
    // SAFETY: the kernel reads one buffer's address and length, and pins what is there.
    let result = unsafe {
        libc::syscall(
            libc::SYS_io_uring_register,
            fd.as_raw_fd(),
            IORING_REGISTER_BUFFERS,
            &raw const buffer,
            1,
        )
    };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
    fd
}
