//! The store of coua: items in a log of segments, found by an optimistic cuckoo index.
//!
//! All workers share one [`Store`] and read it without locks. A [`Worker`] belongs to one thread
//! and works in turns: it begins a [`Burst`], looks ahead at the keys of all requests that have
//! come in, executes them in order, drops the burst and calls [`Worker::end`], which does a slice
//! of the store's own work (cleaning, growth, expiry) in proportion to what was stored.
//!
//! ```
//! use coua_store::{Access, Config, Expiry, Put, Store, Stored, UnixSeconds};
//!
//! let now = UnixSeconds(1_700_000_000);
//! let store = Store::new(Config { memory: 64 << 20, ..Config::default() }, now)?;
//! let mut worker = store.worker(0);
//! let mut burst = worker.burst(now);
//! let key = burst.key(b"greeting");
//! let stored = burst.store(&key, &Put::set(0, Expiry::NEVER), b"hello");
//! assert!(matches!(stored, Stored::Stored { .. }));
//! assert_eq!(burst.get(&key, Access::default()).unwrap().as_slice(), Some(&b"hello"[..]));
//! burst.close();
//! worker.end(now);
//! # Ok::<(), coua_store::StoreError>(())
//! ```
//!
//! # Invariants
//! - The hot path allocates nothing and takes no lock except a bucket's lock bit; a mutex is taken
//!   once a segment.
//! - Memory is bounded by [`Config::memory`]: segments, index, tables, lent pages, and what the
//!   heap holds for each segment. Outside this bound are a few hundred bytes a worker, and the
//!   records of unfinished uploads and pinned values.
//! - The index is never rebuilt from segments: deleted items would come back.
//!
//! # Not here
//! The wire protocol, clocks, threads and sockets belong to the server.

#![cfg_attr(
    loom,
    allow(dead_code, unused_imports, reason = "loom tests parts of the crate")
)]

mod clean;
mod counters;
mod epoch;
mod flash;
mod index;
mod item;
mod key;
mod look_ahead;
mod memory;
#[cfg(not(loom))]
mod mender;
mod observer;
mod operations;
mod prefault;
mod request;
mod scan;
mod segment;
mod sound;
mod store;
mod sync;
mod tags;
mod time;
mod worker;
mod worker_store;

#[cfg(all(test, loom))]
mod loom_tests;

/// For tests: what a killed process leaves behind.
#[cfg(all(feature = "kill-points", not(loom)))]
pub mod kill_points {
    pub use crate::sync::stepped::watch;
}

pub use {
    coua_flash::log::{Fetched, NoRecord},
    counters::Totals,
    flash::{
        BroughtBack, FetchStart, FetchedGet, FlashKeeper, FlashPieces, FlashRead, PIECES_AT_ONCE,
    },
    item::{Chunks, Item},
    key::{Key, KeyHash},
    look_ahead::Ahead,
    memory::{HugePages, Page, Topology},
    observer::{ItemView, Observer, RemovalReason},
    operations::{Pinned, Recall, Upload},
    request::{
        Access, Arithmetic, ArithmeticResult, Delete, Deleted, FlashPlace, MetaGet, MetaHit,
        MetaMiss, Miss, Mode, Put, Refused, Stored, Untouched,
    },
    scan::ScanPosition,
    store::{
        Admission, ColdReason, Config, FlashOptions, FlashRefused, FlashStats, ITEM_SIZE_LIMIT,
        LimitRefused, MEMORY_MIN, NodeStats, Start, Stats, Store, StoreError, WORKERS_MAX, Warm,
    },
    tags::{Invalidation, NO_TAGS, TAGS_MAX, Tag, Tags},
    time::{Expiry, UnixSeconds, UnixTime},
    worker::{Burst, Intent, Worker},
};
#[cfg(not(loom))]
pub use {
    mender::{Loss, Mended, Mender, PageKind},
    operations::{PoisonMeans, PoisonTarget},
};
