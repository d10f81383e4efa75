//! TCP/IP in user space: frames in, frames out, without I/O and without a clock.
//!
//! A [`Stack`](stack::Stack) is all connections of one worker on one queue of a network card, the
//! [`Nic`](nic::Nic). Its contract is at [`stack`].
//!
//! ```text
//! nic          the seam to the card
//! wire         the formats of Ethernet, ARP, IP, ICMP, TCP and UDP
//! stack        where a frame belongs; openings, neighbours, what leaves; the user's side
//! connection   one TCP connection
//!   ├─ congestion, rtt   how much may be on its way, and how long that takes
//!   └─ buffers           bytes that wait
//! table, wheel, neighbours, secrets, limits   finding, timing, asking, hiding, answering attacks
//! ```
//!
//! # Concurrency
//! Nothing is shared: each worker has its own stack. What one learns and others must know leaves as
//! a [`Notice`](stack::Notice).
//!
//! # Not here
//! Drivers, clocks, sleeping: `coua-transport`. Putting fragments together, IP forwarding, TCP's
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
