//! A worker's handle to the store between two quiescent states: operations on items, with the
//! worker's own counters and open segments.

mod second_look;

use crate::counters::Counters;
use crate::epoch::{Guard, Presence};
use crate::index::slot::{Location, Slot};
use crate::index::{Place, Unlinked};
use crate::item::Item;
use crate::key::Key;
use crate::look_ahead::{Ahead, BurstNumber, LookAheadStep};
use crate::memory::PageId;
use crate::memory::Purpose;
use crate::observer::{ItemView, RemovalReason};
use crate::request::{Access, Miss};
use crate::segment::OpenSegment;
use crate::segment::item::RawItem;
use crate::segment::layout::{mark, piece_len};
use crate::store::Store;
use crate::sync::Ordering;
use crate::tags::{Generations, Standing, TagWords};
use crate::time::{Expiry, UnixTime};
use second_look::SecondLook;

/// See the module. Items that it finds stay readable as long as it lives.
#[derive(Clone, Copy)]
pub(crate) struct WorkerStore<'s> {
    pub(crate) shared: &'s Store,
    pub(crate) id: usize,
    /// The worker's counters. Looked up once: the compiler would repeat the lookup after each store
    /// to a counter.
    counters: &'s Counters,
    guard: Guard<'s>,
    /// The burst in which it is used, if it is one.
    pub(crate) burst: BurstNumber,
}

/// A worker at the end of a turn. It does some of the store's own work, and between two parts of
/// that work it can announce that it holds no reference to an item.
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

    /// Announces that this worker holds no reference to an item. The returned handle can find items
    /// again.
    pub(crate) fn begin(&mut self) -> WorkerStore<'_> {
        let guard = self.presence.announce(&self.shared.epochs);
        WorkerStore::new(self.shared, self.id, guard)
    }

    /// As [`Turn::begin`]; also frees the segments that no worker can be reading any more.
    pub(crate) fn reclaim(&mut self) -> WorkerStore<'_> {
        let shared = self.shared;
        let local = self.begin();
        shared.log.reclaim(&shared.epochs);
        local
    }
}

/// How an item is rewritten.
pub(crate) struct Rewrite {
    /// For what purpose memory may be taken.
    pub(crate) purpose: Purpose,
    /// The frequency of the new slot; `None` keeps the old one.
    pub(crate) frequency: Option<u64>,
    /// An expiry for which there has to be room.
    pub(crate) room_for: Option<Expiry>,
}

