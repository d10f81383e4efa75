//! Growth: a full sub-table becomes two, without a pause and without reading a key.
//!
//! The new sub-table (the child) takes the slots whose next tag bit is 1, into the same bucket
//! numbers; the old one (the parent) keeps the rest. The directory changes first: from then on the
//! child serves its half of the hashes, with every bucket marked unfilled. A bucket is filled under
//! its own lock and the lock of the same bucket in the parent. Either the worker that split fills
//! it, some buckets at the end of each burst, or the first worker that has to write there.
//!
//! So no lookup and no writer waits for a split, no matter where the splitting worker loses its
//! core. A writer waits only for a bucket's lock bit, as always, which may be held while one bucket
//! is filled. Only a worker that has to split a sub-table itself waits while another split changes
//! the directory, and it holds no bucket meanwhile.
//!
//! # Concurrency
//! - A writer with an old entry holds the parent's locks and finds the entry unchanged. What it
//!   stores is there when the bucket is filled, because filling needs the same lock.
//! - The directory changes word by word. If a bucket were filled before the last word has changed,
//!   a writer with an old word could store to the parent after that, and its store would be lost.
//!   So nothing is filled before all words have changed. A worker that is about to fill a bucket
//!   and finds a split half published does not wait: it changes the remaining words itself (a few
//!   hundred at most), each by compare-and-swap from the old entry. That entry cannot come back
//!   meanwhile: only a merge lowers a depth, and it waits for the end of the worker's burst
//!   ([`super::merge`]). For that reason a worker finishes no other change than the one that is being
//!   published while it looks.
//! - A lookup with an old entry that misses finds the entry changed: slots leave the parent only
//!   after the directory names the child.
//! - While the parent is giving, slots of the child's half do not move within it: a slot that moved
//!   into a bucket that has already been given would be lost.
//! - A worker may keep the record of a split that others have completed, and the child may be used for
//!   something else by then. So a worker that goes on first looks whether the directory still names
//!   the split, and it counts as complete only if each bucket is filled.
//! - The child is marked unfilled bucket by bucket, and nothing is displaced into an unfilled
//!   bucket. So filling always finds seven empty slots.

use super::bucket::SLOTS;
use super::slot::Slot;
use super::{BucketNumber, Entry, Index, SplitState, TABLE_BUCKETS, TableId};
use crate::key::KeyHash;
use std::sync::TryLockError;

/// Splits that a worker may have under way.
pub(crate) const MIGRATIONS_MAX: usize = 64;

/// A split whose buckets are being filled. The worker that began it continues it; see
/// [`Index::migrate`].
#[derive(Clone, Copy)]
pub(crate) struct Migration {
    pub(super) child: Entry,
    pub(super) start: usize,
    pub(super) next: BucketNumber,
}

impl Migration {
    /// Whether both are the same split, whatever their progress.
    pub(crate) fn is_of(&self, other: &Migration) -> bool {
        (self.child, self.start) == (other.child, other.start)
    }

    /// Whether all buckets are filled and only the directory does not say yet that the split is
    /// over.
    pub(crate) fn is_filled(&self) -> bool {
        self.next == TABLE_BUCKETS
    }
}

