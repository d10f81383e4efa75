//! The pages of the index: sub-tables are taken from them and given back.
//!
//! A page whose sub-tables are all unused is a free page again.

use crate::index::{TABLE_BYTES, TableId};
use crate::memory::{PageId, Pages, Purpose};
use crate::sync::{AtomicUsize, Mutex, MutexGuard, Ordering};
use std::sync::{Arc, PoisonError};

/// See the module.
pub(super) struct SubTables {
    pages: Arc<Pages>,
    /// Sub-tables of a page, 32 at most.
    per_page: u32,
    spare: Mutex<Spare>,
    in_use: AtomicUsize,
}

/// Sub-tables that nobody uses.
struct Spare {
    /// For each page the unused sub-tables in it, one bit each; 0 for what is no page of the index.
    of_page: Box<[u32]>,
    /// The pages that have some. Those of the last one are taken first.
    pages: Vec<PageId>,
}

impl SubTables {
    /// No sub-table at all, in an arena of so many pages.
    #[expect(clippy::cast_possible_truncation, reason = "at most 32")]
    pub(super) fn new(pages: &Arc<Pages>, page_count: PageId) -> SubTables {
        SubTables {
            pages: Arc::clone(pages),
            per_page: (pages.page_len() / TABLE_BYTES) as u32,
            spare: Mutex::new(Spare {
                of_page: vec![0; page_count as usize].into(),
                pages: Vec::with_capacity(page_count as usize),
            }),
            in_use: AtomicUsize::new(0),
        }
    }

    /// Sub-tables in use.
    pub(super) fn count(&self) -> usize {
        self.in_use.load(Ordering::Relaxed)
    }

    fn spare(&self) -> MutexGuard<'_, Spare> {
        self.spare.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All bits of a page.
    fn all(&self) -> u32 {
        u32::MAX >> (32 - self.per_page)
    }

    /// An unused sub-table, from a partly used page or a new one; `None` if there is no page.
    pub(super) fn take(&self) -> Option<TableId> {
        let mut spare = self.spare();
        let page = match spare.pages.last() {
            Some(&page) => page,
            None => {
                let page = self.pages.take(Purpose::Index)?;
                spare.of_page[page as usize] = self.all();
                spare.pages.push(page);
                page
            }
        };
        let unused = &mut spare.of_page[page as usize];
        let at = unused.trailing_zeros();
        *unused &= *unused - 1;
        if *unused == 0 {
            spare.pages.pop();
        }
        self.in_use.fetch_add(1, Ordering::Relaxed);
        Some(TableId(page * self.per_page + at))
    }

    /// Takes back a sub-table that no worker can be looking at.
    pub(super) fn give_back(&self, table: TableId) {
        self.in_use.fetch_sub(1, Ordering::Relaxed);
        let (page, at) = (table.0 / self.per_page, table.0 % self.per_page);
        let mut spare = self.spare();
        let unused = &mut spare.of_page[page as usize];
        let was_full = *unused == 0;
        *unused |= 1 << at;
        if *unused == self.all() {
            *unused = 0;
            spare.pages.retain(|&other| other != page);
            self.pages.give_back_index(page);
        } else if was_full {
            spare.pages.push(page);
        }
    }

    /// Takes over pages of the index, of which the sub-tables `in_use` are used; they are in
    /// ascending order.
    pub(super) fn adopt(&self, pages: impl Iterator<Item = PageId>, in_use: &[TableId]) {
        let is_used = |table: u32| in_use.binary_search_by_key(&table, |t| t.0).is_ok();
        let mut spare = self.spare();
        self.in_use.store(in_use.len(), Ordering::Relaxed);
        for page in pages {
            let unused = (0..self.per_page)
                .filter(|at| !is_used(page * self.per_page + at))
                .fold(0, |bits, at| bits | 1 << at);
            if unused == self.all() {
                // The process before died before it could give the page back.
                self.pages.give_back_index(page);
            } else if unused != 0 {
                spare.of_page[page as usize] = unused;
                spare.pages.push(page);
            }
        }
    }
}
