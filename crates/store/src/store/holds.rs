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

    fn readers(&self) -> MutexGuard<'_, usize> {
        self.readers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Pins the value as the oversized one, or adds a reader to it. `None` if neither is possible. Nobody
    /// else enters until what is returned is dropped, by when the value's segments are held.
    pub(crate) fn enter(&self, extent: impl FnOnce() -> Extent) -> Option<MutexGuard<'_, usize>> {
        let mut readers = self.readers();
        let extent = extent();
        if !extent.may_join(*readers) {
            return None;
        }
        *readers += 1;
        self.segments.store(extent.segments, Ordering::Relaxed);
        Some(readers)
    }

    /// Whether [`OversizedPin::enter`] could do so now.
    pub(crate) fn can_enter(&self, extent: impl FnOnce() -> Extent) -> bool {
        let readers = self.readers();
        extent().may_join(*readers)
    }

    /// Takes a reader off, after `release` has let go of its segments: who enters meanwhile would find a part
    /// of them held.
    pub(crate) fn leave(&self, release: impl FnOnce()) {
        let mut readers = self.readers();
        release();
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
