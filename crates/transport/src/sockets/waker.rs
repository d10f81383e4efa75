//! Ends a worker's sleep from another thread.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{EventfdFlags, eventfd};

/// An event descriptor: [`Waker::wake`] makes it readable, [`Waker::drain`] makes it quiet again.
pub struct Waker {
    fd: OwnedFd,
}

impl Waker {
    /// Makes a quiet one.
    pub fn new() -> io::Result<Waker> {
        Ok(Waker {
            fd: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
        })
    }

    /// Wakes whoever waits for it. May be called from any thread.
    pub fn wake(&self) {
        // A full counter is readable already, which is all that is wanted.
        let _ = rustix::io::write(&self.fd, &1_u64.to_ne_bytes());
    }

    /// Forgets the wake-ups so far.
    pub fn drain(&self) {
        // An empty counter is quiet already.
        let _ = rustix::io::read(&self.fd, &mut [0_u8; 8]);
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
