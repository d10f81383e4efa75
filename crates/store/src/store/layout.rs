//! How the arena is laid out.
//!
//! ```text
//!  byte 0           4096           ...
//!  ┌────────────┬──────────────┬────────────┬───────────┬──────────────┬──────────────────┬────────────
//!  │ superblock │ open records │ page table │ directory │  dead bytes  │  copies of       │ pages:
//!  │ 4 KiB      │ 64 B a worker│ 64 B a page│ 8 B a word│ 4 B a page   │ superblock, page │ index,
//!  │            │              │            │           │ and worker   │ table, directory │ segments, …
//!  └────────────┴──────────────┴────────────┴───────────┴──────────────┴──────────────────┴────────────
//!  ◀───────────── tables: whole pages, each part from a multiple of 4 KiB on ────────────▶
//! ```
//! All parts are found by their offsets, so that the next process can map the arena at another
//! address. The heap holds only what follows from the arena, or what ends with the process: the
//! queues' links (the page table has their order), the list of free pages (the page table has their
//! states), segments in their grace period, spare sub-tables, counters.

use super::config::{Config, ITEM_SIZE_LIMIT, MEMORY_MIN, StoreError, WORKERS_MAX};
use crate::index::TABLE_BYTES;
use crate::memory::{Doubled, Identity, Mapping, PageEntry, Slice, Superblock};
#[cfg(not(any(miri, loom)))]
use crate::memory::{DoubledPart, PartKind};
use crate::segment::dead_bytes::DeadBytes;
use crate::segment::{Log, LogTables, OPEN_SEGMENTS, OpenRecord};
use crate::sync::AtomicU64;
use std::sync::Arc;

const SEGMENT_LEN_MIN: usize = 64 << 10;
const SEGMENT_LEN_MAX: usize = 2 << 20;

/// More than that locations cannot address.
const MEMORY_MAX: usize = 8 << 40;

/// Levels of the directory that cost no tag bits, at most.
const BASE_BITS_MAX: u32 = 16;

/// Levels of the directory beyond those that cost no tag bits. Each one spends a bit of the tag:
/// with 8 spent, 5.6 % of lookups meet a false match; with 7, under 3 %.
const TAG_BITS_SPENT_MAX: u32 = 7;

/// Alignment of the tables' parts: when the machine loses a page of memory, it hits one part only.
const PART_ALIGN: usize = 4096;

/// Threads beside the workers that append to segments: one moves items out of segments of which a
/// part is lost ([`Mender`](super::Mender)). loom has none.
pub(crate) const MENDERS: usize = if cfg!(loom) { 0 } else { 1 };

/// Threads beside the workers that look at the index and append nothing: one drops what goes from flash
/// ([`FlashKeeper`](crate::FlashKeeper)).
pub(crate) const KEEPERS: usize = if cfg!(loom) { 0 } else { 1 };

/// The least number of workers that an arena in a file has rows for, so that the next process may
/// have more workers.
const ROWS_IN_FILE_MIN: usize = 16;

/// The number of workers that an arena in a file has rows for; `workers` of them are used now.
pub(crate) fn rows_in_file(workers: usize) -> usize {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    workers.max(cores).clamp(ROWS_IN_FILE_MIN, WORKERS_MAX)
}

/// The parts of an arena.
pub(crate) struct Arena {
    pub(crate) tables: LogTables,
    pub(crate) directory: Doubled<AtomicU64>,
}

/// What the rest of a layout follows from.
struct Sizes {
    len: usize,
    segment_len: usize,
    base_bits: u32,
    directory_bits: u32,
}

/// The sizes that follow from a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StoreLayout {
    pub(crate) len: usize,
    pub(crate) segment_len: usize,
    pub(crate) pages: usize,
    pub(crate) first_page: usize,
    pub(crate) reserve: usize,
    pub(crate) base_bits: u32,
    pub(crate) directory_bits: u32,
    /// The most workers that there are rows for.
    pub(crate) workers: usize,
    pub(crate) open_records_at: usize,
    pub(crate) page_table_at: usize,
    pub(crate) directory_at: usize,
    pub(crate) dead_bytes_at: usize,
    /// Where the copies of the superblock, the page table and the directory are.
    pub(crate) copies_at: [usize; 3],
    pub(crate) tables_len: usize,
    pub(crate) heap_len: usize,
}

