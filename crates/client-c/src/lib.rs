//! coua-client for C, and for what calls C: `include/couaclient.h` is the interface and its documentation.
//!
//! The library is `libcouaclient.so` and `libcouaclient.a`. Everything that C hands over is checked here: null
//! pointers, text that is not UTF-8, numbers out of range. What cannot be checked, C promises: pointers are
//! valid for their lengths, a client is not used after `coua_close`, a lease is given back once.
//!
//! # Invariants
//! - The structures and constants are those of the header; a test compares them.
//! - No function unwinds into C: a panic in an `extern "C"` function ends the process.
//!
//! # Not here
//! What the operations do: [`coua_client`].
#![deny(missing_docs)]

mod exports;
mod failure;
mod observed;
mod options;
mod pointers;
mod queue;
mod queue_exports;

pub use exports::*;
pub use failure::{ErrorDetails, MESSAGE_LEN, cause, status};
pub use observed::{ObserverFunction, event};
pub use pointers::{ClientHandle, QueueHandle, Slice, Value};
pub use queue_exports::*;
