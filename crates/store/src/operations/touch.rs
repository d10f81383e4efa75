//! touch and gat.

use super::writer::Writer;
use crate::index::Place;
use crate::item::Item;
use crate::key::Key;
use crate::memory::Purpose;
use crate::request::{Access, Miss, Refused, Untouched};
use crate::segment::item::RawItem;
use crate::time::Expiry;
use crate::worker_store::{Rewrite, Rewritten};

impl<'p> Writer<'p> {
    /// Gives the item of `key` another expiry and returns it.
    pub(crate) fn touch(
        &mut self,
        key: &Key<'_>,
        expiry: Expiry,
        access: Access,
    ) -> Result<Item<'p>, Untouched> {
        loop {
            let found = self.local.find_live(key, self.now);
            let (place, item) = found.map_err(Untouched::Miss)?;
            if !item.takes_expiry(expiry) {
                match self.add_expiry(place, item, expiry) {
                    // The next attempt finds it elsewhere.
                    Ok(()) => continue,
                    // Expiring takes no memory.
                    Err(_) if expiry.is_past(self.now) => {
                        let shown = self.local.show(place, item, access, self.now);
                        match shown.filter(|_| self.local.unlink_dead(place, item, Miss::Expired)) {
                            Some(item) => return Ok(item),
                            None => continue,
                        }
                    }
                    Err(refused) => return Err(Untouched::Refused(refused)),
                }
            }
            {
                let Some(_lock) = place.lock() else { continue };
                self.extend(place, item, expiry);
            }
            if let Some(item) = self.local.show(place, item, access, self.now) {
                return Ok(item);
            }
        }
    }

    /// Changes the expiry of an item that has room for it; under the lock bit of its bucket.
    pub(crate) fn extend(&self, place: Place<'_>, item: RawItem<'_>, expiry: Expiry) {
        // The segment must not be freed as expired before the item's new expiry.
        self.local
            .shared
            .log
            .entry_of(place.slot.location())
            .note_expiry(expiry);
        item.set_expiry(expiry);
    }

    /// Rewrites an item that has no room for `expiry`, with room. Clients do not notice. What the
    /// caller has found is out of date afterwards, whether or not another worker was faster.
    #[cold]
    pub(crate) fn add_expiry(
        &mut self,
        place: Place<'_>,
        item: RawItem<'_>,
        expiry: Expiry,
    ) -> Result<(), Refused> {
        let log = &self.local.shared.log;
        let queue = log.entry_of(place.slot.location()).queue();
        let how = Rewrite {
            purpose: Purpose::Items,
            frequency: None,
            room_for: Some(expiry),
        };
        match self
            .local
            .rewrite(&mut self.open[queue as usize], place, item, &how)
        {
            Rewritten::Done(len) => {
                *self.appended += len;
                self.local.counters().bytes_appended.add(len as u64);
            }
            Rewritten::NoRoom => return Err(self.refused(item.total_len())),
            Rewritten::Raced => {}
        }
        Ok(())
    }
}
