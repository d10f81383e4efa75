//! Takes over the memory that the previous process has left.
//!
//! A process that works in a file may die at any moment; this module starts from what it leaves.
//! Every change becomes visible to readers by a single store. So a half-done change is either one
//! that no reader has seen, or one that [`crate::index`] can complete:
//!
//! - The state of each page is in its page table entry. Lent pages become free again, and so do
//!   segments in their grace period, since no slot points into them. Holds of uploads and pins end.
//! - An open segment is sealed after the last item that was written. A worker hands out an item's
//!   place first, then writes the header, and only then hands out the next place. So only the last
//!   header may be half written; a slot may point to it only if it is whole. Items that no slot
//!   points to are dead.
//! - A segment under cleaning is sealed again. The items that have moved have slots that point
//!   elsewhere.
//! - Dead bytes are noted after the slot is cleared. Bytes that were not noted count as live, and
//!   are found to be dead when their segment is cleaned.
//! - Sequence numbers continue from the superblock, so that none is used twice.

use super::layout::StoreLayout;
use crate::index::{Contents, DamagedDirectory, Index, TABLE_BYTES};
use crate::memory::{PageId, PageState, Queue};
use crate::segment::LogTables;
use crate::segment::layout::end_of_items;
use crate::sync::{AtomicU64, Ordering};
use crate::tags::Tag;
use std::ops::Range;
use std::time::Duration;

/// How a store began.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Start {
    /// In the process's private memory.
    Private,
    /// In a file, with nothing taken over.
    Cold(ColdReason),
    /// With the items of the previous process.
    Warm(Warm),
}

/// Why nothing was taken over from a file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ColdReason {
    /// The file is new.
    #[error("the file is new")]
    New,
    /// It holds something else, or its length is not what it says.
    #[error("the file held no store of coua")]
    Foreign,
    /// It was written by another version of coua.
    #[error("the file's layout is version {found}, and this is version {own}")]
    Version {
        /// The file's version.
        found: u32,
        /// This program's version.
        own: u32,
    },
    /// There are more workers than it has rows for.
    #[error("the file was made for at most {most} workers")]
    Workers {
        /// How many it was made for.
        most: usize,
    },
    /// So much less memory may be used now that the file's tables, index and segments would leave
    /// too little of it.
    #[error("the file was made for {memory} MiB, and with less than {least} MiB it cannot be used")]
    MemoryTooSmall {
        /// Mebibytes that it was made for.
        memory: u64,
        /// Mebibytes that would do.
        least: u64,
    },
    /// The machine has been restarted since, and the store had not been left in order.
    #[error("the machine was restarted before the store was left in order")]
    Restarted,
    /// The file is a copy.
    #[error("the file is a copy of the one that the store was left in")]
    Copy,
    /// The file contradicts itself.
    #[error("the file is damaged: {0}")]
    Damaged(&'static str),
}

/// What was taken over.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Warm {
    /// Items, expired ones included.
    pub items: u64,
    /// Segments that hold them.
    pub segments: u64,
    /// Bytes that the file was made for; no more can be used.
    pub memory: usize,
    /// Whether the previous process ended without leaving the store in order.
    pub was_killed: bool,
    /// Lock bits, displacements and open segments that were left half done.
    pub mended: u64,
    /// How long taking over took.
    pub took: Duration,
}

/// What is derived from an arena's contents and kept outside it.
pub(super) struct Taken {
    pub(super) warm: Warm,
    /// Sub-tables in use, items, and repairs of the index.
    pub(super) contents: Contents,
    /// Of the items, those on flash.
    pub(super) on_flash: u64,
    /// Sealed segments in the order of their queues.
    pub(super) sealed: Vec<(Queue, PageId)>,
    /// Ranges of the arena that are on record as lost.
    pub(super) lost: Vec<Range<usize>>,
}

/// More segments than can be opened: a million a second for ten thousand years.
const SEQUENCE_MAX: u64 = 1 << 60;

