//! Who has which page.

use super::mapping::{Mapping, Slice};
use super::page_table::{PageEntry, PageId, PageState};
use crate::sync::{AtomicUsize, Mutex, MutexGuard, Ordering};
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
    pub(crate) withheld: usize,
}

/// Pages that nobody uses.
struct Unused {
    /// Those that can be taken.
    free: Vec<PageId>,
    /// Those that are beyond the present limit of memory. The system has their memory back.
    withheld: Vec<PageId>,
}

/// Gives out the pages of the arena.
pub(crate) struct Pages {
    mapping: Arc<Mapping>,
    table: Slice<PageEntry>,
    page_len: usize,
    /// Pages that only the cleaner and the index may take.
    reserve: usize,
    /// Pages that the tables take for good.
    tables: usize,
    unused: Mutex<Unused>,
    /// The number of free pages, read without the lock.
    free_count: CachePadded<AtomicUsize>,
    /// How many pages are withheld, and how many are to be, so that the others are what the limit
    /// of memory allows.
    withheld: AtomicUsize,
    to_withhold: AtomicUsize,
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
            tables,
            free_count: CachePadded::new(AtomicUsize::new(free.len())),
            unused: Mutex::new(Unused {
                withheld: Vec::with_capacity(pages.len()),
                free,
            }),
            withheld: AtomicUsize::new(0),
            to_withhold: AtomicUsize::new(0),
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
        let mut unused = self.unused();
        let free = &mut unused.free;
        let leave = match purpose {
            Purpose::Items => self.reserve,
            Purpose::Index | Purpose::Lent => self.reserve / 2,
            Purpose::Cleaning => 0,
        };
        if free.len() <= leave {
            return None;
        }
        if purpose == Purpose::Lent && self.lent.load(Ordering::Relaxed) >= self.lent_max() {
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
        let mut unused = self.unused();
        let free = &mut unused.free;
        free.push(page);
        self.free_count.store(free.len(), Ordering::Relaxed);
    }

    fn unused(&self) -> MutexGuard<'_, Unused> {
        self.unused
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Most pages that may be lent at a time: a quarter of those for items and index.
    fn lent_max(&self) -> usize {
        (self.limit().saturating_sub(self.tables) / 4).max(2)
    }

    /// Pages that may be in use, those of the tables included.
    pub(crate) fn limit(&self) -> usize {
        self.table.len() - self.to_withhold.load(Ordering::Relaxed)
    }

    /// Changes how many pages may be in use, up to all of them. More can be taken at once. Fewer
    /// are in use only after [`Pages::withhold`] has found so many free.
    pub(crate) fn set_limit(&self, pages: usize) {
        let to_withhold = self.table.len().saturating_sub(pages);
        let mut unused = self.unused();
        self.to_withhold.store(to_withhold, Ordering::Relaxed);
        let Unused { free, withheld } = &mut *unused;
        while withheld.len() > to_withhold {
            free.extend(withheld.pop());
        }
        self.withheld.store(withheld.len(), Ordering::Relaxed);
        self.free_count.store(free.len(), Ordering::Relaxed);
        drop(unused);
        if let Some(supplier) = self.supplier.get() {
            supplier.unpark();
        }
    }

    /// Withholds all that [`Pages::set_limit`] asks for, of pages that nobody has touched yet.
    pub(crate) fn withhold_untouched(&self) {
        let mut unused = self.unused();
        let Unused { free, withheld } = &mut *unused;
        let touched = self.touched.load(Ordering::Relaxed);
        let wanted = self.to_withhold.load(Ordering::Relaxed) - withheld.len();
        // The highest page lies at the beginning.
        let untouched = free.iter().take_while(|&&page| page as usize >= touched);
        let count = untouched.count().min(wanted);
        withheld.extend(free.drain(..count));
        self.withheld.store(withheld.len(), Ordering::Relaxed);
        self.free_count.store(free.len(), Ordering::Relaxed);
    }

    /// Pages that are still in use beyond the limit.
    #[inline]
    pub(crate) fn excess(&self) -> usize {
        let to_withhold = self.to_withhold.load(Ordering::Relaxed);
        to_withhold.saturating_sub(self.withheld.load(Ordering::Relaxed))
    }

    /// Takes a free page out of use if there are too many, and gives its memory back to the
    /// system. It leaves as many free pages as the cleaner needs. True if it has found one.
    #[cold]
    pub(crate) fn withhold(&self) -> bool {
        let mut unused = self.unused();
        let Unused { free, withheld } = &mut *unused;
        // New items need some as well.
        let enough = self.reserve + self.reserve / 2;
        if withheld.len() >= self.to_withhold.load(Ordering::Relaxed) || free.len() <= enough {
            return false;
        }
        let page = free.remove(0);
        self.free_count.store(free.len(), Ordering::Relaxed);
        // Under the lock, so that nobody is given the page meanwhile.
        self.mapping
            .give_back(page as usize * self.page_len, self.page_len);
        withheld.push(page);
        self.withheld.store(withheld.len(), Ordering::Relaxed);
        true
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
            withheld: self.withheld.load(Ordering::Relaxed),
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
