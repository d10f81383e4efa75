//! Who has which page.

use super::doubled::Doubled;
use super::mapping::Mapping;
use super::nodes::Spread;
use super::page_table::{PageEntry, PageId, PageState};
use super::unused::{Taken, Unused, runs};
use crate::sync::{AtomicUsize, Mutex, MutexGuard, Ordering};
use crossbeam_utils::CachePadded;
use std::ops::Range;
use std::sync::atomic::AtomicU64;
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
    /// A part of the table of tags' generations.
    Tags,
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

/// The pages of one node of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NodeShare {
    /// The system's number of it.
    pub(crate) number: u32,
    /// Its pages, those of the tables included.
    pub(crate) pages: usize,
    /// Of these, pages that are free.
    pub(crate) free: usize,
    /// Pages that its cores have taken from it, and from other nodes since it had none.
    pub(crate) taken: [u64; 2],
}

/// Gives out the pages of the arena.
pub(crate) struct Pages {
    mapping: Arc<Mapping>,
    table: Doubled<PageEntry>,
    page_len: usize,
    /// Pages that only the cleaner and the index may take.
    reserve: usize,
    /// Whether new items evict older ones. If not, what becomes free while more pages are in use
    /// than the limit allows is not for new items.
    evicts: bool,
    /// Pages that the tables take for good.
    tables: usize,
    unused: Mutex<Unused>,
    /// Which pages lie in which node of memory.
    spread: Spread,
    /// For each node how many pages its cores have taken there and elsewhere. Written under the lock.
    taken: Box<[[AtomicU64; 2]]>,
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
    /// Who supplies memory ahead of use, and for how many free pages it is to have memory.
    supplier: OnceLock<(Thread, usize)>,
    /// Pages that are withheld because the system had no memory for them.
    refused: AtomicUsize,
    /// Is told when there are any: how many bytes.
    tell_refusal: OnceLock<fn(usize)>,
}

