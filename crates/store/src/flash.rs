//! Items on flash: which go there, how they are read and how they come back.
//!
//! What the cleaner would evict is copied into the worker's open segment on flash. Its slot names the item in
//! memory until that segment is written; then the slot is changed to the record on flash by one store. So no
//! reader ever finds nothing, and a process that is killed leaves the item in memory.
//!
//! An operation that needs an item on flash does nothing and says so ([`Miss::OnFlash`](crate::Miss::OnFlash)).
//! Its caller reads the record ([`Burst::fetch`](crate::Burst::fetch),
//! [`Worker::poll_flash`](crate::Worker::poll_flash)), hands it to
//! [`Burst::get_fetched`](crate::Burst::get_fetched) or [`Burst::bring_back`](crate::Burst::bring_back), and
//! executes the operation again. Plain set and plain delete read nothing: they drop every slot on flash that
//! could be the key's.
//!
//! # Invariants
//! - A key is in one slot, in memory or on flash.
//! - A slot names a record of the present filling of its segment on flash: it is stored while the segment is held,
//!   and taken back if that was dropped meanwhile; and nothing is filled anew before a sweep has found no slot.
//! - What was read is used only while its slot is there and its segment has the filling that it was read from.
//!
//! # Not here
//! Devices and the layout of records: `coua-flash`.

mod api;
mod attach;
mod fillings;
mod foreign;
mod keeper;
mod leaving;
mod lookup;
mod read;
pub(crate) mod rules;
mod stats;

pub(crate) use leaving::WorkerFlash;
pub(crate) use lookup::Beyond;
pub use {
    api::{BroughtBack, FetchStart, FetchedGet, FlashRead},
    attach::{FlashOptions, FlashRefused},
    keeper::FlashKeeper,
    stats::FlashStats,
};

use crate::index::slot::Slot;
use crate::key::KeyHash;
use coua_flash::log::{Location, Volume};
use crossbeam_utils::CachePadded;
use fillings::Fillings;
use foreign::Foreign;
use keeper::Wanted;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// Where an item may be on flash: the tag of its slot is the key's. It may be another key's all the same, or gone
/// by the time that it is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlashPlace {
    pub(crate) slot: Slot,
    pub(crate) hash: KeyHash,
}

/// The store's part of the tier below memory, if it has one.
#[derive(Default)]
pub(crate) struct Tier {
    attached: OnceLock<Attached>,
    /// Slots on flash that were taken over, and nobody has looked at yet.
    taken_over: AtomicU64,
    /// Whether a worker was made.
    has_begun: AtomicBool,
}

/// What all workers share of it.
pub(crate) struct Attached {
    pub(crate) volume: Arc<Volume>,
    /// Shorter items are evicted.
    item_len_min: usize,
    /// What each worker has seen to be other keys' records.
    foreign: Box<[CachePadded<Foreign>]>,
    fillings: Fillings,
    /// Wakes the keeper.
    wanted: Wanted,
    /// Whether there is a keeper.
    has_keeper: AtomicBool,
    /// Items that were taken over.
    items_taken_over: u64,
}

impl Tier {
    #[inline]
    pub(crate) fn get(&self) -> Option<&Attached> {
        self.attached.get()
    }

    #[inline]
    pub(crate) fn is_attached(&self) -> bool {
        self.attached.get().is_some()
    }

    pub(crate) fn note_taken_over(&self, items: u64) {
        self.taken_over.store(items, Ordering::Relaxed);
    }
}

/// The place on flash that a slot names.
fn location_of(slot: Slot) -> Location {
    Location::from_bits(slot.flash_place())
}
