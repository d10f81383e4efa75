//! How a worker sleeps until a queue has frames.
#![expect(unsafe_code, reason = "takes what EAL's epoll set reports")]

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use coua_dpdk_sys as sys;
use rustix::event::epoll::{self, CreateFlags};

/// A queue's interrupt, in an epoll set of its own.
///
/// DPDK's descriptors are of many kinds; some have to be read after they have become readable, and
/// some must not be. EAL knows which, if it has filled the set; and the set itself can be polled.
pub(super) struct Interrupt {
    set: OwnedFd,
    port: u16,
    queue: u16,
}

impl Interrupt {
    /// The interrupt of a queue of a started port, switched off; `None` if the device has none.
    pub(super) fn of(port: u16, queue: u16) -> Option<Interrupt> {
        // First, because it prints nothing if there is no interrupt.
        if sys::coua_interrupt_enable(port, queue) != 0 {
            return None;
        }
        sys::coua_interrupt_disable(port, queue);
        let set = epoll::create(CreateFlags::CLOEXEC).ok()?;
        if sys::coua_interrupt_add(port, queue, set.as_raw_fd()) != 0 {
            return None;
        }
        Some(Interrupt { set, port, queue })
    }

    /// Becomes readable when a frame has arrived since [`Interrupt::arm`].
    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.set.as_fd()
    }

    /// Makes the descriptor report the next frame.
    pub(super) fn arm(&self) {
        self.consume();
        sys::coua_interrupt_enable(self.port, self.queue);
    }

    /// Stops reporting frames, and clears what was reported.
    pub(super) fn disarm(&self) {
        sys::coua_interrupt_disable(self.port, self.queue);
        self.consume();
    }

    fn consume(&self) {
        // SAFETY: the set holds the queue's interrupt, which EAL has added, and nothing else.
        unsafe { sys::coua_interrupt_consume(self.set.as_raw_fd()) };
    }
}

impl Drop for Interrupt {
    fn drop(&mut self) {
        sys::coua_interrupt_remove(self.port, self.queue, self.set.as_raw_fd());
    }
}
