//! A network that a test makes up: the same types as the kernel's sockets, from a seed.
//!
//! The server's ends become a [`Stream`], [`Listener`], [`Waker`] and [`Poller`] by `From`; a [`Peer`]
//! is the client's end of a connection. Every choice that a kernel or a wire makes (how
//! much arrives at once, how much a send takes, which listener gets a connection, how many events
//! one wait reports) is drawn from the seed, within what epoll(7) promises:
//!
//! - A receive takes all that has arrived, as far as it has room; what arrives later is a new edge.
//! - After a send that took less than it was offered, or nothing, an edge follows once there is
//!   room worth telling of.
//! - An event tells of the state at the moment of the wait, and may be one that nothing needs.
//! - Listeners and wakers are told of as long as they are ready.
//!
//! ```text
//! Peer::send ──▶ on the way ──Network::pass_time──▶ arrived ──▶ Stream::receive
//! Peer::receive ◀───────────────── sent ◀────────────────────── Stream::send
//! ```
//!
//! [`Stream`]: crate::Stream
//! [`Listener`]: crate::Listener
//! [`Waker`]: crate::Waker
//! [`Poller`]: crate::Poller
//!
//! # Concurrency
//! One thread drives the whole; the lock is there because the server's types may be shared.

mod ends;
mod link;
mod state;

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rand::SeedableRng;
use rand::rngs::Xoshiro256PlusPlus;

pub use ends::{ListenerEnd, PollerEnd, StreamEnd, WakerEnd};
use state::State;

/// The address of the simulated server.
pub const SERVER: SocketAddr = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 1), 11211));

/// What a simulated poller can wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceId {
    /// A connection, by number.
    Stream(usize),
    /// A listener, by number.
    Listener(usize),
    /// A waker, by number.
    Waker(usize),
}

/// How a connection behaves.
#[derive(Clone, Copy, Debug)]
pub struct Manner {
    /// Bytes on their way to the server at most.
    pub up_room: usize,
    /// Bytes on their way to the client at most.
    pub down_room: usize,
    /// Bytes that arrive at the server at once, at most.
    pub piece_max: usize,
    /// One in so many of the server's sends takes less than it could; 0 for none.
    pub short_send_one_in: u32,
    /// One in so many of the server's sends takes nothing though there is room; 0 for none.
    pub refused_send_one_in: u32,
}

impl Manner {
    /// A fast connection without faults.
    pub const AMPLE: Manner = Manner {
        up_room: 1 << 20,
        down_room: 1 << 20,
        piece_max: 1 << 20,
        short_send_one_in: 0,
        refused_send_one_in: 0,
    };
}

/// What the client's end got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Got {
    /// So many bytes, at least one.
    Bytes(usize),
    /// Nothing at the moment.
    Nothing,
    /// All that the server sent has been received, and it has closed.
    Ended,
}

/// What the server's ends have moved so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// Bytes that the server has received.
    pub received: u64,
    /// Bytes that the server has sent.
    pub sent: u64,
}

/// The network. Clones are the same one.
#[derive(Clone)]
pub struct Network {
    state: Arc<Mutex<State>>,
}

impl Network {
    /// A network without connections. One in `exhausted_one_in` attempts to accept a connection
    /// finds the system without descriptors; 0 for none.
    pub fn new(seed: u64, exhausted_one_in: u32) -> Network {
        let rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        Network {
            state: Arc::new(Mutex::new(State::new(rng, exhausted_one_in))),
        }
    }

    /// `count` TCP listeners, among which connections are spread.
    pub fn listen_tcp(&self, count: usize) -> Vec<ListenerEnd> {
        (0..count).map(|_| self.listener(true)).collect()
    }

    /// One listener that is no TCP's, to be shared among workers.
    pub fn listen_unix(&self) -> ListenerEnd {
        self.listener(false)
    }

    fn listener(&self, is_tcp: bool) -> ListenerEnd {
        let number = self.state().add_listener();
        ListenerEnd::new(self.clone(), number, is_tcp)
    }

    /// A waker.
    pub fn waker(&self) -> WakerEnd {
        let number = self.state().add_waker();
        WakerEnd::new(self.clone(), number)
    }

    /// A poller, and its number.
    pub fn poller(&self) -> (PollerEnd, usize) {
        let number = self.state().add_poller();
        (PollerEnd::new(self.clone(), number), number)
    }

    /// Whether a poller has anything to report, so that a wait would not sleep.
    pub fn is_ready(&self, poller: usize) -> bool {
        self.state().is_ready(poller)
    }

    /// Lets some of what is on its way arrive.
    pub fn pass_time(&self) {
        self.state().pass_time();
    }

    /// Connections that the server has not closed, those included that it has not accepted.
    pub fn connections(&self) -> usize {
        self.state().connections()
    }

    /// What the server has received and sent.
    pub fn moved(&self) -> Moved {
        self.state().moved
    }

    /// Connects to one of the listeners.
    pub fn connect(&self, manner: Manner) -> Peer {
        let number = self.state().connect(manner);
        Peer {
            network: self.clone(),
            number,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // The state is whole after every call, so a panic elsewhere does not spoil it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The client's end of a connection. Dropping it closes it.
pub struct Peer {
    network: Network,
    number: usize,
}

impl Peer {
    /// Sends from the front of `bytes`, and says how many were taken; `None` where the connection
    /// is broken.
    pub fn send(&self, bytes: &[u8]) -> Option<usize> {
        self.network.state().link(self.number).peer_send(bytes)
    }

    /// Receives at most `most` bytes, behind what `into` holds.
    pub fn receive(&self, into: &mut Vec<u8>, most: usize) -> Got {
        self.network.state().peer_receive(self.number, into, most)
    }

    /// Sends no more. The server can still answer.
    pub fn end(&self) {
        self.network.state().link(self.number).peer_end();
    }

    /// Breaks the connection: what is under way in either direction may be lost.
    pub fn reset(&self) {
        self.network.state().reset(self.number);
    }

    /// Closes the connection, as close(2) does: where something has not been received, the
    /// connection is reset.
    pub fn close(&self) {
        self.network.state().peer_close(self.number);
    }

    /// Whether the server has closed its end.
    pub fn is_closed_by_server(&self) -> bool {
        !self.network.state().link(self.number).server_is_open
    }

    /// Bytes that have not arrived at the server.
    pub fn under_way(&self) -> usize {
        self.network.state().link(self.number).under_way()
    }

    /// The poller that waits for the server's end.
    pub fn poller(&self) -> Option<usize> {
        self.network.state().link(self.number).poller()
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.close();
    }
}

#[cfg(test)]
mod tests;
