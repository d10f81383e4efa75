//! The store that all workers share, and how it is set up.

mod config;
pub(crate) mod holds;
mod layout;
mod limit;
pub(crate) mod losses;
mod merging;
mod room;
mod stats;
mod tables;
mod takeover;
pub(crate) mod tier;

pub use config::{Config, ITEM_SIZE_LIMIT, MEMORY_MIN, StoreError, WORKERS_MAX};
pub use limit::LimitRefused;
pub use stats::{NodeStats, Stats};
pub use takeover::{ColdReason, Start, Warm};
pub use tier::{Admission, FlashOptions, FlashRefused, FlashStats};

use crate::counters::Counters;
use crate::epoch::Epochs;
use crate::index::{Directory, Index, TABLE_BYTES, TableId};
use crate::key::{Hasher, Key};
#[cfg(not(any(miri, loom)))]
use crate::memory::DoubledPart;
use crate::memory::{
    ArenaFile, FileError, LAYOUT_VERSION, Mapping, Page, PageId, PageState, Pages, Slice, Spread,
    Superblock, Unreadable, Use, boot_number,
};
use crate::observer::Observer;
use crate::prefault::Prefault;
use crate::segment::{FlushState, Log};
use crate::sync::{AtomicU32, AtomicU64, AtomicUsize, Mutex};
use crate::tags::{Generations, Tag};
use crate::time::{UnixSeconds, UnixTime};
use crossbeam_utils::CachePadded;
use holds::OversizedPin;
use layout::{Arena, KEEPERS, MENDERS, StoreLayout};
use losses::Losses;
use merging::Merging;
use room::Reclaimable;
use std::sync::{Arc, PoisonError};
use std::time::Instant;
use tables::SubTables;
use takeover::Taken;
use tier::Tier;

/// A cache of items in one range of memory. See the crate's documentation.
pub struct Store {
    pub(crate) index: Index,
    pub(crate) log: Log,
    pub(crate) tags: Generations,
    pub(crate) epochs: Epochs,
    pub(crate) hasher: Hasher,
    pub(crate) counters: Box<[CachePadded<Counters>]>,
    pub(crate) observer: Option<Box<dyn Observer>>,
    /// The observer wants to hear of items that are stored.
    pub(crate) tells_stored: bool,
    pub(crate) evict: bool,
    /// The longest item, header and key included, that is not split into pieces.
    pub(crate) whole_max: usize,
    pub(crate) item_size_max: usize,
    /// When the store was made; access times count from here.
    pub(crate) made: UnixSeconds,
    pub(crate) flush: FlushState,
    pub(crate) reclaimable: Reclaimable,
    /// What the machine has lost of the arena.
    pub(crate) losses: Losses,
    /// Bytes that unfinished uploads hold.
    pub(crate) upload_bytes: AtomicUsize,
    pub(crate) oversized: OversizedPin,
    pub(crate) flash: Tier,
    /// How many seconds the item that was evicted last had been unused.
    pub(crate) evicted_idle_s: AtomicU32,
    /// The next segment that the crawler looks at, and the second in which it last began.
    pub(crate) crawl_next: AtomicU64,
    tables: SubTables,
    merging: Merging,
    tables_len: usize,
    /// The tables that are kept twice.
    #[cfg(not(any(miri, loom)))]
    doubled: [DoubledPart; 3],
    /// Ranges that turned to zeros under the process before, which had not seen to that.
    #[cfg(not(loom))]
    pub(crate) lost_before: Vec<std::ops::Range<usize>>,
    heap_len: usize,
    /// The least and the most that [`Store::set_memory_limit`] takes.
    memory_least: usize,
    memory_most: usize,
    /// Items that this process took over when it began.
    items_taken_over: u64,
    start: Start,
    /// Which worker numbers are taken.
    pub(crate) taken: Mutex<Box<[bool]>>,
    prefault: Option<Prefault>,
}

