//! The store as all workers share it, and how it is set up.

use crate::clean::flush::FlushState;
use crate::clean::survey::Reclaimable;
use crate::counters::{Counters, Totals};
use crate::epoch::Epochs;
use crate::index::{Directory, Index, TABLE_BYTES, TableId};
use crate::key::{Hasher, Key};
use crate::memory::{HugePages, Mapping, Page, Pages, Purpose, Slice};
use crate::observer::Observer;
use crate::operations::OversizedPin;
use crate::prefault::Prefault;
use crate::segment::{Log, SegmentEntry};
use crate::sync::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Mutex, Ordering};
use crate::time::UnixSeconds;
use crate::worker::Worker;
use crossbeam_utils::CachePadded;
use std::sync::{Arc, PoisonError};

const SEGMENT_LEN_MIN: usize = 64 << 10;
const SEGMENT_LEN_MAX: usize = 2 << 20;

/// Levels of the directory beyond those that cost no tag bits. Each one spends a bit of the tag:
/// with 8 spent 5.6 % of lookups meet a false match, with 7 under 3 %.
const TAG_BITS_SPENT_MAX: u32 = 7;

/// The least memory that a store runs in.
pub const MEMORY_MIN: usize = 8 << 20;

/// The most workers that a store has.
pub const WORKERS_MAX: usize = 1024;

/// The largest `item_size_max`.
pub const ITEM_SIZE_LIMIT: usize = 1 << 30;

/// How a store is made.
pub struct Config {
    /// Bytes for items, index, and what is lent: memcached's `-m`.
    pub memory: usize,
    /// The largest item in bytes, `-I`: at most 1 GiB and half of `memory`.
    pub item_size_max: usize,
    /// How many workers there will be, at most.
    pub workers: usize,
    /// Whether items are evicted when memory is full (not `-M`).
    pub evict: bool,
    /// Fault in and lock all memory at the start (`-k`).
    pub lock_memory: bool,
    /// The logarithm to base 2 of the number of sub-tables that the index starts with. `None`
    /// chooses it from `memory`, so that small items can fill memory before tags grow short; fewer
    /// save a little memory for large items and make lookups of many small ones slower.
    pub index_bits: Option<u32>,
    /// The hash seed; `None` draws one.
    pub seed: Option<u64>,
    /// Told what happens to items.
    pub observer: Option<Box<dyn Observer>>,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            memory: 64 << 20,
            item_size_max: 1 << 20,
            workers: 1,
            evict: true,
            lock_memory: false,
            index_bits: None,
            seed: None,
            observer: None,
        }
    }
}

/// Why a store cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Less than [`MEMORY_MIN`], or so little for so many workers that nothing would be left.
    #[error("{given} bytes of memory are too few for {workers} workers; {least} would do")]
    MemoryTooSmall {
        /// What was asked for.
        given: usize,
        /// For how many workers.
        workers: usize,
        /// What would do.
        least: usize,
    },
    /// More than locations can name.
    #[error("more than 8 TiB of memory")]
    MemoryTooLarge,
    /// An item could not be stored in any case.
    #[error("the largest item may be at most half of memory and 1 GiB")]
    ItemSizeTooLarge,
    /// More sub-tables at the start than memory of that size is ever filled with.
    #[error("the index may start with at most 2^{most} sub-tables in so much memory")]
    IndexTooLarge {
        /// The most bits.
        most: u32,
    },
    /// None, or more than [`WORKERS_MAX`].
    #[error("a store has 1 to {WORKERS_MAX} workers")]
    Workers,
    /// The system gave no memory, or would not lock it.
    #[error("cannot {action} {bytes} bytes of memory: {source}")]
    System {
        /// What was tried.
        action: &'static str,
        /// How much.
        bytes: usize,
        /// What the system said.
        source: std::io::Error,
    },
}

