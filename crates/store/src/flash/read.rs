//! Records that were read: what they are worth by the time that they are there.

use crate::index::Place;
use crate::index::slot::Slot;
use crate::key::Key;
use crate::request::FlashPlace;
use crate::request::Miss;
use crate::segment::item::RawItem;
use crate::store::tier::location_of;
use crate::time::UnixTime;
use crate::worker_store::WorkerStore;
use coua_flash::log::Fetched;

/// A record that was read, and is still that of its slot.
#[derive(Clone, Copy)]
pub(crate) struct Present<'f> {
    pub(crate) place: Place<'f>,
    pub(crate) item: RawItem<'f>,
    pub(crate) cas: u64,
    /// The item's bytes.
    pub(crate) bytes: &'f [u8],
    /// The filling that it is of.
    pub(crate) sequence: u64,
}

/// Why a record is of no use.
pub(crate) enum Useless {
    OtherKey,
    Moved,
    Dead(Miss),
}

/// What was read for `key` from `place`, if it is the key's, alive, and still what the slot names.
pub(crate) fn present<'f>(
    local: WorkerStore<'f>,
    key: &Key<'_>,
    place: FlashPlace,
    fetched: &'f Fetched,
    now: UnixTime,
) -> Result<Present<'f>, Useless> {
    let store = local.shared;
    let flash = store.flash.get().ok_or(Useless::Moved)?;
    let sequence = fetched.sequence();
    let record = fetched.of_key(key.hash.0, key.bytes);
    let item = RawItem::fetched(store.log.mapping(), fetched);
    // After all that is concluded from its bytes; of those that an item is shown with later, whoever copies them asks.
    if fetched.is_lost() {
        return Err(Useless::Moved);
    }
    let Some(record) = record else {
        local.counters().flash_false_matches.add(1);
        if fetched.hash() == key.hash.0 {
            // Two keys of one hash cannot be told apart by what is remembered: the other one gives way.
            local.drop_on_flash(place.hash, place.slot);
            return Err(Useless::Moved);
        }
        flash.note_foreign(local.id, key.hash, place.slot, sequence);
        return Err(Useless::OtherKey);
    };
    let found = local.find_on_flash(place.hash, place.slot);
    let found = found.ok_or(Useless::Moved)?;
    // The slot may be another filling's by now, in which another version of the key lies at the same place.
    if flash
        .volume
        .filling_of(location_of(&flash.volume, place.slot))
        != Some(sequence)
    {
        return Err(Useless::Moved);
    }
    let Some(item) = item.filter(|item| item.key_is(key.bytes)) else {
        if fetched.is_lost() {
            return Err(Useless::Moved);
        }
        // A record that is whole and holds no item: not written by this program.
        local.drop_on_flash(place.hash, place.slot);
        return Err(Useless::Moved);
    };
    let is_killed = store
        .log
        .is_killed_on_flash(sequence)
        .then_some(Miss::Flushed);
    if let Some(why) = is_killed.or_else(|| local.end_of_life(item, now)) {
        if let Some(lock) = found.lock() {
            let _ = lock.replace(Slot::EMPTY).into_slot();
            local.note_off_flash(1);
            local.count_death(item, why);
        }
        return Err(Useless::Dead(why));
    }
    Ok(Present {
        place: found,
        item,
        cas: record.cas,
        bytes: record.item,
        sequence,
    })
}

impl Present<'_> {
    /// Whether it may come back to memory only because it is read.
    pub(crate) fn may_be_recalled(&self, local: WorkerStore<'_>) -> bool {
        let flash = local.shared.flash.get();
        flash.is_some_and(|flash| flash.recalls.may_be(self.len()))
    }

    /// It has come back.
    pub(crate) fn note_recall(&self, local: WorkerStore<'_>) {
        if let Some(flash) = local.shared.flash.get() {
            flash.recalls.note(self.len());
        }
    }

    /// About the bytes that it takes on flash, pieces among them.
    fn len(&self) -> usize {
        self.bytes.len().max(self.item.value_len())
    }

    /// Whether the slot still names this record, and no flush has killed it. Under the lock of its bucket it stays so.
    pub(crate) fn is_so_still(&self, local: WorkerStore<'_>) -> bool {
        let store = local.shared;
        let flash = store.flash.get();
        let filling = flash.and_then(|flash| {
            let at = location_of(&flash.volume, self.place.slot);
            flash.volume.filling_of(at)
        });
        filling == Some(self.sequence) && !store.log.is_killed_on_flash(self.sequence)
    }
}
