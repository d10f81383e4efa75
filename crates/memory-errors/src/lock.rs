//! A lock that a signal handler may take.
#![allow(unsafe_code, reason = "masks signals and guards the state")]

use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::sys;

/// A spin lock whose holder has all signals masked.
///
/// # Concurrency
/// A handler that waits for a lock of its own thread waits for ever. Nobody is in that place: whoever
/// holds the lock has all signals masked, so no handler begins on its thread. Signals of faults
/// cannot be masked: the kernel ends a process that faults while they are. So a fault on the state
/// itself is a clean end too.
///
/// The lock is taken with `Acquire` and left with `Release`: a holder sees all that the one before
/// it wrote.
pub(crate) struct SignalLock<T> {
    is_held: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: the lock lets one thread at a time reach the value.
unsafe impl<T: Send> Sync for SignalLock<T> {}

impl<T> SignalLock<T> {
    pub(crate) const fn new(value: T) -> SignalLock<T> {
        SignalLock {
            is_held: AtomicBool::new(false),
            value: UnsafeCell::new(value),
        }
    }

    /// Takes the lock outside of a handler. Signals of this thread wait until it is dropped.
    pub(crate) fn lock(&self) -> Guard<'_, T> {
        let masked = SignalsMasked::now();
        self.acquire();
        Guard {
            lock: self,
            _masked: Some(masked),
        }
    }

    /// Takes the lock in a handler that masks all signals.
    pub(crate) fn lock_in_handler(&self) -> Guard<'_, T> {
        self.acquire();
        Guard {
            lock: self,
            _masked: None,
        }
    }

    fn acquire(&self) {
        while self.is_held.swap(true, Ordering::Acquire) {
            // The holder is in a system call, or has lost its core: give it ours.
            sys::give_up_core();
        }
    }
}

/// The lock, held. What is masked is unmasked after it is left: fields are dropped last.
pub(crate) struct Guard<'l, T> {
    lock: &'l SignalLock<T>,
    _masked: Option<SignalsMasked>,
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the guard has the lock, so nobody else has a reference.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above, and the guard is borrowed alone.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for Guard<'_, T> {
    fn drop(&mut self) {
        self.lock.is_held.store(false, Ordering::Release);
    }
}

/// All signals of this thread masked until it is dropped, which must be on the same thread.
struct SignalsMasked {
    before: libc::sigset_t,
    _of_this_thread: PhantomData<*const ()>,
}

impl SignalsMasked {
    fn now() -> SignalsMasked {
        let mut all = MaybeUninit::uninit();
        // SAFETY: the pointer is to room for a set, which the call fills.
        unsafe { libc::sigfillset(all.as_mut_ptr()) };
        let mut before = MaybeUninit::uninit();
        // SAFETY: both pointers are to sets; the call fills the second.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr()) };
        SignalsMasked {
            // SAFETY: the call above fails for a wrong first argument alone, and has filled it.
            before: unsafe { before.assume_init() },
            _of_this_thread: PhantomData,
        }
    }
}

impl Drop for SignalsMasked {
    fn drop(&mut self) {
        let before = &raw const self.before;
        // SAFETY: the pointer is to a set; nothing is written.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before, std::ptr::null_mut()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thread_at_a_time_has_the_value() {
        static COUNT: SignalLock<u64> = SignalLock::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..1000 {
                        let mut count = COUNT.lock();
                        let read = *count;
                        std::thread::yield_now();
                        *count = read + 1;
                    }
                });
            }
        });
        assert_eq!(*COUNT.lock(), 4000);
    }

    #[test]
    fn signals_wait_while_it_is_held() {
        let mask = || {
            let mut now = MaybeUninit::<libc::sigset_t>::zeroed();
            // SAFETY: no set is given, and the pointer is to room for one.
            unsafe {
                libc::pthread_sigmask(libc::SIG_SETMASK, std::ptr::null(), now.as_mut_ptr());
            }
            // SAFETY: the call has filled it.
            let now = unsafe { now.assume_init() };
            // SAFETY: the pointer is to a set.
            unsafe { libc::sigismember(&raw const now, libc::SIGBUS) == 1 }
        };
        let lock = SignalLock::new(());
        assert!(!mask());
        let guard = lock.lock();
        assert!(mask());
        drop(guard);
        assert!(!mask());
    }
}