impl Index {
    /// Splits the sub-table that serves `hash`, if possible, into itself and `child`, an unused
    /// table. `None` if another split of it is under way, or its depth is the highest; then the
    /// caller keeps `child`.
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
        self.publishing.begin(child.table());
        self.publish(child, start);
        self.publishing.end();
        drop(guard);
        Some(Migration {
            child,
            start,
            next: 0,
        })
    }

    /// Splits the only sub-table, but publishes only the child's half of the directory, like a
    /// splitter that has lost its core.
    #[cfg(all(loom, test))]
    pub(crate) fn split_half_way(&self, hash: KeyHash, child: TableId) {
        self.reset_table(child, true);
        let old = self.directory.entry(hash).table();
        let child = Entry::new(child, 1, SplitState::Filling, old);
        self.publishing.begin(child.table());
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

    /// The percentage of the slots in the sub-table of `hash` that hold items, from a sample.
    pub(crate) fn load_percent(&self, hash: KeyHash) -> usize {
        const SAMPLE: u32 = if cfg!(loom) { 2 } else { 128 };
        let table = self.directory.entry(hash).table();
        let live: usize = (0..SAMPLE)
            .map(|i| self.bucket(table, (hash.low() + i) & (TABLE_BUCKETS - 1)))
            .map(|bucket| (0..SLOTS).filter(|&at| bucket.peek(at).is_taken()).count())
            .sum();
        live * 100 / (SAMPLE as usize * SLOTS)
    }

    fn may_split(&self, entry: Entry) -> bool {
        entry.is_settled() && entry.depth() < self.directory.bits_max()
    }

    /// Publishes a split: changes those of its words that do not yet name the child, whose words
    /// begin at `start`, and its parent.
    pub(super) fn publish(&self, child: Entry, start: usize) {
        let (parent, depth) = (child.other(), child.depth());
        let old = Entry::settled(parent, depth - 1);
        let giving = Entry::new(parent, depth, SplitState::Giving, child.table());
        // The child's half first: until it is there, the old entry serves both halves.
        let span = self.directory.span(depth);
        self.directory.change(start..start + span, old, child);
        self.directory.change(start - span..start, old, giving);
    }

    /// Fills up to `buckets` more buckets. True when the split is complete. If another worker is
    /// changing the directory, a split may have all its buckets filled ([`Migration::is_filled`])
    /// without being complete. The caller is a worker that is present.
    pub(crate) fn migrate(&self, migration: &mut Migration, buckets: u32) -> bool {
        if self.directory.entry_at(migration.start) != migration.child {
            return true;
        }
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

    /// The split that the sub-table of `hash` takes part in, starting at its first bucket.
    pub(crate) fn split_of(&self, hash: KeyHash) -> Option<Migration> {
        self.split_at(self.directory.start(hash, self.directory.bits_max()))
    }

    /// The split that the sub-table at a word of the directory takes part in, starting at its first
    /// bucket.
    pub(super) fn split_at(&self, word: usize) -> Option<Migration> {
        let entry = self.directory.entry_at(word);
        let parent_start = word & !(self.directory.span(entry.depth()) - 1);
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

    /// Marks the split as over in the directory. Several workers may do so; once is enough. False
    /// if another worker is changing the directory; it may have lost its core, so this does not
    /// wait.
    fn settle(&self, migration: &mut Migration) -> bool {
        let guard = self.restructure.try_lock();
        if matches!(guard, Err(TryLockError::WouldBlock)) {
            return false;
        }
        let (child, start) = (migration.child, migration.start);
        if self.directory.entry_at(start) != child {
            return true;
        }
        // The record may be that of an earlier split of the same tables.
        if (0..TABLE_BUCKETS).any(|number| self.bucket(child.table(), number).is_unfilled()) {
            migration.next = 0;
            return false;
        }
        self.drop_stranded(child);
        let (table, parent, depth) = (child.table(), child.other(), child.depth());
        self.directory
            .publish_at(start, Entry::settled(table, depth));
        let parent_start = start - self.directory.span(depth);
        self.directory
            .publish_at(parent_start, Entry::settled(parent, depth));
        true
    }

    /// Moves what belongs to bucket `number` of a filling sub-table over from the parent. The words
    /// of the sub-table begin at `start` in the directory. The caller holds the bucket's lock.
    pub(super) fn fill(&self, entry: Entry, start: usize, number: BucketNumber) {
        let bucket = self.bucket(entry.table(), number);
        if !bucket.is_unfilled() {
            return;
        }
        // A thread that has seen a word of the split sees either the mark that was set before that
        // word, or that the mark was cleared after the last word. The splitter may have lost its
        // core in between; no thread waits for it.
        if self.publishing.is_of(entry.table()) {
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

    /// Whether `slot` in the sub-table of `entry` still has to be moved to the child.
    pub(super) fn awaits_child(&self, entry: Entry, slot: Slot) -> bool {
        entry.is_giving() && self.directory.upper_half(slot.tag(), entry.depth() - 1)
    }
}
