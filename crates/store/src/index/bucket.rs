//! A cache line of the index: seven slots and the word that guards them.
//!
//! ```text
//! word   63                                     2      1          0
//!        +---------------------------------------+----------+------+
//!        |     moves: slots that have come here  | unfilled | lock |
//!        +---------------------------------------+----------+------+
//! ```
//!
//! # Concurrency
//! Slots are stored under the lock bit and read without it. `moves` counts what lookups must not
//! overlook: slots that come here from another bucket, by displacement or by the filling of a new
//! sub-table. Such a slot is stored here first, then `moves` is incremented, then the slot is
//! cleared at its source, each store with Release. Consider a lookup that misses: it has seen the
//! slot nowhere. If it read this bucket first and then the source, it finds `moves` incremented. If
//! it read the source first, it saw the slot cleared there, by an Acquire load, and so sees it here
//! ([`super::scan`]). Incrementing the source's count instead, or none, loses keys (`loom_tests`
//! shows both, and the moves of both directions).
//!
//! `unfilled` marks a bucket of a sub-table under a split whose slots are still in the same bucket
//! of the parent; see [`super::split`].

use super::slot::Slot;
use crate::key::Tag;
use crate::memory::shared;
use crate::sync::{AtomicU64, Ordering, relax};

/// Slots of a bucket. Under loom two, so that it can try every interleaving.
pub(crate) const SLOTS: usize = if cfg!(loom) { 2 } else { 7 };

const LOCK: u64 = 1;
const UNFILLED: u64 = 2;
const MOVE: u64 = 4;

shared! {
    /// See the module.
    #[repr(C, align(64))]
    pub(crate) struct Bucket {
        word: AtomicU64,
        slots: [AtomicU64; SLOTS],
    }
}

impl Default for Bucket {
    fn default() -> Bucket {
        Bucket {
            word: AtomicU64::new(0),
            slots: std::array::from_fn(|_| AtomicU64::new(0)),
        }
    }
}

/// A bucket's word as a reader saw it, without the lock bit.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct BucketVersion(u64);

impl BucketVersion {
    /// A number that rises with each slot that has come here.
    pub(crate) fn number(self) -> u64 {
        self.0
    }

    #[inline]
    pub(crate) fn is_unfilled(self) -> bool {
        self.0 & UNFILLED != 0
    }
}

impl Bucket {
    /// The word, to be read before the slots.
    #[inline]
    pub(crate) fn seen(&self) -> BucketVersion {
        BucketVersion(self.word.load(Ordering::Acquire) & !LOCK)
    }

    /// Slot `i`, for a reader that goes on to read the item at its location.
    #[inline]
    pub(crate) fn load(&self, i: usize) -> Slot {
        Slot(self.slots[i].load(Ordering::Acquire))
    }

    /// Slot `i` as a hint, or under the lock. No lookup may conclude from it that a key is not here.
    #[inline]
    pub(crate) fn peek(&self, i: usize) -> Slot {
        Slot(self.slots[i].load(Ordering::Relaxed))
    }

    /// Stores slot `i`; under the lock only.
    #[inline]
    pub(crate) fn put(&self, i: usize, slot: Slot) {
        self.slots[i].store(slot.0, Ordering::Release);
    }

    /// Counts an access if the slot still equals `slot`. Takes no lock: a lost race loses only the
    /// access, since writers store whole slots and this changes only the slot value that it saw.
    #[inline]
    pub(crate) fn warm(&self, i: usize, slot: Slot) {
        let _ = self.slots[i].compare_exchange(
            slot.0,
            slot.warmer().0,
            Ordering::Relaxed,
            Ordering::Relaxed,
        );
    }

    /// Takes the lock bit. It is held for tens of nanoseconds; its holder never waits for a bucket
    /// of the same sub-table with a lower number.
    #[inline]
    pub(crate) fn lock(&self) {
        let mut spins = 0;
        loop {
            let word = self.word.load(Ordering::Relaxed);
            if word & LOCK == 0
                && self
                    .word
                    .compare_exchange_weak(word, word | LOCK, Ordering::Acquire, Ordering::Relaxed)
                    .is_ok()
            {
                return;
            }
            relax(spins);
            spins += 1;
        }
    }

    /// Releases the lock bit. It may be gone already, if the machine has lost the bucket meanwhile.
    #[inline]
    pub(crate) fn unlock(&self) {
        let word = self.word.load(Ordering::Relaxed);
        self.word.store(word & !LOCK, Ordering::Release);
    }

    /// Clears the lock bit, no matter which thread has set it. True if it was set. Only for a
    /// caller that has the index to itself.
    pub(crate) fn break_lock(&self) -> bool {
        let word = self.word.load(Ordering::Relaxed);
        if word & LOCK != 0 {
            self.word.store(word & !LOCK, Ordering::Relaxed);
        }
        word & LOCK != 0
    }

    /// Counts a slot that has moved here from elsewhere; under the lock, after the slot was stored.
    #[inline]
    pub(crate) fn count_move(&self) {
        let word = self.word.load(Ordering::Relaxed);
        self.word.store(word.wrapping_add(MOVE), Ordering::Release);
    }

    pub(crate) fn is_unfilled(&self) -> bool {
        self.word.load(Ordering::Relaxed) & UNFILLED != 0
    }

    /// Marks the bucket as filled from the parent; under the lock.
    pub(crate) fn set_filled(&self) {
        let word = self.word.load(Ordering::Relaxed);
        self.word
            .store((word & !UNFILLED).wrapping_add(MOVE), Ordering::Release);
    }

    /// Empties a bucket that no other thread can reach and marks it unfilled or not.
    pub(crate) fn reset(&self, unfilled: bool) {
        for slot in &self.slots {
            slot.store(0, Ordering::Relaxed);
        }
        self.word
            .store(if unfilled { UNFILLED } else { 0 }, Ordering::Relaxed);
    }

    /// The first empty slot; under the lock, or as a hint.
    #[inline]
    pub(crate) fn empty_slot(&self) -> Option<usize> {
        (0..SLOTS).find(|&i| self.peek(i).is_empty())
    }

    /// The ghost of `tag`; under the lock, or as a hint.
    #[inline]
    pub(crate) fn ghost_of(&self, tag: Tag) -> Option<usize> {
        (0..SLOTS).find(|&i| self.peek(i).is_ghost() && self.peek(i).tag() == tag)
    }

    /// An empty slot or else the oldest ghost; under the lock, or as a hint.
    pub(crate) fn vacant_slot(&self) -> Option<usize> {
        (0..SLOTS)
            .filter(|&i| self.peek(i).is_vacant())
            .min_by_key(|&i| {
                if self.peek(i).is_empty() {
                    0
                } else {
                    self.peek(i).ghost_stamp()
                }
            })
    }
}
