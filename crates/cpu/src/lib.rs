//! Prefetch hints and copies of a few bytes, for hot paths.
//!
//! Every crate uses these, so the unsafe code of prefetching stands in one file.

#![cfg_attr(not(test), no_std)]

mod copy;
mod prefetch;

pub use copy::copy_short;
pub use prefetch::{prefetch, prefetch_at, prefetch_for_write, prefetch_lines, prefetch_write_at};
