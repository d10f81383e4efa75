//! A client for coua and for memcached.
//!
//! [`Client`] is synchronous: threads share it, and each operation has a connection of a pool to itself.
//! With the feature `tokio`, `tokio::Client` is the same for asynchronous code: it sends many requests ahead
//! on few connections. Below both is [`wire`], the language without I/O, for those who have a loop of their own.
//!
//! ```no_run
//! use coua_client::{Client, Config, Expiry, StoreOutcome};
//! use std::time::Duration;
//!
//! let cache = Client::connect("10.0.0.1:11211,10.0.0.2:11211")?;
//! cache.set("greeting", "hello", Duration::from_secs(60))?;
//! let values = cache.get_many(&["greeting", "other"])?;
//! assert!(values[0].is_some() && values[1].is_none());
//!
//! // Change a value only if nobody else has changed it meanwhile.
//! if let Some(seen) = cache.gets("greeting")? {
//!     let cas = seen.cas.unwrap_or_default();
//!     let outcome = cache.cas("greeting", "hello again", Expiry::NEVER, cas)?;
//!     assert!(matches!(outcome, StoreOutcome::Stored | StoreOutcome::Exists));
//! }
//! # Ok::<(), coua_client::Error>(())
//! ```
//!
//! An [`Error`] says whether the request may have been executed. [`Config`] has all settings:
//! distribution over servers, time limits, ejection of servers that fail.
//!
//! # Stability
//! The crate follows semantic versioning and needs Rust 1.90; a higher one is a change of the second
//! number. Enumerations that may grow are `non_exhaustive`.
//!
//! # Invariants
//! - A connection on which the order of answers is in doubt is closed; no answer is taken for another's.
//! - What may have been executed is sent again only if it reads.
//! - Memory is bounded by [`Config`], by the caller's own requests, and by what the answers to them hold.
#![deny(missing_docs)]
#![forbid(unsafe_code)]

mod address;
mod batch;
mod blocking;
mod config;
mod discovery;
mod error;
mod expiry;
mod fleet;
mod handshake;
mod health;
mod key;
mod login;
mod observer;
mod operations;
mod outcome;
mod route;
mod selection;
#[cfg(feature = "tls")]
mod tls;
#[cfg(feature = "tokio")]
pub mod tokio;
pub mod wire;

pub use address::Address;
pub use batch::{Batch, BatchTicket, Results};
#[cfg(feature = "rdma")]
pub use blocking::rdma::Rdma;
pub use blocking::transport::{Connect, Sockets, Transport};
pub use blocking::{Builder, Client};
pub use config::{Config, DialectChoice, Failover};
pub use discovery::Discovery;
pub use error::{Cause, Error};
pub use expiry::Expiry;
pub use key::KeyError;
pub use observer::Event;
pub use outcome::{EachServer, Outcome, Statistics, StoreOutcome, Value};
pub use route::Distribution;
#[cfg(feature = "tls")]
pub use tls::{Tls, TlsError};
pub use wire::{Effect, ItemReply, Meta, Refusal, RequestError, StoreMode};
