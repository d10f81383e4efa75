//! A fabric in virtual time: what it costs follows the LogGP model, what goes wrong follows from a seed.
//!
//! ```text
//! node ── clock of its processor ── posts ──▶ card, one message at a time ──▶ L + len · G ──▶ other node's memory
//! ```
//!
//! LogGP (Alexandrov, Ionescu, Schauser, Scheiman, 1995): a message costs its sender and its receiver an overhead `o`
//! of processor time, keeps a card for a gap `g` or for `G` a byte, and arrives a latency `L` after it has left. Beside
//! that, processors pay for bytes that they copy. Nodes poll; a node that waits sees a completion at once.
//!
//! Bytes are read from memory when a card sends them and not when work is posted: who reuses memory too early sends
//! wrong bytes here as well.
//!
//! # Not here
//! Congestion inside of the network, and caches of the card.

pub mod cache;
mod faults;
mod link;
mod messages;
mod node;
mod node_fabric;
pub mod peers;
pub mod profiles;
pub mod requests;
mod world;

pub use faults::Faults;
pub use node::NodeId;
pub use node_fabric::NodeFabric;
pub use profiles::Profile;
pub use world::{Rights, World};
