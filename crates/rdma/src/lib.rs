//! memcached's requests over RDMA: who writes what into whose memory, and when.
//!
//! A client has an ordinary TCP connection, over which it asks for this one and over which it is authenticated. What
//! it sends here are the same commands that it would send there. So there is one parser.
//!
//! ```text
//! client                                                server
//!   │  SEND  request, or its beginning                    │   into a pool of receive buffers that all clients share
//!   │ ──────────────────────────────────────────────────▶ │
//!   │  SEND  more of the value, while …                   │   copied from the buffers to where the value will lie
//!   │ ──────────────────────────────────────────────────▶ │
//!   │  READ  … the rest of it is fetched                  │   straight to where the value will lie
//!   │ ◀─────────────────────────────────────────────────▶ │
//!   │  WRITE with immediate: the reply, in parts          │   short ones copied once, longer ones from the store
//!   │ ◀────────────────────────────────────────────────── │
//! ```
//!
//! The server's memory can be reached by nobody: it is the server that reads and writes. A client lends a part of its
//! own memory, and says with each request where its reply may go.
//!
//! Everything stands on one seam, [`Fabric`]: work is posted, completions are polled. [`Server`] and [`Client`] are the
//! two sides of the protocol; they wait for nothing and know neither threads nor sockets.
//!
//! # Not here
//! Which memory is registered, how a client proves who it is, what a request does: the server's business.

mod areas;
mod client;
mod fabric;
#[cfg(feature = "libfabric")]
pub mod libfabric;
mod limits;

mod server;
#[cfg(any(test, feature = "simulated"))]
pub mod simulated;
mod staging;
mod upgrade;
mod wire;

pub use client::{
    Client, ClientEvent, ClientMemory, Misbehaviour as ServerMisbehaviour, NotNow, Submission,
    Ticket, Value,
};
pub use fabric::{Completion, Fabric, Gather, PARTS_MAX, PeerId, Refused, Remote, Span, Work};
pub use limits::{FRAME_LEN, Limits, Measured, REPLY_COPY_MAX};
pub use server::{
    ConnectionCounts, Full, Misbehaviour, RemoteMemory, RequestId, Server, ServerCounts,
    ServerEvent,
};
pub use staging::{Staged, Staging};
pub use upgrade::{GREETING_LEN, Greeting, Offer, REQUEST, TOKEN_LEN};
pub use wire::{BadFrame, Frame, Immediate, RequestHeader, decode};