/// The result of an attempt to rewrite an item.
pub(crate) enum Rewritten {
    /// The item is elsewhere now, and takes so many bytes there.
    Done(usize),
    /// There is no segment to write it to.
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
            burst: BurstNumber::default(),
        }
    }

    /// The same for a burst.
    #[inline]
    pub(crate) fn in_burst(self, burst: BurstNumber) -> WorkerStore<'s> {
        WorkerStore { burst, ..self }
    }

    /// The proof that this worker may read items.
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

    /// Whether the item of `slot` has this key.
    #[inline]
    pub(crate) fn is_key(self, slot: Slot, key: &[u8]) -> bool {
        self.item_of(slot).key_is(key)
    }

    /// Finds the place of `key` in memory, if its item is alive. A dead item is unlinked on the way.
    #[inline]
    pub(crate) fn find_live(
        self,
        key: &Key<'_>,
        now: UnixTime,
    ) -> Result<(Place<'s>, RawItem<'s>), Miss> {
        let store = self.shared;
        let mut found = store
            .index
            .find(key.hash, |slot| self.is_key(slot, key.bytes));
        if found.is_none() && store.flash.is_attached() {
            match self.look_again_everywhere(key) {
                SecondLook::Nothing => {}
                SecondLook::InMemory(place) => found = Some(place),
                SecondLook::OnFlash(place) => return Err(Miss::OnFlash(place)),
            }
        }
        let place = found.ok_or(Miss::Absent)?;
        let item = self.item_of(place.slot);
        if !self.is_sound(place.slot.location(), item) {
            self.unlink_unsound(place);
            return Err(Miss::Absent);
        }
        match self.death(place.slot.location(), item, now) {
            None if self.is_unsettled() && self.is_lost(place.slot.location(), item) => {
                self.unlink_lost(place);
                Err(Miss::Absent)
            }
            None => Ok((place, item)),
            Some(why) => {
                self.unlink_dead(place, item, why);
                Err(why)
            }
        }
    }

    /// The place where the look-ahead saw `key`, if a live item of that key is still there.
    #[inline(always)]
    pub(crate) fn recall(
        self,
        key: &Key<'_>,
        ahead: Ahead,
        now: UnixTime,
    ) -> Option<(Place<'s>, RawItem<'s>)> {
        let LookAheadStep::Seen(hint) = ahead.seen_in(self.burst) else {
            return None;
        };
        let place = self.shared.index.recall(hint)?;
        let item = self.item_of(place.slot);
        let location = place.slot.location();
        let lives = item.key_is(key.bytes)
            && self.is_sound(location, item)
            && self.is_alive(location, item, now);
        lives.then_some((place, item))
    }

    /// Applies `access` to a found item. `None` if the item is gone by now.
    #[inline]
    pub(crate) fn show(
        self,
        place: Place<'_>,
        item: RawItem<'s>,
        access: Access,
        now: UnixTime,
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

    /// The CAS of a found item, to be shown to a client: from now on it stays the same when the
    /// item moves. `None` if the item is gone by now.
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

    /// Rewrites the item at `place`, which is not a piece, at the end of `open`. It remains the
    /// same item: the parts that may change are copied as they are when the slot is replaced, and a
    /// CAS that a client may have seen is kept.
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
        let tags = TagWords::of(item.tags());
        draft.tags = &tags;
        if let Some(expiry) = how.room_for {
            draft.expiry.get_or_insert(Expiry::NEVER);
            draft.fine |= expiry.is_fine();
        }
        // A CAS that a client has seen must stay; any other must at least not decrease.
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
            // A worker that shows a CAS marks the item under the same lock.
            let is_late = !carries_cas && item.access() & mark::CAS_KNOWN != 0;
            let is_parted = log.are_parted(old_location, location);
            if lock.is_some() {
                item.copy_changing(copy);
            }
            // After all of it was copied; a copy whose original is gone names no pieces yet.
            let is_doubtful = lock.is_some()
                && self.is_unsettled()
                && (self.is_lost(old_location, item) || self.is_lost(location, copy));
            let Some(lock) = lock.filter(|_| !is_late && !is_parted && !is_doubtful) else {
                log.note_dead(self.id, location, len);
                if is_doubtful {
                    self.leave_lost(open);
                    if self.is_lost(old_location, item) {
                        self.unlink_lost(place);
                    }
                } else if is_late {
                    carries_cas = true;
                    continue;
                }
                return Rewritten::Raced;
            };
            let entry = log.entry_of(location);
            entry.note_expiry(item.expiry());
            if item.has_tags() {
                self.shared.tags.note_in(&entry);
            }
            let slot = Slot::item(lock.slot.tag(), location, len);
            let frequency = how.frequency.unwrap_or(lock.slot.frequency());
            let old = lock.replace(slot.with_frequency(frequency));
            self.note_head_dead(old);
            return Rewritten::Done(len);
        }
    }

    /// Copies a piece to the end of `open`. Where it lies then; `None` if there is no segment for it.
    pub(crate) fn copy_piece(self, open: &mut OpenSegment, piece: RawItem<'_>) -> Option<Location> {
        let log = &self.shared.log;
        // Read once: it may be lost meanwhile.
        let data = piece.piece_data();
        let mut space = log.append(open, piece_len(data.len()), Purpose::Cleaning)?;
        piece.copy_piece_to(&mut space, data);
        log.entry_of(space.location).set_has_pieces();
        Some(space.location)
    }

    #[inline]
    pub(crate) fn counters(self) -> &'s Counters {
        self.counters
    }

    /// Notes that an item no longer exists. Its bytes, and those of its pieces, are dead.
    pub(crate) fn discard(self, item: Unlinked) {
        self.counters().unlinked.add(1);
        self.note_dead(item);
    }

    /// Notes that another item has replaced this one. The bytes of this one, and of its pieces, are
    /// dead.
    #[inline]
    pub(crate) fn note_dead(self, old: Unlinked) {
        self.abandon(old.into_slot().location());
    }

    /// Notes that a copy has replaced this item. If it is a head, the copy has its pieces.
    pub(crate) fn note_head_dead(self, old: Unlinked) {
        self.abandon_head(old.into_slot().location());
    }

    /// The item at `location` was written but is not published: its bytes, and those of its pieces,
    /// are dead.
    #[inline]
    pub(crate) fn abandon(self, location: Location) {
        let item = self.item(location);
        // Read only once: after the first count, the compiler has to assume that what was read has
        // changed.
        let is_head = item.is_head();
        self.note_died(location, item.total_len());
        if is_head {
            self.abandon_pieces(item.pieces());
        }
    }

    /// As [`WorkerStore::abandon`], for a piece, or for a head whose pieces belong to another.
    #[inline]
    pub(crate) fn abandon_head(self, location: Location) {
        let len = self.item(location).total_len();
        self.shared.log.note_dead(self.id, location, len);
    }

    /// Pieces that no head points to are dead.
    #[cold]
    pub(crate) fn abandon_pieces(self, pieces: impl Iterator<Item = Location>) {
        for location in pieces {
            if let Some(piece) = self.piece(location) {
                self.note_died(location, piece.total_len());
            }
        }
    }

    /// Notes and counts `len` bytes at `location` as dead; they were not moved.
    #[inline]
    fn note_died(self, location: Location, len: usize) {
        self.counters().bytes_dead.add(len as u64);
        self.shared.log.note_dead(self.id, location, len);
    }

    /// Whether the item at `location` lives at `now`; as [`WorkerStore::death`], where nobody asks why.
    #[inline(always)]
    fn is_alive(self, location: Location, item: RawItem<'_>, now: UnixTime) -> bool {
        let ends = item.is_mortal() && self.end_of_life(item, now).is_some();
        !ends && !self.shared.log.is_flushed(location)
    }

    /// Why the item at `location` is dead at `now`, if it is.
    #[inline]
    pub(crate) fn death(
        self,
        location: Location,
        item: RawItem<'_>,
        now: UnixTime,
    ) -> Option<Miss> {
        if item.is_mortal()
            && let Some(why) = self.end_of_life(item, now)
        {
            Some(why)
        } else if self.shared.log.is_flushed(location) {
            Some(Miss::Flushed)
        } else {
            None
        }
    }

    /// Why an item is dead at `now` by its expiry or its tags, if it is.
    #[inline]
    pub(crate) fn end_of_life(self, item: RawItem<'_>, now: UnixTime) -> Option<Miss> {
        match item.plain_expiry() {
            Some(expiry) => expiry.is_past(now).then_some(Miss::Expired),
            None => special_end_of_life(&self.shared.tags, item, now),
        }
    }

    /// Whether a tag of a live item was made stale since it was stored.
    #[inline]
    pub(crate) fn is_stale_by_tag(self, item: RawItem<'_>) -> bool {
        item.has_tags() && self.shared.tags.standing(item.tags()) == Standing::Stale
    }

    /// Unlinks an item of which a part is lost, if it is still where it was found.
    #[cold]
    pub(crate) fn unlink_lost(self, place: Place<'_>) -> bool {
        let Some(lock) = place.lock() else {
            return false;
        };
        let slot = lock.replace(Slot::EMPTY).into_slot();
        self.note_lost(slot);
        true
    }

    /// Counts the item of a slot that is no longer in the index, since a part of it or of its key's
    /// buckets was lost.
    #[cold]
    pub(crate) fn note_lost(self, slot: Slot) {
        if !slot.is_in_memory() {
            self.note_off_flash(1);
            return;
        }
        let log = &self.shared.log;
        let (location, item) = (slot.location(), self.item_of(slot));
        // Where its header is lost, what the slot knows of its length.
        let known = (slot.lines() * 64).saturating_sub(64);
        let is_within = log.is_within(location, item);
        let total = if is_within { item.total_len() } else { 0 }.max(known);
        let pieces = is_within.then(|| self.pieces(item));
        let pieces = pieces.into_iter().flatten();
        let pieces = pieces.map(|(location, piece)| (location, piece.total_len()));
        let counters = self.counters();
        for (part, len) in std::iter::once((location, total)).chain(pieces) {
            counters.bytes_lost.add(len as u64);
            // A damaged segment is emptied, whatever is known of its dead bytes.
            if !log.entry_of(part).is_damaged() {
                self.note_died(part, len);
            }
        }
        counters.lost.add(1);
        counters.unlinked.add(1);
    }

    /// Counts what splits have left where no lookup looks, in the burst in which one may have been completed.
    #[inline]
    pub(crate) fn note_stranded(self) {
        self.shared.index.take_stranded(|slot| self.note_lost(slot));
    }

    /// Seals `open` if a part of its segment is lost: what is written there from here on would be
    /// taken for lost.
    #[cold]
    pub(crate) fn leave_lost(self, open: &mut OpenSegment) {
        let (log, losses) = (&self.shared.log, &self.shared.losses);
        let is_lost = |segment| losses.overlaps(log, losses.mark(), &log.range_of(segment));
        if open.segment().is_some_and(is_lost) {
            log.seal(open);
        }
    }

    /// Unlinks a dead item, if it is still where it was found.
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

    /// Counts an item that has expired or was flushed.
    pub(crate) fn count_death(self, item: RawItem<'_>, why: Miss) {
        let counters = self.counters();
        match why {
            Miss::Flushed => counters.flushed.add(1),
            Miss::Invalidated => counters.invalidated.add(1),
            Miss::Expired | Miss::Absent | Miss::OnFlash(_) => {
                counters.expired.add(1);
                if item.access() & mark::FETCHED == 0 {
                    counters.expired_unfetched.add(1);
                }
            }
        }
        let gone = match why {
            Miss::Flushed => RemovalReason::Flushed,
            Miss::Invalidated => RemovalReason::Invalidated,
            Miss::Expired | Miss::Absent | Miss::OnFlash(_) => RemovalReason::Expired,
        };
        self.tell_gone(item, gone);
    }

    #[inline]
    pub(crate) fn tell_gone(self, item: RawItem<'_>, why: RemovalReason) {
        if let Some(observer) = &self.shared.observer {
            observer.gone(seen(item), why);
        }
    }

    pub(crate) fn tell_left_for_flash(self, item: RawItem<'_>, now: UnixTime) {
        if let Some(observer) = &self.shared.observer {
            let is_fetched = item.access() & mark::FETCHED != 0;
            observer.left_for_flash(
                seen(item),
                is_fetched,
                item.idle_seconds(now, self.shared.made),
            );
        }
    }

    #[inline]
    pub(crate) fn tell_stored(self, item: RawItem<'_>) {
        if self.shared.tells_stored
            && let Some(observer) = &self.shared.observer
        {
            observer.stored(seen(item));
        }
    }

    /// Counts an item as evicted that was unlinked because the index had no room for another.
    #[cold]
    pub(crate) fn evict_for_room(self, gone: Unlinked, now: UnixTime) {
        let slot = gone.slot();
        if slot.is_on_flash() {
            let _ = gone.into_slot();
            self.counters().evicted_index_full.add(1);
            self.counters().flash_dropped.add(1);
            return self.note_off_flash(1);
        }
        let item = self.item_of(slot);
        if self.is_sound(slot.location(), item) {
            self.counters().evicted_index_full.add(1);
            self.count_eviction(slot, item, now);
            self.discard(gone);
        } else {
            self.note_unsound(gone);
        }
    }

    /// Counts an item that was evicted to make room.
    pub(crate) fn count_eviction(self, slot: Slot, item: RawItem<'_>, now: UnixTime) {
        let idle = item.idle_seconds(now, self.shared.made);
        // Most often the value is unchanged, and other workers share the cache line.
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
                RemovalReason::Evicted { idle_s: idle }
            } else {
                RemovalReason::EvictedUnread { idle_s: idle }
            },
        );
    }
}

