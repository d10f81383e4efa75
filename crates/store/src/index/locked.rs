//! Writing to the index: one slot, or a key's two buckets, under their lock bits.

use super::slot::Slot;
use super::{Bucket, BucketNumber, Entry, Index, SLOTS, TableId, alternate, first};
use crate::key::{KeyHash, Tag};

/// Where a lookup found a key.
#[derive(Clone, Copy)]
pub(crate) struct Place<'i> {
    pub(super) bucket: &'i Bucket,
    pub(super) at: usize,
    pub(crate) slot: Slot,
}

impl<'i> Place<'i> {
    /// The bucket.
    #[cfg(not(loom))]
    pub(crate) fn bucket(&self) -> &'i Bucket {
        self.bucket
    }

    /// Counts an access.
    #[inline]
    pub(crate) fn warm(&self) {
        if !self.slot.is_hottest() {
            self.bucket.warm(self.at, self.slot);
        }
    }

    /// Locks the bucket if the item is still here. A slot in a bucket can be reached by its key's
    /// lookups, and only a holder of this bucket's lock moves or changes it. So one lock is enough
    /// to replace or remove an existing item; inserting a new one takes both.
    #[inline]
    pub(crate) fn lock(&self) -> Option<PlaceLock<'i>> {
        self.bucket.lock();
        let slot = self.bucket.peek(self.at);
        if slot.same_item(self.slot) {
            return Some(PlaceLock {
                bucket: self.bucket,
                at: self.at,
                slot,
            });
        }
        self.bucket.unlock();
        None
    }
}

/// A slot whose bucket this thread has locked. Dropping it unlocks.
pub(crate) struct PlaceLock<'i> {
    bucket: &'i Bucket,
    at: usize,
    /// The slot as it is now.
    pub(crate) slot: Slot,
}

impl PlaceLock<'_> {
    /// Stores another slot of the same key here, and unlocks.
    #[inline]
    pub(crate) fn replace(self, slot: Slot) -> Unlinked {
        debug_assert!(slot.is_vacant() || slot.tag() == self.slot.tag());
        self.bucket.put(self.at, slot);
        Unlinked(self.slot)
    }
}

/// The slot of an item that is no longer in the index there: no lookup finds it, so its bytes are
/// dead or belong to another slot. The caller that unlinked it notes which.
#[derive(Debug)]
#[must_use = "the bytes of an unlinked item have to be noted dead, or they are never used again"]
pub(crate) struct Unlinked(Slot);

impl Unlinked {
    /// What was just cleared under its bucket's lock.
    pub(super) fn of(slot: Slot) -> Unlinked {
        Unlinked(slot)
    }

    /// The slot, to look at.
    pub(crate) fn slot(&self) -> Slot {
        self.0
    }

    /// The slot, for the caller that notes the item's bytes.
    #[inline]
    pub(crate) fn into_slot(self) -> Slot {
        self.0
    }
}

impl Drop for PlaceLock<'_> {
    #[inline]
    fn drop(&mut self) {
        self.bucket.unlock();
    }
}

/// Where an insert put the slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Inserted {
    /// In an empty slot, or over the key's own ghost.
    Free,
    /// Over another key's ghost.
    OverGhost,
    /// Nowhere: both buckets are full of items.
    Full,
}

