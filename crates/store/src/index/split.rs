//! Growth: a full sub-table becomes two, without a pause and without reading a key.
//!
//! The new sub-table (the child) takes the slots whose next tag bit is 1, into the same bucket
//! numbers; the old one (the parent) keeps the rest. The directory changes first: from then on the
//! child serves its half of the hashes, with every bucket marked unfilled. A bucket is filled under
//! its own lock and the same bucket's lock in the parent, either by the worker that split, some
//! buckets at the end of each burst, or by whoever has to write there first.
//!
//! So no lookup and no writer waits for a split, wherever the splitter loses its core: a writer waits for
//! a bucket's lock bit as ever, which may be held for the move of one bucket. Only who has to split a
//! sub-table himself waits while another split changes the directory, and holds no bucket meanwhile.
//!
//! # Concurrency
//! - A writer with an old entry holds the parent's locks and finds the entry unchanged, so what it
//!   stores is there when the bucket is filled, which needs the same lock.
//! - The directory changes word by word, and a bucket that is filled before the last word has
//!   changed would lose what a writer with an old word stores in the parent behind it. So nothing
//!   is filled before all words are there. Whoever is about to fill a bucket and finds a split
//!   half published changes the words that are left (a few hundred at most) instead of waiting: each
//!   by compare-and-swap from the old entry, which never comes back, since depths only rise.
//! - A lookup with an old entry that misses finds the entry changed: slots leave the parent only
//!   after the directory names the child.
//! - While the parent gives, slots of the child's half do not move within it: one that moved into
//!   a bucket that has been given already would be lost.
//! - The child is unfilled bucket by bucket, so nothing is displaced into an unfilled bucket before
//!   it is filled, and filling always finds seven empty slots.

use super::bucket::SLOTS;
use super::slot::Slot;
use super::{BucketNumber, Entry, Index, SplitState, TABLE_BUCKETS, TableId};
use crate::key::KeyHash;
use crate::sync::Ordering;
use std::sync::TryLockError;

/// Splits that a worker has under way at most.
pub(crate) const MIGRATIONS_MAX: usize = 64;

/// A split whose buckets are being filled. Whoever began it carries it on; see [`Index::migrate`].
#[derive(Clone, Copy)]
pub(crate) struct Migration {
    pub(super) child: Entry,
    pub(super) start: usize,
    pub(super) next: BucketNumber,
}

impl Migration {
    /// Whether both are of the same split, however far they are.
    pub(crate) fn is_of(&self, other: &Migration) -> bool {
        (self.child, self.start) == (other.child, other.start)
    }

    /// Whether nothing is left of it but to say in the directory that it is over.
    pub(crate) fn is_filled(&self) -> bool {
        self.next == TABLE_BUCKETS
    }
}

impl Index {
    /// Splits the sub-table that serves `hash` if it can be split: into itself and `child`, an
    /// unused table. `None` where another split of it is under way, or its depth is the most;
    /// then `child` stays the caller's.
    pub(crate) fn split(&self, hash: KeyHash, child: TableId) -> Option<Migration> {
        self.reset_table(child, true);
        let guard = self.restructure.lock();
        let old = self.directory.entry(hash);
        if !self.may_split(old) {
            return None;
        }
        let depth = old.depth() + 1;
        let child = Entry::new(child, depth, SplitState::Filling, old.table());
        let start = self.directory.start(hash, old.depth()) + self.directory.span(depth);
        self.publishing.store(1, Ordering::Relaxed);
        self.publish(child, start);
        self.publishing.store(0, Ordering::Release);
        drop(guard);
        Some(Migration {
            child,
            start,
            next: 0,
        })
    }

    /// Splits the only sub-table, and comes no further than to the child's half of the directory: as a
    /// splitter that has lost its core.
    #[cfg(all(loom, test))]
    pub(crate) fn split_half_way(&self, hash: KeyHash, child: TableId) {
        self.reset_table(child, true);
        let old = self.directory.entry(hash).table();
        let child = Entry::new(child, 1, SplitState::Filling, old);
        self.publishing.store(1, Ordering::Relaxed);
        self.directory.publish_at(1, child);
    }

    /// Whether the sub-table of `hash` could be split now.
    pub(crate) fn can_split(&self, hash: KeyHash) -> bool {
        self.may_split(self.directory.entry(hash))
    }

    /// Whether no split of the sub-table of `hash` is under way.
    #[cfg(all(loom, test))]
    pub(crate) fn is_settled(&self, hash: KeyHash) -> bool {
        self.directory.entry(hash).is_settled()
    }

