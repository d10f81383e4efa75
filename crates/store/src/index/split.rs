//! Growth: a full sub-table becomes two, without a pause and without reading a key.
//!
//! The new sub-table (the child) takes the slots whose next tag bit is 1, into the same bucket
//! numbers; the old one (the parent) keeps the rest. The directory changes first: from then on the
//! child serves its half of the hashes, with every bucket marked unfilled. A bucket is filled under
//! its own lock and the same bucket's lock in the parent, either by the worker that split, some
//! buckets at the end of each burst, or by whoever has to write there first. So nobody ever waits
//! longer than one bucket's move takes, wherever the splitter is preempted.
//!
//! # Concurrency
//! - A writer with an old entry holds the parent's locks and finds the entry unchanged, so what it
//!   stores is there when the bucket is filled, which needs the same lock.
//! - The directory changes word by word, and a bucket that is filled before the last word has
//!   changed would lose what a writer with an old word stores in the parent behind it. So nothing
//!   is filled before all words are there, which takes a split some stores.
//! - A lookup with an old entry that misses finds the entry changed: slots leave the parent only
//!   after the directory names the child.
//! - While the parent gives, slots of the child's half do not move within it: one that moved into
//!   a bucket that has been given already would be lost.
//! - The child is unfilled bucket by bucket, so nothing is displaced into an unfilled bucket before
//!   it is filled, and filling always finds seven empty slots.

use super::bucket::SLOTS;
use super::slot::Slot;
use super::{BucketNumber, Entry, Index, State, TABLE_BUCKETS, TableId};
use crate::key::KeyHash;
use crate::sync::{Ordering, relax};

/// A split whose buckets are being filled. Whoever began it carries it on; see [`Index::migrate`].
#[derive(Clone, Copy)]
pub(crate) struct Migration {
    child: Entry,
    start: usize,
    next: BucketNumber,
}

impl Migration {
    /// Whether both are of the same split, however far they are.
    pub(crate) fn is_of(&self, other: &Migration) -> bool {
        (self.child, self.start) == (other.child, other.start)
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
        let parent = Entry::new(old.table(), depth, State::Giving, child);
        let child = Entry::new(child, depth, State::Filling, old.table());
        let start = self.directory.start(hash, old.depth());
        let middle = start + self.directory.span(depth);
        self.publishing.store(1, Ordering::Relaxed);
        // The child's half first: until it is there, the old entry serves both halves.
        self.directory.publish_at(middle, child);
        self.directory.publish_at(start, parent);
        self.publishing.store(0, Ordering::Release);
        drop(guard);
        Some(Migration {
            child,
            start: middle,
            next: 0,
        })
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

    /// Fills up to `buckets` more buckets. True when the split is complete.
    pub(crate) fn migrate(&self, migration: &mut Migration, buckets: u32) -> bool {
        let end = TABLE_BUCKETS.min(migration.next.saturating_add(buckets));
        while migration.next < end {
            let bucket = self.bucket(migration.child.table(), migration.next);
            bucket.lock();
            self.fill(migration.child, migration.next);
            bucket.unlock();
            migration.next += 1;
        }
        if migration.next < TABLE_BUCKETS {
            return false;
        }
        self.settle(migration);
        true
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

    /// Says in the directory that the split is over. Many may come to say so; once is enough.
    fn settle(&self, migration: &Migration) {
        let _guard = self.restructure.lock();
        let Migration { child, start, .. } = *migration;
        if self.directory.entry_at(start) != child {
            return;
        }
        let (table, parent, depth) = (child.table(), child.other(), child.depth());
        self.directory
            .publish_at(start, Entry::new(table, depth, State::Settled, table));
        let parent_start = start - self.directory.span(depth);
        self.directory.publish_at(
            parent_start,
            Entry::new(parent, depth, State::Settled, parent),
        );
    }

    /// Fetches from the parent what belongs to bucket `number` of a filling sub-table. The caller
    /// holds the bucket's lock.
    pub(super) fn fill(&self, entry: Entry, number: BucketNumber) {
        let bucket = self.bucket(entry.table(), number);
        if !bucket.is_unfilled() {
            return;
        }
        self.await_published();
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

    /// Waits until no split is half published. Who has seen a word of a split sees the mark that was
    /// set before it, or that it was cleared after the last one.
    fn await_published(&self) {
        let mut spins = 0;
        while self.publishing.load(Ordering::Acquire) != 0 {
            relax(spins);
            spins += 1;
        }
    }

    /// Whether `slot` in the sub-table of `entry` waits there for the child to fetch it.
    pub(super) fn awaits_child(&self, entry: Entry, slot: Slot) -> bool {
        entry.is_giving() && self.directory.upper_half(slot.tag(), entry.depth() - 1)
    }
}
