//! The synchronous client: one thread, one operation, one connection at a time; pools between them.

mod client;
mod connection;
mod fetch;
mod follow;
mod pool;
#[cfg(feature = "rdma")]
pub(crate) mod rdma;
mod run;
mod servers;
pub(crate) mod transport;

pub use client::{Builder, Client};
