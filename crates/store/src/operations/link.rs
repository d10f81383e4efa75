//! Publishing: makes a written item the one that its key's lookups find.

use super::writer::Writer;
use crate::index::slot::Slot;
use crate::index::{Inserted, MIGRATIONS_MAX, Place, Room, TABLE_BUCKETS, Unlinked};
use crate::key::{Key, KeyHash};
use crate::request::Refused;
use crate::segment::item::RawItem;
use crate::store::tier::rules;

/// Attempts to displace before the sub-table splits, and to split before another item has to be
/// given up.
const DISPLACE_TRIES: u32 = 8;
const GROW_TRIES: u32 = 64;

/// Buckets of a split that are filled before an insert that found no room tries again. The number
/// of tries suffices for as many splits as a tag has bits to spend.
const GROW_BUCKETS: u32 = 128;

/// Bytes of a bucket.
const BUCKET_BYTES: usize = 64;

/// The part of memory that the index may take to keep ghosts: one twentieth.
const GHOST_SHARE: usize = 20;

/// A sub-table splits to keep its ghosts when more than this many of 100 slots are live.
const GHOST_LOAD: usize = 63;

/// The result of publishing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LinkOutcome {
    Done,
    /// The key's item has changed since the operation looked. Nothing is published.
    Raced,
    Refused(Refused),
}

/// What becomes of items on flash that may be those of the key that is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OnFlash {
    /// They go: the new item replaces whatever there is.
    IsDropped,
    /// The operation depends on them, so it starts over.
    IsLookedAt,
}

