//! Values that are sent over several turns.

use crate::index::slot::Location;
use crate::item::Item;
use crate::store::Store;
use crate::worker::Burst;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A value that stays readable after its burst, whatever happens to its item. It keeps its segments
/// from being used again, so it should not be held for long.
pub struct Pinned {
    store: Arc<Store>,
    item: Location,
    /// A large value's pieces, as they were when it was pinned.
    pieces: Box<[Location]>,
    value_len: usize,
    is_giant: bool,
}

/// The one value at a time that is pinned although it alone takes more than all others may together.
#[derive(Default)]
pub(crate) struct OversizedPin {
    readers: Mutex<usize>,
    segments: AtomicUsize,
}

/// What a value takes.
struct Extent {
    segments: usize,
    /// Of these, those that nobody holds yet.
    free: usize,
    /// It alone takes more than pins may.
    is_giant: bool,
}

impl OversizedPin {
    /// Segments that it holds.
    pub(crate) fn segments(&self) -> usize {
        self.segments.load(Ordering::Relaxed)
    }

    fn readers(&self) -> MutexGuard<'_, usize> {
        self.readers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes its place, or joins those who read the same, where that can be done.
    fn enter(&self, extent: &Extent) -> bool {
        let mut readers = self.readers();
        let may_enter = extent.may_join(*readers);
        if may_enter {
            *readers += 1;
            self.segments.store(extent.segments, Ordering::Relaxed);
        }
        may_enter
    }

    fn leave(&self) {
        let mut readers = self.readers();
        *readers -= 1;
        if *readers == 0 {
            self.segments.store(0, Ordering::Relaxed);
        }
    }
}

impl Extent {
    /// Whether it may be the oversized that has so many readers.
    fn may_join(&self, readers: usize) -> bool {
        readers == 0 || self.free == 0
    }
}

impl Store {
    /// Segments that pins and uploads hold, but for those of a [`OversizedPin`].
    pub(crate) fn held_count(&self) -> usize {
        let held = self.log.held_count();
        held.saturating_sub(self.oversized.segments())
    }

    /// Whether what is no oversized can be held beside the others.
    fn has_room_for(&self, extent: &Extent) -> bool {
        self.held_count() + extent.free <= self.held_max
    }

    fn extent(&self, item: &Item<'_>) -> Extent {
        // Neighbouring pieces mostly lie in one segment.
        let mut last = None;
        let mut extent = Extent {
            segments: 0,
            free: 0,
            is_giant: false,
        };
        for location in std::iter::once(item.location).chain(pieces(item)) {
            let segment = self.log.segment_of(location);
            if last.replace(segment) != Some(segment) {
                extent.segments += 1;
                extent.free += usize::from(!self.log.entry(segment).is_held());
            }
        }
        extent.is_giant = extent.segments > self.held_max;
        extent
    }
}

impl Burst<'_> {
    /// Pins the value of `item`, which this burst has found. `None` where others have to be let go
    /// before: pins and uploads hold an eighth of memory at most, and beside that one value that alone
    /// takes more.
    ///
    /// # Panics
    /// If the item is another store's.
    pub fn pin(&self, item: &Item<'_>) -> Option<Pinned> {
        let store = &self.worker.store;
        assert!(
            std::ptr::eq(item.store, &raw const **store),
            "an item of another store"
        );
        let extent = store.extent(item);
        let may_pin = match extent.is_giant {
            true => store.oversized.enter(&extent),
            false => store.has_room_for(&extent),
        };
        if !may_pin {
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
            is_giant: extent.is_giant,
        })
    }

    /// Whether [`Burst::pin`] could pin a value now.
    pub fn can_pin(&self, item: &Item<'_>) -> bool {
        let store = &self.worker.store;
        let extent = store.extent(item);
        match extent.is_giant {
            true => extent.may_join(*store.oversized.readers()),
            false => store.has_room_for(&extent),
        }
    }

    /// Whether pins or uploads hold memory at this moment.
    pub fn holds_memory(&self) -> bool {
        self.worker.store.log.held_count() > 0
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
        if self.is_giant {
            self.store.oversized.leave();
        }
    }
}