impl StoreLayout {
    /// The layout for a configuration, with rows for `workers` workers, which may be more than
    /// there are now.
    pub(crate) fn of(config: &Config, workers: usize) -> Result<StoreLayout, StoreError> {
        if config.workers == 0 || config.workers > WORKERS_MAX {
            return Err(StoreError::Workers);
        }
        if config.memory > MEMORY_MAX {
            return Err(StoreError::MemoryTooLarge);
        }
        if config.item_size_max > ITEM_SIZE_LIMIT || config.item_size_max > config.memory / 2 {
            return Err(StoreError::ItemSizeTooLarge);
        }
        let segment_len = 1
            << (config.memory / 1024)
                .clamp(SEGMENT_LEN_MIN, SEGMENT_LEN_MAX)
                .ilog2();
        let len = config.memory / (2 << 20) * (2 << 20);
        let directory_bits = base_bits(config.memory) + TAG_BITS_SPENT_MAX;
        let base_bits = config
            .index_bits
            .unwrap_or(directory_bits - TAG_BITS_SPENT_MAX);
        if base_bits > directory_bits - TAG_BITS_SPENT_MAX {
            return Err(StoreError::IndexTooLarge {
                most: directory_bits - TAG_BITS_SPENT_MAX,
            });
        }
        // A sub-table can split only as often as the tag has bits.
        let directory_bits = directory_bits.min(base_bits + 16);
        let sizes = Sizes {
            len,
            segment_len,
            base_bits,
            directory_bits,
        };
        let plan = StoreLayout::with(sizes, config.workers, workers);
        if len < plan.least(config.workers) {
            Err(plan.too_small(config.memory, config.workers))
        } else {
            Ok(plan)
        }
    }

    /// The layout that a superblock describes, for so many workers. `None` if no store is laid out
    /// like that: whatever a file says, its parts lie inside it.
    pub(crate) fn of_identity(identity: &Identity, workers: usize) -> Option<StoreLayout> {
        let [base_bits, directory_bits] = identity.directory_bits.map(u32::from);
        let len = usize::try_from(identity.len).ok()?;
        let segment_len = identity.page_len as usize;
        let rows = identity.workers as usize;
        let is_possible = (MEMORY_MIN..=MEMORY_MAX).contains(&len)
            && len.is_multiple_of(2 << 20)
            && segment_len.is_power_of_two()
            && (SEGMENT_LEN_MIN..=SEGMENT_LEN_MAX).contains(&segment_len)
            && (1..=WORKERS_MAX).contains(&rows)
            && base_bits <= BASE_BITS_MAX
            && (base_bits..=base_bits + 16).contains(&directory_bits)
            && directory_bits <= BASE_BITS_MAX + TAG_BITS_SPENT_MAX;
        if !is_possible {
            return None;
        }
        let sizes = Sizes {
            len,
            segment_len,
            base_bits,
            directory_bits,
        };
        let plan = StoreLayout::with(sizes, workers, rows);
        let fits = plan.identity() == *identity && plan.first_page < plan.pages;
        fits.then_some(plan)
    }

    /// The layout with these sizes, for `now` workers and rows for `workers`.
    fn with(sizes: Sizes, now: usize, workers: usize) -> StoreLayout {
        let Sizes {
            len,
            segment_len,
            base_bits,
            directory_bits,
        } = sizes;
        // The heap's bytes for each segment count as memory too: as many bytes of the range stay
        // unused.
        let heap_len = len / segment_len * Log::HEAP_LEN_PER_SEGMENT;
        let pages = (len - heap_len.min(len)) / segment_len;
        let mut end = size_of::<Superblock>();
        let mut part = |len: usize| {
            let at = end;
            end = (at + len).next_multiple_of(PART_ALIGN);
            at
        };
        let open_records_at = part((workers + MENDERS) * OPEN_SEGMENTS * size_of::<OpenRecord>());
        let page_table_at = part(pages * size_of::<PageEntry>());
        let directory_at = part(8 << directory_bits);
        let dead_bytes_at = part(DeadBytes::len_for(workers, pages));
        let copies_at = [
            part(size_of::<Superblock>()),
            part(pages * size_of::<PageEntry>()),
            part(8 << directory_bits),
        ];
        StoreLayout {
            len,
            segment_len,
            pages,
            first_page: end.div_ceil(segment_len),
            // For each worker one segment of each queue to clean into, and two more that are in
            // their grace period.
            reserve: 2 * now + 2,
            base_bits,
            directory_bits,
            workers,
            open_records_at,
            page_table_at,
            directory_at,
            dead_bytes_at,
            copies_at,
            tables_len: end,
            heap_len,
        }
    }