/// Repairs the arena of a dead process. Nothing else uses the arena meanwhile.
pub(super) fn take_over(
    tables: &LogTables,
    layout: &StoreLayout,
    index: &Index,
) -> Result<Taken, &'static str> {
    let mut warm = Warm::default();
    if tables.superblock.at(0).sequences.next_now() >= SEQUENCE_MAX {
        return Err("its sequence numbers are used up");
    }
    let lost = mark_losses(tables, layout)?;
    let ends = open_ends(tables, layout)?;
    let mut sealed = Vec::new();
    for page in 0..tables.page_table.len() {
        let entry = tables.page_table.at(page);
        let is_of_tables = entry.state() == PageState::Tables;
        if is_of_tables != (page < layout.first_page) {
            return Err("its page table does not fit its size");
        }
        take_page_over(tables, layout, page, &ends, &mut warm)?;
        if entry.state() == PageState::Sealed {
            #[expect(clippy::cast_possible_truncation, reason = "page numbers are 32 bits")]
            sealed.push((entry.queue(), page as PageId));
        }
    }
    for record in 0..tables.open_records.len() {
        tables.open_records[record].clear();
    }
    sealed.sort_by_key(|&(_, page)| {
        let entry = tables.page_table.at(page as usize);
        (entry.order(), entry.sequence())
    });
    warm.segments = sealed.len() as u64;
    let tables_a_page = layout.segment_len / TABLE_BYTES;
    let is_table = |table: crate::index::TableId| {
        let page = table.0 as usize / tables_a_page;
        page < layout.pages && tables.page_table.at(page).state() == PageState::Index
    };
    let on_flash = AtomicU64::new(0);
    let contents = index
        .take_over(is_table, |slot| {
            if slot.is_on_flash() {
                // Whether it is there turns out when a volume is attached.
                on_flash.fetch_add(1, Ordering::Relaxed);
                return true;
            }
            let offset = slot.location().offset();
            let (page, within) = (offset / layout.segment_len, offset % layout.segment_len);
            !slot.is_damaged() && page < layout.pages && {
                let entry = tables.page_table.at(page);
                entry.state() == PageState::Sealed && within < entry.used()
            }
        })
        .map_err(|DamagedDirectory| "its directory names what is no sub-table")?;
    // Pages of which no sub-table is used, as a process that was killed may leave one, are free.
    for page in layout.first_page..layout.pages {
        let entry = tables.page_table.at(page);
        let is_used = |table: &crate::index::TableId| table.0 as usize / tables_a_page == page;
        if entry.state() == PageState::Index {
            let at = (contents.tables)
                .partition_point(|table| (table.0 as usize) < page * tables_a_page);
            if !contents.tables.get(at).is_some_and(is_used) {
                entry.end();
            }
        }
    }
    warm.items = contents.items;
    warm.mended += contents.mended;
    Ok(Taken {
        warm,
        contents,
        on_flash: on_flash.into_inner(),
        sealed,
        lost,
    })
}

/// Marks the segments of which the process before had lost a part when it died, and had perhaps told
/// nobody. Returns what it had lost.
fn mark_losses(
    tables: &LogTables,
    layout: &StoreLayout,
) -> Result<Vec<Range<usize>>, &'static str> {
    let superblock = tables.superblock.at(0);
    let lost = superblock.losses().read();
    let lost = lost.ok_or("more of its memory was lost than is on record")?;
    for range in &lost {
        let pages = range.start / layout.segment_len..range.end.div_ceil(layout.segment_len);
        for page in pages.start..pages.end.min(layout.pages) {
            let entry = tables.page_table.at(page);
            if entry.state().holds_items() {
                entry.set_damaged();
            }
        }
    }
    Ok(lost)
}

/// Up to where each open segment is written.
fn open_ends(
    tables: &LogTables,
    layout: &StoreLayout,
) -> Result<Vec<(PageId, usize)>, &'static str> {
    let records = (0..tables.open_records.len()).filter_map(|at| tables.open_records[at].read());
    let mut ends = Vec::new();
    for (segment, handed_out) in records {
        let page = segment as usize;
        if page >= layout.pages || handed_out > layout.segment_len {
            return Err("a worker's open segment is none");
        }
        if tables.page_table.at(page).state() == PageState::Open {
            let start = page * layout.segment_len;
            let mapping = tables.page_table.mapping();
            let is_damaged = tables.page_table.at(page).is_damaged();
            let end = match is_damaged {
                // Nothing says where its items begin. It is emptied by a sweep over the index.
                true => handed_out,
                false => end_of_items(handed_out, |offset, header| {
                    #[expect(unsafe_code, reason = "reads bytes that may be no item")]
                    // SAFETY: the process that wrote them is dead, and this one has not begun.
                    unsafe {
                        mapping.copy_to(start + offset, header);
                    }
                }),
            };
            ends.push((segment, end));
        }
    }
    Ok(ends)
}

/// Gives a page the state that it has after the death of its process.
fn take_page_over(
    tables: &LogTables,
    layout: &StoreLayout,
    page: usize,
    ends: &[(PageId, usize)],
    warm: &mut Warm,
) -> Result<(), &'static str> {
    let entry = tables.page_table.at(page);
    let state = entry.state();
    if state == PageState::Open {
        let end = ends.iter().find(|&&(segment, _)| segment as usize == page);
        entry.set_used(end.map_or(0, |&(_, end)| end));
        warm.mended += 1;
    }
    match state {
        PageState::Free | PageState::Lent | PageState::Retired => entry.end(),
        PageState::Open | PageState::Sealed | PageState::Cleaning => {
            let next = tables.superblock.at(0).sequences.next_now();
            if entry.used() > layout.segment_len || entry.sequence() >= next {
                return Err("a segment is longer or younger than it can be");
            }
            entry.forget_holds();
            if entry.used() == 0 {
                entry.end();
            } else {
                // A crawl or cleaning that had begun is abandoned.
                entry.make_crawl_due();
                entry.set_state(PageState::Sealed);
            }
        }
        PageState::Tags => {
            let (prefix, depth) = entry.tags_part();
            if depth > Tag::BITS || prefix >> depth != 0 {
                return Err("a page of tags is none");
            }
        }
        PageState::Index | PageState::Tables | PageState::Fillings => {}
    }
    Ok(())
}
