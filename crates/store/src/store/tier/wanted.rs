//! How workers wake the keeper.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Whether the keeper is wanted.
#[derive(Default)]
pub(crate) struct Wanted {
    is_wanted: Mutex<bool>,
    comes: Condvar,
}

impl Wanted {
    /// Wakes the keeper.
    pub(crate) fn wake(&self) {
        *self
            .is_wanted
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = true;
        self.comes.notify_one();
    }

    /// Waits until it is wanted, or for so long.
    pub(crate) fn wait(&self, most: Duration) {
        let wanted = self
            .is_wanted
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let waited = self
            .comes
            .wait_timeout_while(wanted, most, |wanted| !*wanted);
        *waited.unwrap_or_else(PoisonError::into_inner).0 = false;
    }
}