impl Writer<'_> {
    /// Publishes `new` in place of the item at `place`, if that is still there. False if it is not:
    /// then `new` is dead. `adjust` is called with the new item, under the lock, before it can be
    /// found.
    #[inline]
    pub(crate) fn replace(
        &self,
        place: Place<'_>,
        new: Slot,
        adjust: impl FnOnce(RawItem<'_>),
    ) -> bool {
        let is_published = self.try_replace(place, new, adjust);
        if !is_published {
            self.local.abandon(new.location());
        }
        is_published
    }

    /// As [`Writer::replace`], but if this fails `new` can still be published.
    #[inline]
    pub(crate) fn try_replace(
        &self,
        place: Place<'_>,
        new: Slot,
        adjust: impl FnOnce(RawItem<'_>),
    ) -> bool {
        let old = self.publish(place, new, adjust);
        let is_published = old.is_some();
        if let Some(old) = old {
            self.local.note_dead(old);
        }
        is_published
    }

    /// As [`Writer::replace`], for a new item that takes over the pieces of the old one, if there
    /// are any.
    pub(crate) fn replace_head(
        &self,
        place: Place<'_>,
        new: Slot,
        adjust: impl FnOnce(RawItem<'_>),
    ) -> bool {
        let old = self.publish(place, new, adjust);
        let is_published = old.is_some();
        match old {
            Some(old) => self.local.note_head_dead(old),
            None => self.local.abandon_head(new.location()),
        }
        is_published
    }

    /// Publishes `new` in place of the item at `place`, and returns the old item; see
    /// [`Writer::replace`].
    #[inline]
    fn publish(
        &self,
        place: Place<'_>,
        new: Slot,
        adjust: impl FnOnce(RawItem<'_>),
    ) -> Option<Unlinked> {
        let log = &self.local.shared.log;
        let lock = place.lock()?;
        if log.are_parted(place.slot.location(), new.location()) {
            return None;
        }
        let item = self.local.item_of(new);
        adjust(item);
        if self.local.is_unsettled() {
            let old = self.local.item_of(lock.slot);
            let is_old_lost = self.local.is_lost(lock.slot.location(), old);
            if is_old_lost || self.local.is_lost(new.location(), item) {
                drop(lock);
                if is_old_lost {
                    self.local.unlink_lost(place);
                }
                return None;
            }
        }
        let frequency = lock.slot.frequency();
        let old = lock.replace(new.with_frequency(frequency));
        self.local.counters().stored.add(1);
        self.local.tell_stored(item);
        Some(old)
    }

    /// Publishes `new`, an item of a key that has none. If it cannot be published it is dead.
    pub(crate) fn link(&mut self, key: &Key<'_>, new: Slot) -> LinkOutcome {
        let link = self.try_link(key, new, OnFlash::IsLookedAt);
        if link != LinkOutcome::Done {
            self.local.abandon(new.location());
        }
        link
    }

    /// As [`Writer::link`], but if this fails `new` can still be published. `on_flash` says what becomes of items on
    /// flash that may be the key's.
    pub(crate) fn try_link(&mut self, key: &Key<'_>, new: Slot, on_flash: OnFlash) -> LinkOutcome {
        let (local, store) = (self.local, self.local.shared);
        let mut tries = 0;
        loop {
            let locked = store.index.lock(key.hash);
            if local.is_unsettled()
                && let Some(outcome) = self.doubt(key.hash, new)
            {
                return outcome;
            }
            if let Some((spot, found)) = locked.find(|slot| local.is_key(slot, key.bytes)) {
                let old = local.item_of(found);
                if !local.is_sound(found.location(), old) {
                    local.note_unsound(locked.replace(spot, new));
                    return self.linked(new);
                }
                let Some(why) = self.local.death(found.location(), old, self.now) else {
                    return LinkOutcome::Raced;
                };
                let gone = locked.replace(spot, new);
                local.count_death(old, why);
                local.discard(gone);
                return self.linked(new);
            }
            if let Some(flash) = store.flash.get() {
                let may_be = |slot| flash.may_be(local.id, key.hash, slot);
                let gone = match on_flash {
                    OnFlash::IsDropped => locked.replace_on_flash(new, may_be),
                    OnFlash::IsLookedAt if locked.has_on_flash(may_be) => {
                        return LinkOutcome::Raced;
                    }
                    OnFlash::IsLookedAt => 0,
                };
                if gone > 0 {
                    drop(locked);
                    local.note_off_flash(gone);
                    return self.linked(new);
                }
            }
            let inserted = locked.insert(new);
            drop(locked);
            match inserted {
                Inserted::Free => return self.linked(new),
                Inserted::OverGhost => {
                    self.consider_ghosts(key.hash);
                    return self.linked(new);
                }
                Inserted::Full => {}
            }
            tries += 1;
            self.local.counters().displacements.add(1);
            let retry = (tries <= DISPLACE_TRIES
                && store.index.make_room(key.hash) == Room::Perhaps)
                || (tries <= GROW_TRIES && self.grow(key.hash));
            if !retry {
                // It can split once all others have ended their bursts.
                if store.index.finish_draining(key.hash) {
                    return LinkOutcome::Refused(Refused::Wait);
                }
                return self.link_over_another(key, new, on_flash);
            }
        }
    }

    /// Why `new` must not be linked now, while something is lost: a part of it is, or it has to wait
    /// until the buckets of its key are in order. A thread that had one of them locked when it was
    /// lost may still be about to write there.
    #[cold]
    #[inline(never)]
    fn doubt(&self, hash: KeyHash, new: Slot) -> Option<LinkOutcome> {
        let (local, store) = (self.local, self.local.shared);
        if local.is_lost(new.location(), local.item_of(new)) {
            return Some(LinkOutcome::Raced);
        }
        let first = store.index.first_number(hash);
        let numbers = [first, store.index.other_number(hash, first)];
        let is_lost = |number: usize| {
            let bytes = number * BUCKET_BYTES..(number + 1) * BUCKET_BYTES;
            store
                .losses
                .overlaps(&store.log, store.losses.mark(), &bytes)
        };
        let waits = numbers.into_iter().any(is_lost);
        waits.then_some(LinkOutcome::Refused(Refused::Wait))
    }

    fn linked(&self, new: Slot) -> LinkOutcome {
        self.local.counters().stored.add(1);
        self.local.counters().linked.add(1);
        self.local.tell_stored(self.local.item_of(new));
        LinkOutcome::Done
    }

    /// Publishes `new` in place of the least used item of its two buckets. Keys can be chosen to
    /// collide in all their hash bits; only such keys pay for it.
    #[cold]
    fn link_over_another(&mut self, key: &Key<'_>, new: Slot, on_flash: OnFlash) -> LinkOutcome {
        let (local, store) = (self.local, self.local.shared);
        if !store.evict {
            return LinkOutcome::Refused(Refused::OutOfMemory);
        }
        let locked = store.index.lock(key.hash);
        if local.is_unsettled()
            && let Some(outcome) = self.doubt(key.hash, new)
        {
            return outcome;
        }
        if locked.find(|slot| local.is_key(slot, key.bytes)).is_some() {
            return LinkOutcome::Raced;
        }
        if let Some(flash) = store.flash.get() {
            let may_be = |slot| flash.may_be(local.id, key.hash, slot);
            if locked.has_on_flash(may_be) {
                // It has come there since the last attempt.
                drop(locked);
                return self.try_link(key, new, on_flash);
            }
        }
        let Some((spot, _)) = locked.least_used() else {
            return LinkOutcome::Raced;
        };
        local.evict_for_room(locked.replace(spot, new), self.now);
        self.linked(new)
    }

    /// Splits the sub-table of `hash`, or completes the split that it takes part in. False if it
    /// can grow no further.
    fn grow(&mut self, hash: KeyHash) -> bool {
        let store = self.local.shared;
        if let Some(mut split) = store.index.split_of(hash) {
            match self.migrations.iter().position(|own| own.is_of(&split)) {
                // Only a part of it at a time: most often there is room long before all of it is
                // done.
                Some(at) => {
                    if store.index.migrate(&mut self.migrations[at], GROW_BUCKETS) {
                        self.migrations.remove(at);
                    }
                }
                // The split is another worker's, which may be asleep.
                None => {
                    store.index.migrate(&mut split, TABLE_BUCKETS);
                }
            }
            self.local.note_stranded();
            return true;
        }
        if !store.index.can_split(hash) || !self.has_room_for_index() {
            return false;
        }
        if self.migrations.len() == MIGRATIONS_MAX {
            if !store.index.migrate(&mut self.migrations[0], TABLE_BUCKETS) {
                // Another worker is changing the directory.
                return true;
            }
            self.migrations.remove(0);
            self.local.note_stranded();
        }
        let Some(table) = store.take_table() else {
            return false;
        };
        match store.index.split(hash, table) {
            Some(migration) => {
                self.migrations.push(migration);
                self.local.counters().splits.add(1);
            }
            None => store.give_table_back(table),
        }
        true
    }

    /// Whether the index may take more memory. Without flash items bound it, which lie in the same memory.
    fn has_room_for_index(&self) -> bool {
        let store = self.local.shared;
        let pages = store.log.pages();
        !store.flash.is_attached()
            || rules::index_may_grow(store.index_bytes(), pages.limit() * pages.page_len())
    }

    /// Called when a ghost was overwritten. If ghosts have too little room, and their memory is
    /// small compared to the memory for items, their sub-table splits earlier than it has to.
    #[cold]
    fn consider_ghosts(&mut self, hash: KeyHash) {
        let store = self.local.shared;
        // Checking costs more than most inserts, so one insert in 32 checks, and samples an eighth
        // of the buckets.
        if hash.low() >> 10 & 31 != 0 || !store.index.can_split(hash) {
            return;
        }
        let pages = store.log.pages();
        let budget = pages.limit() * pages.page_len() / GHOST_SHARE;
        if store.index_bytes() < budget && store.index.load_percent(hash) > GHOST_LOAD {
            self.grow(hash);
        }
    }
}
