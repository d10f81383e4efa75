//! Items on flash: devices that are read and written without waiting, and the log of segments on them.
//!
//! Everything stands on one seam, [`BlockDevice`]: each worker has a [`Queue`] of its own, submits a burst of
//! requests with one doorbell or system call, and polls for what has completed. Memory is lent to a device by value
//! ([`Buffer`]), so that no safe code reads, reuses or frees what a device still writes to.
//!
//! # Not here
//! Which items go to flash and come back, and the index that says where they are: the store's business.

mod buffer;
mod device;
pub mod files;
pub mod log;
pub mod nvme;
mod ring;
#[cfg(any(test, feature = "simulated"))]
pub mod simulated;
mod slots;

pub use buffer::{Buffer, Pool, Region};
pub use device::{
    Armed, BlockDevice, Command, Completion, Failure, Identity, OpenError, Queue, Rejected,
    Rejection, Request, Transfer,
};
