//! The only owner of `-m`: a range of memory, cut into pages of one size, and the use of each page.
//!
//! A page becomes a segment of items, or sub-tables of the index, or is lent to the server for
//! connection buffers. The first pages hold the tables. Everything is found by offset, never by
//! address, so that the next process can map the range at another address.

mod doubled;
mod errors;
mod file;
#[cfg(not(any(miri, loom)))]
mod keeper;
mod mapping;
mod nodes;
mod page_table;
mod pages;
mod policy;
mod seen;
mod superblock;
#[cfg(loom)]
mod tracked;
mod unused;

pub(crate) use doubled::{Doubled, Twin};
#[cfg(not(any(miri, loom)))]
pub(crate) use errors::{address_of, hwpoison, poison};
pub(crate) use file::{ArenaFile, FileError, boot_number};
#[cfg(not(any(miri, loom)))]
pub(crate) use keeper::{DoubledPart, PartKind};
pub use mapping::HugePages;
pub(crate) use mapping::{Borrowed, Mapping, Shared, Slice, shared};
pub(crate) use nodes::Spread;
pub use nodes::Topology;
pub(crate) use page_table::{PageEntry, PageId, PageState, Queue, Released};
pub use pages::Page;
pub(crate) use pages::{Pages, Purpose};
pub(crate) use seen::events_seen;
pub(crate) use superblock::{Identity, LAYOUT_VERSION, Superblock, Unreadable, Use};