/// Both buckets of a key: locked, filled, and checked against the directory. Dropping it unlocks
/// them.
pub(crate) struct Locked<'i> {
    index: &'i Index,
    tag: Tag,
    buckets: [&'i Bucket; 2],
    /// The same in the table that is being merged into theirs. Nothing is inserted there.
    donors: Option<[&'i Bucket; 2]>,
}

impl<'i> Locked<'i> {
    /// The slot of the key's item in memory, which `is_it` recognizes.
    pub(crate) fn find(&self, mut is_it: impl FnMut(Slot) -> bool) -> Option<(Spot, Slot)> {
        let all = self
            .buckets
            .into_iter()
            .chain(self.donors.into_iter().flatten());
        for (side, bucket) in all.enumerate() {
            if let Some(place) = self.index.find_in(bucket, self.tag, &mut is_it) {
                return Some((Spot { side, at: place.at }, place.slot));
            }
        }
        None
    }

    /// Stores `slot` at `spot`, which has an item, and unlocks.
    pub(crate) fn replace(self, spot: Spot, slot: Slot) -> Unlinked {
        let bucket = match (spot.side, self.donors) {
            (side @ 2.., Some(donors)) => donors[side - 2],
            (side, _) => self.buckets[side],
        };
        let old = bucket.peek(spot.at);
        bucket.put(spot.at, slot);
        Unlinked(old)
    }

    /// Stores `slot`, whose key is in neither bucket, if there is room.
    pub(crate) fn insert(&self, slot: Slot) -> Inserted {
        for bucket in self.buckets {
            if let Some(at) = bucket.ghost_of(self.tag) {
                bucket.put(at, slot);
                return Inserted::Free;
            }
        }
        for bucket in self.buckets {
            if let Some(at) = bucket.empty_slot() {
                bucket.put(at, slot);
                return Inserted::Free;
            }
        }
        let oldest = self
            .buckets
            .into_iter()
            .filter_map(|bucket| bucket.vacant_slot().map(|at| (bucket, at)))
            .min_by_key(|(bucket, at)| bucket.peek(*at).ghost_stamp());
        match oldest {
            Some((bucket, at)) => {
                bucket.put(at, slot);
                Inserted::OverGhost
            }
            None => Inserted::Full,
        }
    }

    /// Whether a slot on flash has the key's tag and `may_be` the key's.
    pub(crate) fn has_on_flash(&self, may_be: impl Fn(Slot) -> bool) -> bool {
        let all = self
            .buckets
            .into_iter()
            .chain(self.donors.into_iter().flatten());
        all.flat_map(|bucket| (0..SLOTS).map(|at| bucket.peek(at)))
            .any(|slot| slot.is_on_flash() && slot.tag() == self.tag && may_be(slot))
    }

    /// Drops all slots on flash that have the key's tag and `may_be` the key's, and stores `slot` in
    /// the place of the first. Returns how many have gone; if none, `slot` is stored nowhere.
    pub(crate) fn replace_on_flash(&self, slot: Slot, may_be: impl Fn(Slot) -> bool) -> u64 {
        let mut gone = 0;
        let all = self
            .buckets
            .into_iter()
            .chain(self.donors.into_iter().flatten());
        for bucket in all {
            for at in 0..SLOTS {
                let old = bucket.peek(at);
                if !old.is_on_flash() || old.tag() != self.tag || !may_be(old) {
                    continue;
                }
                if gone == 0 {
                    bucket.put(at, slot);
                    // The key's own slot may be one of those that are cleared next: for lookups it has
                    // moved here.
                    bucket.count_move();
                } else {
                    bucket.put(at, Slot::EMPTY);
                }
                gone += 1;
            }
        }
        gone
    }

    /// The least read item of both buckets, to be given up for another: one on flash before one in
    /// memory.
    pub(crate) fn least_used(&self) -> Option<(Spot, Slot)> {
        (0..2)
            .flat_map(|side| (0..SLOTS).map(move |at| Spot { side, at }))
            .map(|spot| (spot, self.buckets[spot.side].peek(spot.at)))
            .filter(|(_, slot)| slot.is_taken())
            .min_by_key(|(_, slot)| (slot.is_in_memory(), slot.frequency()))
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        unlock_both(self.buckets);
        if let Some(donors) = self.donors {
            unlock_both(donors);
        }
    }
}

/// A slot of [`Locked`] buckets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spot {
    side: usize,
    at: usize,
}

pub(super) fn unlock_both(buckets: [&Bucket; 2]) {
    buckets[0].unlock();
    if !std::ptr::eq(buckets[0], buckets[1]) {
        buckets[1].unlock();
    }
}

impl Index {
    /// Locks both buckets of a key, and makes sure that they contain all slots of the sub-table
    /// that belong there.
    pub(crate) fn lock(&self, hash: KeyHash) -> Locked<'_> {
        let i = first(hash);
        let j = alternate(i, hash.tag());
        loop {
            let entry = self.directory.entry(hash);
            let donors = entry.is_merging().then(|| {
                self.help_merge(hash, entry);
                self.lock_both(entry.other(), i, j)
            });
            let buckets = self.lock_both(entry.table(), i, j);
            let locked = Locked {
                index: self,
                tag: hash.tag(),
                buckets,
                donors,
            };
            // The sub-table may have split or merged between the read of the directory and the
            // locks.
            if self.directory.entry(hash) == entry {
                self.fill_both(hash, entry, i, j);
                return locked;
            }
        }
    }

    /// Locks two buckets of one sub-table, in the order that all threads keep.
    pub(super) fn lock_both(
        &self,
        table: TableId,
        i: BucketNumber,
        j: BucketNumber,
    ) -> [&Bucket; 2] {
        self.bucket(table, i.min(j)).lock();
        if i != j {
            self.bucket(table, i.max(j)).lock();
        }
        [self.bucket(table, i), self.bucket(table, j)]
    }

    /// Moves what belongs to two locked buckets over from the parent.
    #[inline]
    pub(super) fn fill_both(&self, hash: KeyHash, entry: Entry, i: BucketNumber, j: BucketNumber) {
        if entry.is_filling() {
            let start = self.directory.start(hash, entry.depth());
            self.fill(entry, start, i);
            self.fill(entry, start, j);
        }
    }
}
