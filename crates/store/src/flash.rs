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
//! - A key is in one slot, in memory or on flash, but for slots that were seen to be another key's.
//! - A slot names a record on flash only while its segment is sealed: it is stored while a read would hold the
//!   segment, and taken back if the segment was dropped meanwhile.
//!
//! # Not here
//! Devices and the layout of records: `coua-flash`.

#[cfg(not(loom))]
mod api;
#[cfg(not(loom))]
mod attach;
#[cfg(not(loom))]
mod keeper;

#[cfg(not(loom))]
pub use {
    api::{BroughtBack, FetchStart, FetchedGet, FlashRead},
    attach::{FlashOptions, FlashRefused, FlashStats},
    keeper::FlashKeeper,
};

use crate::index::slot::Slot;
use crate::key::KeyHash;

/// Where an item may be on flash: the tag of its slot is the key's. It may be another key's all the same, or gone
/// by the time that it is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlashPlace {
    pub(crate) slot: Slot,
    pub(crate) hash: KeyHash,
}
