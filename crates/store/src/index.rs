//! The index: an optimistic cuckoo table in sub-tables under a directory.
//!
//! A key has two buckets in the sub-table that its hash belongs to: `b1` comes from the low hash
//! bits, and `b2` is `b1` with bits flipped that the tag determines, so that either follows from
//! the other and a slot. A lookup takes no lock. A slot is one atomic word and items do not change
//! once published, so a hit needs no check; only a miss checks again for moves (see [`bucket`]).
//! Inserting takes the two buckets' lock bits. If both buckets are full, it searches breadth-first
//! for a path of displacements ([`displace`]); if there is none, the sub-table splits ([`split`]). Two
//! sub-tables that a split has made, and that have become nearly empty, merge again ([`merge`]).
//!
//! # Invariants
//! - A key is in at most one slot, in one of its two buckets of its sub-table (or, while the
//!   sub-table fills, in the same bucket of its parent; while two merge, in one of its two buckets of
//!   either).
//! - A slot changes only under the lock bit of its bucket, except for its frequency.
//! - Locks are taken in ascending order within a sub-table, and in a child before its parent: in the
//!   table of the upper half before that of the lower half.
//! - Whoever uses a sub-table is a worker that has announced itself: the memory of one that was
//!   merged away is used again after a grace period.
//!
//! # Not here
//! The index never reads a key: callers pass a closure that says whether a slot's item is theirs.
//! The segments know what slots point to; the cleaner decides which slots to give up.

pub(crate) mod bucket;
pub(crate) mod directory;
mod displace;
mod locked;
mod merge;
mod publishing;
mod scan;
pub(crate) mod slot;
mod split;
mod stranded;
mod sweep;
mod takeover;
mod walk;

pub(crate) use bucket::{Bucket, SLOTS};
pub(crate) use directory::{Directory, Entry, SplitState, TableId};
pub(crate) use displace::Room;
pub(crate) use locked::{Inserted, Place, Unlinked};
pub(crate) use merge::{Drained, Merge};
pub(crate) use split::{MIGRATIONS_MAX, Migration};
pub(crate) use sweep::Visited;
pub(crate) use takeover::{Contents, DamagedDirectory};
pub(crate) use walk::{Cell, STRIDE};

use crate::key::{KeyHash, Tag};
use crate::memory::Slice;
use crate::sync::{Mutex, Ordering, fence};
use publishing::Publishing;
use slot::Slot;
use stranded::Stranded;

/// Buckets of a sub-table. Under loom four, so that a slot can move out of a key's own two.
pub(crate) const TABLE_BUCKETS: u32 = if cfg!(loom) { 4 } else { 1024 };

/// Bytes of a sub-table.
pub(crate) const TABLE_BYTES: usize = TABLE_BUCKETS as usize * 64;

/// A bucket's number in its sub-table.
type BucketNumber = u32;

/// See the module.
pub(crate) struct Index {
    directory: Directory,
    /// The whole arena, seen as buckets; sub-tables are scattered over it.
    buckets: Slice<Bucket>,
    /// Held while the directory changes.
    restructure: Mutex<()>,
    publishing: Publishing,
    stranded: Stranded,
}

#[inline]
fn first(hash: KeyHash) -> BucketNumber {
    hash.low() & (TABLE_BUCKETS - 1)
}

/// The other bucket of a slot with `tag` that is in bucket `number`.
#[inline]
fn alternate(number: BucketNumber, tag: Tag) -> BucketNumber {
    (number ^ ((u32::from(tag.0).wrapping_mul(0x5bd1_e995)) | 1)) & (TABLE_BUCKETS - 1)
}

impl Index {
    /// An index over `buckets`, which span the whole arena. The caller then gives each position one
    /// table with [`Index::adopt_first_tables`].
    pub(crate) fn new(directory: Directory, buckets: Slice<Bucket>) -> Index {
        Index {
            directory,
            buckets,
            restructure: Mutex::new(()),
            publishing: Publishing::default(),
            stranded: Stranded::default(),
        }
    }

    /// Fills the directory with its first sub-tables, one for each value of the base bits.
    pub(crate) fn adopt_first_tables(&self, mut next: impl FnMut() -> TableId) {
        let depth = self.directory.base_bits();
        let span = self.directory.span(depth);
        for start in (0..self.directory.len()).step_by(span) {
            let table = next();
            self.reset_table(table, false);
            self.directory
                .publish_at(start, Entry::settled(table, depth));
        }
    }

