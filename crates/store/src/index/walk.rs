//! Walks all slots of the index, a cell at a time, while other threads write.
//!
//! Slots move: to their key's other bucket, and to other sub-tables. So a walk in the order of
//! buckets would miss those that move from ahead of it to behind it. Two things about a key do not
//! change: which words of the directory its hash belongs to, and which of its two buckets has the
//! even number (the numbers differ in their lowest bit). A *cell* is the set of keys in a range of
//! words and in a stride of even buckets. Each cell is walked once, wherever its slots are at that
//! moment: in their even buckets or in any odd bucket of their sub-table.
//!
//! ```text
//! words      |<-- region: a sub-table when it was begun -->|<-- next region ...
//!            | sub-table | sub-table |      sub-table      |    as they are by now
//! stride 0   |  cell 1   |  cell 2   |       cell 3        |
//! stride 1   |  cell 4   |  cell 5   |       cell 6        |
//! ```
//! A slot's tag says which word its key belongs to. So positions keep their meaning when sub-tables
//! are divided or merged: a cell shows the slots of its own words, whatever else its sub-table has.
//!
//! # Concurrency
//! A cell is walked as [`Index::find`] looks up a key: the even buckets, then the odd ones, then a
//! check of what a move would have changed. A slot that is seen nowhere has moved from an odd
//! bucket to an even one meanwhile, which incremented the even one's count of moves before the slot
//! was cleared; or its sub-table was split or merged, which had changed the directory before.
//! Loads of slots are Acquire, so a walk that sees a slot cleared sees these changes too. A slot
//! that a filling child has not taken yet is shown from the parent's bucket, and one that a merging
//! table has not taken yet from the other table's bucket, which is read first: a slot that is gone
//! there has come to the bucket that is read next, or was displaced from there.

use super::bucket::{BucketVersion, SLOTS};
use super::slot::Slot;
use super::{Bucket, BucketNumber, Entry, Index, TABLE_BUCKETS, alternate};

/// Bucket numbers of a cell, of which every other is even.
pub(crate) const STRIDE: u32 = if cfg!(loom) { 2 } else { 32 };

const EVENS: usize = STRIDE as usize / 2;

/// All even buckets of a stride, one bit each.
const ALL: u32 = (1 << EVENS) - 1;

/// The current cell of a walk. See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cell {
    /// The first word of the region.
    start: usize,
    /// End of the region (exclusive); 0 until the region is begun.
    end: usize,
    /// The word at which the cell's sub-table begins.
    word: usize,
    /// The first bucket number of the stride.
    stride: BucketNumber,
}

impl Cell {
    pub(crate) const FIRST: Cell = Cell::of_region(0);

    const fn of_region(start: usize) -> Cell {
        Cell {
            start,
            end: 0,
            word: start,
            stride: 0,
        }
    }

    /// The bit of the even bucket of the pair that `slot` in bucket `number` belongs to.
    #[inline]
    fn bit(self, number: BucketNumber, slot: Slot) -> u32 {
        let even = match number & 1 {
            0 => number,
            _ => alternate(number, slot.tag()),
        };
        match even.wrapping_sub(self.stride) {
            offset @ 0..STRIDE => 1 << (offset / 2),
            _ => 0,
        }
    }
}

impl Index {
    /// Shows the slots of all items in `cell`. Returns the next cell, or `None` after the last. The
    /// caller stays within one burst.
    ///
    /// A key that has an item during the whole call is shown; it is shown once unless a slot of its
    /// cell moves meanwhile.
    pub(crate) fn walk(&self, mut cell: Cell, mut visit: impl FnMut(Slot)) -> Option<Cell> {
        if cell.end == 0 {
            let entry = self.directory.entry_at(cell.start);
            cell.end = self.end_of(entry, cell.start);
        }
        let next = cell.word + self.walk_cell(cell, &mut visit);
        if next < cell.end {
            Some(Cell { word: next, ..cell })
        } else if cell.stride + STRIDE < TABLE_BUCKETS {
            Some(Cell {
                word: cell.start,
                stride: cell.stride + STRIDE,
                ..cell
            })
        } else if cell.end < self.directory.len() {
            Some(Cell::of_region(cell.end))
        } else {
            None
        }
    }

    /// The end of the words of the table of `entry`, which serves `word`.
    fn end_of(&self, entry: Entry, word: usize) -> usize {
        let span = self.directory.span(entry.depth());
        (word & !(span - 1)) + span
    }

    /// Walks the cell again until no slot has moved during the walk. Returns how many words the
    /// cell spans.
    fn walk_cell(&self, cell: Cell, visit: &mut impl FnMut(Slot)) -> usize {
        let mut entry = self.directory.entry_at(cell.word);
        let mut wanted = ALL;
        loop {
            let end = cell.end.min(self.end_of(entry, cell.word));
            let seen = self.seen_in(entry, cell);
            let evens = (cell.stride..cell.stride + STRIDE).step_by(2);
            for number in evens.chain((1..TABLE_BUCKETS).step_by(2)) {
                self.walk_bucket(entry, number, |slot| {
                    let word = self.directory.word_of(cell.word, slot.tag());
                    if (cell.word..end).contains(&word) && cell.bit(number, slot) & wanted != 0 {
                        visit(slot);
                    }
                });
            }
            let now = self.directory.entry_at(cell.word);
            if (now.table(), now.depth()) != (entry.table(), entry.depth()) {
                entry = now;
                wanted = ALL;
                continue;
            }
            let seen_now = self.seen_in(entry, cell);
            wanted = (0..EVENS)
                .filter(|&i| seen_now[i] != seen[i])
                .fold(0, |bits, i| bits | 1 << i);
            if wanted == 0 {
                return end - cell.word;
            }
        }
    }

    /// The words of the cell's even buckets, and of the other table's that slots are moved from.
    fn seen_in(&self, entry: Entry, cell: Cell) -> [[BucketVersion; 2]; EVENS] {
        let mut number = cell.stride;
        std::array::from_fn(|_| {
            let own = self.bucket(entry.table(), number).seen();
            let other = match entry.is_in_two_tables() {
                true => self.bucket(entry.other(), number).seen(),
                false => own,
            };
            number += 2;
            [own, other]
        })
    }

    /// Shows the items in bucket `number` of the sub-table of `entry`, and in that of the other table
    /// while slots are moved from there.
    #[inline]
    fn walk_bucket(&self, entry: Entry, number: BucketNumber, mut visit: impl FnMut(Slot)) {
        let bucket = self.bucket(entry.table(), number);
        if entry.is_merging() || entry.is_filling() && bucket.seen().is_unfilled() {
            // A slot is stored here before it is cleared in the other table, so reading that first
            // misses none.
            items(self.bucket(entry.other(), number)).for_each(&mut visit);
        }
        items(bucket).for_each(visit);
    }
}

#[inline]
fn items(bucket: &Bucket) -> impl Iterator<Item = Slot> {
    (0..SLOTS)
        .map(|at| bucket.load(at))
        .filter(|slot| slot.is_in_memory())
}

#[cfg(all(test, loom))]
mod loom_tests;
