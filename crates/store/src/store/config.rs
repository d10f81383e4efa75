//! How a store is made, and why making it can fail.

use crate::memory::Topology;
use crate::observer::Observer;
use std::path::PathBuf;

/// The least memory that a store runs in.
pub const MEMORY_MIN: usize = 8 << 20;

/// The most workers that a store has.
pub const WORKERS_MAX: usize = 1024;

/// The largest `item_size_max`.
pub const ITEM_SIZE_LIMIT: usize = 1 << 30;

/// How a store is made.
pub struct Config {
    /// Bytes for items, index, and what is lent: memcached's `-m`. With a `memory_limit` the most
    /// that this can become.
    pub memory: usize,
    /// How much of `memory` may be in use until [`Store::set_memory_limit`] says otherwise; `None`
    /// for all of it.
    ///
    /// [`Store::set_memory_limit`]: crate::Store::set_memory_limit
    pub memory_limit: Option<usize>,
    /// The largest item in bytes, `-I`: at most 1 GiB and half of `memory`.
    pub item_size_max: usize,
    /// How many workers there will be, at most.
    pub workers: usize,
    /// Whether items are evicted when memory is full (not `-M`).
    pub evict: bool,
    /// Fault in and lock all memory at the start (`-k`).
    pub lock_memory: bool,
    /// The base-2 logarithm of the number of sub-tables that the index starts with. `None` chooses
    /// it from `memory`, so that small items can fill memory before tags become short. Fewer
    /// sub-tables save a little memory for large items and make lookups among many small ones
    /// slower.
    pub index_bits: Option<u32>,
    /// The hash seed; `None` draws one.
    pub seed: Option<u64>,
    /// The file that holds the store, so that the next process can take it over: `-e`. A file on
    /// tmpfs or hugetlbfs is memory; any other is memory that the kernel writes to a disk.
    pub file: Option<PathBuf>,
    /// Is told, by any thread, when the file system that holds the file turns out to be full: how
    /// many bytes are out of use from now on.
    pub memory_refused: Option<fn(usize)>,
    /// Whether the pages of memory that the machine loses are replaced by fresh ones, if the process
    /// has a handler for that. [`Store::watch`] sees to what was lost.
    ///
    /// [`Store::watch`]: crate::Store::watch
    pub survives_memory_errors: bool,
    /// Is told what happens to items.
    pub observer: Option<Box<dyn Observer>>,
    /// Which memory is near which core. Where there are several nodes, workers take memory of their own
    /// core's first.
    pub topology: Topology,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            memory: 64 << 20,
            memory_limit: None,
            item_size_max: 1 << 20,
            workers: 1,
            evict: true,
            lock_memory: false,
            index_bits: None,
            seed: None,
            file: None,
            memory_refused: None,
            survives_memory_errors: false,
            observer: None,
            topology: Topology::default(),
        }
    }
}

/// Why a store cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Less than [`MEMORY_MIN`], or too little to leave anything for items with so many workers.
    #[error("{given} bytes of memory are too few for {workers} workers; {least} would do")]
    MemoryTooSmall {
        /// The memory asked for.
        given: usize,
        /// The number of workers.
        workers: usize,
        /// The memory that would be enough.
        least: usize,
    },
    /// More than locations can address.
    #[error("more than 8 TiB of memory")]
    MemoryTooLarge,
    /// The largest item could never be stored.
    #[error("the largest item may be at most half of memory and 1 GiB")]
    ItemSizeTooLarge,
    /// More sub-tables at the start than items in that much memory could ever fill.
    #[error("the index may start with at most 2^{most} sub-tables in so much memory")]
    IndexTooLarge {
        /// The largest number of bits.
        most: u32,
    },
    /// None, or more than [`WORKERS_MAX`].
    #[error("a store has 1 to {WORKERS_MAX} workers")]
    Workers,
    /// The file cannot be used for the store.
    #[error("{}: {why}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The file system has no room for the file. The same store without a file may do.
    #[error("{}: its file system has room for {has} bytes, and {wants} are wanted", path.display())]
    NoSpace {
        /// The file.
        path: PathBuf,
        /// Bytes that are available.
        has: u64,
        /// Bytes that are needed.
        wants: u64,
    },
    /// The system gave no memory, or refused to lock it.
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
