//! Going through all items, a part at a time.

use crate::index::slot::Slot;
use crate::index::{Cell, STRIDE};
use crate::item::Item;
use crate::worker::Burst;
use coua_cpu::prefetch_lines;

/// Items that are prefetched together.
const FETCHED: usize = 32;

/// Cache lines of an item that are prefetched: header and key of most items.
const FETCHED_LINES: usize = 2;

/// How far a scan has got. It holds nothing in the store, so it may be kept for any time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScanPosition(Cell);

impl ScanPosition {
    /// The position at which a scan begins.
    pub const START: ScanPosition = ScanPosition(Cell::FIRST);
}

impl Burst<'_> {
    /// Calls `visit` with live items, from `position` on. Examines about `buckets` buckets of at
    /// most seven items each, and at least 32. Returns where to continue; `None` if everything has
    /// been shown.
    ///
    /// - A key that has a live item from the first call of a scan to its last is shown, whatever
    ///   else is stored, replaced, deleted, moved or cleaned meanwhile, and however the index
    ///   grows. If it is overwritten, it is shown with one of its values.
    /// - It is shown once, unless that part of the index changes during the call that shows it.
    ///   Then it may be shown twice.
    /// - A key that is stored or deleted during the scan may or may not be shown. Expired and
    ///   flushed items are not shown.
    /// - A scan does not count as an access. [`Item::cas`] is the CAS at that moment: if a client
    ///   will use it later, ask for it with [`Burst::get`].
    ///
    /// Nothing is locked, and nobody waits for a scan.
    pub fn scan(
        &self,
        position: ScanPosition,
        buckets: u32,
        visit: &mut impl FnMut(&Item<'_>),
    ) -> Option<ScanPosition> {
        let mut cell = Some(position.0);
        let mut fetched = [Slot::EMPTY; FETCHED];
        let mut count = 0;
        for _ in 0..buckets.div_ceil(STRIDE).max(1) {
            let Some(at) = cell else { break };
            cell = self.local.shared.index.walk(at, |slot| {
                self.prefetch_slot(slot);
                fetched[count] = slot;
                count += 1;
                if count == FETCHED {
                    self.show(&fetched, visit);
                    count = 0;
                }
            });
        }
        self.show(&fetched[..count], visit);
        cell.map(ScanPosition)
    }

    fn prefetch_slot(&self, slot: Slot) {
        let mapping = self.local.shared.log.mapping();
        let start = mapping.at(slot.location().offset()).as_ptr();
        prefetch_lines(start, slot.lines().min(FETCHED_LINES));
    }

    /// Items stay readable for the whole burst in which their slots were found.
    fn show(&self, slots: &[Slot], visit: &mut impl FnMut(&Item<'_>)) {
        let local = self.local;
        for slot in slots {
            let location = slot.location();
            let raw = local.item(location);
            // Zeros that nobody has swept away yet are no item.
            if !local.is_sound(location, raw) || raw.key_len() == 0 {
                continue;
            }
            let is_lost = local.is_unsettled() && local.is_lost(location, raw);
            if !is_lost && local.death(location, raw, self.now).is_none() {
                let cas = local.cas_at(location, raw);
                visit(&Item::new(
                    raw,
                    (local.shared, local.guard()),
                    location,
                    cas,
                ));
            }
        }
    }
}

// A scan of even the smallest index is too much for Miri.
#[cfg(all(test, not(miri), not(loom)))]
mod tests;
