//! What is on flash and what was done there.

use crate::counters::{Counter, Counters};
use crate::store::Store;

/// What is on flash, and counts since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlashStats {
    /// Items whose slot names a record on flash.
    pub items: u64,
    /// Segments of the volume.
    pub segments: u64,
    /// Of those, segments that can be filled at once.
    pub segments_free: u64,
    /// Bytes of a segment.
    pub segment_len: u64,
    /// Segments in memory that become free once what is being written is on flash.
    pub segments_leaving: u64,
    /// Items that were copied for flash.
    pub appended: u64,
    /// Bytes of their records.
    pub bytes_appended: u64,
    /// Items whose slot was changed to the record on flash.
    pub written: u64,
    /// Segments that were written.
    pub segments_written: u64,
    /// Segments that could not be written: their items were evicted.
    pub segments_lost: u64,
    /// Items evicted because devices were too slow, or the volume was full.
    pub refused: u64,
    /// Items evicted because of their length, of the rule of admission, or of the budget of writes.
    pub rejected: u64,
    /// Records asked for.
    pub reads: u64,
    /// Of those, items that a plain read has shown.
    pub hits: u64,
    /// Records of another key than was asked for.
    pub false_matches: u64,
    /// Items brought back to memory.
    pub brought_back: u64,
    /// Items dropped with the oldest segments, with expired ones, after a flush, or with a device.
    pub dropped: u64,
    /// Records that were not what they should have been.
    pub damaged: u64,
    /// Reads that failed.
    pub failed: u64,
    /// Devices that are gone.
    pub devices_gone: u64,
}

impl Store {
    /// What is on flash; `None` without flash. It looks at each segment of the volume.
    pub fn flash_stats(&self) -> Option<FlashStats> {
        let flash = self.flash.get()?;
        let sum = |of: fn(&Counters) -> &Counter| -> u64 {
            self.counters
                .iter()
                .map(|counters| of(counters).read())
                .sum()
        };
        // What goes is read first, so that what comes meanwhile does not count as gone.
        let unlinked = sum(|counters| &counters.flash_unlinked);
        let written = sum(|counters| &counters.flash_written);
        Some(FlashStats {
            items: (flash.items_taken_over + written).saturating_sub(unlinked),
            segments: flash.volume.segments().into(),
            segments_free: flash.volume.free_segments().into(),
            segment_len: flash.volume.segment_len() as u64,
            segments_leaving: self.log.leaving_count() as u64,
            appended: sum(|counters| &counters.flash_appended),
            bytes_appended: sum(|counters| &counters.flash_bytes_appended),
            written,
            segments_written: sum(|counters| &counters.flash_segments_written),
            segments_lost: sum(|counters| &counters.flash_segments_lost),
            refused: sum(|counters| &counters.flash_refused),
            rejected: sum(|counters| &counters.flash_rejected),
            reads: sum(|counters| &counters.flash_reads),
            hits: sum(|counters| &counters.flash_hits),
            false_matches: sum(|counters| &counters.flash_false_matches),
            brought_back: sum(|counters| &counters.flash_brought_back),
            dropped: sum(|counters| &counters.flash_dropped),
            damaged: sum(|counters| &counters.flash_damaged),
            failed: sum(|counters| &counters.flash_failed),
            devices_gone: flash.volume.gone_devices().count() as u64,
        })
    }
}
