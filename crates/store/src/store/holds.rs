//! How much memory pins and uploads hold.

use super::Store;
use crate::sync::{AtomicUsize, Mutex, MutexGuard, Ordering};
use std::sync::PoisonError;

/// The one value at a time that may be pinned although it alone exceeds the limit for all other
/// pins together.
#[derive(Default)]
pub(crate) struct OversizedPin {
    readers: Mutex<usize>,
    segments: AtomicUsize,
}

/// The segments that a value takes.
pub(crate) struct Extent {
    pub(crate) segments: usize,
    /// Of these, the segments that nothing holds yet.
    pub(crate) free: usize,
    /// Whether the value alone takes more than pins may.
    pub(crate) is_oversized: bool,
}

impl OversizedPin {
    /// Segments that it holds.
    pub(crate) fn segments(&self) -> usize {
        self.segments.load(Ordering::Relaxed)
    }

    pub(crate) fn readers(&self) -> MutexGuard<'_, usize> {
        self.readers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Pins the value as the oversized one, or adds a reader to it. False if neither is possible.
    pub(crate) fn enter(&self, extent: &Extent) -> bool {
        let mut readers = self.readers();
        let may_enter = extent.may_join(*readers);
        if may_enter {
            *readers += 1;
            self.segments.store(extent.segments, Ordering::Relaxed);
        }
        may_enter
    }

    pub(crate) fn leave(&self) {
        let mut readers = self.readers();
        *readers -= 1;
        if *readers == 0 {
            self.segments.store(0, Ordering::Relaxed);
        }
    }
}

impl Extent {
    /// Whether it may become the oversized value, which has so many readers now.
    pub(crate) fn may_join(&self, readers: usize) -> bool {
        readers == 0 || self.free == 0
    }
}

impl Store {
    /// Segments that pins and uploads hold, without those of the [`OversizedPin`].
    pub(crate) fn held_count(&self) -> usize {
        let held = self.log.held_count();
        held.saturating_sub(self.oversized.segments())
    }

    /// Whether a value that is not oversized can be held in addition to the others.
    pub(crate) fn has_room_for(&self, extent: &Extent) -> bool {
        self.held_count() + extent.free <= self.held_max()
    }
}
