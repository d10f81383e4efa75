//! How bytes reach a worker.
//!
//! A transport gives a worker connections, fills input buffers that the worker owns and takes
//! replies from buffers that the worker owns. It knows nothing of what the bytes mean, keeps no
//! threads and reads no clock.
//!
//! ```text
//! Poller  Stream  Listener  Datagrams  Waker      the seam: what a worker holds
//! ─────────────────────────────────────────────
//! the kernel's    userspace        simulated      who brings the bytes
//! sockets         our own stack    tests only
//! ```
//! The seam says which of the three each object belongs to, once a call; the worker does not know.
//! The kernel's descriptors are non-blocking and close-on-exec. Connections are registered once,
//! edge triggered, for input, output and the peer's end of stream; nothing is re-armed later.
//!
//! With the feature `simulated` every type but those of datagrams can also be one end of a simulated
//! network instead of a descriptor. It is for tests; a server is built without.
//!
//! # Concurrency
//! Every type belongs to one worker. [`Waker`] alone is made to be shared: it is how another thread
//! ends a worker's sleep.

mod datagrams;
pub mod huge_pages;
mod listener;
mod poller;
#[cfg(feature = "simulated")]
pub mod simulated;
mod stream;
pub mod userspace;
mod waker;

pub use datagrams::{Arrived, DatagramSocket, Datagrams, Sender};
pub(crate) use listener::unix_socket;
pub use listener::{Accepted, ListenError, Listener, TcpOptions};
pub use poller::{Events, Poller, Readiness, Source, Token};
pub use stream::{PeerAddress, Received, Sent, Stream};
pub use waker::Waker;
