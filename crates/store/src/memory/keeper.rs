//! What the handler of memory errors does about a lost page of the arena: that of a table which is kept
//! twice it writes anew from the other copy; of others it puts on record which they are, for a process
//! that takes over.
#![allow(unsafe_code, reason = "reads and writes the arena in a signal handler")]

use super::file::FileKind;
use super::{HugePages, Mapping, PageEntry, Superblock};
use crate::sync::{AtomicU64, Ordering};
use coua_memory_errors::{FreshPage, Keeper, PAGE_BYTES, Remedy};
use std::ops::Range;
use std::os::fd::{AsRawFd, RawFd};
use std::ptr::NonNull;

/// Bytes that are copied at once, as an atomic.
const WORD: usize = size_of::<u64>();

/// Where a table that is kept twice lies, and where its copy does, in bytes of the arena. Both begin at
/// multiples of 4 KiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DoubledPart {
    pub(crate) at: usize,
    pub(crate) copy_at: usize,
    /// A multiple of 4 KiB.
    pub(crate) len: usize,
    pub(crate) kind: PartKind,
}

/// What a table holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PartKind {
    Superblock,
    PageTable,
    Directory,
}

/// See the module. It is used as long as the arena is mapped.
pub(super) struct ArenaKeeper {
    base: NonNull<u8>,
    parts: [DoubledPart; 3],
    file: Option<RawFd>,
    /// Whether pages of the tables can be restored one by one.
    restores: bool,
}

// SAFETY: what it points to is the arena, whose words are atomics.
unsafe impl Send for ArenaKeeper {}
// SAFETY: as above.
unsafe impl Sync for ArenaKeeper {}

impl ArenaKeeper {
    /// The keeper of an arena with these tables.
    pub(super) fn new(mapping: &Mapping, parts: [DoubledPart; 3]) -> ArenaKeeper {
        let file = mapping.file();
        // A page of such memory stays mapped when it is lost, so others would see it half written.
        let is_dax = file.is_some_and(|file| file.kind() == FileKind::Other && file.is_dax());
        ArenaKeeper {
            base: mapping.at(0),
            parts,
            file: file.map(|file| file.descriptor().as_raw_fd()),
            restores: mapping.huge_pages() != HugePages::Reserved && !is_dax,
        }
    }

    fn offset_of(&self, address: usize) -> usize {
        address - self.base.as_ptr().addr()
    }

    /// A value of the arena at a byte that is a multiple of its alignment.
    fn value<T: super::Shared>(&self, offset: usize) -> &T {
        // SAFETY: the callers name places inside of tables, which are inside of the arena.
        let at = unsafe { self.base.add(offset) };
        // SAFETY: as above, aligned, and any bytes are a value.
        unsafe { at.cast::<T>().as_ref() }
    }
}

/// Whether one range lies in the other.
fn is_in(one: &Range<usize>, other: &Range<usize>) -> bool {
    other.start <= one.start && one.end <= other.end
}

impl DoubledPart {
    /// The range of the table, and of its copy.
    fn ranges(&self) -> [Range<usize>; 2] {
        [self.at, self.copy_at].map(|at| at..at + self.len)
    }
}

// SAFETY: the methods load and store atomics of the arena, and of no part of it that is lost: a range
// that turns to zeros has no part of the tables, and a table is restored from its other copy.
unsafe impl Keeper for ArenaKeeper {
    fn remedy(&self, lost: &Range<usize>) -> Remedy {
        let offset = self.offset_of(lost.start);
        let lost = offset..offset + lost.len();
        let overlaps = |range: &Range<usize>| range.start < lost.end && lost.start < range.end;
        let ranges = || self.parts.iter().flat_map(DoubledPart::ranges);
        if !ranges().any(|range| overlaps(&range)) {
            Remedy::Zeros
        } else if self.restores && ranges().any(|range| is_in(&lost, &range)) {
            Remedy::Restored(self.file.map(|file| (file, lost.start as u64)))
        } else {
            Remedy::None
        }
    }

    fn note_loss(&self, lost: &Range<usize>) {
        let offset = self.offset_of(lost.start);
        let lost = offset..offset + lost.len();
        let superblock = self.parts.iter();
        for part in superblock.filter(|part| part.kind == PartKind::Superblock) {
            for at in [part.copy_at, part.at] {
                self.value::<Superblock>(at).losses().note(&lost);
            }
        }
    }

    fn restore(&self, address: usize, page: &mut FreshPage) {
        let offset = self.offset_of(address);
        let lost = offset..offset + PAGE_BYTES;
        for part in &self.parts {
            let [table, copy] = part.ranges();
            let is_table = is_in(&lost, &table);
            if !is_table && !is_in(&lost, &copy) {
                continue;
            }
            let source = match is_table {
                true => copy.start + (offset - table.start),
                false => table.start + (offset - copy.start),
            };
            for (at, bytes) in page.0.chunks_exact_mut(WORD).enumerate() {
                let word = self
                    .value::<AtomicU64>(source + at * WORD)
                    .load(Ordering::Acquire);
                bytes.copy_from_slice(&word.to_ne_bytes());
            }
            if is_table {
                amend(page, part.kind);
            }
        }
    }
}

/// Changes what the copy does not say for certain.
fn amend(page: &mut FreshPage, kind: PartKind) {
    let start = page.0.as_mut_ptr();
    let step = match kind {
        PartKind::Superblock => size_of::<Superblock>(),
        PartKind::PageTable => size_of::<PageEntry>(),
        PartKind::Directory => return,
    };
    for at in (0..PAGE_BYTES).step_by(step) {
        // SAFETY: inside of the page.
        let value = unsafe { start.add(at) };
        if kind == PartKind::Superblock {
            // SAFETY: a page is a superblock's length and alignment, and any bytes are one.
            unsafe { &*value.cast::<Superblock>() }.skip_sequences();
        } else {
            // SAFETY: entries fill the page, are aligned in it, and any bytes are one.
            unsafe { &*value.cast::<PageEntry>() }.distrust_hints();
        }
    }
}

impl Mapping {
    /// Makes the copies of the tables equal to them. No other thread changes them meanwhile.
    pub(crate) fn copy_tables(&self, parts: &[DoubledPart]) {
        let word = |offset: usize| -> &AtomicU64 {
            assert!(offset + WORD <= self.len());
            // SAFETY: inside of the mapping and aligned; any bytes are a value, and others may store to
            // it.
            unsafe { self.at(offset).cast::<AtomicU64>().as_ref() }
        };
        for part in parts {
            for at in (0..part.len).step_by(WORD) {
                let value = word(part.at + at).load(Ordering::Relaxed);
                word(part.copy_at + at).store(value, Ordering::Relaxed);
            }
        }
    }
}
