//! Frames through the kernel's own drivers: packet sockets and TAP devices.
//!
//! They are for tests, and for machines with neither AF_XDP nor DPDK: the kernel copies each frame
//! and runs most of its lower layers for it. [`PacketSocket`] sends and receives on an existing
//! interface. [`Tap`] makes an interface and is the other end of its cable.
//!
//! # The kernel must not have the stack's addresses
//! A packet socket gets a copy of each frame that arrives, and the kernel still processes the
//! original. If an interface in the same network namespace had an address of the stack, the kernel
//! would answer every segment with RST. So the interface is up and has no such address: it has none
//! at all, or the stack has other addresses of the same network.
//!
//! # Not here
//! - Filtering by address or port: the stack does that.
//! - Segmentation by the card: a long segment that a local peer sends in one frame does not fit; it
//!   is dropped and counted. `ethtool -K PEER tx off` at the peer's end avoids that.

mod device;
mod ring;
mod socket;
mod syscall;
mod tap;

pub use socket::{PacketCounters, PacketError, PacketSocket};
pub use tap::{Tap, TapCounters, TapError};
