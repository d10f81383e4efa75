//! Kernel sockets: listeners, connections, datagrams and the epoll set that tells which of them are ready.
//!
//! All descriptors are non-blocking and close-on-exec. Connections are registered once, edge
//! triggered, for input, output and the peer's end of stream; nothing is re-armed later.

mod datagrams;
mod listener;
mod poller;
mod stream;
mod waker;

pub use datagrams::{Arrived, Datagrams};
pub use listener::{Accepted, ListenError, Listener, TcpOptions};
pub use poller::{Events, Poller, Readiness, Token};
pub use stream::{PeerAddress, Received, Sent, Stream};
pub use waker::Waker;
