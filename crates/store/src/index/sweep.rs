//! Looks at all slots of a sub-table while other threads write, and puts sub-tables in order of which
//! a part is lost.
//!
//! A [`walk`](super::walk) goes on for as long as its client takes, so it must not mind sub-tables
//! that split meanwhile. A sweep is done with a sub-table at once: it completes a split that is
//! under way, looks at all buckets, and looks again if the sub-table was split meanwhile or a slot
//! has come to any of its buckets from another.
//!
//! # Concurrency
//! What a sweep must not miss are slots that stood there when it began. Such a slot leaves its bucket
//! only for another one of its sub-table, or of the one that its sub-table is merged into: either
//! increments the count there before the slot is cleared; or when the sub-table is split, which
//! changes the directory's word before. No word comes back within a burst, and a sweep of a sub-table
//! is within one. Whatever merges with a sub-table between two calls serves the word of the next one
//! then, and is shown with it.
//!
//! When the machine loses a part of a sub-table, its buckets are empty. Then, until
//! [`Index::put_in_order`] is done:
//!
//! - Slots that a filling child had not taken from its parent yet are never looked for there again
//!   ([`super::stranded`] drops them when the split ends).
//! - A thread that had a bucket locked does not have it any more, and may still store a slot, while
//!   another thread stores one for the same key.

use super::locked::unlock_both;
use super::slot::Slot;
use super::{Entry, Index, Place, SLOTS, TABLE_BUCKETS, TableId, alternate};
use crate::sync::{Ordering, fence, relax};

/// Buckets between a slot that is fetched and the one that is shown.
const AHEAD: u32 = if cfg!(loom) { 1 } else { 4 };

/// What a sweep's visitor says of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Visited {
    /// It is done with.
    Done,
    /// It has changed under the visitor's hands: the sub-table is to be looked at again.
    Again,
}

/// The sub-tables in which slots of an entry's keys stand: the one that is being merged away first,
/// since slots leave it for the other.
fn tables_of(entry: Entry) -> [Option<TableId>; 2] {
    let donor = entry.is_merging().then(|| entry.other());
    [donor, Some(entry.table())]
}

