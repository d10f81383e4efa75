//! Frames by way of the kernel's own drivers: packet sockets and TAP devices.
//!
//! They are for tests, and for machines with neither AF_XDP nor DPDK: each frame is copied by the
//! kernel and passes through most of its lower half. [`PacketSocket`] sends and receives on an
//! interface that is there; [`Tap`] makes an interface and is the other end of its cable.
//!
//! # The kernel must not have the stack's addresses
//! A packet socket gets a copy of what comes in, and the kernel goes on treating the original. Had
//! any interface of the same network namespace an address that the stack answers to, the kernel
//! would answer every segment with RST. So the interface is up and has no such address: it has none
//! at all, or the stack has others of the same network.
//!
//! # Not here
//! Filtering by address or port: the stack does it. Segmentation by the card: a frame that a local
//! peer sends as one long segment does not fit and is dropped and counted; `ethtool -K PEER tx off`
//! at the peer's end keeps it from doing so.

mod device;
mod ring;
mod socket;
mod syscall;
mod tap;

pub use socket::{PacketCounters, PacketError, PacketSocket};
pub use tap::{Tap, TapCounters, TapError};
