//! The one switch between the standard atomics and loom's.
//!
//! What the index and the grace periods do between threads is written against this module, so
//! that the loom tests check the shipped code and not a model of it.

#[cfg(not(loom))]
pub(crate) use std::sync::{
    Mutex,
    atomic::{AtomicU32, AtomicU64, Ordering, fence},
};

#[cfg(loom)]
pub(crate) use loom::sync::{
    Mutex,
    atomic::{AtomicU32, AtomicU64, Ordering, fence},
};

/// Tells the processor, or loom's scheduler, that this thread waits for another.
#[inline]
pub(crate) fn relax(spins: u32) {
    #[cfg(loom)]
    {
        let _ = spins;
        loom::thread::yield_now();
    }
    #[cfg(not(loom))]
    if spins < 256 {
        std::hint::spin_loop();
    } else {
        // The holder has lost its core. Give it ours.
        std::thread::yield_now();
    }
}