impl Index {
    /// Shows all items of the sub-table that serves word `at` of the directory, and of the one that is
    /// being merged into it. Returns where the next one begins. A slot that stands there during the whole call is shown; it may be shown more
    /// than once. `fetch`, if there is one, is called with a slot of an item in memory some slots before
    /// it is shown.
    pub(crate) fn sweep(
        &self,
        at: usize,
        fetch: Option<impl Fn(Slot)>,
        mut visit: impl FnMut(Place<'_>) -> Visited,
    ) -> usize {
        loop {
            let entry = self.settle_at(at);
            let before = self.moves_in(entry);
            let mut again = false;
            let tables = tables_of(entry).into_iter().flatten();
            for (table, number) in
                tables.flat_map(|table| (0..TABLE_BUCKETS).map(move |n| (table, n)))
            {
                let bucket = self.bucket(table, number);
                if let Some(fetch) = &fetch {
                    let ahead = self.bucket(table, (number + AHEAD) % TABLE_BUCKETS);
                    let coming = (0..SLOTS).map(|at| ahead.peek(at));
                    coming.filter(|slot| slot.is_in_memory()).for_each(fetch);
                }
                for at in 0..SLOTS {
                    let slot = bucket.load(at);
                    if slot.is_taken() {
                        again |= visit(Place { bucket, at, slot }) == Visited::Again;
                    }
                }
            }
            // The loads of slots come before the check.
            fence(Ordering::Acquire);
            let is_same = self.directory.entry_at(at) == entry;
            if is_same && !again && self.moves_in(entry) == before {
                return self.behind(at, entry);
            }
        }
    }

    /// The word behind those of the sub-table that serves word `at`.
    fn behind(&self, at: usize, entry: Entry) -> usize {
        let span = self.directory.span(entry.depth());
        (at & !(span - 1)) + span
    }

    /// The entry at word `at`, with no split under way: one that is, is completed.
    fn settle_at(&self, at: usize) -> Entry {
        let mut tries = 0;
        loop {
            let entry = self.directory.entry_at(at);
            if entry.is_settled() || entry.is_merging() {
                return entry;
            }
            if let Some(mut split) = self.split_at(at) {
                self.migrate(&mut split, TABLE_BUCKETS);
            }
            // Another thread may be changing the directory.
            relax(tries);
            tries += 1;
        }
    }

    /// How many slots have come to the buckets of an entry's sub-tables, as a sum that only rises.
    fn moves_in(&self, entry: Entry) -> u64 {
        let tables = tables_of(entry).into_iter().flatten();
        let buckets = tables.flat_map(|table| (0..TABLE_BUCKETS).map(move |n| (table, n)));
        buckets.fold(0, |sum: u64, (table, number)| {
            sum.wrapping_add(self.bucket(table, number).seen().number())
        })
    }

    /// The words at which sub-tables begin that lie in a range of the arena's bytes, or that take
    /// part in a split with such a one.
    pub(crate) fn words_of(&self, bytes: &std::ops::Range<usize>) -> Vec<usize> {
        let len = super::TABLE_BYTES;
        let is_in = |table: TableId| {
            let start = table.0 as usize * len;
            start < bytes.end && bytes.start < start + len
        };
        let mut words = Vec::new();
        let mut at = 0;
        while at < self.directory.len() {
            let entry = self.directory.entry_at(at);
            if is_in(entry.table()) || is_in(entry.other()) {
                words.push(at);
            }
            at = self.behind(at, entry);
        }
        words
    }

    /// About how many items stood in a range of the arena's bytes that was lost with a part of the
    /// sub-table at word `at`: as many as elsewhere in it. `counts` says which slots count.
    pub(crate) fn estimate_lost(
        &self,
        at: usize,
        bytes: &std::ops::Range<usize>,
        counts: impl Fn(Slot) -> bool,
    ) -> u64 {
        let table = self.directory.entry_at(at).table();
        let start = table.0 as usize * super::TABLE_BYTES;
        let is_lost = |number: u32| {
            let bucket = start + number as usize * 64;
            bytes.contains(&bucket)
        };
        let (mut lost, mut left, mut items) = (0, 0, 0);
        for number in 0..TABLE_BUCKETS {
            if is_lost(number) {
                lost += 1;
                continue;
            }
            left += 1;
            let bucket = self.bucket(table, number);
            items += (0..SLOTS).filter(|&at| counts(bucket.peek(at))).count() as u64;
        }
        items * lost / u64::max(left, 1)
    }

    /// Puts the sub-tables at word `at` in order after a part of one was lost: drops slots that stand
    /// in a parent where no lookup looks, and slots of one key that are there twice, as
    /// `is_same_key` tells. Called when every thread has ended that had a bucket locked at the time
    /// of the loss. Returns how many slots it has dropped.
    pub(crate) fn put_in_order(
        &self,
        at: usize,
        is_same_key: impl Fn(Slot, Slot) -> bool,
    ) -> Vec<Slot> {
        let mut dropped = Vec::new();
        loop {
            let entry = self.settle_at(at);
            let start = at & !(self.directory.span(entry.depth()) - 1);
            for table in tables_of(entry).into_iter().flatten() {
                for number in 0..TABLE_BUCKETS {
                    let place = (table, start, number);
                    self.order_bucket(entry, place, &is_same_key, &mut dropped);
                }
            }
            if self.directory.entry_at(at) == entry {
                return dropped;
            }
        }
    }

    fn order_bucket(
        &self,
        entry: Entry,
        (table, start, number): (TableId, usize, u32),
        is_same_key: &impl Fn(Slot, Slot) -> bool,
        dropped: &mut Vec<Slot>,
    ) {
        let bucket = self.bucket(table, number);
        for at in 0..SLOTS {
            let slot = bucket.load(at);
            if !slot.is_taken() {
                continue;
            }
            let other = alternate(number, slot.tag());
            let locked = self.lock_both(table, number, other);
            // A split may have begun: then the slot may be on its way to a child.
            let is_current = self.directory.entry_at(start) == entry;
            if is_current && bucket.peek(at).same_item(slot) {
                let serves = self.directory.serves(start, entry.depth(), slot.tag());
                let twin = self.twin(table, [number, other], (number, at), is_same_key);
                if !serves || twin.is_some() {
                    bucket.put(at, Slot::EMPTY);
                    dropped.push(slot);
                }
                if let Some((number, at)) = twin {
                    let bucket = self.bucket(table, number);
                    dropped.push(bucket.peek(at));
                    bucket.put(at, Slot::EMPTY);
                }
            }
            unlock_both(locked);
        }
    }

    /// Another slot of the same key as that at `own`.
    fn twin(
        &self,
        table: TableId,
        numbers: [u32; 2],
        own: (u32, usize),
        is_same_key: &impl Fn(Slot, Slot) -> bool,
    ) -> Option<(u32, usize)> {
        let slot = self.bucket(table, own.0).peek(own.1);
        let places = numbers
            .into_iter()
            .flat_map(|n| (0..SLOTS).map(move |at| (n, at)));
        places.filter(|&place| place != own).find(|&(number, at)| {
            let other = self.bucket(table, number).peek(at);
            other.is_taken() && other.tag() == slot.tag() && is_same_key(slot, other)
        })
    }
}
