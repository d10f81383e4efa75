//! The asynchronous client, on tokio (feature `tokio`).
//!
//! A few connections a server are shared by all callers. Each connection is a task: it takes requests from a
//! bounded queue, sends all that wait in one write, and hands each answer to its caller. A caller that goes
//! away, because its future is dropped, leaves its answer to be read and thrown away by that task: nothing
//! a caller does can bring a connection out of step.
//!
//! ```no_run
//! # async fn example() -> Result<(), coua_client::Error> {
//! use coua_client::tokio::Client;
//! use std::time::Duration;
//!
//! let cache = Client::connect("10.0.0.1:11211,10.0.0.2:11211")?;
//! cache.set("greeting", "hello", Duration::from_secs(60)).await?;
//! let values = cache.get_many(&["greeting", "other"]).await?;
//! assert!(values[0].is_some() && values[1].is_none());
//! # Ok(())
//! # }
//! ```

mod client;
mod connection;
mod follow;
mod lease;
mod line;
mod servers;
mod transport;

pub use client::{Builder, Client};
pub use transport::{Connect, Connecting, Sockets, Transport};
