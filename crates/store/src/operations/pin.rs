//! Values that are sent over several turns.

use crate::item::Item;
use crate::memory::events_seen;
use crate::segment::Hold;
use crate::segment::layout::LEN_AT_MOST;
use crate::store::Store;
use crate::store::holds::Extent;
use crate::worker::Burst;
use std::sync::Arc;

/// A value that stays readable after its burst, whatever happens to its item. It keeps its segments
/// from being reused, so it should not be held for long.
pub struct Pinned {
    store: Arc<Store>,
    /// Taken out when the value is dropped.
    item: Option<Hold>,
    /// A large value's pieces, as they were when it was pinned.
    pieces: Vec<Hold>,
    value_len: usize,
    is_oversized: bool,
    /// Losses before this number were settled when it was pinned.
    mark: u64,
}

impl Store {
    fn extent(&self, item: &Item<'_>) -> Extent {
        // Neighbouring pieces mostly lie in one segment.
        let mut last = None;
        let mut extent = Extent {
            segments: 0,
            free: 0,
            is_oversized: false,
        };
        for location in std::iter::once(item.location).chain(item.raw.pieces()) {
            let segment = self.log.segment_of(location);
            if last.replace(segment) != Some(segment) {
                extent.segments += 1;
                extent.free += usize::from(!self.log.entry(segment).is_held());
            }
        }
        extent.is_oversized = extent.segments > self.held_max();
        extent
    }
}

impl Burst<'_> {
    /// Pins the value of `item`, which this burst has found. `None` if other pins have to be
    /// released first: pins and uploads hold at most an eighth of memory, plus one value that alone
    /// takes more.
    ///
    /// # Panics
    /// If the item belongs to another store, or was [fetched](Item::is_fetched).
    pub fn pin(&self, item: &Item<'_>) -> Option<Pinned> {
        let store = self.store;
        assert!(
            std::ptr::eq(item.store, &raw const **store),
            "an item of another store"
        );
        assert!(!item.is_fetched(), "an item that lies in no segment");
        let extent = store.extent(item);
        // Of an oversized value another reader may have pinned a part when its extent was looked at. So readers
        // of such come one after the other.
        let readers = match extent.is_oversized {
            true => Some(store.oversized.enter(|| store.extent(item))?),
            false if store.has_room_for(&extent) => None,
            false => return None,
        };
        let hold = |location| store.log.hold(self.local.guard(), location);
        let pinned = Pinned {
            store: Arc::clone(store),
            item: Some(hold(item.location)),
            pieces: item.raw.pieces().map(hold).collect(),
            value_len: item.value_len(),
            mark: store.losses.mark(),
            is_oversized: extent.is_oversized,
        };
        drop(readers);
        Some(pinned)
    }

    /// Whether [`Burst::pin`] could pin a value now.
    pub fn can_pin(&self, item: &Item<'_>) -> bool {
        let store = self.local.shared;
        if item.is_fetched() {
            return false;
        }
        let extent = store.extent(item);
        match extent.is_oversized {
            true => store.oversized.can_enter(|| store.extent(item)),
            false => store.has_room_for(&extent),
        }
    }

    /// Whether pins or uploads hold memory now.
    pub fn holds_memory(&self) -> bool {
        self.local.shared.log.held_count() > 0
    }
}

impl Pinned {
    /// Bytes of the value.
    pub fn value_len(&self) -> usize {
        self.value_len
    }

    /// Whether the machine may have lost a part of the value since it was pinned. To be asked after
    /// its bytes were copied, and before a client can take the copy for the value.
    #[inline]
    pub fn is_doubtful(&self) -> bool {
        events_seen() != self.mark && self.is_lost()
    }

    #[cold]
    fn is_lost(&self) -> bool {
        let log = &self.store.log;
        self.item.iter().chain(&self.pieces).any(|hold| {
            let start = hold.location().offset();
            let len = log.held_item(hold).total_len().max(LEN_AT_MOST);
            (self.store.losses).overlaps(log, self.mark, &(start..start + len))
        })
    }

    /// The value's slices, in order.
    pub fn chunks(&self) -> impl Iterator<Item = &[u8]> + Clone {
        let log = &self.store.log;
        let item = self.item.iter().map(|hold| log.held_item(hold));
        let whole = item.filter(|item| !item.is_head()).map(|item| item.value());
        let pieces = self.pieces.iter();
        whole.chain(pieces.map(|hold| log.held_item(hold).piece_data()))
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        let holds = self.item.take().into_iter().chain(self.pieces.drain(..));
        let release = || holds.for_each(|hold| self.store.log.release(hold));
        match self.is_oversized {
            true => self.store.oversized.leave(release),
            false => release(),
        }
    }
}
