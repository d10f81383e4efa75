//! Segments: the log that items live in.
//!
//! A segment is a page that a worker appends items to until it is full. Then it is a member of one
//! of two queues, until the cleaner has moved or dropped what is alive in it and it is empty again.
//! There are no size classes, and nothing in a segment changes in place except a few words of its
//! items. [`PageState`](crate::memory::PageState) lists the states of a segment.
//!
//! # Invariants
//! - An open segment belongs to one worker; a cleaning one belongs to the worker that cleans it.
//! - Every item in a sealed segment is published, dead, or part of an upload that holds the segment.
//! - When a segment retires, no slot points into it any more.
//! - A segment's sequence number is never used again, so each place in the log has a number that is
//!   unique for ever: an item's CAS follows from it.

mod append;
pub(crate) mod dead_bytes;
mod flush;
pub(crate) mod item;
pub(crate) mod layout;
pub(crate) mod log;
mod open;
pub(crate) mod queues;
pub(crate) mod space;

pub(crate) use flush::FlushState;
pub(crate) use log::{Hold, Log, LogTables};
pub(crate) use open::{OPEN_SEGMENTS, OpenRecord, OpenSegment};
