//! Network cards under the stack of crate `coua-tcp`: each driver here is a [`coua_tcp::nic::Nic`].
//!
//! A driver moves frames between a card and the worker that owns one of its queues. It parses only
//! what the card needs to know, and answers nothing.
//!
//! # Concurrency
//! A queue belongs to one worker. A driver that opens several queues of a card returns one value
//! for each.

pub mod af_xdp;
mod card;
mod datagrams;
#[cfg(feature = "dpdk")]
pub mod dpdk;
mod driver;
mod exchange;
pub mod memif;
pub mod neighbours;
mod netlink;
pub mod packet;
pub mod pcap;
mod stream;

pub use card::{Card, OtherCard};
pub use coua_tcp::config::{Algorithm, Config};
pub use coua_tcp::counters::Counters;
pub use coua_tcp::nic::{BURST_LEN, Mac};
pub use coua_tcp::wire::address::Network;
pub(crate) use datagrams::DatagramEnd;
pub use driver::{Polling, StackDriverCounters, StackSetup, Turns};
pub(crate) use driver::{SharedStackDriver, StackDriver, as_io};
pub use exchange::Exchange;
pub(crate) use stream::StreamEnd;
