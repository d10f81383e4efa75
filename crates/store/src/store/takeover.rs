//! Taking over the memory of the process before.
//!
//! A process that works in a file may die at any moment: what it leaves is what this module begins
//! with. All that a reader can see is published by one store, so a half-done change is one that
//! nobody has seen, or one of those that [`crate::index`] can complete:
//!
//! - A page belongs to whom its entry says. Lent pages are free again, and so are segments in their
//!   grace period, into which no slot points. What uploads and pins held is held no more.
//! - An open segment is sealed behind the last item that was written. An item's header is written before
//!   the next one's place is handed out, and the place before the header, so only the last header may
//!   be half written; a slot may point to it only if it is whole. Items that no slot points to are dead.
//! - A segment under cleaning is sealed again. What has moved has its slot elsewhere.
//! - Dead bytes are noted after the slot is gone, so what was not noted lives, and is found to be dead
//!   when its segment is cleaned.
//! - Sequence numbers are taken from the superblock, so that none is given twice.

use super::layout::StoreLayout;
use crate::index::{Contents, DamagedDirectory, Index, TABLE_BYTES};
use crate::memory::{PageId, PageState, Queue};
use crate::segment::LogTables;
use crate::segment::layout::end_of_items;
use std::time::Duration;

/// How a store began.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Start {
    /// In memory of the process's own.
    Private,
    /// In a file from which nothing was taken over.
    Cold(ColdReason),
    /// With the items of the process before.
    Warm(Warm),
}

/// Why nothing was taken over from a file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ColdReason {
    /// It is new.
    #[error("the file is new")]
    New,
    /// It holds something else, or has another length than it says.
    #[error("the file held no store of coua")]
    Foreign,
    /// It is of another version of coua.
    #[error("the file's layout is version {found}, and this is version {own}")]
    Version {
        /// The file's.
        found: u32,
        /// This program's.
        own: u32,
    },
    /// It was made with other settings.
    #[error("the file was made for {memory} MiB of items, or for fewer workers")]
    Settings {
        /// Mebibytes that it was made for.
        memory: u64,
    },
    /// The machine has been restarted since, and the store was not left in order before.
    #[error("the machine was restarted before the store was left in order")]
    Restarted,
    /// It is a copy.
    #[error("the file is a copy of the one that the store was left in")]
    Copy,
    /// Something in it contradicts itself.
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
    /// Whether the process before was ended without leaving the store in order.
    pub was_killed: bool,
    /// Lock bits, displacements and open segments that it left half done.
    pub mended: u64,
    /// How long it took.
    pub took: Duration,
}

/// What follows from an arena's contents and lies outside of it.
pub(super) struct Taken {
    pub(super) warm: Warm,
    /// Sub-tables in use, and those of the index's pages that are not.
    pub(super) contents: Contents,
    /// Sealed segments in the order of their queues.
    pub(super) sealed: Vec<(Queue, PageId)>,
}

/// Mends the arena of a dead process. Nobody else uses it meanwhile.
pub(super) fn take_over(
    tables: &LogTables,
    layout: &StoreLayout,
    index: &Index,
) -> Result<Taken, &'static str> {
    let mut warm = Warm::default();
    let ends = open_ends(tables, layout)?;
    let mut sealed = Vec::new();
    for page in 0..tables.page_table.len() {
        let entry = &tables.page_table[page];
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
        let entry = &tables.page_table[page as usize];
        (entry.order(), entry.sequence())
    });
    warm.segments = sealed.len() as u64;
    let tables_a_page = layout.segment_len / TABLE_BYTES;
    let is_table = |table: crate::index::TableId| {
        let page = table.0 as usize / tables_a_page;
        page < layout.pages && tables.page_table[page].state() == PageState::Index
    };
    let contents = index
        .take_over(is_table, |slot| {
            let offset = slot.location().offset();
            let (page, within) = (offset / layout.segment_len, offset % layout.segment_len);
            page < layout.pages && {
                let entry = &tables.page_table[page];
                entry.state() == PageState::Sealed && within < entry.used()
            }
        })
        .map_err(|DamagedDirectory| "its directory names what is no sub-table")?;
    warm.items = contents.items;
    warm.mended += contents.mended;
    Ok(Taken {
        warm,
        contents,
        sealed,
    })
}

/// How far each open segment is written.
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
        if tables.page_table[page].state() == PageState::Open {
            let start = page * layout.segment_len;
            let mapping = tables.page_table.mapping();
            let end = end_of_items(handed_out, |offset, header| {
                #[expect(unsafe_code, reason = "reads bytes that may be no item")]
                // SAFETY: the process that wrote them is dead, and this one has not begun.
                unsafe {
                    mapping.copy_to(start + offset, header);
                }
            });
            ends.push((segment, end));
        }
    }
    Ok(ends)
}

/// Gives a page the state that follows from the death of its process.
fn take_page_over(
    tables: &LogTables,
    layout: &StoreLayout,
    page: usize,
    ends: &[(PageId, usize)],
    warm: &mut Warm,
) -> Result<(), &'static str> {
    let entry = &tables.page_table[page];
    let state = entry.state();
    if state == PageState::Open {
        let end = ends.iter().find(|&&(segment, _)| segment as usize == page);
        entry.set_used(end.map_or(0, |&(_, end)| end));
        warm.mended += 1;
    }
    match state {
        PageState::Free | PageState::Lent | PageState::Retired => entry.end(),
        PageState::Open | PageState::Sealed | PageState::Cleaning => {
            let next = tables.superblock[0].sequences.next_now();
            if entry.used() > layout.segment_len || entry.sequence() >= next {
                return Err("a segment is longer or younger than it can be");
            }
            entry.forget_holds();
            if entry.used() == 0 {
                entry.end();
            } else {
                // A crawl or a cleaning that had begun is none any more.
                entry.make_crawl_due();
                entry.set_state(PageState::Sealed);
            }
        }
        PageState::Index | PageState::Tables => {}
    }
    Ok(())
}
