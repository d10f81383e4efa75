//! Takes over an index that another process has left, perhaps in the middle of a change.
//!
//! Of all that a dead process stored, a prefix in time is left: no store is present without all
//! stores before it. So the order of stores determines what can be half done:
//!
//! | killed | what is there | what is done about it |
//! |---|---|---|
//! | anywhere under a bucket's lock | the lock bit | cleared |
//! | while an item is stored over slots on flash | slots on flash with its tag | they go |
//! | in a displacement, before the source is cleared | the slot in both of its buckets | one of them goes |
//! | while the directory names a child | some words that do not name it | they do |
//! | while a bucket is filled from its parent's | an unfilled bucket with some of its slots | it is filled again: the same slots in the same places |
//! | the same, before the parent's bucket is cleared | slots in the parent that belong to the child | they go |
//! | before the directory says that a split is over | some words that say so | all of them do |
//! | while the directory says that two tables merge, or that they have | some words that say so | all of them do |
//! | in a merge | slots in the table that is given up | they move on; if there is no room, both tables stay |
//! | the same, before such a slot is cleared | the slot in both tables | it is cleared |
//!
//! All other changes of the index are one store each. Taking over twice gives the same result as
//! once, so a process may die while it takes over.

use super::bucket::SLOTS;
use super::slot::Slot;
use super::{Bucket, BucketNumber, Entry, Index, Migration, TABLE_BUCKETS, TableId, alternate};
use crate::sync::{AtomicU64, AtomicUsize, Ordering};

/// What an index holds.
#[derive(Debug, Default)]
pub(crate) struct Contents {
    /// The sub-tables that are in use, in ascending order.
    pub(crate) tables: Vec<TableId>,
    /// The number of items.
    pub(crate) items: u64,
    /// Splits, displacements and lock bits that were left, and slots that were where they no longer
    /// belong.
    pub(crate) mended: u64,
}

/// The directory names something that is not a sub-table.
#[derive(Debug)]
pub(crate) struct DamagedDirectory;

