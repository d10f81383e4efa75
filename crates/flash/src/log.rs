//! The log: items on flash, in segments that are written once, in sequence, over all devices of a volume.
//!
//! ```text
//! device:   superblocks, table │ segment │ segment │ …        consecutive segments are on different devices
//! segment:  record record record …  →      ←  … entry entry trailer
//! record:   header, item, padding to 32 bytes
//! ```
//!
//! Nothing is kept in memory for a record. Whoever appended it keeps its [`Location`]: 44 bits. [`WorkerVolume::read`]
//! turns that into one read of the record's length class. What comes back is believed only if its checksum holds and it
//! says of itself that it is the record of this place, of this filling of the segment and of this volume: so a torn,
//! lost or misdirected write, and a read of the wrong place, all end as no record.
//!
//! # Invariants
//! - A sequence number is used for one filling of one segment of one volume, never again, restarts and crashes
//!   included.
//! - A segment is filled anew only after it was dropped, the caller has swept its index, and no read holds it.
//!
//! # Concurrency
//! Workers share a [`Volume`]; each has a [`WorkerVolume`] with queues and an open segment of its own.
//!
//! # Not here
//! Which items are written, which come back to memory, and what to drop when the volume is full.

mod error;
mod layout;
mod memory;
mod opening;
mod record;
mod recovery;
mod scan;
mod summary;
mod superblock;
#[cfg(test)]
mod tests;
mod volume;
mod waiting;
mod worker;
mod writer;

pub use error::VolumeError;
pub use layout::{Location, RECORD_LEN_MAX};
pub use memory::WorkerMemory;
pub use opening::{Cold, Opened, Start, VolumeOptions};
pub use record::{Draft, Record};
pub use recovery::{Recovered, RecoveredEntry};
pub use summary::Entry;
pub use volume::{Dropped, Volume};
pub use waiting::Clock;
pub use worker::{Appended, Counts, Event, Fetched, NoRecord, ReadStart, WorkerVolume};
pub use writer::WrittenSegment;
