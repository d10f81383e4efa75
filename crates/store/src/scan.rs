//! Looking at all items, a part at a time.

use crate::index::slot::Slot;
use crate::index::{Cell, STRIDE};
use crate::item::Item;
use crate::worker::Burst;
use coua_cpu::prefetch_lines;

/// Items that are fetched from memory together.
const FETCHED: usize = 32;

/// Cache lines of an item that are fetched: header and key of most.
const FETCHED_LINES: usize = 2;

/// How far a scan has got. It holds nothing in the store, and may be kept for any time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScanPosition(Cell);

impl ScanPosition {
    /// The position of a scan that begins.
    pub const START: ScanPosition = ScanPosition(Cell::FIRST);
}

impl Burst<'_> {
    /// Shows live items to `visit`, from `position` on. Looks at some `buckets` buckets of at most
    /// seven items each, 32 at least, and returns where to go on; `None` when all has been shown.
    ///
    /// - A key that has a live item from the first call of a scan to its last is shown, whatever
    ///   else is stored, replaced, deleted, moved or cleaned meanwhile, and however the index grows:
    ///   overwritten, it is shown with one of its values.
    /// - It is shown once, unless just that part of the index changes during the call that shows
    ///   it; then it may be shown twice.
    /// - A key that comes or goes during the scan is shown or not. Items that have expired or were
    ///   flushed are not shown.
    /// - It is no access. [`Item::cas`] is the CAS of the moment: where a client is not to be
    ///   refused with it later, it has to be asked for by [`Burst::get`].
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
                self.fetch(slot);
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

    fn fetch(&self, slot: Slot) {
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
            if local.death(location, raw, self.now).is_none() {
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
