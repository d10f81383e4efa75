//! Load from further machines: agents, each of which is one more member of a driver's team.
//!
//! The driver opens one connection to each agent. What they say is lines of JSON; behind a `job` and
//! a `done` come as many bytes as the line tells.
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
//! In place of any of its lines the agent may say `{"failed":{"reason":"..."}}`, once. Clocks are
//! not compared: an order begins when it arrives.
//!
//! # Invariants
//! - A line has at most 64 KiB, the key numbers 1 GiB, the histograms of an order 16 MiB; memory
//!   grows with what has come, not with what was announced.
//! - A job is checked against the limits of the flags, whoever sent it.
//! - Neither side waits for ever for the other: the driver hears from a busy agent twice a second, and an
//!   idle agent learns by TCP's keepalive that the driver's machine is gone.
//!
//! # Not here
//! How load is shared out ([`super::team`]), and the agent's side ([`super::agent_service`]).

mod job;
mod member;
mod wire;

pub(super) use member::Agent;
pub(super) use wire::{Fault, ToAgent, ToDriver, VERSION, Wire};
