//! How a store is made, and why it cannot be.

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
    /// The file that the store lies in, so that the next process can take it over, `-e`. A file of
    /// tmpfs or hugetlbfs is memory; any other is memory that the kernel writes to a disk.
    pub file: Option<PathBuf>,
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
            file: None,
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
    /// The file cannot be used for the store.
    #[error("{}: {why}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
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
