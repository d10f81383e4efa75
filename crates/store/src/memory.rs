//! The one owner of `-m`: a range of memory, cut into pages of one size, and who has which.
//!
//! A page becomes a segment of items, sixteen or more sub-tables of the index, or is lent to the
//! server for connection buffers. The range's first pages hold the segment table and the
//! directory. Everything in it is found by offset, never by address, so that a later process can
//! map it elsewhere.

#[cfg(not(loom))]
pub(crate) mod mapping;
#[cfg(not(loom))]
mod pages;

#[cfg(not(loom))]
pub use mapping::HugePages;
#[cfg(not(loom))]
pub(crate) use mapping::{Mapping, Slice};
#[cfg(not(loom))]
pub use pages::Page;
#[cfg(not(loom))]
pub(crate) use pages::{PageId, Pages, Purpose};

/// Under loom the index lives on the heap, since loom's atomics are not plain bytes.
#[cfg(loom)]
pub(crate) type Slice<T> = Box<[T]>;