impl Store {
    /// Makes a store: empty, or with what the previous process has left in [`Config::file`].
    /// [`Store::start`] says which.
    ///
    /// # Errors
    /// [`StoreError`] if the settings contradict one another, the system gives no memory, or the
    /// file cannot be used. It is not an error if nothing can be taken over from the file.
    pub fn new(config: Config, now: UnixSeconds) -> Result<Arc<Store>, StoreError> {
        let Some(path) = &config.file else {
            let layout = StoreLayout::of(&config, config.workers)?;
            let mapping = Mapping::reserve(layout.len).map_err(|source| StoreError::System {
                action: "reserve",
                bytes: layout.len,
                source,
            })?;
            return Store::create(config, &layout, &mapping, Start::Private, now);
        };
        let layout = StoreLayout::of(&config, layout::rows_in_file(config.workers))?;
        let in_file = |error: FileError| StoreError::File {
            path: path.clone(),
            why: error.to_string(),
        };
        let file = ArenaFile::open(path).map_err(in_file)?;
        let why = match Store::taken_over(&config, &file) {
            Ok(store) => {
                let store = Arc::new(store.ready(config)?);
                #[cfg(not(loom))]
                store.mend_before(now);
                return Ok(store);
            }
            Err(why) => why,
        };
        let wanted = config.memory_limit.unwrap_or(config.memory).min(layout.len);
        file.empty(layout.len as u64, wanted as u64)
            .map_err(|error| match error {
                FileError::NoSpace { has, wants } => StoreError::NoSpace {
                    path: path.clone(),
                    has,
                    wants,
                },
                other => in_file(other),
            })?;
        let mapping = Mapping::of_file(file).map_err(|error| in_file(error.into()))?;
        Store::create(config, &layout, &mapping, Start::Cold(why), now)
    }

    /// A store small enough for loom: segments of 512 bytes, and an index that splits once.
    #[cfg(all(loom, test))]
    pub(crate) fn tiny(config: Config, pages: usize, now: UnixSeconds) -> Arc<Store> {
        let layout = StoreLayout::tiny(pages, config.workers);
        let mapping = Mapping::reserve(layout.len).unwrap();
        Store::create(config, &layout, &mapping, Start::Private, now).unwrap()
    }

    /// An empty store in memory that is all zeros.
    fn create(
        config: Config,
        layout: &StoreLayout,
        mapping: &Arc<Mapping>,
        start: Start,
        now: UnixSeconds,
    ) -> Result<Arc<Store>, StoreError> {
        let no_space = || StoreError::NoSpace {
            path: config.file.clone().unwrap_or_default(),
            has: mapping.file().and_then(ArenaFile::room).unwrap_or(0),
            wants: layout.tables_len as u64,
        };
        place(&config, layout, mapping);
        if mapping.may_be_refused() && mapping.supply(0, layout.tables_len).is_err() {
            return Err(no_space());
        }
        let arena = layout.parts(mapping);
        let superblock = arena.tables.superblock.at(0);
        let seed = config.seed.unwrap_or_else(random_seed);
        superblock.format(&layout.identity(), seed, now.0);
        superblock.set_whereabouts(whereabouts(mapping));
        for page in 0..layout.first_page {
            arena
                .tables
                .page_table
                .at(page)
                .set_state(PageState::Tables);
        }
        let store = Store::of_arena(&config, layout, &arena, start, (seed, now));
        store.log.note_time(now);
        let mut missing = false;
        store.index.adopt_first_tables(|| {
            store.tables.take().unwrap_or_else(|| {
                missing = true;
                TableId(0)
            })
        });
        if missing && store.log.pages().refused_bytes() > 0 {
            return Err(no_space());
        }
        if missing {
            return Err(layout.too_small(config.memory, config.workers));
        }
        arena.tables.superblock.at(0).set_use(Use::Running);
        Ok(Arc::new(store.ready(config)?))
    }

