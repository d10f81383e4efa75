//! What an operation that finds nothing in memory finds on flash.

use super::WorkerStore;
use crate::index::Place;
use crate::index::slot::Slot;
use crate::key::{Key, KeyHash};
use crate::request::FlashPlace;
use crate::store::tier::location_of;

/// What a second look finds.
pub(crate) enum SecondLook<'s> {
    Nothing,
    /// It has come to memory meanwhile.
    InMemory(Place<'s>),
    OnFlash(FlashPlace),
}

impl<'s> WorkerStore<'s> {
    /// Looks a key up everywhere, in one pass, after it was not found in memory.
    #[cold]
    #[inline(never)]
    pub(crate) fn look_again_everywhere(self, key: &Key<'_>) -> SecondLook<'s> {
        let store = self.shared;
        let Some(flash) = store.flash.get() else {
            return SecondLook::Nothing;
        };
        let mut on_flash = None;
        let place = store.index.find_taken(key.hash, |slot| {
            if slot.is_in_memory() {
                return self.is_key(slot, key.bytes);
            }
            if on_flash.is_none() && flash.may_be(self.id, key.hash, slot) {
                on_flash = Some(slot);
            }
            false
        });
        match (place, on_flash) {
            (Some(place), _) => SecondLook::InMemory(place),
            (None, Some(slot)) => SecondLook::OnFlash(FlashPlace {
                slot: slot.with_frequency(0),
                hash: key.hash,
            }),
            (None, None) => SecondLook::Nothing,
        }
    }

    /// No item of a key has a higher CAS on flash.
    #[cold]
    pub(crate) fn cas_max_on_flash(self, hash: KeyHash) -> u64 {
        let Some(flash) = self.shared.flash.get() else {
            return 0;
        };
        let mut most = 0;
        self.shared.index.find_taken(hash, |slot| {
            if slot.is_on_flash() {
                let location = location_of(&flash.volume, slot);
                most = flash.volume.order_max_of(location).max(most);
            }
            false
        });
        most
    }

    /// Notes that so many slots no longer name a record on flash, nor anything else.
    pub(crate) fn note_off_flash(self, count: u64) {
        self.counters().unlinked.add(count);
        self.counters().flash_unlinked.add(count);
    }

    /// Drops a slot on flash, if it is still in its key's buckets. The slot as it was.
    #[cold]
    pub(crate) fn drop_on_flash(self, hash: KeyHash, slot: Slot) -> Option<Slot> {
        let place = self.find_on_flash(hash, slot)?;
        let lock = place.lock()?;
        let gone = lock.replace(Slot::EMPTY).into_slot();
        self.note_off_flash(1);
        Some(gone)
    }

    /// Where a slot on flash stands.
    pub(crate) fn find_on_flash(self, hash: KeyHash, slot: Slot) -> Option<Place<'s>> {
        let index = &self.shared.index;
        index.find_taken(hash, |found| found.same_item(slot))
    }
}
