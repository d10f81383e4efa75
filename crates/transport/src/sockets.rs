//! Kernel sockets: listeners, connections, datagrams and the epoll set that tells which of them are ready.
//!
//! All descriptors are non-blocking and close-on-exec. Connections are registered once, edge
//! triggered, for input, output and the peer's end of stream; nothing is re-armed later.
//!
//! With the feature `simulated` every type but those of datagrams can also be one end of a simulated
//! network instead of a descriptor. It is for tests; a server is built without.

mod datagrams;
mod listener;
mod poller;
#[cfg(feature = "simulated")]
pub mod simulated;
mod stream;
mod waker;

pub use datagrams::{Arrived, DatagramSocket, Datagrams, Sender, dropped_by_kernel};
pub(crate) use listener::unix_socket;
pub use listener::{Accepted, ListenError, Listener, TcpOptions};
pub use poller::{Events, Poller, Readiness, Source, Token};
pub use stream::{PeerAddress, Received, Sent, Stream};
pub use waker::Waker;
