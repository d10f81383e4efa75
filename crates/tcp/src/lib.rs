//! TCP/IP in user space: frames in, frames out, without I/O and without a clock.
//!
//! A [`Stack`](stack::Stack) holds all connections of one worker, on one queue of a network card,
//! the [`Nic`](nic::Nic). [`stack`] states its contract.
//!
//! ```text
//! nic          the seam to the card
//! wire         the formats of Ethernet, ARP, IP, ICMP, TCP and UDP
//! stack        where a frame belongs; openings, neighbours, what leaves; the user's side
//! connection   one TCP connection
//!   ├─ congestion, rtt   how much may be on its way, and how long that takes
//!   └─ buffers           bytes that wait
//! table, wheel, neighbours, secrets, limits   lookup, timers, MAC addresses, keyed hashes, limits
//! ```
//!
//! Two stacks on a simulated cable: one sends a request and the other answers it:
//!
//! ```
//! use coua_tcp::config::Config;
//! use coua_tcp::nic::{Mac, Nic};
//! use coua_tcp::simulated::{Card, Faults, Link};
//! use coua_tcp::stack::{Received, Stack};
//! use coua_tcp::time::Instant;
//!
//! let cards = [Card::new(Mac([2, 0, 0, 0, 0, 1])), Card::new(Mac([2, 0, 0, 0, 0, 2]))];
//! let (link, [mut client_card, mut server_card]) = Link::new(1, cards, Faults::NONE);
//! let stack = |address: &str, card: &dyn Nic| {
//!     let addresses = vec![address.parse().expect("an address and its network")];
//!     Stack::new(Config::new(addresses, [7; 32]), card.features(), Instant::default())
//! };
//! let mut client = stack("192.0.2.1/24", &client_card);
//! let mut server = stack("192.0.2.2/24", &server_card);
//! server.listen(11211);
//!
//! let (mut asking, mut answering) = (None, None);
//! let (mut has_asked, mut answer) = (false, Vec::new());
//! for turn in 0..20 {
//!     let mut room = [0; 16];
//!     let now_us = turn * 1000;
//!     link.advance_to(now_us);
//!
//!     client.begin(Instant::from_micros(now_us), &mut client_card);
//!     let id = *asking.get_or_insert_with(|| {
//!         let to = "192.0.2.2:11211".parse().expect("an address");
//!         client.connect(to, |_| true).expect("a free port")
//!     });
//!     // Nothing is taken before the handshake is done.
//!     has_asked = has_asked || client.send(id, b"ping") == Ok(4);
//!     if let Received::Bytes(len) = client.receive(&client_card, id, &mut room) {
//!         answer.extend_from_slice(&room[..len]);
//!     }
//!     client.end(&mut client_card);
//!
//!     server.begin(Instant::from_micros(now_us), &mut server_card);
//!     answering = answering.or_else(|| server.next_accepted());
//!     if let Some(id) = answering
//!         && let Received::Bytes(len) = server.receive(&server_card, id, &mut room)
//!     {
//!         assert_eq!(server.send(id, &room[..len]), Ok(len));
//!     }
//!     server.end(&mut server_card);
//! }
//! assert_eq!(answer, b"ping");
//! ```
//!
//! # Concurrency
//! Nothing is shared: each worker has its own stack. What one stack learns and the others must
//! know, it passes on as a [`Notice`](stack::Notice).
//!
//! # Not here
//! Drivers, clocks, sleeping: `coua-transport`. Reassembly of IP fragments, IP forwarding, TCP's
//! urgent data.

mod buffers;
pub mod config;
mod congestion;
mod connection;
pub mod counters;
mod limits;
mod listener;
mod neighbours;
pub mod nic;
mod rtt;
mod secrets;
pub mod seq;
#[cfg(feature = "simulated")]
pub mod simulated;
pub mod stack;
mod table;
pub mod time;
mod wheel;
pub mod wire;
