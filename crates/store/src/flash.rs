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

mod answers;
mod keeper;
mod large;
mod leaving;
mod pieces;
mod read;

pub(crate) use large::{Copying, Departing};
pub(crate) use leaving::{Leaving, Settling, WorkerFlash};
pub(crate) use pieces::are_there;
pub(crate) use read::{Present, Useless, present};
pub use {
    answers::{BroughtBack, FetchStart, FetchedGet, FlashRead},
    keeper::FlashKeeper,
    pieces::{FlashPieces, PIECES_AT_ONCE},
};
