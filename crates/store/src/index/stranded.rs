//! Slots that a split has left where no lookup looks, since the machine lost a part of it.
//!
//! The marks that say which buckets of a filling sub-table are not filled stand in those buckets. Where such a page is
//! lost, they look filled, and what the parent had for them stays there. When both merged again, lookups would find
//! what they had missed meanwhile, perhaps beside a newer version of it.
//!
//! So whoever completes a split looks once more through the parent, if the machine has ever lost anything. That is
//! one sub-table: no pass over the index follows from a loss. A loss is counted before anybody can take its zeros for
//! marks, so it is not overlooked; and whoever fills a bucket at the same time holds the parent's lock.

use super::bucket::SLOTS;
use super::slot::Slot;
use super::{Entry, Index, TABLE_BUCKETS};
use crate::memory::events_seen;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

/// Slots that were dropped, until their items are counted.
#[derive(Default)]
pub(super) struct Stranded {
    has_some: AtomicBool,
    slots: Mutex<Vec<Slot>>,
}

impl Index {
    /// Drops what belongs to a child and stands in its parent, though all buckets are filled.
    pub(super) fn drop_stranded(&self, child: Entry) {
        if events_seen() == 0 {
            return;
        }
        let is_stranded = |slot: Slot| {
            slot.is_taken() && self.directory.upper_half(slot.tag(), child.depth() - 1)
        };
        for number in 0..TABLE_BUCKETS {
            let parent = self.bucket(child.other(), number);
            if !(0..SLOTS).any(|at| is_stranded(parent.peek(at))) {
                continue;
            }
            parent.lock();
            for at in (0..SLOTS).filter(|&at| is_stranded(parent.peek(at))) {
                let mut slots = self.lock_stranded();
                slots.push(parent.peek(at));
                self.stranded.has_some.store(true, Ordering::Relaxed);
                parent.put(at, Slot::EMPTY);
            }
            parent.unlock();
        }
    }

    /// Shows what was dropped, once. To be called in the burst in which a split may have been completed: nobody takes
    /// the items' memory before all such calls have ended.
    #[inline]
    pub(crate) fn take_stranded(&self, note: impl FnMut(Slot)) {
        if self.stranded.has_some.load(Ordering::Relaxed) {
            self.take_all_stranded(note);
        }
    }

    #[cold]
    fn take_all_stranded(&self, note: impl FnMut(Slot)) {
        // Held until all are noted: who has dropped them waits here for another thread that notes them.
        let mut slots = self.lock_stranded();
        slots.drain(..).for_each(note);
        self.stranded.has_some.store(false, Ordering::Relaxed);
    }

    fn lock_stranded(&self) -> std::sync::MutexGuard<'_, Vec<Slot>> {
        let slots = self.stranded.slots.lock();
        slots.unwrap_or_else(PoisonError::into_inner)
    }
}