    /// Small enough for loom: segments of 512 bytes, and an index that splits once.
    #[cfg(all(loom, test))]
    pub(crate) fn tiny(pages: usize, workers: usize) -> StoreLayout {
        StoreLayout {
            len: pages * 512,
            segment_len: 512,
            pages,
            first_page: 1,
            reserve: 2,
            base_bits: 0,
            directory_bits: 1,
            workers,
            open_records_at: 0,
            page_table_at: 0,
            directory_at: 0,
            dead_bytes_at: 0,
            copies_at: [0; 3],
            tables_len: 0,
            heap_len: 0,
        }
    }

    /// The parts of an arena with this layout.
    pub(crate) fn parts(&self, mapping: &Arc<Mapping>) -> Arena {
        let records = (self.workers + MENDERS) * OPEN_SEGMENTS;
        let rows = self.workers + 1;
        Arena {
            tables: LogTables {
                superblock: Doubled::new(mapping, (0, self.copies_at[0]), 1),
                open_records: Slice::new(mapping, self.open_records_at, records),
                page_table: Doubled::new(
                    mapping,
                    (self.page_table_at, self.copies_at[1]),
                    self.pages,
                ),
                dead_bytes: Slice::new(mapping, self.dead_bytes_at, rows * self.pages),
            },
            directory: Doubled::new(
                mapping,
                (self.directory_at, self.copies_at[2]),
                1 << self.directory_bits,
            ),
        }
    }

    /// The ranges of bytes that may turn to zeros when the machine loses memory while a process takes
    /// over: the open records, the dead bytes, and all pages.
    #[cfg(not(any(miri, loom)))]
    pub(crate) fn survivable(&self) -> [std::ops::Range<usize>; 3] {
        [
            self.open_records_at..self.page_table_at,
            self.dead_bytes_at..self.copies_at[0],
            self.first_page * self.segment_len..self.len,
        ]
    }

    /// The tables that are kept twice, since zeros would have wrong places read and written.
    #[cfg(not(any(miri, loom)))]
    pub(crate) fn doubled(&self) -> [DoubledPart; 3] {
        let part = |number: usize, at: usize, len: usize, kind| DoubledPart {
            at,
            copy_at: self.copies_at[number],
            len: len.next_multiple_of(PART_ALIGN),
            kind,
        };
        let entries = self.pages * size_of::<PageEntry>();
        [
            part(0, 0, size_of::<Superblock>(), PartKind::Superblock),
            part(1, self.page_table_at, entries, PartKind::PageTable),
            part(
                2,
                self.directory_at,
                8 << self.directory_bits,
                PartKind::Directory,
            ),
        ]
    }

    /// What a superblock says of an arena with this layout.
    #[expect(clippy::cast_possible_truncation, reason = "bounded above")]
    pub(crate) fn identity(&self) -> Identity {
        Identity {
            len: self.len as u64,
            page_len: self.segment_len as u32,
            pages: self.pages as u32,
            workers: self.workers as u32,
            directory_bits: [self.base_bits as u8, self.directory_bits as u8],
        }
    }

    /// The least memory with which the workers' open segments and the reserve take at most half.
    pub(crate) fn least(&self, workers: usize) -> usize {
        let fixed = self.first_page
            + (TABLE_BYTES << self.base_bits).div_ceil(self.segment_len)
            + self.reserve
            + 4 * workers;
        MEMORY_MIN.max((2 * fixed * self.segment_len).next_multiple_of(2 << 20))
    }

    pub(crate) fn too_small(&self, given: usize, workers: usize) -> StoreError {
        StoreError::MemoryTooSmall {
            given,
            workers,
            least: self.least(workers),
        }
    }
}

/// Chosen so that the smallest items, when they fill memory, spend four to five tag bits; then less
/// than one lookup in a hundred meets a false match. One more level would cost large items, of
/// which few fit, a hundredth of memory.
fn base_bits(memory: usize) -> u32 {
    // A 10-byte key and value with their share of the index, at seven eighths of the slots in use.
    let items = memory / 42;
    let tables = items / (TABLE_BYTES / 64 * 7 * 7 / 8);
    tables.max(1).ilog2().saturating_sub(4).min(BASE_BITS_MAX)
}
