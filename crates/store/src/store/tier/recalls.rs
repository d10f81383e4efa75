//! How much reads may bring back from flash.
//!
//! What comes back leaves a dead record there, and pushes something else out of memory, which is written. So each recall costs
//! a record's room of a ring whose oldest is dropped when it is full: where a cache is only read, recalls alone would drop what
//! nobody has replaced. While half of the volume is free that room is nobody's. From then on recalls are paid by what is
//! written: of two bytes written one may be for a recall. Since a recall causes a write of its own length, they die out where
//! nothing else is written, and are at most as many as the other writes elsewhere. `coua-bench admission` compares the shares.

use coua_flash::log::Volume;
// Whatever order the threads' changes come in, it is an estimate.
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes written for one that is brought back.
const WRITTEN_FOR_ONE: u64 = 2;

/// The part of a volume that may be saved up: one in 64, and a few segments.
const SAVED_SHARE: u64 = 64;
const SAVED_SEGMENTS: u64 = 4;

/// See the module.
pub(crate) struct Recalls {
    /// Bytes that may be brought back.
    credit: AtomicU64,
    /// So many at most.
    most: u64,
}

impl Recalls {
    pub(crate) fn new(volume: &Volume) -> Recalls {
        let segment_len = volume.segment_len() as u64;
        let len = u64::from(volume.segments()) * segment_len;
        let recalls = Recalls {
            credit: AtomicU64::new(0),
            most: (len / SAVED_SHARE).max(SAVED_SEGMENTS * segment_len),
        };
        recalls.note_room(volume);
        recalls
    }

    /// Whether an item of so many bytes may come back because it is read.
    #[inline]
    pub(crate) fn may_be(&self, len: usize) -> bool {
        self.credit.load(Ordering::Relaxed) >= len as u64
    }

    /// An item of so many bytes has come back.
    pub(crate) fn note(&self, len: usize) {
        self.change(|credit| credit.saturating_sub(len as u64));
    }

    /// So many bytes were written.
    pub(crate) fn note_written(&self, len: usize) {
        self.change(|credit| (credit + len as u64 / WRITTEN_FOR_ONE).min(self.most));
    }

    /// Looks how much of the volume is free.
    pub(crate) fn note_room(&self, volume: &Volume) {
        if volume.room() > volume.segments() / 2 {
            self.credit.store(self.most, Ordering::Relaxed);
        }
    }

    fn change(&self, to: impl Fn(u64) -> u64) {
        let order = Ordering::Relaxed;
        let _ = self
            .credit
            .fetch_update(order, order, |credit| Some(to(credit)));
    }
}