    /// How many of a hundred slots of the sub-table of `hash` hold items, by a sample.
    pub(crate) fn load_percent(&self, hash: KeyHash) -> usize {
        const SAMPLE: u32 = if cfg!(loom) { 2 } else { 128 };
        let table = self.directory.entry(hash).table();
        let live: usize = (0..SAMPLE)
            .map(|i| self.bucket(table, (hash.low() + i) & (TABLE_BUCKETS - 1)))
            .map(|bucket| (0..SLOTS).filter(|&at| bucket.peek(at).is_item()).count())
            .sum();
        live * 100 / (SAMPLE as usize * SLOTS)
    }

    fn may_split(&self, entry: Entry) -> bool {
        entry.is_settled() && entry.depth() < self.directory.bits_max()
    }

    /// Names the child, whose words begin at `start`, and its parent in all words of a split that do not
    /// name them yet.
    pub(super) fn publish(&self, child: Entry, start: usize) {
        let (parent, depth) = (child.other(), child.depth());
        let old = Entry::new(parent, depth - 1, SplitState::Settled, parent);
        let giving = Entry::new(parent, depth, SplitState::Giving, child.table());
        // The child's half first: until it is there, the old entry serves both halves.
        self.directory.change_at(start, old, child);
        let parent_start = start - self.directory.span(depth);
        self.directory.change_at(parent_start, old, giving);
    }

    /// Fills up to `buckets` more buckets. True when the split is complete. It may be complete but for
    /// the directory saying so ([`Migration::is_filled`]), where that is changing at the moment.
    pub(crate) fn migrate(&self, migration: &mut Migration, buckets: u32) -> bool {
        let end = TABLE_BUCKETS.min(migration.next.saturating_add(buckets));
        while migration.next < end {
            let bucket = self.bucket(migration.child.table(), migration.next);
            bucket.lock();
            self.fill(migration.child, migration.start, migration.next);
            bucket.unlock();
            migration.next += 1;
        }
        if migration.next < TABLE_BUCKETS {
            return false;
        }
        self.settle(migration)
    }

    /// The split that the sub-table of `hash` takes part in, from its beginning.
    pub(crate) fn split_of(&self, hash: KeyHash) -> Option<Migration> {
        let entry = self.directory.entry(hash);
        let parent_start = self.directory.start(hash, entry.depth());
        let span = self.directory.span(entry.depth());
        let (child, start) = if entry.is_filling() {
            (entry, parent_start)
        } else if entry.is_giving() {
            let start = parent_start + span;
            (self.directory.entry_at(start), start)
        } else {
            return None;
        };
        child.is_filling().then_some(Migration {
            child,
            start,
            next: 0,
        })
    }

    /// Says in the directory that the split is over. Many may come to say so; once is enough. False
    /// where another changes the directory, who may have lost his core.
    fn settle(&self, migration: &Migration) -> bool {
        let guard = self.restructure.try_lock();
        if matches!(guard, Err(TryLockError::WouldBlock)) {
            return false;
        }
        let Migration { child, start, .. } = *migration;
        if self.directory.entry_at(start) != child {
            return true;
        }
        let (table, parent, depth) = (child.table(), child.other(), child.depth());
        self.directory
            .publish_at(start, Entry::new(table, depth, SplitState::Settled, table));
        let parent_start = start - self.directory.span(depth);
        self.directory.publish_at(
            parent_start,
            Entry::new(parent, depth, SplitState::Settled, parent),
        );
        true
    }

    /// Fetches from the parent what belongs to bucket `number` of a filling sub-table, whose words of
    /// the directory begin at `start`. The caller holds the bucket's lock.
    pub(super) fn fill(&self, entry: Entry, start: usize, number: BucketNumber) {
        let bucket = self.bucket(entry.table(), number);
        if !bucket.is_unfilled() {
            return;
        }
        // Who has seen a word of the split sees the mark that was set before it, or that it was cleared
        // after the last one. The splitter may have lost its core in between: nobody waits for it.
        if self.publishing.load(Ordering::Acquire) != 0 {
            self.publish(entry, start);
        }
        let parent = self.bucket(entry.other(), number);
        let is_ours = |slot: Slot| {
            !slot.is_empty() && self.directory.upper_half(slot.tag(), entry.depth() - 1)
        };
        parent.lock();
        for i in 0..SLOTS {
            let slot = parent.peek(i);
            if is_ours(slot) {
                bucket.put(i, slot);
            }
        }
        bucket.set_filled();
        for i in 0..SLOTS {
            if is_ours(parent.peek(i)) {
                parent.put(i, Slot::EMPTY);
            }
        }
        parent.unlock();
    }

    /// Whether `slot` in the sub-table of `entry` waits there for the child to fetch it.
    pub(super) fn awaits_child(&self, entry: Entry, slot: Slot) -> bool {
        entry.is_giving() && self.directory.upper_half(slot.tag(), entry.depth() - 1)
    }
}
