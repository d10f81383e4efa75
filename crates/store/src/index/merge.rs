//! Shrinking: two sub-tables that a split has made become one again, without a pause and without
//! reading a key.
//!
//! After a phase of small items the index has many sub-tables that are nearly empty. Two siblings,
//! which serve the halves of one part of the directory, merge into the one of the lower half, the
//! *receiver*. The other one, the *donor*, becomes free. Splits make the donors one after another, so
//! those of one generation lie together, and merging them makes whole pages free.
//!
//! ```text
//!               lower half          upper half
//! words     [ receiver, depth d | donor, depth d    ]   both settled
//!   begin   [ receiver, depth d - 1, merging, donor ]   slots move: donor ──▶ receiver
//!   settle  [ receiver, depth d - 1, settled        ]   once the donor is empty, and all bursts
//!                                                       have ended in which `begin` was under way
//!   free                                                the donor, after another grace period
//! ```
//! A slot moves to the bucket of the same number, or to its key's other bucket in the receiver if
//! that is full, if need be after a displacement there. Both tables together fill less than half of
//! one, so there is room: it takes more than fourteen keys of the same two buckets that there is none,
//! which chance does not bring about. Then what is left is evicted; where nothing may be, the merge is set
//! aside, for others, and tried again.
//!
//! # Invariants
//! - Nothing is inserted into the donor or displaced there once all words say that it is merging. A
//!   slot in it may be replaced in place. So a bucket that has been emptied under its lock after that
//!   stays empty of items.
//! - Slots move only after all words have changed.
//! - There is at most one merge under way that may be settled, and one thread at a time goes on with
//!   it: the caller's state is under a lock.
//!
//! # Concurrency
//! - **Lookups.** With the new word a lookup looks into both buckets of both tables. It misses only if
//!   no count of moves and no word has changed: a slot is stored in the receiver, then the count of
//!   its bucket there is raised, then the slot is cleared in the donor. With an old word of the donor
//!   it finds the word changed when it misses a slot that has moved. With an old word of the receiver
//!   its key has not moved at all.
//! - **Writers.** A writer with an old word holds the locks of its buckets and finds the word
//!   unchanged. What it stores is there when the bucket is emptied, since that needs the same lock,
//!   and a writer that gets the lock afterwards sees the new word. With the new word a writer locks
//!   the key's buckets in both tables, the donor's first, and inserts into the receiver only.
//! - **Half-published words.** Whoever is about to move a slot and finds the words half changed
//!   changes the rest ([`super::publishing`]), by compare-and-swap from the old ones. No thread waits
//!   for one that has lost its core.
//! - **Old words come back**, since the receiver has the depth again that it had before its split.
//!   A worker that still stores the words of that split, or of a merge, could take them for those
//!   that it wants to change. Therefore a merge settles only after a grace period that began when its
//!   words were published. Such a worker helps only while the change is being published; so its
//!   burst began before, and has ended when the words come back. For lookups the same holds: an
//!   entry that is the same at the end of a lookup was there all the time.
//! - **The donor's memory** is read by lookups with the merging word, by recalled hints, and by
//!   whoever helps. All of that is within bursts. The caller of [`Index::settle_merge`] lets another
//!   grace period pass before it uses the donor.
//! - **No ping-pong.** A pair merges below [`LOAD_MAX`], far from where a sub-table splits.

use super::bucket::SLOTS;
use super::displace::Room;
use super::locked::{Unlinked, unlock_both};
use super::slot::Slot;
use super::{BucketNumber, Entry, Index, SplitState, TABLE_BUCKETS, TableId, alternate, first};
use crate::key::KeyHash;

/// Two sub-tables merge when their items fill less than this percentage of one. A sub-table splits
/// at over 95, or at 63 to keep ghosts, and leaves halves of 31 each.
const LOAD_MAX: usize = 45;

/// Buckets of each table that are looked at to estimate that.
const SAMPLE: u32 = if cfg!(loom) { 4 } else { 64 };

/// Buckets that an insert empties if it meets a merge: some hundred inserts then complete it, long
/// before they fill the receiver.
const HELPED: BucketNumber = if cfg!(loom) { 1 } else { 16 };

/// Attempts to find room for a slot whose bucket is full in the receiver.
const PLACE_TRIES: u32 = 8;

/// A merge under way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Merge {
    entry: Entry,
    start: usize,
    next: BucketNumber,
    /// Whether a bucket before `next` could not be emptied.
    has_left: bool,
}

/// How far a merge has got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Drained {
    /// Buckets are left to be looked at.
    Partly,
    /// The donor is empty and stays so.
    Wholly,
    /// All buckets were looked at, and slots are left that there is no room for. The next call begins
    /// again.
    NoRoom,
}

