//! Whether a store without evictions will have room for more.

use super::Store;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// What the workers' last complete round found.
#[derive(Default)]
pub(crate) struct Reclaimable {
    /// Reclaimable bytes at the last complete round.
    found: AtomicUsize,
    /// Bytes that had died by the beginning of that round.
    died_before: AtomicU64,
}

impl Reclaimable {
    /// Notes a complete round: `found` bytes are reclaimable, and `died_before` had died when it
    /// began.
    pub(crate) fn note_round(&self, found: usize, died_before: u64) {
        self.found.store(found, Ordering::Relaxed);
        self.died_before.store(died_before, Ordering::Relaxed);
    }
}

impl Store {
    /// Bytes of items that have died so far, without those that were moved.
    pub(crate) fn died(&self) -> u64 {
        self.counters
            .iter()
            .map(|counters| counters.bytes_dead.read())
            .sum()
    }

    /// Whether there will be room for `len` more bytes of new items even if nothing more is
    /// deleted. Only for a store that does not evict.
    pub(crate) fn will_have_room(&self, len: usize) -> bool {
        let pages = self.log.pages();
        let segment_len = self.log.segment_len();
        // What is in use beyond a lowered limit is to be reclaimed first.
        let wanted = pages.reserve() + pages.excess() + len.div_ceil(segment_len);
        let available = pages.free_count() + self.log.coming_count();
        let missing = wanted.saturating_sub(available) * segment_len;
        let died_before = self.reclaimable.died_before.load(Ordering::Relaxed);
        let died_since = self.died().saturating_sub(died_before);
        let found = self.reclaimable.found.load(Ordering::Relaxed) as u64;
        found + died_since >= missing as u64
    }
}
