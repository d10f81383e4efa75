//! Items that were read from flash: shown to whoever only reads, or brought back to memory.

use super::writer::Writer;
use crate::flash::{BroughtBack, FetchedGet, Present, Useless, present};
use crate::index::slot::{Location, Slot};
use crate::item::Item;
use crate::key::Key;
use crate::memory::{Purpose, Queue};
use crate::request::{Access, FlashPlace};
use crate::segment::layout::mark;
use crate::store::tier::rules;
use crate::tags::TagWords;
use crate::worker::Burst;
use crate::worker_store::WorkerStore;
use coua_flash::log::Fetched;

impl<'w> Burst<'w> {
    /// A plain read of `key`, whose record was read from `place`. An item that is read for the second time comes
    /// back to memory on the way.
    pub fn get_fetched<'f>(
        &mut self,
        key: &Key<'_>,
        place: FlashPlace,
        fetched: &'f Fetched,
        access: Access,
    ) -> FetchedGet<'f>
    where
        'w: 'f,
    {
        let local: WorkerStore<'f> = self.local;
        let present = match present(local, key, place, fetched, self.now) {
            Ok(present) => present,
            Err(Useless::OtherKey) => return FetchedGet::OtherKey,
            Err(Useless::Moved) => return FetchedGet::Moved,
            Err(Useless::Dead(why)) => return FetchedGet::Dead(why),
        };
        local.counters().flash_hits.add(1);
        if access.bump {
            let pages = local.shared.log.pages();
            let frequency = present.place.slot.frequency();
            present.place.warm();
            if rules::comes_back(frequency, pages.free_count(), pages.reserve()) {
                // Whatever comes of it, this read has its item.
                self.writer().bring_back(key, &present);
            }
        }
        FetchedGet::Hit(Item::new(
            present.item,
            (local.shared, local.guard()),
            Location::NOWHERE,
            if access.cas { present.cas } else { 0 },
        ))
    }

    /// Brings the item of `key`, whose record was read from `place`, back to memory, with its CAS, for an operation
    /// that does more than read.
    pub fn bring_back(
        &mut self,
        key: &Key<'_>,
        place: FlashPlace,
        fetched: &Fetched,
    ) -> BroughtBack {
        match present(self.local, key, place, fetched, self.now) {
            Ok(present) => self.writer().bring_back(key, &present),
            Err(Useless::OtherKey) => BroughtBack::OtherKey,
            Err(Useless::Moved) => BroughtBack::Moved,
            Err(Useless::Dead(why)) => BroughtBack::Dead(why),
        }
    }
}

impl Writer<'_> {
    /// Writes an item that was read from flash into memory, and changes its slot.
    fn bring_back(&mut self, key: &Key<'_>, present: &Present<'_>) -> BroughtBack {
        let (local, store) = (self.local, self.local.shared);
        let log = &store.log;
        let Present {
            place, item, cas, ..
        } = *present;
        let was_read = place.slot.frequency() > 0;
        let queue = if was_read { Queue::Main } else { Queue::Small };
        let tags = TagWords::of(item.tags());
        let mut draft = item.draft();
        draft.tags = &tags;
        // Perhaps a client was shown it since it went to flash.
        draft.cas = Some(cas);
        let len = draft.layout().total;
        let Some(mut space) = log.append(&mut self.open[queue as usize], len, Purpose::Items)
        else {
            self.refused(len);
            return BroughtBack::NoMemory;
        };
        let location = space.location;
        *self.appended += len;
        local.counters().bytes_appended.add(len as u64);
        item.copy_to(&mut space, &draft);
        let copy = local.item(location);
        item.copy_changing(copy);
        if was_read {
            copy.change_marks(mark::FETCHED, 0);
        }
        let entry = log.entry_of(location);
        entry.note_expiry(item.expiry());
        if item.has_tags() {
            entry.set_has_tags();
        }
        let lock = place.lock();
        let is_present = lock.is_some() && present.is_so_still(local);
        let is_doubtful =
            local.is_unsettled() && (local.is_lost(location, copy) || store.is_record_lost(item));
        let Some(lock) = lock.filter(|_| is_present && !is_doubtful) else {
            log.note_dead(local.id, location, len);
            if is_doubtful {
                self.leave_lost();
            }
            return BroughtBack::Moved;
        };
        let new = Slot::item(key.hash.tag(), location, len);
        let frequency = lock.slot.frequency();
        let _ = lock.replace(new.with_frequency(frequency)).into_slot();
        local.counters().flash_unlinked.add(1);
        local.counters().flash_brought_back.add(1);
        BroughtBack::InMemory
    }
}