/// As [`WorkerStore::end_of_life`], for an item with tags or milliseconds. It takes no handle: whose
/// address is taken, that does not stay in registers.
#[cold]
#[inline(never)]
fn special_end_of_life(tags: &Generations, item: RawItem<'_>, now: UnixTime) -> Option<Miss> {
    if item.expiry().is_past(now) {
        return Some(Miss::Expired);
    }
    let is_gone = item.has_tags() && tags.standing(item.tags()) == Standing::Gone;
    is_gone.then_some(Miss::Invalidated)
}

/// What the machine may have lost.
impl WorkerStore<'_> {
    /// Whether something is lost that slots may still point to. To be asked after bytes of an item
    /// were copied, and before the copy is used.
    #[inline]
    pub(crate) fn is_unsettled(self) -> bool {
        self.shared.losses.are_unsettled()
    }

    /// Whether a part of the item, or of one of its pieces, is lost and unsettled.
    #[inline(always)]
    pub(crate) fn is_lost(self, location: Location, item: RawItem<'_>) -> bool {
        self.shared.is_item_lost(self.guard, location, item)
    }

    /// As [`WorkerStore::is_lost`], for a piece.
    #[cold]
    pub(crate) fn is_piece_lost(self, location: Location) -> bool {
        let (log, losses) = (&self.shared.log, &self.shared.losses);
        let start = location.offset();
        let range = start..start + self.item(location).total_len();
        losses.overlaps(log, losses.mark(), &range)
    }

    /// Whether a part of a segment is lost. To be asked after its headers were read, and before what
    /// they say is relied on.
    #[inline]
    pub(crate) fn is_damaged(self, segment: PageId) -> bool {
        if self.is_unsettled() {
            // What is counted by now is in the list from here on, and marks its segments.
            self.shared.losses.note_all(&self.shared.log);
        }
        self.shared.log.entry(segment).is_damaged()
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
