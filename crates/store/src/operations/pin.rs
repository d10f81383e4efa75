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

/// What becomes of an attempt to pin a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pinning {
    /// It is pinned.
    Now,
    /// Not before others are let go.
    Later,
    /// It alone holds more than pins may.
    Never,
}

impl Burst<'_> {
    /// Pins the value of `item`, which this burst has found. `None` where [`Burst::pinning`] does not
    /// say [`Pinning::Now`].
    ///
    /// # Panics
    /// If the item is another store's.
    pub fn pin(&self, item: &Item<'_>) -> Option<Pinned> {
        let store = &self.worker.store;
        assert!(
            std::ptr::eq(item.store, &raw const **store),
            "an item of another store"
        );
        if self.pinning(item) != Pinning::Now {
            return None;
        }
        let pieces: Box<[Location]> = pieces(item).collect();
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

    /// Whether pins or uploads hold memory at this moment.
    pub fn holds_memory(&self) -> bool {
        self.worker.store.log.held_count() > 0
    }

    /// Whether a value can be pinned. Pins and uploads hold an eighth of memory at most.
    pub fn pinning(&self, item: &Item<'_>) -> Pinning {
        let store = &self.worker.store;
        // Neighbouring pieces mostly lie in one segment.
        let mut last = None;
        let new = pieces(item).filter(|&piece| {
            let segment = store.log.segment_of(piece);
            last.replace(segment) != Some(segment)
        });
        let new = 1 + new.count();
        if new > store.held_max {
            Pinning::Never
        } else if store.log.held_count() + new > store.held_max {
            Pinning::Later
        } else {
            Pinning::Now
        }
    }
}

/// Where a large value's pieces are; none where the value lies behind its key.
fn pieces(item: &Item<'_>) -> impl Iterator<Item = Location> {
    let chunks = item.raw.chunks().iter();
    chunks.map(|chunk| Location::from_raw(chunk.load(Ordering::Acquire)))
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