    #[inline]
    pub(crate) fn bucket(&self, table: TableId, number: BucketNumber) -> &Bucket {
        &self.buckets[table.0 as usize * TABLE_BUCKETS as usize + number as usize]
    }

    /// The word of the directory that a hash belongs to, for tests that lose it.
    #[cfg(not(loom))]
    pub(crate) fn directory_word(
        &self,
        hash: KeyHash,
    ) -> crate::memory::Twin<'_, crate::sync::AtomicU64> {
        self.directory.word(hash)
    }

    fn reset_table(&self, table: TableId, unfilled: bool) {
        for number in 0..TABLE_BUCKETS {
            self.bucket(table, number).reset(unfilled);
        }
    }

    /// The key's two buckets, to be prefetched.
    #[inline]
    pub(crate) fn buckets_of(&self, hash: KeyHash) -> [&Bucket; 2] {
        let table = self.directory.entry(hash).table();
        let i = first(hash);
        [
            self.bucket(table, i),
            self.bucket(table, alternate(i, hash.tag())),
        ]
    }

    /// The number, in the arena, of the key's first bucket.
    #[inline]
    pub(crate) fn first_number(&self, hash: KeyHash) -> usize {
        let table = self.directory.entry(hash).table();
        table.0 as usize * TABLE_BUCKETS as usize + first(hash) as usize
    }

    /// The number of the key's other bucket; `number` is that of one.
    #[inline]
    pub(crate) fn other_number(&self, hash: KeyHash, number: usize) -> usize {
        number ^ alternate(0, hash.tag()) as usize
    }

    /// The bucket of a number.
    #[inline]
    pub(crate) fn bucket_at(&self, number: usize) -> &Bucket {
        &self.buckets[number]
    }

    /// A slot of bucket `number` that is likely the key's: the first with its tag. A hint, for
    /// prefetching the item and as the first place for a later lookup.
    #[inline]
    pub(crate) fn likely(&self, number: usize, hash: KeyHash) -> Option<Hint> {
        let bucket = self.bucket_at(number);
        let mut found = scan::matches(bucket, hash.tag());
        while found != 0 {
            let at = found.trailing_zeros() as usize;
            let slot = bucket.peek(at);
            if slot.is_in_memory() {
                return Some(Hint {
                    place: number << 3 | at,
                    slot,
                });
            }
            found &= found - 1;
        }
        None
    }

    /// The place that a hint names, if the same item is still there.
    #[inline]
    pub(crate) fn recall(&self, hint: Hint) -> Option<Place<'_>> {
        let bucket = self.bucket_at(hint.place >> 3);
        let at = hint.place & 7;
        let slot = bucket.load(at);
        slot.same_item(hint.slot)
            .then_some(Place { bucket, at, slot })
    }

    /// Whether one of the key's buckets remembers an eviction of its tag, and when.
    #[inline]
    pub(crate) fn ghost(&self, hash: KeyHash) -> Option<u64> {
        let tag = hash.tag();
        for bucket in self.buckets_of(hash) {
            let mut found = scan::matches(bucket, tag);
            while found != 0 {
                let slot = bucket.peek(found.trailing_zeros() as usize);
                if slot.is_ghost() {
                    return Some(slot.ghost_stamp());
                }
                found &= found - 1;
            }
        }
        None
    }

    /// The slot of `hash` in `bucket` whose item in memory `is_it` accepts.
    #[inline]
    fn find_in<'i>(
        &self,
        bucket: &'i Bucket,
        tag: Tag,
        is_it: &mut impl FnMut(Slot) -> bool,
    ) -> Option<Place<'i>> {
        let mut found = scan::matches(bucket, tag);
        while found != 0 {
            let at = found.trailing_zeros() as usize;
            let slot = bucket.load(at);
            // The scan's result is a hint: the slot may have changed since.
            if slot.is_in_memory() && slot.tag() == tag && is_it(slot) {
                return Some(Place { bucket, at, slot });
            }
            found &= found - 1;
        }
        None
    }

    /// Looks a key up in memory, without a lock. `None` means that at some moment during the call no
    /// slot named an item of it in memory.
    #[inline]
    pub(crate) fn find(
        &self,
        hash: KeyHash,
        mut is_it: impl FnMut(Slot) -> bool,
    ) -> Option<Place<'_>> {
        let tag = hash.tag();
        loop {
            let entry = self.directory.entry(hash);
            if entry.is_in_two_tables() {
                match self.find_in_two(hash, entry, &mut is_it) {
                    Ok(found) => return found,
                    Err(Moved) => continue,
                }
            }
            let i = first(hash);
            let b1 = self.bucket(entry.table(), i);
            let seen = b1.seen();
            if let Some(place) = self.find_in(b1, tag, &mut is_it) {
                return Some(place);
            }
            let b2 = self.bucket(entry.table(), alternate(i, tag));
            if let Some(place) = self.find_in(b2, tag, &mut is_it) {
                return Some(place);
            }
            // The key may have moved from b2 to b1, or to another sub-table, between this reader's
            // scans. The fence orders the scans before the check.
            fence(Ordering::Acquire);
            if b1.seen() == seen && self.directory.entry(hash) == entry {
                return None;
            }
        }
    }

    /// As [`Index::find`], while slots are being moved to the entry's table from the other one: a
    /// slot may be in either.
    #[cold]
    fn find_in_two(
        &self,
        hash: KeyHash,
        entry: Entry,
        is_it: &mut impl FnMut(Slot) -> bool,
    ) -> Result<Option<Place<'_>>, Moved> {
        let tag = hash.tag();
        let i = first(hash);
        let j = alternate(i, tag);
        let buckets = [
            self.bucket(entry.table(), i),
            self.bucket(entry.table(), j),
            self.bucket(entry.other(), i),
            self.bucket(entry.other(), j),
        ];
        let seen = buckets.map(Bucket::seen);
        for (at, bucket) in buckets.into_iter().enumerate() {
            // A bucket that is filled has all that its parent's had for it.
            let is_left = at >= 2 && entry.is_filling() && !seen[at - 2].is_unfilled();
            if !is_left && let Some(place) = self.find_in(bucket, tag, is_it) {
                return Ok(Some(place));
            }
        }
        fence(Ordering::Acquire);
        if buckets.map(Bucket::seen) == seen && self.directory.entry(hash) == entry {
            Ok(None)
        } else {
            Err(Moved)
        }
    }
}

