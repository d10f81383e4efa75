//! Cards through DPDK: its poll-mode drivers for physical cards, and its virtual devices.
//!
//! ```text
//! Eal::start("…")  →  Port::open  →  one Queue a worker, each a Nic
//! ```
//!
//! The card is taken from the kernel: its interface is gone from `ip link`, and neither the host's
//! firewall nor tcpdump sees what passes. Frames lie in mbufs in huge pages. A queue receives
//! straight into view and sends from mbufs that it has in stock, so that a frame is written once,
//! where the card takes it from.
//!
//! # Invariants
//! - An mbuf is in one of a queue's bursts or belongs to the card or to its pool; the pools outlive
//!   the started port.
//! - All frames in view are in one mbuf each, with their VLAN tags.
//! - Frames that leave come from one pool a queue and have one owner.
//!
//! # Concurrency
//! EAL, DPDK's run-time, is once in a process and stays. A [`Queue`] is `Send` and belongs to the
//! worker that receives with it; at its first use it gives that thread an identity in DPDK, which
//! the pools' caches go by, and which ends with the thread. On another thread later it works as well,
//! only slower until that thread has an identity. A [`Port`] is for any thread.
//!
//! # Not here
//! Several queues on devices without RSS and flow rules (memif, vhost): the peer's queue `i` is ours, so
//! the peer must spread connections itself and have as many queues as we ([`Spreading::ByPeer`]).
//! Frames sent from memory that is not the pool's.

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
