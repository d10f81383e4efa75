//! Load from further machines: agents, each of which is one more member of a driver's team.
//!
//! The driver opens one connection to each agent. They exchange lines of JSON; after a `job` or a
//! `done` come as many bytes as the line says.
//!
//! ```text
//! driver                                              agent
//!   {"hello":{"version":2}} ─────────────────────────▶
//!   ◀───────────────────────── {"hello":{"version":2}}
//!   {"job":{...}}, key numbers, 4 bytes each, LE ────▶  connects to the server
//!   ◀───────────────────────────────────────── "ready"
//!   {"order":...} ───────────────────────────────────▶  at once, as the driver's own threads
//!   ◀────────────────────── {"progress":{"replies":N}}  twice a second
//!   ◀──────── {"done":{...}}, histograms in V2 format
//!   further orders, then the end of the connection ──▶  waits for the next driver
//! ```
//!
//! Instead of any of its lines the agent may send `{"failed":{"reason":"..."}}`, once. Clocks are
//! not compared: an order begins when it arrives.
//!
//! # Invariants
//! - A line has at most 64 KiB, the key numbers 1 GiB, the histograms of an order 16 MiB. Memory
//!   grows with what has arrived, not with what was announced.
//! - A job is checked against the limits of the flags, whoever sent it.
//! - Neither side waits for ever: a busy agent reports twice a second, and an idle agent learns by
//!   TCP's keepalive that the driver's machine is gone.
//!
//! # Not here
//! How load is divided ([`super::team`]), and the agent's side ([`super::agent_service`]).

mod job;
mod member;
mod wire;

pub(super) use member::Agent;
pub(super) use wire::{Fault, ToAgent, ToDriver, VERSION, Wire};