impl Index {
    /// Words of the directory: the positions at which [`Index::begin_merge`] can look.
    pub(crate) fn words(&self) -> usize {
        self.directory.len()
    }

    /// The number of sub-tables that are never merged away.
    pub(crate) fn tables_min(&self) -> usize {
        1 << self.directory.base_bits()
    }

    /// Begins to merge the sub-table at word `at` with its sibling, if both have few items and neither
    /// is under a split or merge. Also returns the position to look at next.
    pub(crate) fn begin_merge(&self, at: usize) -> (Option<Merge>, usize) {
        let here = self.directory.entry_at(at);
        let span = self.directory.span(here.depth());
        let next = (at & !(span - 1)) + span;
        let Some((entry, start)) = self.siblings(at) else {
            return (None, next);
        };
        let next = start + 2 * span;
        if !self.is_worth_merging(entry) {
            return (None, next);
        }
        match self.start_merge(at, entry, start) {
            Some(merge) => (Some(merge), next),
            None => (None, at),
        }
    }

    /// Publishes the merge of the siblings at word `at`. `None` if they are no longer that, or another
    /// worker is changing the directory.
    fn start_merge(&self, at: usize, entry: Entry, start: usize) -> Option<Merge> {
        let _guard = self.restructure.try_lock().ok()?;
        if self.siblings(at) != Some((entry, start)) {
            return None;
        }
        self.publishing.begin(entry.other());
        self.publish_merge(entry, start);
        self.publishing.end();
        Some(Merge {
            entry,
            start,
            next: 0,
            has_left: false,
        })
    }

    /// The entry that the table at word `at` and its sibling would have while they merge, and where
    /// its words begin; `None` if they cannot merge.
    fn siblings(&self, at: usize) -> Option<(Entry, usize)> {
        let depth = self.directory.entry_at(at).depth();
        if depth <= self.directory.base_bits() {
            return None;
        }
        let span = self.directory.span(depth);
        let start = at & !(2 * span - 1);
        let lower = self.directory.entry_at(start);
        let upper = self.directory.entry_at(start + span);
        let are_alike = [lower, upper].map(|entry| entry.is_settled() && entry.depth() == depth);
        let merging = Entry::new(lower.table(), depth - 1, SplitState::Merging, upper.table());
        (are_alike == [true; 2]).then_some((merging, start))
    }

    fn is_worth_merging(&self, entry: Entry) -> bool {
        let in_table = |table: TableId| -> usize {
            (0..SAMPLE).map(|number| self.items_in(table, number)).sum()
        };
        let items = in_table(entry.table()) + in_table(entry.other());
        items * 100 <= LOAD_MAX * SAMPLE as usize * SLOTS
    }

    fn items_in(&self, table: TableId, number: BucketNumber) -> usize {
        let bucket = self.bucket(table, number);
        (0..SLOTS).filter(|&at| bucket.peek(at).is_taken()).count()
    }

    /// Changes the words of a merge that do not yet say so.
    fn publish_merge(&self, entry: Entry, start: usize) {
        let depth = entry.depth() + 1;
        let middle = start + self.directory.span(depth);
        let end = start + self.directory.span(entry.depth());
        let [lower, upper] =
            [entry.table(), entry.other()].map(|table| Entry::settled(table, depth));
        self.directory.change(start..middle, lower, entry);
        self.directory.change(middle..end, upper, entry);
    }

    /// Begins to merge the two sub-tables of the smallest index, but publishes only the words of one
    /// half, like a thread that has lost its core.
    #[cfg(all(loom, test))]
    pub(crate) fn merge_half_way(&self, upper: bool) {
        let (entry, start) = self.siblings(0).unwrap();
        self.publishing.begin(entry.other());
        let table = if upper { entry.other() } else { entry.table() };
        let word = start + usize::from(upper);
        self.directory
            .change(word..word + 1, Entry::settled(table, 1), entry);
    }

    /// Empties up to `buckets` more of the donor's buckets. The caller is a worker that is present.
    pub(crate) fn drain(&self, merge: &mut Merge, buckets: u32) -> Drained {
        let end = TABLE_BUCKETS.min(merge.next.saturating_add(buckets));
        while merge.next < end {
            merge.has_left |= !self.drain_bucket(merge.entry, merge.start, merge.next);
            merge.next += 1;
        }
        if merge.next < TABLE_BUCKETS {
            Drained::Partly
        } else if merge.has_left {
            (merge.next, merge.has_left) = (0, false);
            Drained::NoRoom
        } else {
            Drained::Wholly
        }
    }

