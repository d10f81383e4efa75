//! Drops the items that are cut off by the beginning of a lost range, where all others are known to match no key.

use super::Mender;
use crate::index::slot::Location;
use crate::memory::PageId;
use crate::store::losses::overlap;
use crate::worker_store::WorkerStore;
use std::ops::Range;

/// What was found at the beginning of a lost range.
enum Cut {
    /// Nothing is cut off there.
    Nothing,
    /// An item, of which header and key are whole.
    Item(Location),
    /// It cannot be told: a header or key is cut, or headers lead elsewhere.
    Unknown,
}

impl Mender {
    /// Drops what could still be read of these lost ranges though a part of it is zeros. False if that is not known
    /// for all of them: then a sweep has to find it. Of pages that were damaged before it is not.
    pub(super) fn drop_cut_off(&mut self, lost: &[Range<usize>], before: &[PageId]) -> bool {
        let store = std::sync::Arc::clone(&self.store);
        let log = &store.log;
        let is_clear = |page: &PageId| {
            let whole = log.range_of(*page);
            let here = lost.iter().filter(|range| overlap(range, &whole)).count();
            self.taken.contains(page)
                && !before.contains(page)
                && !log.entry(*page).has_pieces()
                && here == 1
        };
        if !self.damaged.iter().all(is_clear) {
            return false;
        }
        let damaged = self.damaged.clone();
        let is_dropped = |page: PageId| {
            let whole = log.range_of(page);
            let mut here = lost.iter().filter(|range| overlap(range, &whole));
            let from = here
                .next()
                .map_or(whole.end, |range| range.start.max(whole.start));
            let (_, local, _) = self.turn();
            match cut_off(local, page, from - whole.start) {
                Cut::Nothing => true,
                Cut::Unknown => false,
                Cut::Item(location) => {
                    let hash = store.hasher.hash(local.item(location).key());
                    let is_it = |slot: crate::index::slot::Slot| slot.location() == location;
                    while let Some(place) = store.index.find(hash, is_it) {
                        local.unlink_lost(place);
                    }
                    true
                }
            }
        };
        damaged.into_iter().all(is_dropped)
    }
}

/// What stands at byte `from` of a segment and begins before it.
fn cut_off(local: WorkerStore<'_>, page: PageId, from: usize) -> Cut {
    let log = &local.shared.log;
    let end = log.entry(page).used();
    let mut offset = 0;
    while offset < from.min(end) {
        let Some((location, item)) = log.item_in(local.guard(), page, offset, end) else {
            return Cut::Unknown;
        };
        let total = item.total_len();
        if total == 0 {
            return Cut::Unknown;
        }
        if offset + total > from {
            let is_known = !item.is_piece() && offset + item.key_range().end <= from;
            return match is_known {
                true => Cut::Item(location),
                false => Cut::Unknown,
            };
        }
        offset += total;
    }
    Cut::Nothing
}
