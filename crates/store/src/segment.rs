//! Segments: the log that items live in.
//!
//! A segment is a page that a worker appends items to until it is full, then a member of one of
//! two queues, then empty again once the cleaner has moved or dropped what lived there. There are
//! no size classes, and nothing in a segment is changed in place but a few words of its items.
//! [`PageState`](crate::memory::PageState) has the states of its life.
//!
//! # Invariants
//! - An open segment belongs to one worker, a cleaning one to the worker that cleans it.
//! - Every item in a sealed segment is published, dead, or part of an upload that holds the segment.
//! - When a segment retires, no slot points into it any more.
//! - A segment's sequence number is never used again, so a place in the log has a number of its own
//!   for ever: an item's CAS follows from it.

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
