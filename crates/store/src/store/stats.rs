//! What the store holds and has done.

use super::Store;
use crate::counters::{Counter, Counters, Totals};
use crate::index::{SLOTS, TABLE_BYTES};
use crate::memory::HugePages;
use crate::sync::Ordering;
use crate::time::UnixSeconds;

/// How memory is used, and what the workers have counted.
#[derive(Clone, Copy, Debug)]
pub struct Stats {
    /// Counts since the start.
    pub totals: Totals,
    /// How many seconds the item that was evicted last had been unused.
    pub evicted_idle_s: u64,
    /// When the oldest segment that holds items was opened: how far memory reaches back.
    pub oldest_segment: Option<UnixSeconds>,
    /// The number of items.
    pub items: u64,
    /// Bytes of live items in segments, headers included.
    pub bytes: u64,
    /// Bytes given for everything: what was asked for, in whole pages, without those that a lower
    /// limit has taken out of use.
    pub memory: u64,
    /// Bytes of free pages.
    pub memory_free: u64,
    /// Bytes of pages of the index.
    pub memory_index: u64,
    /// Bytes of pages of the table of tags' generations.
    pub memory_tags: u64,
    /// Bytes of pages lent for connection buffers.
    pub memory_lent: u64,
    /// Bytes that unfinished uploads hold.
    pub memory_uploads: u64,
    /// Bytes of segments that are pinned or held by uploads.
    pub memory_held: u64,
    /// Bytes of the segment table, the directory, and what the heap holds for each segment.
    pub memory_tables: u64,
    /// Bytes of a segment.
    pub segment_len: u64,
    /// Segments that exist or may exist.
    pub segments: u64,
    /// Sealed segments of the small queue.
    pub segments_small: u64,
    /// Sealed segments of the main queue.
    pub segments_main: u64,
    /// Sub-tables of the index.
    pub tables: u64,
    /// Slots of the index.
    pub slots: u64,
    /// The page sizes that the kernel provides.
    pub huge_pages: HugePages,
}

/// How the memory of one node of the machine is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeStats {
    /// The system's number of the node.
    pub number: u32,
    /// Bytes of the store's pages that are to lie there, those of the tables included.
    pub memory: u64,
    /// Bytes of free pages among these.
    pub memory_free: u64,
    /// Pages that the node's cores have taken there.
    pub pages_near: u64,
    /// Pages that its cores have taken from other nodes, since it had no free ones.
    pub pages_far: u64,
}

impl Store {
    /// How each node of memory is used: nothing where there is one, and all memory is alike.
    pub fn nodes(&self) -> Vec<NodeStats> {
        let page_len = self.log.pages().page_len() as u64;
        let shares = self.log.pages().node_shares().into_iter();
        let stats = shares.map(|share| NodeStats {
            number: share.number,
            memory: share.pages as u64 * page_len,
            memory_free: share.free as u64 * page_len,
            pages_near: share.taken[0],
            pages_far: share.taken[1],
        });
        stats.collect()
    }

    /// The number of items.
    pub(super) fn items(&self) -> u64 {
        let sum = |of: fn(&Counters) -> &Counter| -> u64 {
            self.counters
                .iter()
                .map(|counters| of(counters).read())
                .sum()
        };
        // What goes is read first, so that what comes meanwhile does not count as gone.
        let unlinked = sum(|counters| &counters.unlinked);
        (self.items_taken_over + sum(|counters| &counters.linked)).saturating_sub(unlinked)
    }

    /// What the store holds and has done.
    pub fn stats(&self) -> Stats {
        let mut totals = Totals::default();
        for counters in &self.counters {
            totals.add(counters);
        }
        let pages = self.log.pages();
        let page_len = pages.page_len() as u64;
        let shares = pages.shares();
        let (small, main) = {
            let queues = self.log.queues();
            (queues.small_len() as u64, queues.main_len() as u64)
        };
        let tables = self.tables.count() as u64;
        Stats {
            totals,
            evicted_idle_s: self.evicted_idle_s.load(Ordering::Relaxed).into(),
            oldest_segment: self.log.oldest_opened_at(),
            items: self.items(),
            bytes: self.log.live_bytes() as u64,
            memory: self.log.mapping().len() as u64 - shares.withheld as u64 * page_len,
            memory_free: shares.free as u64 * page_len,
            memory_index: shares.index as u64 * page_len,
            memory_tags: self.tags.page_count() as u64 * page_len,
            memory_lent: shares.lent as u64 * page_len,
            memory_uploads: self.upload_bytes.load(Ordering::Relaxed) as u64,
            memory_held: self.log.held_count() as u64 * page_len,
            memory_tables: (self.tables_len + self.heap_len) as u64,
            segment_len: page_len,
            segments: u64::from(self.log.segment_count()),
            segments_small: small,
            segments_main: main,
            tables,
            slots: tables * (TABLE_BYTES as u64 / 64) * SLOTS as u64,
            huge_pages: self.log.mapping().huge_pages(),
        }
    }
}
