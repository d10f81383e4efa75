//! Prefetch hints and copies of a few bytes, for hot paths.
//!
//! Every crate uses these, so the unsafe code of prefetching stands in one file.
//!
//! ```
//! // While one entry is looked at, the memory of one some places ahead is on its way.
//! const AHEAD: usize = 4;
//! let boxes: Vec<Box<u64>> = (0..100).map(Box::new).collect();
//! let mut sum = 0;
//! for (at, entry) in boxes.iter().enumerate() {
//!     if let Some(next) = boxes.get(at + AHEAD) {
//!         coua_cpu::prefetch(&**next);
//!     }
//!     sum += **entry;
//! }
//! assert_eq!(sum, 4950);
//!
//! let mut line = [0; 12];
//! coua_cpu::copy_short(&mut line, b"VALUE key 0 ");
//! assert_eq!(&line, b"VALUE key 0 ");
//! ```

#![cfg_attr(not(test), no_std)]

mod copy;
mod prefetch;

pub use copy::copy_short;
pub use prefetch::{prefetch, prefetch_at, prefetch_for_write, prefetch_lines, prefetch_write_at};