/// Where memory is, by what it is used for, and what the workers counted.
#[derive(Clone, Copy, Debug)]
pub struct Stats {
    /// Counts since the start.
    pub totals: Totals,
    /// Seconds for which the item that was evicted last had not been used.
    pub evicted_idle_s: u64,
    /// When the oldest segment was opened of those that hold items: how far memory reaches back.
    pub oldest_segment: Option<UnixSeconds>,
    /// Items that there are.
    pub items: u64,
    /// Bytes of segments that live items take, headers included.
    pub bytes: u64,
    /// Bytes given for all: what was asked for, in whole pages.
    pub memory: u64,
    /// Bytes of pages that nobody has.
    pub memory_free: u64,
    /// Bytes of pages of the index.
    pub memory_index: u64,
    /// Bytes of pages lent for connection buffers.
    pub memory_lent: u64,
    /// Bytes that unfinished uploads hold.
    pub memory_uploads: u64,
    /// Bytes of segments that are pinned or that uploads hold.
    pub memory_held: u64,
    /// Bytes of the segment table, the directory, and what the heap holds for each segment.
    pub memory_tables: u64,
    /// Bytes of a segment.
    pub segment_len: u64,
    /// Segments that there are or may be.
    pub segments: u64,
    /// Sealed segments of the small queue.
    pub segments_small: u64,
    /// Sealed segments of the main queue.
    pub segments_main: u64,
    /// Sub-tables of the index.
    pub tables: u64,
    /// Slots of the index.
    pub slots: u64,
    /// What pages the kernel gives.
    pub huge_pages: HugePages,
}

/// A cache of items in one range of memory. See the crate.
pub struct Store {
    pub(crate) index: Index,
    pub(crate) log: Log,
    pub(crate) epochs: Epochs,
    pub(crate) hasher: Hasher,
    pub(crate) counters: Box<[CachePadded<Counters>]>,
    pub(crate) observer: Option<Box<dyn Observer>>,
    pub(crate) evict: bool,
    /// The longest item, header and key included, that is not cut into pieces.
    pub(crate) whole_max: usize,
    pub(crate) item_size_max: usize,
    /// When the store was made; access times count from here.
    pub(crate) made: UnixSeconds,
    pub(crate) flush: FlushState,
    pub(crate) reclaimable: Reclaimable,
    /// Bytes that unfinished uploads hold, and the most that they may.
    pub(crate) upload_bytes: AtomicUsize,
    pub(crate) upload_bytes_max: usize,
    /// Segments that may be pinned or held at a time, beside those of an oversized value.
    pub(crate) held_max: usize,
    pub(crate) oversized: OversizedPin,
    /// Whether anything has been evicted yet.
    pub(crate) evicting: AtomicBool,
    /// Seconds for which the item that was evicted last had not been used.
    pub(crate) evicted_idle_s: AtomicU32,
    /// The next segment that the crawler looks at, and the second in which it last began.
    pub(crate) crawl_next: AtomicU64,
    /// Sub-tables of pages that the index has and does not use yet.
    spare_tables: Mutex<Vec<TableId>>,
    tables: AtomicUsize,
    tables_len: usize,
    heap_len: usize,
    taken: Mutex<Box<[bool]>>,
    prefault: Option<Prefault>,
}

impl Store {
    /// Makes an empty store.
    ///
    /// # Errors
    /// [`StoreError`]: the settings contradict one another, or the system gives no memory.
    pub fn new(config: Config, now: UnixSeconds) -> Result<Arc<Store>, StoreError> {
        let plan = StoreLayout::of(&config)?;
        Store::of_plan(config, plan, now)
    }

    /// A store small enough for loom: segments of 512 bytes, and an index that splits once.
    #[cfg(all(loom, test))]
    pub(crate) fn tiny(config: Config, pages: usize, now: UnixSeconds) -> Arc<Store> {
        let plan = StoreLayout {
            len: pages * 512,
            segment_len: 512,
            pages,
            first_page: 1,
            reserve: 2,
            base_bits: 0,
            directory_bits: 1,
            directory_at: 0,
            tables_len: 0,
            heap_len: 0,
        };
        Store::of_plan(config, plan, now).unwrap()
    }