    /// The store that another process has left in a file.
    fn taken_over(config: &Config, file: &ArenaFile) -> Result<Store, ColdReason> {
        let began = Instant::now();
        let unreadable = |_| ColdReason::Damaged("it cannot be mapped");
        let len = file.len().map_err(|_| ColdReason::Foreign)?;
        if len == 0 {
            return Err(ColdReason::New);
        }
        if !len.is_multiple_of(2 << 20) {
            return Err(ColdReason::Foreign);
        }
        let mapping = Mapping::of_file(file.clone()).map_err(unreadable)?;
        let superblock: Slice<Superblock> = Slice::new(&mapping, 0, 1);
        #[cfg(not(any(miri, loom)))]
        if config.survives_memory_errors && mapping.has_lost(0..size_of::<Superblock>()) {
            return Err(LOST_TABLES);
        }
        let (identity, seed, made) = superblock[0].read().map_err(|why| match why {
            Unreadable::Empty => ColdReason::New,
            Unreadable::Foreign => ColdReason::Foreign,
            Unreadable::Version(found) => ColdReason::Version {
                found,
                own: LAYOUT_VERSION,
            },
            Unreadable::Damaged => ColdReason::Damaged("the check of its superblock is wrong"),
        })?;
        let rows = identity.workers as usize;
        if config.workers > rows {
            return Err(ColdReason::Workers { most: rows });
        }
        if identity.len != len {
            return Err(ColdReason::Damaged("it is shorter or longer than it was"));
        }
        let layout = StoreLayout::of_identity(&identity, config.workers)
            .ok_or(ColdReason::Damaged("no store is laid out like that"))?;
        #[cfg(not(any(miri, loom)))]
        if config.survives_memory_errors {
            // Perhaps the process before has died of it.
            if mapping.has_lost(0..layout.tables_len) {
                return Err(LOST_TABLES);
            }
            // Buckets that are lost are empty.
            mapping.survive_errors(&layout.survivable());
        }
        place(config, &layout, &mapping);
        let (boot, number) = superblock[0].whereabouts();
        let here = whereabouts(&mapping);
        let in_use = superblock[0].in_use();
        if in_use == Use::None {
            return Err(ColdReason::New);
        }
        if number != here.1 {
            return Err(ColdReason::Copy);
        }
        if boot != here.0 && in_use != Use::Clean {
            return Err(ColdReason::Restarted);
        }
        // The disk is told first: if the machine goes down while the store runs, the file holds a
        // mixture of old and new.
        let arena = layout.parts(&mapping);
        let superblock = arena.tables.superblock.at(0);
        superblock.set_use(Use::Running);
        superblock.set_whereabouts(here);
        mapping.sync(size_of::<Superblock>()).map_err(unreadable)?;
        if mapping.may_be_refused() && mapping.supply(0, layout.tables_len).is_err() {
            return Err(ColdReason::Damaged(
                "its tables have holes, and there is no room for them",
            ));
        }
        let index = index_of(&layout, &arena);
        let Taken {
            mut warm,
            contents,
            on_flash,
            sealed,
            lost,
        } = takeover::take_over(&arena.tables, &layout, &index).map_err(ColdReason::Damaged)?;
        // The process before may have died between two stores.
        #[cfg(not(any(miri, loom)))]
        mapping.copy_tables(&layout.doubled());
        warm.was_killed = in_use == Use::Running;
        warm.memory = layout.len;
        warm.took = began.elapsed();
        let start = Start::Warm(warm);
        let made = UnixSeconds(made);
        let mut store = Store::of_arena(config, &layout, &arena, start, (seed, made));
        for (queue, segment) in sealed {
            store.log.queues().push(queue, segment);
        }
        let is_of_index = |&page: &PageId| store.log.entry(page).state() == PageState::Index;
        let pages = (0..store.log.segment_count()).filter(is_of_index);
        store.tables.adopt(pages, &contents.tables);
        store.items_taken_over = contents.items;
        #[cfg(not(loom))]
        {
            store.lost_before = lost;
        }
        #[cfg(loom)]
        drop(lost);
        store.flash.note_taken_over(on_flash);
        let limit = store.memory_limit_of(config);
        match store.set_memory_limit(limit) {
            Err(LimitRefused::TooSmall { least }) => Err(ColdReason::MemoryTooSmall {
                memory: identity.len >> 20,
                least: (least as u64).div_ceil(1 << 20),
            }),
            // What the file system has no room for is found missing when it is needed.
            Ok(()) | Err(LimitRefused::TooLarge { .. } | LimitRefused::NoSpace { .. }) => Ok(store),
        }
    }

