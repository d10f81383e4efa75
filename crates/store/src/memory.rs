//! The one owner of `-m`: a range of memory, cut into pages of one size, and who has which.
//!
//! A page becomes a segment of items, sixteen or more sub-tables of the index, or is lent to the
//! server for connection buffers. The range's first pages hold the segment table and the
//! directory. Everything in it is found by offset, never by address, so that a later process can
//! map it elsewhere.

mod mapping;
mod pages;
#[cfg(loom)]
mod tracked;

pub use mapping::HugePages;
pub(crate) use mapping::{Borrowed, Mapping, Slice};
pub use pages::Page;
pub(crate) use pages::{PageId, Pages, Purpose};