    fn of_plan(
        config: Config,
        plan: StoreLayout,
        now: UnixSeconds,
    ) -> Result<Arc<Store>, StoreError> {
        let mapping = Mapping::reserve(plan.len).map_err(|source| StoreError::System {
            action: "reserve",
            bytes: plan.len,
            source,
        })?;
        let used = plan.pages * plan.segment_len;
        if config.lock_memory {
            mapping.lock(0, used).map_err(|source| StoreError::System {
                action: "lock",
                bytes: used,
                source,
            })?;
        }
        let entries: Slice<SegmentEntry> = Slice::new(&mapping, 0, plan.pages);
        let words = Slice::new(&mapping, plan.directory_at, 1 << plan.directory_bits);
        let buckets = Slice::new(&mapping, 0, plan.len / 64);
        #[expect(
            clippy::cast_possible_truncation,
            reason = "8 TiB in 64 KiB pages are 2^27"
        )]
        let pages = Arc::new(Pages::new(
            Arc::clone(&mapping),
            plan.segment_len,
            plan.first_page as u32,
            plan.pages as u32,
            plan.reserve,
        ));
        let index = Index::new(Directory::new(words, plan.base_bits), buckets);
        let mut store = Store {
            index,
            log: Log::new(Arc::clone(&pages), entries, config.workers, now),
            epochs: Epochs::new(config.workers),
            hasher: Hasher::new(config.seed.unwrap_or_else(random_seed)),
            counters: (0..config.workers)
                .map(|_| CachePadded::default())
                .collect(),
            observer: config.observer,
            evict: config.evict,
            whole_max: plan.segment_len / 4,
            item_size_max: config.item_size_max,
            made: now,
            flush: FlushState::default(),
            reclaimable: Reclaimable::default(),
            upload_bytes: AtomicUsize::new(0),
            upload_bytes_max: plan.len / 8,
            held_max: (plan.pages / 8).max(1),
            oversized: OversizedPin::default(),
            evicting: AtomicBool::new(false),
            evicted_idle_s: AtomicU32::new(0),
            crawl_next: AtomicU64::new(0),
            spare_tables: Mutex::new(Vec::with_capacity(plan.segment_len / TABLE_BYTES)),
            tables: AtomicUsize::new(0),
            tables_len: plan.tables_len,
            heap_len: plan.heap_len,
            taken: Mutex::new(vec![false; config.workers].into()),
            prefault: None,
        };
        let mut missing = false;
        store.index.adopt_first_tables(|| {
            store.take_table().unwrap_or_else(|| {
                missing = true;
                TableId(0)
            })
        });
        if missing {
            return Err(plan.too_small(config.memory, config.workers));
        }
        if !config.lock_memory && !cfg!(loom) {
            store.prefault = Prefault::start(mapping, used, &pages);
        }
        Ok(Arc::new(store))
    }

    /// The worker of number `id`, below [`Config::workers`].
    ///
    /// # Panics
    /// Where `id` is too high, or that worker exists already.
    pub fn worker(self: &Arc<Store>, id: usize) -> Worker {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        assert!(
            !std::mem::replace(&mut taken[id], true),
            "worker {id} exists already"
        );
        drop(taken);
        Worker::new(Arc::clone(self), id)
    }

    pub(crate) fn give_worker_back(&self, id: usize) {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)[id] = false;
    }

    /// A key with its hash in this store.
    #[inline]
    pub fn key<'k>(&self, bytes: &'k [u8]) -> Key<'k> {
        Key {
            bytes,
            hash: self.hasher.hash(bytes),
        }
    }

    /// A page of the store's memory for connection buffers, or `None` while there is none to lend.
    /// At most a quarter of memory is lent.
    pub fn lend_page(&self) -> Option<Page> {
        self.log.pages().lend()
    }

    /// Whether items are evicted when memory is full.
    pub fn evicts(&self) -> bool {
        self.evict
    }

    /// What the store holds and has done.
    pub fn stats(&self) -> Stats {
        let mut totals = Totals::default();
        for counters in &self.counters {
            totals.add(counters);
        }
        let pages = self.log.pages();
        let page_len = pages.page_len() as u64;
        let shares = pages.shares();
        let (small, main) = {
            let queues = self.log.queues();
            (queues.small_len() as u64, queues.main_len() as u64)
        };
        let tables = self.tables.load(Ordering::Relaxed) as u64;
        Stats {
            totals,
            evicted_idle_s: self.evicted_idle_s.load(Ordering::Relaxed).into(),
            oldest_segment: self.log.oldest_opened_at(),
            items: totals.linked.saturating_sub(totals.unlinked),
            bytes: self.log.live_bytes() as u64,
            memory: self.log.mapping().len() as u64,
            memory_free: shares.free as u64 * page_len,
            memory_index: shares.index as u64 * page_len,
            memory_lent: shares.lent as u64 * page_len,
            memory_uploads: self.upload_bytes.load(Ordering::Relaxed) as u64,
            memory_held: self.log.held_count() as u64 * page_len,
            memory_tables: (self.tables_len + self.heap_len) as u64,
            segment_len: page_len,
            segments: u64::from(self.log.segment_count()),
            segments_small: small,
            segments_main: main,
            tables,
            slots: tables * (TABLE_BYTES as u64 / 64) * crate::index::SLOTS as u64,
            huge_pages: self.log.mapping().huge_pages(),
        }
    }

    /// An unused sub-table, from a page that is begun or a new one.
    pub(crate) fn take_table(&self) -> Option<TableId> {
        let mut spare = self
            .spare_tables
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if spare.is_empty() {
            let pages = self.log.pages();
            let page = pages.take(Purpose::Index)? as usize;
            let tables = pages.page_len() / TABLE_BYTES;
            #[expect(clippy::cast_possible_truncation, reason = "8 TiB in tables are 2^27")]
            spare.extend(
                (0..tables)
                    .rev()
                    .map(|i| TableId((page * tables + i) as u32)),
            );
        }
        self.tables.fetch_add(1, Ordering::Relaxed);
        spare.pop()
    }

    pub(crate) fn give_table_back(&self, table: TableId) {
        self.tables.fetch_sub(1, Ordering::Relaxed);
        self.spare_tables
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(table);
    }

    /// Bytes of the index's sub-tables.
    pub(crate) fn index_bytes(&self) -> usize {
        self.tables.load(Ordering::Relaxed) * TABLE_BYTES
    }

    /// Seconds since the store was made, as access words have them.
    #[inline]
    pub(crate) fn access_time(&self, now: UnixSeconds) -> u32 {
        now.0.wrapping_sub(self.made.0) & crate::segment::layout::mark::TIME
    }
}