    /// The store of an arena whose page table is valid.
    fn of_arena(
        config: &Config,
        layout: &StoreLayout,
        arena: &Arena,
        start: Start,
        (seed, made): (u64, UnixSeconds),
    ) -> Store {
        let pages = Pages::new(
            arena.tables.page_table.clone(),
            layout.segment_len,
            layout.reserve,
            config.evict,
            spread_of(config, layout),
        );
        let pages = Arc::new(pages);
        let log = Log::new(arena.tables.clone(), Arc::clone(&pages));
        Store {
            tables: SubTables::new(log.pages(), log.segment_count()),
            index: index_of(layout, arena),
            epochs: Epochs::new(config.workers + MENDERS + KEEPERS),
            hasher: Hasher::new(seed),
            counters: (0..config.workers + MENDERS + KEEPERS)
                .map(|_| CachePadded::default())
                .collect(),
            observer: None,
            tells_stored: false,
            evict: config.evict,
            whole_max: layout.segment_len / 4,
            item_size_max: config.item_size_max,
            made,
            flush: FlushState::of(&log),
            tags: Generations::new(
                arena.tables.superblock.clone(),
                arena.tables.page_table.clone(),
                pages,
                tag_slots(layout, arena),
            ),
            log,
            reclaimable: Reclaimable::default(),
            losses: Losses::new(),
            upload_bytes: AtomicUsize::new(0),
            oversized: OversizedPin::default(),
            flash: Tier::default(),
            evicted_idle_s: AtomicU32::new(0),
            crawl_next: AtomicU64::new(0),
            merging: Merging::default(),
            tables_len: layout.tables_len,
            #[cfg(not(any(miri, loom)))]
            doubled: layout.doubled(),
            #[cfg(not(loom))]
            lost_before: Vec::new(),
            heap_len: layout.heap_len,
            memory_least: layout.least(config.workers),
            // Of a file that was made for less, all.
            memory_most: match config.memory - layout.len.min(config.memory) < 2 << 20 {
                true => config.memory,
                false => layout.len,
            },
            items_taken_over: 0,
            start,
            taken: Mutex::new(vec![false; config.workers].into()),
            prefault: None,
        }
    }

    /// The limit of memory at the start.
    fn memory_limit_of(&self, config: &Config) -> usize {
        let limit = config.memory_limit.unwrap_or(config.memory);
        limit.min(self.memory_most)
    }

    /// Locks the memory, or faults it in ahead of use.
    fn ready(mut self, config: Config) -> Result<Store, StoreError> {
        let limit = self.memory_limit_of(&config);
        self.tells_stored = (config.observer.as_ref()).is_some_and(|own| own.hears_of_stored());
        self.observer = config.observer;
        if let Some(refusal) = config.memory_refused {
            self.log.pages().tell_refusals(refusal);
        }
        if config.memory_limit.is_some() || limit < self.log.mapping().len() {
            self.set_memory_limit(limit).map_err(|why| match why {
                LimitRefused::TooSmall { least } => StoreError::MemoryTooSmall {
                    given: limit,
                    workers: config.workers,
                    least,
                },
                LimitRefused::TooLarge { .. } | LimitRefused::NoSpace { .. } => {
                    StoreError::MemoryTooLarge
                }
            })?;
            self.log.pages().withhold_free();
        }
        let (mapping, pages) = (self.log.mapping(), self.log.pages());
        #[cfg(not(any(miri, loom)))]
        if config.survives_memory_errors {
            mapping.survive_all_errors(self.doubled);
        }
        if config.lock_memory {
            for run in pages.all_but_withheld() {
                let (offset, bytes) = pages.bytes_of(&run);
                mapping
                    .lock(offset, bytes)
                    .map_err(|source| StoreError::System {
                        action: "lock",
                        bytes,
                        source,
                    })?;
            }
        }
        if !cfg!(loom) {
            self.prefault = Prefault::start(Arc::clone(mapping), pages, config.lock_memory);
        }
        Ok(self)
    }

    /// Where all of its memory lies, and how long that is: for a network that is told of values by their addresses. It stays
    /// as long as the store does.
    #[cfg(not(loom))]
    pub fn memory_range(&self) -> (std::ptr::NonNull<u8>, usize) {
        let mapping = self.log.mapping();
        (mapping.at(0), mapping.len())
    }

    /// Whether it was begun with items that another process wrote, whose lengths are what they are.
    pub(crate) fn has_foreign_items(&self) -> bool {
        matches!(self.start, Start::Warm(_))
    }

    /// Bytes that are out of use because the file system that holds the store had no room for them;
    /// a limit that is raised again tries anew.
    pub fn refused_bytes(&self) -> usize {
        self.log.pages().refused_bytes()
    }

    /// The most that [`Store::set_memory_limit`] takes: [`Config::memory`], or less where a file was
    /// made for less.
    pub fn memory_most(&self) -> usize {
        self.memory_most
    }

