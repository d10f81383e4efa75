//! Values that are sent over several turns.

use crate::index::slot::Location;
use crate::item::Item;
use crate::store::Store;
use crate::worker::Burst;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A value that stays readable after its burst, whatever happens to its item. It keeps its segments
/// from being used again, so it should not be held for long.
pub struct Pinned {
    store: Arc<Store>,
    item: Location,
    /// A large value's pieces, as they were when it was pinned.
    pieces: Box<[Location]>,
    value_len: usize,
}

impl Burst<'_> {
    /// Pins the value of `item`, which this burst has found. `None` where pins and uploads hold an
    /// eighth of memory already: then the value has to be copied.
    pub fn pin(&self, item: &Item<'_>) -> Option<Pinned> {
        let store = &self.worker.store;
        assert!(
            std::ptr::eq(item.store, &raw const **store),
            "an item of another store"
        );
        let pieces: Box<[Location]> = item
            .raw
            .chunks()
            .iter()
            .map(|chunk| Location::from_raw(chunk.load(Ordering::Acquire)))
            .collect();
        // Neighbouring pieces mostly lie in one segment.
        let segment = |&location: &Location| store.log.segment_of(location);
        let new = 1 + pieces.chunk_by(|a, b| segment(a) == segment(b)).count();
        if store.log.held_count() + new > store.held_max {
            return None;
        }
        store.log.hold(item.location);
        for &piece in &pieces {
            store.log.hold(piece);
        }
        Some(Pinned {
            store: Arc::clone(store),
            item: item.location,
            pieces,
            value_len: item.value_len(),
        })
    }
}

impl Pinned {
    /// Bytes of the value.
    pub fn value_len(&self) -> usize {
        self.value_len
    }

    /// The value's slices, in order.
    pub fn chunks(&self) -> impl Iterator<Item = &[u8]> + Clone {
        let log = &self.store.log;
        // Held segments are not used again.
        let whole = self.pieces.is_empty().then(|| log.item(self.item));
        let whole = whole
            .filter(|item| !item.is_head())
            .map(|item| item.value());
        whole.into_iter().chain(
            self.pieces
                .iter()
                .map(|&piece| log.item(piece).piece_data()),
        )
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        self.store.log.release(self.item);
        for &piece in &self.pieces {
            self.store.log.release(piece);
        }
    }
}