impl Index {
    /// Completes or undoes what was left half done, and drops slots that are not `is_sound`.
    /// Nothing else uses the index meanwhile. `is_table` says which sub-tables can exist.
    pub(crate) fn take_over(
        &self,
        is_table: impl Fn(TableId) -> bool,
        is_sound: impl Fn(Slot) -> bool + Sync,
    ) -> Result<Contents, DamagedDirectory> {
        self.check_directory(is_table)?;
        let mended = AtomicU64::new(self.complete_splits() + self.complete_merges());
        let tables = self.settled_tables()?;
        let mut numbers: Vec<TableId> = tables.iter().map(|(_, entry)| entry.table()).collect();
        numbers.sort_unstable_by_key(|table| table.0);
        if numbers.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err(DamagedDirectory);
        }
        let (next, items) = (AtomicUsize::new(0), AtomicU64::new(0));
        // There may be many thousands of sub-tables, so as many threads work as there are cores.
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        std::thread::scope(|scope| {
            for _ in 0..threads.min(tables.len().div_ceil(64)) {
                scope.spawn(|| {
                    while let Some(&(start, entry)) =
                        tables.get(next.fetch_add(1, Ordering::Relaxed))
                    {
                        let (live, changed) = self.mend_table(start, entry, &is_sound);
                        items.fetch_add(live, Ordering::Relaxed);
                        mended.fetch_add(changed, Ordering::Relaxed);
                    }
                });
            }
        });
        Ok(Contents {
            tables: numbers,
            items: items.into_inner(),
            mended: mended.into_inner(),
        })
    }

    /// Checks that each word names sub-tables that can exist, at a depth that is possible.
    fn check_directory(&self, is_table: impl Fn(TableId) -> bool) -> Result<(), DamagedDirectory> {
        let depths = self.directory.base_bits()..=self.directory.bits_max();
        for at in 0..self.directory.len() {
            let entry = self.directory.entry_at(at);
            // A split has deepened both of its sub-tables, which are two; a merge has not yet.
            let is_possible = match entry.is_merging() {
                true => entry.depth() < *depths.end(),
                false => entry.depth() > *depths.start(),
            };
            let is_of_two = entry.other() != entry.table()
                && is_possible
                && (!entry.is_filling() || self.directory.is_upper_half(at, entry.depth()));
            if !is_table(entry.table())
                || !is_table(entry.other())
                || !depths.contains(&entry.depth())
                || !(entry.is_settled() || is_of_two)
            {
                return Err(DamagedDirectory);
            }
        }
        Ok(())
    }

    /// Ends the splits that are under way. Returns how many repairs were made.
    fn complete_splits(&self) -> u64 {
        let mut mended = 0;
        // Children first: while a word of a child is filling, its parent is giving.
        for at in 0..self.directory.len() {
            let child = self.directory.entry_at(at);
            if !child.is_filling() {
                continue;
            }
            let start = at & !(self.directory.span(child.depth()) - 1);
            self.publish(child, start);
            for table in [child.table(), child.other()] {
                for number in 0..TABLE_BUCKETS {
                    mended += self.unlock_dead(table, number);
                }
            }
            let mut split = Migration {
                child: self.directory.entry_at(at),
                start,
                next: 0,
            };
            self.migrate(&mut split, TABLE_BUCKETS);
            // If the process died while it marked the split as over, the first words are marked
            // already.
            self.say_settled(start, child.table(), child.depth());
            mended += 1;
        }
        // Then the parents, also those of splits for which only their mark was missing.
        for at in 0..self.directory.len() {
            let parent = self.directory.entry_at(at);
            if parent.is_giving() {
                let start = at & !(self.directory.span(parent.depth()) - 1);
                self.say_settled(start, parent.table(), parent.depth());
            }
        }
        mended
    }

    /// Ends the merges that are under way. Returns how many repairs were made.
    fn complete_merges(&self) -> u64 {
        let mut mended = 0;
        for at in 0..self.directory.len() {
            let entry = self.directory.entry_at(at);
            if !entry.is_merging() {
                continue;
            }
            let start = at & !(self.directory.span(entry.depth()) - 1);
            self.directory.publish_at(start, entry);
            for table in [entry.table(), entry.other()] {
                for number in 0..TABLE_BUCKETS {
                    mended += self.unlock_dead(table, number);
                }
            }
            let mut is_drained = true;
            for number in 0..TABLE_BUCKETS {
                mended += self.drop_moved(entry, number);
                is_drained &= self.drain_bucket(entry, start, number);
            }
            match is_drained {
                true => self.say_settled(start, entry.table(), entry.depth()),
                false => self.undo_merge(entry, start),
            }
            mended += 1;
        }
        mended
    }

    /// Makes two sub-tables again of those that merge, since one has no room for the slots of both.
    fn undo_merge(&self, entry: Entry, start: usize) {
        let depth = entry.depth() + 1;
        for number in 0..TABLE_BUCKETS {
            let receiver = self.bucket(entry.table(), number);
            for at in 0..SLOTS {
                let slot = receiver.peek(at);
                if slot.is_empty() || !self.directory.upper_half(slot.tag(), entry.depth()) {
                    continue;
                }
                let numbers = [number, alternate(number, slot.tag())];
                let homes = numbers.map(|number| self.bucket(entry.other(), number));
                let room = homes.into_iter().find_map(|home| {
                    let free = match slot.is_taken() {
                        true => home.vacant_slot(),
                        false => home.empty_slot(),
                    };
                    Some((home, free?))
                });
                // Only what came while they merged can be too much.
                if let Some((home, free)) = room {
                    home.put(free, slot);
                }
                receiver.put(at, Slot::EMPTY);
            }
        }
        self.say_settled(start, entry.table(), depth);
        self.say_settled(start + self.directory.span(depth), entry.other(), depth);
    }

    /// Clears those slots of a table that is given up which stand in the other one already. Returns
    /// how many.
    fn drop_moved(&self, entry: Entry, number: BucketNumber) -> u64 {
        let donor = self.bucket(entry.other(), number);
        let mut moved = 0;
        for at in 0..SLOTS {
            let slot = donor.peek(at);
            let numbers = [number, alternate(number, slot.tag())];
            let mut receivers = numbers.map(|n| self.bucket(entry.table(), n)).into_iter();
            let stands_in = |bucket: &Bucket| (0..SLOTS).any(|i| bucket.peek(i).same_item(slot));
            if slot.is_taken() && receivers.any(stands_in) {
                donor.put(at, Slot::EMPTY);
                moved += 1;
            }
        }
        moved
    }

    fn say_settled(&self, start: usize, table: TableId, depth: u32) {
        self.directory
            .publish_at(start, Entry::settled(table, depth));
    }

    /// The sub-tables, each with the word at which it begins. All words of a sub-table are equal.
    fn settled_tables(&self) -> Result<Vec<(usize, Entry)>, DamagedDirectory> {
        let mut tables = Vec::new();
        let mut at = 0;
        while at < self.directory.len() {
            let entry = self.directory.entry_at(at);
            let span = self.directory.span(entry.depth());
            let is_whole = at.is_multiple_of(span)
                && (at..at + span).all(|word| self.directory.entry_at(word) == entry);
            if !is_whole {
                return Err(DamagedDirectory);
            }
            tables.push((at, entry));
            at += span;
        }
        Ok(tables)
    }

    /// Returns the number of items in a sub-table, and how many repairs were made.
    fn mend_table(
        &self,
        start: usize,
        entry: Entry,
        is_sound: &impl Fn(Slot) -> bool,
    ) -> (u64, u64) {
        let (mut items, mut mended) = (0, 0);
        for number in 0..TABLE_BUCKETS {
            mended += self.unlock_dead(entry.table(), number);
            let bucket = self.bucket(entry.table(), number);
            for at in 0..SLOTS {
                let slot = bucket.peek(at);
                let is_item = slot.is_taken();
                let stays = slot.is_empty()
                    || self.directory.serves(start, entry.depth(), slot.tag())
                        && (!is_item || is_sound(slot));
                if !stays {
                    bucket.put(at, Slot::EMPTY);
                }
                mended += u64::from(!stays);
                items += u64::from(stays && is_item);
            }
        }
        (items, mended)
    }

    /// Clears a bucket's lock bit. If it was set, undoes a displacement that ended half-way: its
    /// slot is in both of its buckets, which were locked. Returns how many repairs were made.
    fn unlock_dead(&self, table: TableId, number: BucketNumber) -> u64 {
        let bucket = self.bucket(table, number);
        if !bucket.break_lock() {
            return 0;
        }
        let mut mended = 1;
        for at in 0..SLOTS {
            let slot = bucket.peek(at);
            let other = alternate(number, slot.tag());
            let stands_in = |bucket: &Bucket| (0..SLOTS).any(|i| bucket.peek(i).same_item(slot));
            // Who was storing an item may have had slots on flash left to drop that could be its key's.
            let is_outdated = slot.is_on_flash()
                && [number, other].into_iter().any(|number| {
                    let bucket = self.bucket(table, number);
                    let has_tag =
                        |i| bucket.peek(i).is_in_memory() && bucket.peek(i).tag() == slot.tag();
                    (0..SLOTS).any(has_tag)
                });
            let is_moved =
                slot.is_taken() && other != number && stands_in(self.bucket(table, other));
            if is_outdated || is_moved {
                bucket.put(at, Slot::EMPTY);
                mended += 1;
            }
        }
        mended
    }
}