    /// How the store began.
    pub fn start(&self) -> &Start {
        &self.start
    }

    /// The number of workers that there may be.
    pub(crate) fn workers(&self) -> usize {
        self.counters.len() - MENDERS - KEEPERS
    }

    /// A key with its hash in this store.
    #[inline]
    pub fn key<'k>(&self, bytes: &'k [u8]) -> Key<'k> {
        Key {
            bytes,
            hash: self.hasher.hash(bytes),
        }
    }

    /// The tag of a name: 1 byte at least. Two names may come to the same tag; the chance is one in
    /// 2^30.
    pub fn tag(&self, name: &[u8]) -> Tag {
        Tag::of_hash(self.hasher.hash(name).0)
    }

    /// A page of the store's memory for connection buffers; `None` while there is none to lend. At
    /// most a quarter of memory is lent.
    pub fn lend_page(&self) -> Option<Page> {
        self.log.pages().lend()
    }

    /// Whether items are evicted when memory is full.
    pub fn evicts(&self) -> bool {
        self.evict
    }

    /// An unused sub-table.
    pub(crate) fn take_table(&self) -> Option<TableId> {
        self.tables.take()
    }

    /// Takes back a sub-table that was never used.
    pub(crate) fn give_table_back(&self, table: TableId) {
        self.tables.give_back(table);
    }

    /// Bytes of the index's sub-tables.
    pub(crate) fn index_bytes(&self) -> usize {
        self.tables.count() * TABLE_BYTES
    }

    /// Seconds since the store was made, the unit of access words.
    #[inline]
    pub(crate) fn access_time(&self, now: UnixTime) -> u32 {
        now.second().0.wrapping_sub(self.made.0) & crate::segment::layout::mark::TIME
    }
}

impl Store {
    /// Leaves the file to the next process: writes all that is stored to the disk, if the file is
    /// on one. After that the machine may go down. Dropping the store does the same.
    ///
    /// # Panics
    /// If there are still workers.
    pub fn leave(&self) {
        let taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        assert!(!taken.contains(&true), "a worker is left");
        let mapping = self.log.mapping();
        // A thread that panics may have left a change half done.
        let superblock = self.log.superblock();
        let is_in_order = superblock.in_use() == Use::Running && !std::thread::panicking();
        if mapping.file().is_some() && is_in_order {
            // What the disk holds is complete before the superblock says so.
            let is_kept = mapping.sync(mapping.len()).is_ok();
            if is_kept {
                superblock.set_use(Use::Clean);
                let _ = mapping.sync(size_of::<Superblock>());
            }
        }
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.prefault = None;
        self.leave();
    }
}

/// Which pages of an arena lie in which node of memory.
fn spread_of(config: &Config, layout: &StoreLayout) -> Spread {
    let unit = ((2 << 20) / layout.segment_len).max(1);
    Spread::new(&config.topology, layout.first_page, layout.pages, unit)
}

/// Asks for memory where the arena's pages are to lie.
fn place(config: &Config, layout: &StoreLayout, mapping: &Mapping) {
    let tables = layout.first_page * layout.segment_len;
    spread_of(config, layout).place(mapping, tables, layout.segment_len);
}

/// The arena as slots of tags; under loom only a few, which all pages share.
fn tag_slots(layout: &StoreLayout, arena: &Arena) -> Slice<AtomicU64> {
    let len = if cfg!(loom) {
        4
    } else {
        layout.len / size_of::<AtomicU64>()
    };
    Slice::new(arena.directory.mapping(), 0, len)
}

/// A file whose tables the machine has lost a part of.
#[cfg(not(any(miri, loom)))]
const LOST_TABLES: ColdReason = ColdReason::Damaged("the machine has lost a part of its tables");

fn index_of(layout: &StoreLayout, arena: &Arena) -> Index {
    let directory = Directory::new(arena.directory.clone(), layout.base_bits);
    let buckets = Slice::new(arena.directory.mapping(), 0, layout.len / 64);
    Index::new(directory, buckets)
}

/// The machine's boot, and the number of the arena's file.
fn whereabouts(mapping: &Mapping) -> (u64, u64) {
    let file = mapping.file().and_then(|file| file.number().ok());
    (boot_number(), file.unwrap_or(0))
}

/// Seeds differ between processes, and clients cannot know them.
fn random_seed() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one("coua")
}
