//! Whether what a slot points to is an item. Another process has written it, perhaps, or memory has
//! failed without telling: its header may say anything.

use crate::epoch::Guard;
use crate::index::slot::{Location, Slot};
use crate::index::{Place, Unlinked};
use crate::segment::item::RawItem;
use crate::store::Store;
use crate::sync::Ordering;
use crate::worker_store::WorkerStore;

impl<'s> WorkerStore<'s> {
    /// Whether an item that a slot points to is one: its parts lie in its segment, and its pieces are
    /// there and are its own.
    #[inline(always)]
    pub(crate) fn is_sound(self, location: Location, item: RawItem<'_>) -> bool {
        item.is_plain_within(self.shared.log.room_at(location))
            || self.shared.is_sound(self.guard(), location, item)
    }

    /// Unlinks what is no item, if it is still where it was found. What of its segment is dead is not
    /// known then; the cleaner finds out.
    #[cold]
    #[inline(never)]
    pub(crate) fn unlink_unsound(self, place: Place<'_>) {
        if let Some(lock) = place.lock() {
            self.note_unsound(lock.replace(Slot::EMPTY));
        }
    }

    /// Counts what was no item.
    #[cold]
    pub(crate) fn note_unsound(self, gone: Unlinked) {
        let _ = gone.into_slot();
        self.counters().lost.add(1);
        self.counters().unlinked.add(1);
    }

    /// The piece at a location from a head's table; see [`Log::piece`](crate::segment::Log::piece).
    pub(crate) fn piece(self, location: Location) -> Option<RawItem<'s>> {
        self.shared.log.piece(self.guard(), location)
    }

    /// The pieces of a head that are there, with their places.
    pub(crate) fn pieces(self, head: RawItem<'_>) -> impl Iterator<Item = (Location, RawItem<'s>)> {
        let there = move |location| Some((location, self.piece(location)?));
        head.pieces().filter_map(there)
    }
}

impl Store {
    /// As [`WorkerStore::is_sound`], for all kinds of items. Its arguments are few and small, so that
    /// whoever asks keeps what it has in registers.
    #[cold]
    #[inline(never)]
    fn is_sound<'g>(&'g self, guard: Guard<'g>, location: Location, item: RawItem<'_>) -> bool {
        // loom's items are what its tests have written.
        self.log.is_within(location, item)
            && (!item.is_head() || cfg!(loom) || self.has_its_pieces(guard, item))
    }

    fn has_its_pieces<'g>(&'g self, guard: Guard<'g>, head: RawItem<'_>) -> bool {
        let hash = self.hasher.hash(head.key());
        let mut left = head.value_len();
        let mut pieces = head.chunks().iter().enumerate();
        let are_own = !head.is_piece()
            && pieces.all(|(index, chunk)| {
                // A moment ago another thread may have moved it: Acquire, so that it is seen.
                let location = Location::from_raw(chunk.load(Ordering::Acquire));
                let Some(piece) = self.log.piece(guard, location) else {
                    return false;
                };
                let len = piece.piece_data_len();
                let fits = len <= left;
                left = left.saturating_sub(len);
                fits && piece.piece_index() == index && piece.piece_hash() == hash.0
            });
        are_own && left == 0
    }
}
