//! What still points into a segment whose items have all been cleaned, as far as they could be found.
//!
//! Each item is noted dead once it is unlinked. So when a segment has been gone through from header to
//! header, exactly its bytes are dead. If they are not, a file or memory that failed without telling
//! has changed a length or a key: then items stand where no header leads to, or under a key that no
//! lookup finds, and their slots would point into whatever the page is used for next. Such a segment is
//! searched for in the whole index, a sub-table at a time, and what still points into it goes.

use super::Cleaner;
use crate::epoch::Epoch;
use crate::index::slot::Slot;
use crate::index::{Place, SLOTS, TABLE_BUCKETS, Visited};
use crate::memory::PageId;
use crate::segment::item::RawItem;
use crate::worker_store::WorkerStore;

/// How far the search is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Leftovers {
    /// Nobody has looked whether there are any.
    #[default]
    Unknown,
    /// Not all is noted dead. A worker may be about to note something: its burst ends first.
    Awaited(Epoch),
    /// Nothing points into the segment from words of the directory before this one.
    Searched(usize),
    /// There are none.
    None,
}

impl Leftovers {
    /// Whether more can be done at once.
    pub(super) fn is_going_on(self) -> bool {
        matches!(self, Leftovers::Searched(_))
    }
}

impl Cleaner {
    /// Does a part of the search in a segment that is gone through. Returns how far it is.
    pub(super) fn drop_leftovers(
        &mut self,
        local: WorkerStore<'_>,
        segment: PageId,
        leftovers: Leftovers,
    ) -> Leftovers {
        let (store, log) = (local.shared, &local.shared.log);
        let is_known = log.is_all_dead(segment) || log.entry(segment).is_uncounted();
        match leftovers {
            Leftovers::None => Leftovers::None,
            Leftovers::Unknown | Leftovers::Awaited(_) if is_known => Leftovers::None,
            Leftovers::Unknown => Leftovers::Awaited(store.epochs.advance()),
            Leftovers::Awaited(epoch) if store.epochs.is_over(epoch) => Leftovers::Searched(0),
            Leftovers::Awaited(epoch) => Leftovers::Awaited(epoch),
            Leftovers::Searched(word) if word >= store.index.words() => Leftovers::None,
            Leftovers::Searched(word) => {
                let has_pieces = log.entry(segment).has_pieces();
                let next = store.index.sweep(word, None::<fn(Slot)>, |place| {
                    drop_if_there(local, segment, has_pieces, place)
                });
                local.note_stranded();
                // A sub-table's slots, and where heads are looked for, the items that they point to.
                let slots = TABLE_BUCKETS as usize * SLOTS;
                let looked_at = if has_pieces { slots } else { slots / 8 };
                self.pace.note_items(looked_at, 0, 0);
                Leftovers::Searched(next)
            }
        }
    }
}

/// Drops the item of a slot, if it or a piece of it is in the segment.
fn drop_if_there(
    local: WorkerStore<'_>,
    segment: PageId,
    has_pieces: bool,
    place: Place<'_>,
) -> Visited {
    if !place.slot.is_in_memory() {
        return Visited::Done;
    }
    let log = &local.shared.log;
    let location = place.slot.location();
    let has_a_piece_there = |head: RawItem<'_>| {
        let mut pieces = head.pieces();
        log.is_within(location, head) && pieces.any(|piece| log.segment_of(piece) == segment)
    };
    let is_there = log.segment_of(location) == segment
        || has_pieces && has_a_piece_there(local.item(location));
    if is_there {
        local.unlink_unsound(place);
    }
    Visited::Done
}
