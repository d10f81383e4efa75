//! What hot paths ask of the processor beside computing: hints that memory will soon be needed, and copies
//! of few bytes.

#![cfg_attr(not(test), no_std)]

mod copy;
mod prefetch;

pub use copy::copy_short;
pub use prefetch::{prefetch, prefetch_at, prefetch_for_write, prefetch_lines, prefetch_write_at};
