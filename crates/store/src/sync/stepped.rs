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

macro_rules! changes {
    ($of:ty: $($name:ident),*) => { $(
        pub(crate) fn $name(&self, value: $of, order: Ordering) -> $of {
            step();
            self.0.$name(value, order)
        }
    )* };
}

macro_rules! exchanges {
    ($of:ty: $($name:ident),*) => { $(
        pub(crate) fn $name(
            &self,
            old: $of,
            new: $of,
            success: Ordering,
            failure: Ordering,
        ) -> Result<$of, $of> {
            step();
            self.0.$name(old, new, success, failure)
        }
    )* };
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

            changes! { $of: fetch_add, fetch_sub, fetch_or, fetch_max, fetch_min }
            exchanges! { $of: compare_exchange, compare_exchange_weak }
        }
    )* };
}

stepped! {
    AtomicU32: u32,
    AtomicU64: u64,
    AtomicUsize: usize,
}
