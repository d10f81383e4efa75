//! touch and gat.

use super::pen::Pen;
use crate::index::Place;
use crate::item::Item;
use crate::key::Key;
use crate::request::{Access, Miss};
use crate::segment::item::RawItem;
use crate::time::Expiry;

impl<'p> Pen<'p> {
    /// Gives the item of `key` another expiry and shows it.
    pub(crate) fn touch(
        &mut self,
        key: &Key<'_>,
        expiry: Expiry,
        access: Access,
    ) -> Result<Item<'p>, Miss> {
        loop {
            let (place, item) = self.hand.find_live(key, self.now)?;
            {
                let Some(_lock) = place.lock() else { continue };
                self.extend(place, item, expiry);
            }
            if let Some(item) = self.hand.show(place, item, access, self.now) {
                return Ok(item);
            }
        }
    }

    /// Changes an item's expiry; under the lock bit of its bucket.
    pub(crate) fn extend(&self, place: Place<'_>, item: RawItem<'_>, expiry: Expiry) {
        // The segment must not be freed for its age before the item's new one.
        self.hand
            .store
            .log
            .entry_of(place.slot.location())
            .note_expiry(expiry);
        item.set_expiry(expiry);
    }
}