/// Lookups that miss in memory, of stores with flash.
impl Index {
    /// As [`Index::find`], for slots of both kinds. `None` means that at some moment during the call the
    /// key was in none that `is_it` accepts.
    #[cold]
    pub(crate) fn find_taken(
        &self,
        hash: KeyHash,
        mut is_it: impl FnMut(Slot) -> bool,
    ) -> Option<Place<'_>> {
        let tag = hash.tag();
        let (i, j) = (first(hash), alternate(first(hash), tag));
        loop {
            let entry = self.directory.entry(hash);
            let other = match entry.is_in_two_tables() {
                true => entry.other(),
                false => entry.table(),
            };
            let buckets = [
                (entry.table(), i),
                (entry.table(), j),
                (other, i),
                (other, j),
            ];
            let buckets = buckets.map(|(table, number)| self.bucket(table, number));
            let used = if entry.is_in_two_tables() { 4 } else { 2 };
            let seen = buckets.map(Bucket::seen);
            for (at, bucket) in buckets.into_iter().take(used).enumerate() {
                // A bucket that is filled has all that its parent's had for it.
                if at >= 2 && entry.is_filling() && !seen[at - 2].is_unfilled() {
                    continue;
                }
                for at in 0..SLOTS {
                    let slot = bucket.load(at);
                    if slot.is_taken() && slot.tag() == tag && is_it(slot) {
                        return Some(Place { bucket, at, slot });
                    }
                }
            }
            fence(Ordering::Acquire);
            if buckets.map(Bucket::seen) == seen && self.directory.entry(hash) == entry {
                return None;
            }
        }
    }
}

/// Where a key's slot was seen. It counts in the burst in which it was seen: until its end the
/// bucket stays one, and at worst another item is there when it is recalled.
#[derive(Clone, Copy)]
pub(crate) struct Hint {
    /// The bucket's number and, in the lowest three bits, the slot's.
    place: usize,
    pub(crate) slot: Slot,
}

/// The lookup raced with a move and has to be repeated.
struct Moved;

#[cfg(all(test, loom))]
mod loom_tests;
