//! How bytes reach a worker.
//!
//! A transport gives a worker connections, fills input buffers that the worker owns and takes
//! replies from buffers that the worker owns. It knows nothing of what the bytes mean, keeps no
//! threads and reads no clock.
//!
//! ```text
//! Poller  Stream  Listener  Datagrams  Waker      the seam: what a worker holds
//! ─────────────────────────────────────────────
//! kernel          userspace        simulated      who brings the bytes
//! its sockets     our own stack    tests only
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
mod kernel;
mod listener;
mod outcome;
mod peer_address;
mod poller;
mod readiness;
mod sender;
#[cfg(feature = "simulated")]
pub mod simulated;
mod source;
mod stream;
pub mod userspace;
mod waker;

pub use datagrams::{DatagramSocket, Datagrams};
pub use kernel::datagrams::dropped_by_kernel;
pub use listener::{ListenError, Listener, TcpOptions};
pub use outcome::{Accepted, Arrived, Received, Sent};
pub use peer_address::PeerAddress;
pub use poller::{Events, Poller};
pub use readiness::{Readiness, Token};
pub use sender::Sender;
pub use source::Source;
pub use stream::Stream;
pub use waker::Waker;
