//! The one switch between the standard atomics and loom's, or a test's.
//!
//! All that the store does between threads is written against this module, so that the loom tests check
//! the shipped code and not a model of it. The exceptions are what loom has nothing to say about:
//! counters, which decide nothing, and the thread that supplies memory ahead of use.

#[cfg(all(feature = "kill-points", not(loom)))]
pub(crate) mod stepped;

#[cfg(not(loom))]
pub(crate) use std::sync::{
    Mutex, MutexGuard,
    atomic::{Ordering, fence},
};

#[cfg(not(any(loom, feature = "kill-points")))]
pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize};

#[cfg(all(feature = "kill-points", not(loom)))]
pub(crate) use stepped::{AtomicU32, AtomicU64, AtomicUsize};

#[cfg(loom)]
pub(crate) use loom::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering, fence},
};

/// A moment between two stores of bytes that nobody else sees yet.
#[inline]
pub(crate) fn step() {
    #[cfg(all(feature = "kill-points", not(loom)))]
    stepped::step();
}

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
