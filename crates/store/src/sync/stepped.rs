//! Atomics that call a test before each store, for the feature `kill-points`.
//!
//! What a process leaves when it is killed is what its threads had stored by then. A test that copies
//! the arena before each store gets every state that a kill could leave, but for those in the middle of
//! bytes that nobody else sees yet; [`step`] stands there.

use std::cell::RefCell;
use std::sync::atomic as plain;
pub(crate) use std::sync::atomic::Ordering;

thread_local! {
    static WATCHER: RefCell<Option<Box<dyn FnMut()>>> = const { RefCell::new(None) };
}

/// Calls `watcher` before each store of this thread, but not before its own; `None` ends that.
pub fn watch(watcher: Option<Box<dyn FnMut()>>) {
    WATCHER.set(watcher);
}

/// A moment at which the process may be killed.
pub(crate) fn step() {
    WATCHER.with(|watcher| {
        if let Ok(mut watcher) = watcher.try_borrow_mut()
            && let Some(watcher) = watcher.as_mut()
        {
            watcher();
        }
    });
}

macro_rules! stepped {
    ($($name:ident: $of:ty,)*) => { $(
        /// As the standard library's.
        #[derive(Debug, Default)]
        #[repr(transparent)]
        pub(crate) struct $name(plain::$name);

        #[allow(dead_code, reason = "not all of them need all")]
        impl $name {
            pub(crate) const fn new(value: $of) -> $name {
                $name(plain::$name::new(value))
            }

            pub(crate) fn into_inner(self) -> $of {
                self.0.into_inner()
            }

            pub(crate) fn load(&self, order: Ordering) -> $of {
                self.0.load(order)
            }

            pub(crate) fn store(&self, value: $of, order: Ordering) {
                step();
                self.0.store(value, order);
            }

            pub(crate) fn fetch_add(&self, value: $of, order: Ordering) -> $of {
                step();
                self.0.fetch_add(value, order)
            }

            pub(crate) fn fetch_sub(&self, value: $of, order: Ordering) -> $of {
                step();
                self.0.fetch_sub(value, order)
            }

            pub(crate) fn fetch_or(&self, value: $of, order: Ordering) -> $of {
                step();
                self.0.fetch_or(value, order)
            }

            pub(crate) fn fetch_max(&self, value: $of, order: Ordering) -> $of {
                step();
                self.0.fetch_max(value, order)
            }

            pub(crate) fn fetch_min(&self, value: $of, order: Ordering) -> $of {
                step();
                self.0.fetch_min(value, order)
            }

            pub(crate) fn compare_exchange(
                &self,
                old: $of,
                new: $of,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$of, $of> {
                step();
                self.0.compare_exchange(old, new, success, failure)
            }

            pub(crate) fn compare_exchange_weak(
                &self,
                old: $of,
                new: $of,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$of, $of> {
                step();
                self.0.compare_exchange_weak(old, new, success, failure)
            }
        }
    )* };
}

stepped! {
    AtomicU32: u32,
    AtomicU64: u64,
    AtomicUsize: usize,
}
