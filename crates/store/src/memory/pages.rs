//! Who has which page.

use super::mapping::{Mapping, Slice};
use super::page_table::{PageEntry, PageId, PageState};
use crate::sync::{AtomicUsize, Mutex, Ordering};
use crossbeam_utils::CachePadded;
use std::sync::{Arc, OnceLock};
use std::thread::Thread;

/// What a page is wanted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// A segment for new items: leaves the cleaner its reserve.
    Items,
    /// A segment that the cleaner fills while it empties another.
    Cleaning,
    /// Sub-tables of the index.
    Index,
    /// Buffers of the server's connections.
    Lent,
}

/// Pages by what they are used for.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Shares {
    pub(crate) free: usize,
    pub(crate) index: usize,
    pub(crate) lent: usize,
}

/// Gives out the pages of the arena.
pub(crate) struct Pages {
    mapping: Arc<Mapping>,
    table: Slice<PageEntry>,
    page_len: usize,
    /// Pages that only the cleaner and the index may take.
    reserve: usize,
    /// Most pages that may be lent at a time.
    lent_max: usize,
    free: Mutex<Vec<PageId>>,
    /// The length of `free`, read without its lock.
    free_count: CachePadded<AtomicUsize>,
    index: AtomicUsize,
    lent: AtomicUsize,
    /// Pages below this number have been given out at least once.
    touched: AtomicUsize,
    /// Who supplies memory ahead of use, and from how many touched bytes on it wants to be woken.
    supplier: OnceLock<Thread>,
    wake_at: AtomicUsize,
}

impl Pages {
    /// The pages of a table. Those that it calls free are, each is `page_len` bytes long, and the
    /// last `reserve` of them are for the cleaner and the index.
    #[expect(clippy::cast_possible_truncation, reason = "page numbers are 32 bits")]
    pub(crate) fn new(table: Slice<PageEntry>, page_len: usize, reserve: usize) -> Pages {
        let pages = &table;
        let of = |state| (0..pages.len()).filter(move |&page| pages[page].state() == state);
        let (tables, index) = (of(PageState::Tables).count(), of(PageState::Index).count());
        // From the top of the stack down: the lowest first, so that memory ahead can be faulted in.
        let free: Vec<PageId> = of(PageState::Free)
            .rev()
            .map(|page| page as PageId)
            .collect();
        let touched = (0..table.len()).rfind(|&page| table[page].state() != PageState::Free);
        Pages {
            mapping: Arc::clone(table.mapping()),
            page_len,
            reserve,
            lent_max: ((table.len() - tables) / 4).max(2),
            free_count: CachePadded::new(AtomicUsize::new(free.len())),
            free: Mutex::new(free),
            index: AtomicUsize::new(index),
            lent: AtomicUsize::new(0),
            touched: AtomicUsize::new(touched.map_or(0, |page| page + 1)),
            supplier: OnceLock::new(),
            wake_at: AtomicUsize::new(usize::MAX),
            table,
        }
    }

    pub(crate) fn page_len(&self) -> usize {
        self.page_len
    }

    /// Pages that are left when items may take no more.
    pub(crate) fn reserve(&self) -> usize {
        self.reserve
    }

    /// Free pages, as of a moment ago.
    #[inline]
    pub(crate) fn free_count(&self) -> usize {
        self.free_count.load(Ordering::Relaxed)
    }

    /// A page, or `None` where there is none for that purpose.
    pub(crate) fn take(&self, purpose: Purpose) -> Option<PageId> {
        let mut free = self
            .free
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        let leave = match purpose {
            Purpose::Items => self.reserve,
            Purpose::Index | Purpose::Lent => self.reserve / 2,
            Purpose::Cleaning => 0,
        };
        if free.len() <= leave {
            return None;
        }
        if purpose == Purpose::Lent && self.lent.load(Ordering::Relaxed) >= self.lent_max {
            return None;
        }
        let page = free.pop()?;
        let entry = &self.table[page as usize];
        match purpose {
            Purpose::Lent => {
                entry.set_state(PageState::Lent);
                self.lent.fetch_add(1, Ordering::Relaxed);
            }
            Purpose::Index => {
                entry.set_state(PageState::Index);
                self.index.fetch_add(1, Ordering::Relaxed);
            }
            Purpose::Items | Purpose::Cleaning => {}
        }
        self.free_count.store(free.len(), Ordering::Relaxed);
        // SeqCst against the supplier, which says from when to wake it and then looks once more.
        self.touched.fetch_max(page as usize + 1, Ordering::SeqCst);
        if self.touched_bytes() >= self.wake_at.load(Ordering::SeqCst)
            && let Some(supplier) = self.supplier.get()
        {
            supplier.unpark();
        }
        Some(page)
    }

    /// Takes a page back that nothing points into any more, and that its entry calls free.
    pub(crate) fn give_back(&self, page: PageId) {
        debug_assert_eq!(self.table[page as usize].state(), PageState::Free);
        let mut free = self
            .free
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        free.push(page);
        self.free_count.store(free.len(), Ordering::Relaxed);
    }

    /// Lends a page to the server.
    pub(crate) fn lend(self: &Arc<Pages>) -> Option<Page> {
        let id = self.take(Purpose::Lent)?;
        Some(Page {
            id,
            pages: Arc::clone(self),
        })
    }

    pub(crate) fn shares(&self) -> Shares {
        Shares {
            free: self.free_count(),
            index: self.index.load(Ordering::Relaxed),
            lent: self.lent.load(Ordering::Relaxed),
        }
    }

    /// Pages below this number have been given out at least once.
    #[expect(clippy::cast_possible_truncation, reason = "page numbers are 32 bits")]
    pub(crate) fn touched_pages(&self) -> PageId {
        self.touched.load(Ordering::Relaxed) as PageId
    }

    /// Bytes from the arena's start that pages have been given out of.
    pub(crate) fn touched_bytes(&self) -> usize {
        self.touched.load(Ordering::SeqCst) * self.page_len
    }

    /// The thread that supplies memory ahead of use.
    pub(crate) fn wake_when_touched(&self, supplier: Thread) {
        let _ = self.supplier.set(supplier);
    }

    /// From how many touched bytes on the supplier wants to be woken.
    pub(crate) fn set_wake_at(&self, bytes: usize) {
        self.wake_at.store(bytes, Ordering::SeqCst);
    }
}

/// A page of `-m` that the server has for connection buffers. Dropping it gives it back.
pub struct Page {
    id: PageId,
    pages: Arc<Pages>,
}

impl std::ops::Deref for Page {
    type Target = [u8];

    #[expect(unsafe_code, reason = "a lent page is a byte slice of the arena")]
    fn deref(&self) -> &[u8] {
        let base = self
            .pages
            .mapping
            .at(self.id as usize * self.pages.page_len);
        // SAFETY: the page is inside the mapping, and from `take` until `drop` it belongs to this
        // value alone.
        unsafe { std::slice::from_raw_parts(base.as_ptr(), self.pages.page_len) }
    }
}

impl std::ops::DerefMut for Page {
    #[expect(unsafe_code, reason = "a lent page is a byte slice of the arena")]
    fn deref_mut(&mut self) -> &mut [u8] {
        let base = self
            .pages
            .mapping
            .at(self.id as usize * self.pages.page_len);
        // SAFETY: as above, and `self` is borrowed alone.
        unsafe { std::slice::from_raw_parts_mut(base.as_ptr(), self.pages.page_len) }
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        self.pages.lent.fetch_sub(1, Ordering::Relaxed);
        self.pages.table[self.id as usize].set_state(PageState::Free);
        self.pages.give_back(self.id);
    }
}
