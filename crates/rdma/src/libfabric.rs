//! The network by libfabric: InfiniBand, RoCE and iWARP (its provider `verbs`), or the kernel's TCP (`tcp`), which needs
//! no device.
//!
//! The library is found when it is first needed; nothing else depends on it. A [`Driver`] is one thread's: its device, its
//! queue of completions, its connections. It implements [`Fabric`](crate::Fabric).
//!
//! # Invariants
//! - Memory that is named by work that was posted stays where it is until the work has come back, or the connection's
//!   endpoint is closed. Registrations close after all endpoints, memory goes last.
//! - A connection's completions are its own: each has buffers for receiving of its own, as many as it has credits.

mod bindings;
mod completions;
mod driver;
#[cfg(test)]
mod layout;
mod library;
mod link;
mod memory;
mod objects;
mod posts;
mod queues;
mod works;

pub use driver::{Driver, DriverEvent, Request, Rights, Setup};
pub use link::{Link, LinkError};
pub use memory::{Bytes, Memory};

/// Why a network cannot be used.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// libfabric is not installed.
    #[error("libfabric is not installed (libfabric.so.1; Debian: libfabric1)")]
    NoLibrary,
    /// libfabric is too old.
    #[error("libfabric is too old: version 1.17 or newer is needed")]
    OldLibrary,
    /// No device of the provider has the address.
    #[error("libfabric's provider {0:?} has no device with this address")]
    NoDevice(String),
    /// A call has failed.
    #[error("cannot {doing}: {why}")]
    Failed {
        /// What was to be done.
        doing: &'static str,
        /// What libfabric says.
        why: String,
    },
}
