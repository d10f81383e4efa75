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
//! A stream over any of them can be encrypted ([`tls`]).
//!
//! The seam says which of the three each object belongs to, once a call; the worker does not know.
//! The kernel's descriptors are non-blocking and close-on-exec. Connections are registered once,
//! edge triggered, for input, output and the peer's end of stream; nothing is re-armed later.
//!
//! With the feature `simulated` every type but those of datagrams can also be one end of a simulated
//! network instead of a descriptor. It is for tests; a server is built without.
//!
//! A server that sends back what it receives, with the kernel's sockets:
//!
//! ```
//! use std::io::{Read, Write};
//! use std::time::Duration;
//!
//! use coua_transport::{Accepted, Events, Listener, Poller, Received, TcpOptions, Token};
//!
//! const LISTENER: Token = Token(0);
//! const STREAM: Token = Token(1);
//!
//! let any_port = "127.0.0.1:0".parse()?;
//! let listener = Listener::tcp(any_port, 1, TcpOptions { backlog: 8 })?.remove(0);
//! let mut client = std::net::TcpStream::connect(listener.address().expect("it is TCP's"))?;
//! client.write_all(b"ping")?;
//!
//! let poller = Poller::new()?;
//! poller.add_source(&listener, LISTENER, false)?;
//! let mut events = Events::new();
//! let mut stream = None;
//! let mut answered = false;
//! while !answered {
//!     for ready in poller.wait(&mut events, Duration::from_secs(1), || {})? {
//!         if ready.token == LISTENER
//!             && let Accepted::Stream(accepted) = listener.accept()
//!         {
//!             poller.add_stream(&accepted, STREAM)?;
//!             stream = Some(accepted);
//!         } else if let Some(stream) = &stream {
//!             let mut room = [0; 64];
//!             if let Received::Bytes(len) = stream.receive(&mut room) {
//!                 stream.send_now(&room[..len]);
//!                 answered = true;
//!             }
//!         }
//!     }
//!     poller.end_turn();
//! }
//! let mut answer = [0; 4];
//! client.read_exact(&mut answer)?;
//! assert_eq!(&answer, b"ping");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
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
pub mod tls;
pub mod userspace;
mod waker;

pub use datagrams::{DatagramSocket, Datagrams};
pub use kernel::datagrams::dropped_by_kernel;
pub use listener::{ListenError, Listener, TcpOptions};
pub use outcome::{Accepted, Arrived, Handshake, Received, Sent, StreamFailure};
pub use peer_address::PeerAddress;
pub use poller::{Events, Poller};
pub use readiness::{Readiness, Token};
pub use sender::Sender;
pub use source::Source;
pub use stream::Stream;
pub use waker::Waker;