    /// Takes out what is left in the donor and finds no room, which the caller gives up.
    pub(crate) fn give_up_left(&self, merge: &Merge) -> Vec<Unlinked> {
        let mut gone = Vec::new();
        for number in (0..TABLE_BUCKETS).filter(|&n| self.items_in(merge.entry.other(), n) > 0) {
            let donor = self.bucket(merge.entry.other(), number);
            donor.lock();
            for at in 0..SLOTS {
                let slot = donor.peek(at);
                if slot.is_taken() {
                    donor.put(at, Slot::EMPTY);
                    gone.push(Unlinked::of(slot));
                }
            }
            donor.unlock();
        }
        gone
    }

    /// Says that a merge is over, and returns the donor, which is free after a grace period. Its
    /// buckets are drained wholly, and a grace period has passed since it began. `None` if another
    /// worker is changing the directory.
    pub(crate) fn settle_merge(&self, merge: &Merge) -> Option<TableId> {
        let _guard = self.restructure.try_lock().ok()?;
        let Merge { entry, start, .. } = *merge;
        debug_assert!((0..TABLE_BUCKETS).all(|n| self.items_in(entry.other(), n) == 0));
        self.directory
            .publish_at(start, Entry::settled(entry.table(), entry.depth()));
        Some(entry.other())
    }

    /// If the table of `hash` takes part in a merge, moves all that is left to be moved. True if only
    /// the end of that merge is awaited. Until then the table cannot split.
    #[cold]
    pub(crate) fn finish_draining(&self, hash: KeyHash) -> bool {
        let entry = self.directory.entry(hash);
        let start = self.directory.start(hash, entry.depth());
        entry.is_merging()
            && (0..TABLE_BUCKETS).all(|number| {
                self.items_in(entry.other(), number) == 0 || self.drain_bucket(entry, start, number)
            })
    }

    /// Empties some of the donor's buckets, for an insert that meets a merge. The caller holds no
    /// lock.
    #[cold]
    pub(super) fn help_merge(&self, hash: KeyHash, entry: Entry) {
        let start = self.directory.start(hash, entry.depth());
        let from = first(hash) & !(HELPED - 1);
        for number in from..from + HELPED {
            if self.items_in(entry.other(), number) > 0 {
                self.drain_bucket(entry, start, number);
            }
        }
    }

    /// Moves the slots of the donor's bucket `number` to the receiver. False if there is no room for
    /// one.
    pub(super) fn drain_bucket(&self, entry: Entry, start: usize, number: BucketNumber) -> bool {
        if self.publishing.is_of(entry.other()) {
            self.publish_merge(entry, start);
        }
        let donor = self.bucket(entry.other(), number);
        let receiver = self.bucket(entry.table(), number);
        let mut has_left = false;
        donor.lock();
        receiver.lock();
        for at in 0..SLOTS {
            let slot = donor.peek(at);
            let free = match slot.is_taken() {
                true => receiver.vacant_slot(),
                // A ghost takes no other ghost's place.
                false => receiver.empty_slot(),
            };
            match free {
                _ if slot.is_empty() => {}
                Some(free) => {
                    // A lookup must see the slot in the receiver, or the incremented count, before
                    // it can see the slot gone from the donor.
                    receiver.put(free, slot);
                    receiver.count_move();
                    donor.put(at, Slot::EMPTY);
                }
                None => has_left |= slot.is_taken(),
            }
        }
        receiver.unlock();
        donor.unlock();
        !has_left || self.drain_to_others(entry, start, number)
    }

    /// Moves what is left in the donor's bucket `number` to the keys' other buckets, or makes room.
    #[cold]
    fn drain_to_others(&self, entry: Entry, start: usize, number: BucketNumber) -> bool {
        let left = (0..SLOTS).filter(|&at| !self.drain_slot(entry, start, number, at));
        left.count() == 0
    }

    /// Moves a slot of the donor. False if there is no room for it.
    fn drain_slot(&self, entry: Entry, start: usize, number: BucketNumber, at: usize) -> bool {
        let donor = self.bucket(entry.other(), number);
        for _ in 0..PLACE_TRIES {
            donor.lock();
            // Others change it only under the lock.
            let slot = donor.peek(at);
            let other = alternate(number, slot.tag());
            let receivers = self.lock_both(entry.table(), number, other);
            let room = receivers
                .into_iter()
                .find_map(|receiver| Some((receiver, receiver.vacant_slot()?)));
            let is_done = match room {
                _ if !slot.is_taken() => true,
                Some((receiver, free)) => {
                    receiver.put(free, slot);
                    receiver.count_move();
                    donor.put(at, Slot::EMPTY);
                    true
                }
                None => false,
            };
            unlock_both(receivers);
            donor.unlock();
            if is_done {
                return true;
            }
            let hash = self.directory.hash_of(start, slot.tag(), number);
            if self.make_room(hash) == Room::None {
                return false;
            }
        }
        false
    }
}

#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod tests;