/// The sizes that follow from a configuration.
struct StoreLayout {
    len: usize,
    segment_len: usize,
    pages: usize,
    first_page: usize,
    reserve: usize,
    base_bits: u32,
    directory_bits: u32,
    directory_at: usize,
    tables_len: usize,
    heap_len: usize,
}

impl StoreLayout {
    fn of(config: &Config) -> Result<StoreLayout, StoreError> {
        if config.workers == 0 || config.workers > WORKERS_MAX {
            return Err(StoreError::Workers);
        }
        if config.memory > 8 << 40 {
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
        // What lies on the heap for each segment is part of the memory too: so much of the range stays unused.
        let heap_len = len / segment_len * Log::heap_len_per_segment(config.workers);
        let pages = (len - heap_len.min(len)) / segment_len;
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
        let directory_at = (pages * size_of::<SegmentEntry>()).next_multiple_of(4096);
        let tables_len = directory_at + (8 << directory_bits);
        let plan = StoreLayout {
            len,
            segment_len,
            pages,
            first_page: tables_len.div_ceil(segment_len),
            // For each worker a segment of each queue to clean into, and two more that wait for the
            // end of their grace period.
            reserve: 2 * config.workers + 2,
            base_bits,
            directory_bits,
            directory_at,
            tables_len,
            heap_len,
        };
        if len < plan.least(config.workers) {
            Err(plan.too_small(config.memory, config.workers))
        } else {
            Ok(plan)
        }
    }

    /// Memory in which the workers' open segments and the reserve are at most half.
    fn least(&self, workers: usize) -> usize {
        let fixed = self.first_page
            + (TABLE_BYTES << self.base_bits).div_ceil(self.segment_len)
            + self.reserve
            + 4 * workers;
        MEMORY_MIN.max((2 * fixed * self.segment_len).next_multiple_of(2 << 20))
    }

    fn too_small(&self, given: usize, workers: usize) -> StoreError {
        StoreError::MemoryTooSmall {
            given,
            workers,
            least: self.least(workers),
        }
    }
}

/// So many free levels that the smallest items that fill memory spend four to five tag bits, with
/// which under one lookup in a hundred meets a false match. One level more would cost large items,
/// of which few fill memory, a hundredth of it.
fn base_bits(memory: usize) -> u32 {
    // A 10-byte key and value with their share of the index; seven eighths of the slots in use.
    let items = memory / 42;
    let tables = items / (TABLE_BYTES / 64 * 7 * 7 / 8);
    tables.max(1).ilog2().saturating_sub(4).min(16)
}

/// Seeds differ from process to process, and clients cannot know them.
fn random_seed() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one("coua")
}
