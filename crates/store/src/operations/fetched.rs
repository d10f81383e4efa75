//! Items that were read from flash: shown to whoever only reads, or brought back to memory.

use super::writer::{Body, Writer};
use crate::flash::{BroughtBack, FetchedGet, FlashPieces, Present, Useless, present};
use crate::index::slot::{Location, Slot};
use crate::item::Item;
use crate::key::Key;
use crate::memory::{Purpose, Queue};
use crate::request::{Access, FlashPlace};
use crate::segment::item::RawItem;
use crate::segment::layout::{Draft, mark};
use crate::store::tier::rules;
use crate::tags::TagWords;
use crate::worker::Burst;
use crate::worker_store::WorkerStore;
use coua_flash::log::Fetched;

impl<'w> Burst<'w> {
    /// A plain read of `key`, whose record was read from `place`. An item that is read for the second time comes
    /// back to memory on the way, if there is room for that in memory and on flash.
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
        let is_head = present.item.is_head();
        let mut comes_back = false;
        if access.bump {
            let log = &local.shared.log;
            let (free, reserve) = (log.pages().free_count(), log.pages().reserve());
            let frequency = present.place.slot.frequency();
            present.place.warm();
            comes_back = rules::comes_back(frequency, free, reserve, log.leaving_count())
                && present.may_be_recalled(local);
            if comes_back && !is_head {
                // Whatever comes of it, this read has its item, and waits for nothing.
                let mut writer = self.writer();
                writer.counts_waits = false;
                writer.bring_back(key, &present);
            }
        }
        let item = Item::new(
            present.item,
            (local.shared, local.guard()),
            Location::NOWHERE,
            if access.cas { present.cas } else { 0 },
        );
        match is_head {
            true => FetchedGet::InPieces { item, comes_back },
            false => FetchedGet::Hit(item),
        }
    }

    /// An item that is [in pieces](FetchedGet::InPieces), with its CAS, and those. `None` if some of it is gone: then it
    /// is a miss, and the operation is to be executed again.
    pub fn flash_pieces<'f>(
        &mut self,
        key: &Key<'_>,
        place: FlashPlace,
        fetched: &'f Fetched,
    ) -> Option<(Item<'f>, FlashPieces)>
    where
        'w: 'f,
    {
        let local: WorkerStore<'f> = self.local;
        let flash = local.shared.flash.get()?;
        let present = present(local, key, place, fetched, self.now).ok()?;
        let pieces = FlashPieces::of(
            &flash.volume,
            key.hash,
            present.bytes,
            present.item.value_len(),
        );
        if fetched.is_lost() {
            return None;
        }
        if pieces.is_none() {
            self.drop_flash(place);
        }
        let burst = (local.shared, local.guard());
        let item = Item::new(present.item, burst, Location::NOWHERE, present.cas);
        Some((item, pieces?))
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
            Ok(present) if present.item.is_head() => BroughtBack::InPieces,
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
        let (local, log) = (self.local, &self.local.shared.log);
        let Present {
            place, item, cas, ..
        } = *present;
        let queue = queue_of(present);
        let tags = TagWords::of(item.tags());
        let draft = draft_of(item, cas, &tags);
        let len = draft.layout().total;
        if len > local.shared.whole_max {
            let body = [Body::Bytes(item.value())];
            return match self.write(key.hash, queue, &draft, &body, 0) {
                Ok(new) => self.put_back(present, new),
                Err(_) => BroughtBack::NoMemory,
            };
        }
        let Some(mut space) = log.append(&mut self.open[queue as usize], len, Purpose::Items)
        else {
            self.refused(len);
            return BroughtBack::NoMemory;
        };
        let location = space.location;
        *self.appended += len;
        local.counters().bytes_appended.add(len as u64);
        item.copy_to(&mut space, &draft);
        let entry = log.entry_of(location);
        entry.note_expiry(item.expiry());
        if item.has_tags() {
            local.shared.tags.note_in(&entry);
        }
        self.put_back(present, Slot::item(place.slot.tag(), location, len))
    }

    /// Has the slot name an item's copy in memory, `new`.
    pub(super) fn put_back(&mut self, present: &Present<'_>, new: Slot) -> BroughtBack {
        let (local, place) = (self.local, present.place);
        let (location, copy) = (new.location(), local.item_of(new));
        if place.slot.frequency() > 0 {
            copy.change_marks(mark::FETCHED, 0);
        }
        let lock = place.lock();
        let is_present = lock.is_some() && present.is_so_still(local);
        let is_doubtful = local.is_unsettled()
            && (local.is_lost(location, copy) || local.shared.is_record_lost(present.item));
        let Some(lock) = lock.filter(|_| is_present && !is_doubtful) else {
            local.abandon(location);
            if is_doubtful {
                self.leave_lost();
            }
            return BroughtBack::Moved;
        };
        let frequency = lock.slot.frequency();
        let _ = lock.replace(new.with_frequency(frequency)).into_slot();
        local.counters().flash_unlinked.add(1);
        local.counters().flash_brought_back.add(1);
        present.note_recall(local);
        BroughtBack::InMemory
    }
}

/// The queue that an item comes back to.
pub(super) fn queue_of(present: &Present<'_>) -> Queue {
    match present.place.slot.frequency() > 0 {
        true => Queue::Main,
        false => Queue::Small,
    }
}

/// What a copy of an item that was read from flash is made from. Perhaps a client was shown its CAS since it went there.
pub(super) fn draft_of<'d>(item: RawItem<'d>, cas: u64, tags: &'d TagWords) -> Draft<'d> {
    let mut draft = item.draft();
    (draft.tags, draft.cas, draft.chunks) = (tags, Some(cas), None);
    draft
}
