//! A worker's handle to the store between two quiescent states: what is done to items, with the
//! worker's own accounts.

use crate::counters::Counters;
use crate::epoch::{Guard, Presence};
use crate::index::slot::{Location, Slot};
use crate::index::{Place, Unlinked};
use crate::item::Item;
use crate::key::Key;
use crate::look_ahead::{Ahead, LookAheadStep};
use crate::memory::Purpose;
use crate::observer::{ItemView, RemovalReason};
use crate::request::{Access, Miss};
use crate::segment::OpenSegment;
use crate::segment::item::RawItem;
use crate::segment::layout::mark;
use crate::store::Store;
use crate::sync::Ordering;
use crate::time::{Expiry, UnixSeconds};

/// See the module. Items that are found by it last as long as it does.
#[derive(Clone, Copy)]
pub(crate) struct WorkerStore<'s> {
    pub(crate) shared: &'s Store,
    pub(crate) id: usize,
    /// The worker's. Looked up once: behind each store to a counter the compiler would do it again.
    counters: &'s Counters,
    guard: Guard<'s>,
}

/// A worker at the end of a turn. It does some of the store's own work, and between two parts of that
/// it can say that it looks at no item.
pub(crate) struct Turn<'w> {
    shared: &'w Store,
    id: usize,
    presence: &'w mut Presence,
}

impl<'w> Turn<'w> {
    pub(crate) fn new(shared: &'w Store, id: usize, presence: &'w mut Presence) -> Turn<'w> {
        Turn {
            shared,
            id,
            presence,
        }
    }

    /// Says that this worker looks at no item at the moment. What it returns is for looking again.
    pub(crate) fn begin(&mut self) -> WorkerStore<'_> {
        let guard = self.presence.announce(&self.shared.epochs);
        WorkerStore::new(self.shared, self.id, guard)
    }

    /// As [`Turn::begin`]; frees the segments that nobody can be looking at any more.
    pub(crate) fn reclaim(&mut self) -> WorkerStore<'_> {
        let shared = self.shared;
        let local = self.begin();
        shared.log.reclaim(&shared.epochs);
        local
    }
}

/// How an item is written anew.
pub(crate) struct Rewrite {
    /// Whose memory it may take.
    pub(crate) purpose: Purpose,
    /// Its slot's frequency then; `None` where that stays.
    pub(crate) frequency: Option<u64>,
    /// Room for an expiry is added where there is none.
    pub(crate) adds_expiry: bool,
}

/// What an attempt to write an item anew came to.
pub(crate) enum Rewritten {
    /// It stands elsewhere, and takes so many bytes there.
    Done(usize),
    /// No segment to write it to.
    NoRoom,
    /// It was no longer where it had been found.
    Raced,
}

