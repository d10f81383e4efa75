//! What is counted of memory that the machine loses, and how much of it is too much.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use coua_store::{Mended, PageKind};

/// How many losses are allowed within a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LossLimit {
    /// So many at most.
    pub at_most: usize,
    /// Within so many seconds.
    pub seconds: u64,
}

impl Default for LossLimit {
    fn default() -> LossLimit {
        LossLimit {
            at_most: 64,
            seconds: 60,
        }
    }
}

/// What was lost since the start, as statistics show it.
#[derive(Default)]
pub struct LossCounts {
    /// Ranges that were lost, all together and by what they held.
    pub losses: AtomicU64,
    /// Of these, pages of items.
    pub items_pages: AtomicU64,
    /// Pages of the index.
    pub index_pages: AtomicU64,
    /// Pages of connection buffers.
    pub buffer_pages: AtomicU64,
    /// Pages of tables that the store can do without.
    pub table_pages: AtomicU64,
    /// Pages of memory that flash is read into and written from.
    pub flash_pages: AtomicU64,
    /// Pages that held nothing.
    pub free_pages: AtomicU64,
    /// Bytes of all of them.
    pub bytes: AtomicU64,
    /// Items that were dropped. Those that lay in the index's pages are an estimate.
    pub items_lost: AtomicU64,
    /// Bytes of items that were dropped.
    pub item_bytes_lost: AtomicU64,
    /// Errors outside of the store's memory that nobody has touched.
    pub elsewhere: AtomicU64,
    /// How long it took the last time, and the longest, until nothing referred to what was lost.
    pub last_us: AtomicU64,
    /// The longest.
    pub longest_us: AtomicU64,
    /// How long it took the last time, and the longest, until nothing was doubtful any more.
    pub last_doubtful_us: AtomicU64,
    /// The longest.
    pub longest_doubtful_us: AtomicU64,
}

impl LossCounts {
    /// Counts what was seen to.
    pub fn note(&self, mended: &Mended) {
        for loss in &mended.losses {
            let of_kind = match loss.kind {
                PageKind::Items => &self.items_pages,
                PageKind::Index => &self.index_pages,
                PageKind::Lent => &self.buffer_pages,
                PageKind::Tables | PageKind::Tags => &self.table_pages,
                PageKind::Flash => &self.flash_pages,
                PageKind::Free => &self.free_pages,
            };
            of_kind.fetch_add(1, Relaxed);
            self.losses.fetch_add(1, Relaxed);
            self.bytes.fetch_add(loss.lost.length as u64, Relaxed);
        }
        self.items_lost.fetch_add(mended.items, Relaxed);
        self.item_bytes_lost.fetch_add(mended.bytes, Relaxed);
        for (time, last, longest) in [
            (mended.took, &self.last_us, &self.longest_us),
            (
                mended.doubtful_for,
                &self.last_doubtful_us,
                &self.longest_doubtful_us,
            ),
        ] {
            let us = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
            last.store(us, Relaxed);
            longest.fetch_max(us, Relaxed);
        }
    }
}
