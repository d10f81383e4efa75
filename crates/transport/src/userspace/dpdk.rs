//! Cards through DPDK: its poll-mode drivers for physical cards, and its virtual devices.
//!
//! ```text
//! Eal::start("…")  →  Port::open  →  one Queue a worker, each a Nic
//! ```
//!
//! The card is taken from the kernel: `ip link` no longer shows its interface, and neither the
//! host's firewall nor tcpdump sees its traffic. Frames lie in mbufs in huge pages. A queue shows
//! received frames where they lie, and writes frames to be sent into mbufs that it keeps in stock.
//! So each frame is written once, where the card fetches it.
//!
//! # Invariants
//! - An mbuf is in one of a queue's bursts, or belongs to the card or to its pool. The pools
//!   outlive the started port.
//! - Each received frame is in one mbuf, with its VLAN tags.
//! - The frames that a queue sends come from one pool and have one owner.
//!
//! # Concurrency
//! EAL, DPDK's run-time environment, is started once in a process and stays. A [`Queue`] is `Send`
//! and belongs to the worker that receives with it. When it is first used, it gives its thread an
//! identity in DPDK, which chooses the thread's cache in each pool and ends with the thread. Later
//! it works on another thread too, but more slowly until that thread has an identity. A [`Port`]
//! can be used by any thread.
//!
//! # Not here
//! - Spreading frames over queues on devices without RSS and flow rules (memif, vhost): the peer's
//!   queue `i` is queue `i` here, so the peer must spread connections itself and have as many
//!   queues ([`Spreading::ByPeer`]).
//! - Frames sent from memory other than the pool's.

mod arguments;
mod burst;
mod checksum;
mod device;
mod eal;
mod error;
mod gate;
mod identity;
mod interrupt;
mod pool;
mod port;
mod queue;
mod spreading;

pub use eal::{Eal, EalError};
pub use error::PortError;
pub use port::{LinkStatus, Port, PortCounters, PortOptions};
pub use queue::{Queue, QueueCounters};
pub use spreading::Spreading;
