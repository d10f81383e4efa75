//! What a worker counts. Each worker has its own set, on its own cache lines, that only it writes;
//! a thread that asks for statistics sums them.

use std::sync::atomic::{AtomicU64, Ordering};

/// A number that one thread raises and any thread reads.
#[derive(Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    /// Increments it; for its owner only.
    #[inline]
    pub(crate) fn add(&self, n: u64) {
        self.0.store(
            self.0.load(Ordering::Relaxed).wrapping_add(n),
            Ordering::Relaxed,
        );
    }

    pub(crate) fn read(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// See the module.
        #[derive(Default)]
        pub(crate) struct Counters {
            $($(#[$doc])* pub(crate) $name: Counter,)*
        }

        /// Counts since the store was made, summed over its workers.
        #[derive(Clone, Copy, Debug, Default)]
        pub struct Totals {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl Totals {
            pub(crate) fn add(&mut self, counters: &Counters) {
                $(self.$name = self.$name.wrapping_add(counters.$name.read());)*
            }
        }
    };
}

counters! {
    /// Items stored.
    stored,
    /// Items linked under a key that had none.
    linked,
    /// Items unlinked, for whatever reason.
    unlinked,
    /// Items evicted to make room.
    evicted,
    /// Of those, never read.
    evicted_unfetched,
    /// Of those, read since their frequency was last lowered.
    evicted_active,
    /// Of those, with an expiry still to come.
    evicted_nonzero,
    /// Items evicted because the index had no place for another.
    evicted_index_full,
    /// Items found expired by a lookup, the cleaner or the crawler.
    expired,
    /// Of those, never read.
    expired_unfetched,
    /// Items found flushed.
    flushed,
    /// Items found gone because a tag of theirs was invalidated.
    invalidated,
    /// Tags that were invalidated.
    tags_invalidated,
    /// Expired, flushed or invalidated items that the cleaner found.
    reclaimed,
    /// Items that the crawler looked at.
    crawler_checked,
    /// Dead items that the crawler found.
    crawler_reclaimed,
    /// Items stored straight into the main queue because their ghost was there.
    ghost_hits,
    /// Items that moved from the small queue to the main one.
    promoted,
    /// Items that the main queue kept for another round.
    kept,
    /// Items moved to empty their segment, staying in their queue.
    compacted,
    /// Bytes appended by clients.
    bytes_appended,
    /// Bytes of items that were deleted, replaced, evicted or given up.
    bytes_dead,
    /// Bytes moved by the cleaner.
    bytes_moved,
    /// Segments emptied.
    segments_cleaned,
    /// Segments freed without being read, because all of their items were dead.
    segments_dead,
    /// Segments whose items had all expired.
    segments_expired,
    /// Searches for a displacement path.
    displacements,
    /// Sub-tables split.
    splits,
    /// Sub-tables merged into their siblings.
    merges,
    /// Items lost with memory that failed, as far as they were seen to be.
    lost,
    /// Their bytes.
    bytes_lost,
    /// Operations that found no free segment and had to wait.
    waits,
    /// Items whose slot was changed to their record on flash.
    flash_written,
    /// Slots that no longer name a record on flash, for whatever reason.
    flash_unlinked,
    /// Items that were copied for flash.
    flash_appended,
    /// Bytes of their records.
    flash_bytes_appended,
    /// Items that were evicted since devices were too slow, or the volume full.
    flash_refused,
    /// Items that were evicted since the rule of admission, or the budget, does not let them go to flash.
    flash_rejected,
    /// Segments written to flash.
    flash_segments_written,
    /// Segments that could not be written to flash.
    flash_segments_lost,
    /// Records that were asked for.
    flash_reads,
    /// Of those, items that a plain read has shown.
    flash_hits,
    /// Of those, records of another key than was asked for.
    flash_false_matches,
    /// Items that came back from flash to memory.
    flash_brought_back,
    /// Items dropped since their segment on flash was, or their device.
    flash_dropped,
    /// Records on flash that were not what they should have been.
    flash_damaged,
    /// Reads from flash that failed.
    flash_failed,
}