impl<'s> WorkerStore<'s> {
    pub(crate) fn new(shared: &'s Store, id: usize, guard: Guard<'s>) -> WorkerStore<'s> {
        WorkerStore {
            shared,
            id,
            counters: &shared.counters[id],
            guard,
        }
    }

    /// Shows that this worker may look at items.
    #[inline]
    pub(crate) fn guard(self) -> Guard<'s> {
        self.guard
    }

    /// The item or piece at `location`; see [`Log::item`](crate::segment::Log::item).
    #[inline]
    pub(crate) fn item(self, location: Location) -> RawItem<'s> {
        self.shared.log.item(self.guard, location)
    }

    /// The item that a slot points to.
    #[inline]
    pub(crate) fn item_of(self, slot: Slot) -> RawItem<'s> {
        self.item(slot.location())
    }

    /// Whether `slot` is the item of `key`.
    #[inline]
    pub(crate) fn is_key(self, slot: Slot, key: &[u8]) -> bool {
        self.item_of(slot).key_is(key)
    }

    /// Where `key` stands, alive. A dead item is unlinked on the way.
    #[inline]
    pub(crate) fn find_live(
        self,
        key: &Key<'_>,
        now: UnixSeconds,
    ) -> Result<(Place<'s>, RawItem<'s>), Miss> {
        let store = self.shared;
        let place = store
            .index
            .find(key.hash, |slot| self.is_key(slot, key.bytes))
            .ok_or(Miss::Absent)?;
        let item = self.item_of(place.slot);
        match self.death(place.slot.location(), item, now) {
            None => Ok((place, item)),
            Some(why) => {
                self.unlink_dead(place, item, why);
                Err(why)
            }
        }
    }

    /// Where the look-ahead saw `key`, if it still stands there, alive.
    #[inline(always)]
    pub(crate) fn recall(
        self,
        key: &Key<'_>,
        ahead: Ahead,
        now: UnixSeconds,
    ) -> Option<(Place<'s>, RawItem<'s>)> {
        let LookAheadStep::Seen(hint) = ahead.0 else {
            return None;
        };
        let place = self.shared.index.recall(hint)?;
        let item = self.item_of(place.slot);
        let lives =
            item.key_is(key.bytes) && self.death(place.slot.location(), item, now).is_none();
        lives.then_some((place, item))
    }

    /// Does to a found item what `access` says. `None` where it has gone meanwhile.
    #[inline]
    pub(crate) fn show(
        self,
        place: Place<'_>,
        item: RawItem<'s>,
        access: Access,
        now: UnixSeconds,
    ) -> Option<Item<'s>> {
        let cas = if access.cas {
            self.reveal_cas(place, item)?
        } else {
            0
        };
        if access.bump {
            place.warm();
            item.note_access(self.shared.access_time(now));
        }
        Some(Item::new(
            item,
            (self.shared, self.guard),
            place.slot.location(),
            cas,
        ))
    }

    /// The CAS of a found item, which a client is going to see: from now on it stays the same when
    /// the item moves. `None` where the item has gone meanwhile.
    fn reveal_cas(self, place: Place<'_>, item: RawItem<'_>) -> Option<u64> {
        if item.explicit_cas().is_none() && item.access() & mark::CAS_KNOWN == 0 {
            // The cleaner reads the mark under the same lock when it moves the item.
            let _lock = place.lock()?;
            item.change_marks(mark::CAS_KNOWN, 0);
        }
        Some(self.cas_at(place.slot.location(), item))
    }

    /// The CAS of the item at `location`.
    #[inline]
    pub(crate) fn cas_at(self, location: Location, item: RawItem<'_>) -> u64 {
        item.explicit_cas()
            .unwrap_or_else(|| self.shared.log.cas_of(location))
    }

    /// Writes the item at `place`, which is no piece, anew at the end of `open`. It remains the same
    /// item: with what changes as it is at the moment of the replacement, and the CAS that a client may
    /// have been shown.
    pub(crate) fn rewrite(
        self,
        open: &mut OpenSegment,
        place: Place<'_>,
        item: RawItem<'_>,
        how: &Rewrite,
    ) -> Rewritten {
        let log = &self.shared.log;
        let old_location = place.slot.location();
        let old_cas = self.cas_at(old_location, item);
        let mut draft = item.draft();
        if how.adds_expiry {
            draft.expiry.get_or_insert(Expiry::NEVER);
        }
        // A CAS that a client has seen must stay; any other must at least not fall.
        let mut carries_cas = item.explicit_cas().is_some()
            || item.access() & mark::CAS_KNOWN != 0
            || log.next_cas(open) <= old_cas;
        loop {
            draft.cas = carries_cas.then_some(old_cas);
            let len = draft.layout().total;
            let Some(mut space) = log.append(open, len, how.purpose) else {
                return Rewritten::NoRoom;
            };
            let location = space.location;
            item.copy_to(&mut space, &draft);
            let copy = self.item(location);
            let lock = place.lock();
            // Whoever shows a CAS marks the item under the same lock.
            let is_late = !carries_cas && item.access() & mark::CAS_KNOWN != 0;
            let is_parted = log.are_parted(old_location, location);
            let Some(lock) = lock.filter(|_| !is_late && !is_parted) else {
                log.note_dead(self.id, location, len);
                if is_late {
                    carries_cas = true;
                    continue;
                }
                return Rewritten::Raced;
            };
            item.copy_changing(copy);
            log.entry_of(location).note_expiry(item.expiry());
            let slot = Slot::item(lock.slot.tag(), location, len);
            let frequency = how.frequency.unwrap_or(lock.slot.frequency());
            let old = lock.replace(slot.with_frequency(frequency));
            self.note_head_dead(old);
            return Rewritten::Done(len);
        }
    }

    #[inline]
    pub(crate) fn counters(self) -> &'s Counters {
        self.counters
    }

    /// An item has ceased to be. Its bytes, and its pieces', are dead.
    pub(crate) fn discard(self, item: Unlinked) {
        self.counters().unlinked.add(1);
        self.note_dead(item);
    }

    /// Another item has taken this one's place. The bytes of this one, and of its pieces, are dead.
    #[inline]
    pub(crate) fn note_dead(self, old: Unlinked) {
        self.abandon(old.into_slot().location());
    }

    /// A copy of this item has taken its place. Where it is a head the copy has the pieces.
    pub(crate) fn note_head_dead(self, old: Unlinked) {
        self.abandon_head(old.into_slot().location());
    }

    /// The item at `location` was written and is not published: its bytes, and its pieces', are dead.
    #[inline]
    pub(crate) fn abandon(self, location: Location) {
        let item = self.item(location);
        // Read once: behind the first count nothing that was read counts as known.
        let is_head = item.is_head();
        self.note_died(location, item.total_len());
        if is_head {
            self.abandon_pieces(item.pieces());
        }
    }

    /// As [`WorkerStore::abandon`], for a piece, or for a head whose pieces are another's.
    #[inline]
    pub(crate) fn abandon_head(self, location: Location) {
        let len = self.item(location).total_len();
        self.shared.log.note_dead(self.id, location, len);
    }

    /// Pieces that no head points to are dead.
    #[cold]
    pub(crate) fn abandon_pieces(self, pieces: impl Iterator<Item = Location>) {
        pieces.for_each(|piece| self.note_died(piece, self.item(piece).total_len()));
    }

    /// The `len` bytes at `location` are dead, and were not moved: they are counted.
    #[inline]
    fn note_died(self, location: Location, len: usize) {
        self.counters().bytes_dead.add(len as u64);
        self.shared.log.note_dead(self.id, location, len);
    }

    /// Why the item at `location` is dead at `now`, if it is.
    #[inline]
    pub(crate) fn death(
        &self,
        location: Location,
        item: RawItem<'_>,
        now: UnixSeconds,
    ) -> Option<Miss> {
        if item.expiry().is_past(now) {
            Some(Miss::Expired)
        } else if self.shared.log.is_flushed(location) {
            Some(Miss::Flushed)
        } else {
            None
        }
    }

    /// Unlinks a dead item, if it still stands where it was found.
    #[cold]
    pub(crate) fn unlink_dead(self, place: Place<'_>, item: RawItem<'_>, why: Miss) -> bool {
        let Some(lock) = place.lock() else {
            return false;
        };
        let gone = lock.replace(Slot::EMPTY);
        self.count_death(item, why);
        self.discard(gone);
        true
    }

    /// Counts an item that died of age or by a flush.
    pub(crate) fn count_death(self, item: RawItem<'_>, why: Miss) {
        let counters = self.counters();
        match why {
            Miss::Flushed => counters.flushed.add(1),
            Miss::Expired | Miss::Absent => {
                counters.expired.add(1);
                if item.access() & mark::FETCHED == 0 {
                    counters.expired_unfetched.add(1);
                }
            }
        }
        let gone = if why == Miss::Flushed {
            RemovalReason::Flushed
        } else {
            RemovalReason::Expired
        };
        self.tell_gone(item, gone);
    }

    #[inline]
    pub(crate) fn tell_gone(self, item: RawItem<'_>, why: RemovalReason) {
        if let Some(observer) = &self.shared.observer {
            observer.gone(seen(item), why);
        }
    }

    #[inline]
    pub(crate) fn tell_stored(self, item: RawItem<'_>) {
        if let Some(observer) = &self.shared.observer {
            observer.stored(seen(item));
        }
    }

    /// Counts an item that made room for others.
    pub(crate) fn count_eviction(self, slot: Slot, item: RawItem<'_>, now: UnixSeconds) {
        let idle = item.idle_seconds(now, self.shared.made);
        // Most often it is what it was, and other workers have the line too.
        if self.shared.evicted_idle_s.load(Ordering::Relaxed) != idle {
            self.shared.evicted_idle_s.store(idle, Ordering::Relaxed);
        }
        self.shared.log.note_eviction();
        let counters = self.counters();
        counters.evicted.add(1);
        let fetched = item.access() & mark::FETCHED != 0;
        if !fetched {
            counters.evicted_unfetched.add(1);
        }
        if slot.frequency() > 0 {
            counters.evicted_active.add(1);
        }
        if item.expiry().second().is_some() {
            counters.evicted_nonzero.add(1);
        }
        self.tell_gone(
            item,
            if fetched {
                RemovalReason::Evicted
            } else {
                RemovalReason::EvictedUnread
            },
        );
    }
}

fn seen(item: RawItem<'_>) -> ItemView<'_> {
    ItemView {
        key: item.key(),
        value_len: item.value_len(),
        client_flags: item.client_flags(),
        expiry: item.expiry(),
    }
}