impl Pages {
    /// The pages of a table. Those that it calls free are, each is `page_len` bytes long, and the
    /// last `reserve` of them are for the cleaner and the index. `evicts` says whether new items
    /// evict older ones, and `spread` where they lie.
    #[expect(clippy::cast_possible_truncation, reason = "page numbers are 32 bits")]
    pub(crate) fn new(
        table: Doubled<PageEntry>,
        page_len: usize,
        reserve: usize,
        evicts: bool,
        spread: Spread,
    ) -> Pages {
        let pages = &table;
        let of = |state| (0..pages.len()).filter(move |&page| pages.at(page).state() == state);
        let (tables, index) = (of(PageState::Tables).count(), of(PageState::Index).count());
        let bare = of(PageState::Free)
            .rev()
            .filter(|&page| !table.at(page).is_detached())
            .map(|page| page as PageId);
        let unused = Unused::new(&spread, bare);
        let touched = (0..table.len()).rfind(|&page| table.at(page).state() != PageState::Free);
        Pages {
            mapping: Arc::clone(table.mapping()),
            page_len,
            reserve,
            evicts,
            tables,
            free_count: CachePadded::new(AtomicUsize::new(unused.count())),
            unused: Mutex::new(unused),
            taken: (0..spread.len()).map(|_| Default::default()).collect(),
            spread,
            withheld: AtomicUsize::new(0),
            to_withhold: AtomicUsize::new(0),
            index: AtomicUsize::new(index),
            lent: AtomicUsize::new(0),
            touched: AtomicUsize::new(touched.map_or(0, |page| page + 1)),
            supplier: OnceLock::new(),
            refused: AtomicUsize::new(0),
            tell_refusal: OnceLock::new(),
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
        let leave = match (purpose, self.excess()) {
            // Without evictions nothing else makes room for a lower limit.
            (Purpose::Items, excess @ 1..) if !self.evicts => self.enough() + excess,
            _ => self.left_by(purpose),
        };
        if unused.count() <= leave {
            return None;
        }
        if purpose == Purpose::Lent && self.lent.load(Ordering::Relaxed) >= self.lent_max() {
            return None;
        }
        let near = match purpose {
            // All workers use it.
            Purpose::Index | Purpose::Tags => unused.next_turn(),
            Purpose::Items | Purpose::Cleaning | Purpose::Lent => self.spread.here(),
        };
        let page = loop {
            let Taken { page, has_memory } = unused.take(&self.spread, near)?;
            if self.table.at(page as usize).is_detached() {
                continue;
            }
            if has_memory
                || !self.mapping.may_be_refused()
                || self.supply(&(page..page + 1)).is_ok()
            {
                break page;
            }
            unused.put_bare(&self.spread, page);
            self.note_refusal(&mut unused);
            if unused.count() <= leave {
                return None;
            }
        };
        let entry = self.table.at(page as usize);
        match purpose {
            Purpose::Lent => {
                entry.set_state(PageState::Lent);
                self.lent.fetch_add(1, Ordering::Relaxed);
            }
            Purpose::Index => {
                entry.set_state(PageState::Index);
                self.index.fetch_add(1, Ordering::Relaxed);
            }
            Purpose::Items | Purpose::Cleaning | Purpose::Tags => {}
        }
        self.free_count.store(unused.count(), Ordering::Relaxed);
        self.touched.fetch_max(page as usize + 1, Ordering::Relaxed);
        let node = self.spread.node_of(page);
        let is_shared = matches!(purpose, Purpose::Index | Purpose::Tags);
        if !is_shared {
            self.taken[near][usize::from(node != near)].fetch_add(1, Ordering::Relaxed);
        }
        self.wake_supplier(&unused, node);
        Some(page)
    }

    /// Has the system supply pages of a file with memory.
    pub(crate) fn supply(&self, pages: &Range<PageId>) -> std::io::Result<()> {
        let (offset, len) = self.bytes_of(pages);
        self.mapping.supply(offset, len)
    }

    /// Whom to tell how many bytes the system has refused.
    pub(crate) fn tell_refusals(&self, tell: fn(usize)) {
        let _ = self.tell_refusal.set(tell);
    }

    /// Bytes of the pages that are withheld because the system had no memory for them.
    pub(crate) fn refused_bytes(&self) -> usize {
        self.refused.load(Ordering::Relaxed) * self.page_len
    }

    /// The system had no memory for a page: lowers the limit so that it is enough for those that
    /// have some, and no other page is touched.
    #[cold]
    pub(crate) fn refuse_bare(&self) {
        self.note_refusal(&mut self.unused());
    }

    fn note_refusal(&self, unused: &mut Unused) {
        let count = unused.withhold_bare();
        self.to_withhold.fetch_add(count, Ordering::Relaxed);
        self.withheld.fetch_add(count, Ordering::Relaxed);
        self.refused.fetch_add(count, Ordering::Relaxed);
        self.free_count.store(unused.count(), Ordering::Relaxed);
        if count > 0
            && let Some(tell) = self.tell_refusal.get()
        {
            tell(self.refused_bytes());
        }
    }

    /// Takes a page of the index back that the directory does not name any more.
    pub(crate) fn give_back_index(&self, page: PageId) {
        self.index.fetch_sub(1, Ordering::Relaxed);
        self.table.at(page as usize).set_state(PageState::Free);
        self.give_back(page);
    }

    /// Free pages that are left for others.
    fn left_by(&self, purpose: Purpose) -> usize {
        match purpose {
            Purpose::Items => self.reserve,
            Purpose::Index | Purpose::Lent | Purpose::Tags => self.reserve / 2,
            Purpose::Cleaning => 0,
        }
    }

    /// Takes a page back that nothing points into any more, and that its entry calls free.
    pub(crate) fn give_back(&self, page: PageId) {
        debug_assert_eq!(self.table.at(page as usize).state(), PageState::Free);
        if self.table.at(page as usize).is_detached() {
            return;
        }
        let mut unused = self.unused();
        unused.put(&self.spread, page);
        self.free_count.store(unused.count(), Ordering::Relaxed);
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
        self.refused.store(0, Ordering::Relaxed);
        // One that is counted may not be in the list yet.
        let over = self.withheld.load(Ordering::Relaxed);
        let over = over.saturating_sub(to_withhold).min(unused.withheld.len());
        let stays = unused.withheld.len() - over;
        for page in unused.withheld.split_off(stays) {
            unused.put_bare(&self.spread, page);
        }
        self.withheld.fetch_sub(over, Ordering::Relaxed);
        self.free_count.store(unused.count(), Ordering::Relaxed);
        for node in 0..self.spread.len() {
            self.wake_supplier(&unused, node);
        }
    }

    /// Withholds all that [`Pages::set_limit`] asks for, as far as pages are free. For a process that
    /// begins.
    pub(crate) fn withhold_free(&self) {
        let mut unused = self.unused();
        let most = unused.bare_count().saturating_sub(self.enough());
        let count = self.excess().min(most);
        let mut pages = unused.take_bare(count);
        // The process before may have left memory there.
        let mut ascending = pages.clone();
        ascending.sort_unstable();
        runs(ascending.into_iter(), usize::MAX).for_each(|run| self.empty(&run));
        unused.withheld.append(&mut pages);
        self.withheld.fetch_add(count, Ordering::Relaxed);
        self.free_count.store(unused.count(), Ordering::Relaxed);
    }

    /// Free pages that stay in use: those of the cleaner, and some for new items.
    fn enough(&self) -> usize {
        self.reserve + self.reserve / 2
    }

    /// Gives the memory of unused pages back to the system.
    fn empty(&self, pages: &Range<PageId>) {
        let (offset, len) = self.bytes_of(pages);
        self.mapping.give_back(offset, len);
    }

    /// Where pages lie in the arena, and their length.
    pub(crate) fn bytes_of(&self, pages: &Range<PageId>) -> (usize, usize) {
        let offset = pages.start as usize * self.page_len;
        (offset, pages.len() * self.page_len)
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
        if self.excess() == 0 || unused.count() <= self.enough() {
            return false;
        }
        let Some(page) = unused.take_coldest() else {
            return false;
        };
        self.free_count.store(unused.count(), Ordering::Relaxed);
        self.withheld.fetch_add(1, Ordering::Relaxed);
        drop(unused);
        // The page is in no list, so nobody is given it meanwhile, and nobody waits.
        self.empty(&(page..page + 1));
        let mut unused = self.unused();
        unused.withheld.push(page);
        // The limit may have been raised meanwhile.
        let to_withhold = self.to_withhold.load(Ordering::Relaxed);
        if self.withheld.load(Ordering::Relaxed) > to_withhold
            && let Some(page) = unused.withheld.pop()
        {
            unused.put_bare(&self.spread, page);
            self.withheld.fetch_sub(1, Ordering::Relaxed);
            self.free_count.store(unused.count(), Ordering::Relaxed);
        }
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

    /// Names the thread that supplies memory ahead of use, so that so many `bytes` of free pages
    /// have memory.
    pub(crate) fn set_supplier(&self, supplier: Thread, bytes: usize) {
        let _ = self.supplier.set((supplier, bytes / self.page_len));
    }

    /// Pages that are to be supplied with memory now, `most` bytes of them at most, one behind the
    /// other: `None` while enough free pages have memory. They can be taken meanwhile. The caller
    /// supplies them before it asks for the next ones.
    pub(crate) fn to_supply(&self, most: usize) -> Option<Range<PageId>> {
        let ahead = self.supplier.get()?.1;
        let most = (most / self.page_len).max(1);
        self.unused().supply_next(ahead, most)
    }

    /// Pages that are in use, `most` bytes at a time.
    pub(crate) fn in_use(&self, most: usize) -> impl Iterator<Item = Range<PageId>> {
        let is_used = |&page: &PageId| self.table.at(page as usize).state() != PageState::Free;
        let used = (0..self.touched_pages()).filter(is_used);
        runs(used, (most / self.page_len).max(1))
    }

    /// Pages that are not withheld, one behind the other, as of a moment ago.
    #[expect(clippy::cast_possible_truncation, reason = "page numbers are 32 bits")]
    pub(crate) fn all_but_withheld(&self) -> Vec<Range<PageId>> {
        let mut withheld = self.unused().withheld.clone();
        withheld.sort_unstable();
        let all = 0..self.table.len() as PageId;
        let is_not = |page: &PageId| withheld.binary_search(page).is_err();
        runs(all.filter(is_not), usize::MAX).collect()
    }

    /// Wakes the supplier when half of what it has supplied of a node is used up and there is more.
    fn wake_supplier(&self, unused: &Unused, node: usize) {
        if let Some((supplier, ahead)) = self.supplier.get()
            && unused.runs_short(node, ahead.div_ceil(2))
        {
            supplier.unpark();
        }
    }

    /// Which pages lie in which node of memory.
    #[inline]
    pub(crate) fn spread(&self) -> &Spread {
        &self.spread
    }

    /// How each node of memory is used; none where all memory is alike.
    pub(crate) fn node_shares(&self) -> Vec<NodeShare> {
        if self.spread.len() == 1 {
            return Vec::new();
        }
        let unused = self.unused();
        let share = |node| NodeShare {
            number: self.spread.number(node),
            pages: self.spread.pages_of(node).len(),
            free: unused.count_in(node),
            taken: [0, 1].map(|at: usize| self.taken[node][at].load(Ordering::Relaxed)),
        };
        (0..self.spread.len()).map(share).collect()
    }
}

/// A page of `-m` that the server has for connection buffers. Dropping it gives it back.
pub struct Page {
    id: PageId,
    pages: Arc<Pages>,
}

impl Page {
    /// The bytes of the arena that it takes.
    pub(crate) fn range(&self) -> std::ops::Range<usize> {
        let start = self.id as usize * self.pages.page_len;
        start..start + self.pages.page_len
    }
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
        self.pages
            .table
            .at(self.id as usize)
            .set_state(PageState::Free);
        self.pages.give_back(self.id);
    }
}
