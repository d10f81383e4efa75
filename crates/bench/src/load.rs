//! The load generator: many connections on some threads, each with requests in flight.
//!
//! In a closed loop a connection writes a burst of `depth` requests at once, and the next burst
//! when the last reply of this one has arrived. That is what a pipelining client does. It bounds
//! the requests in flight to connections × depth, and a slow server is asked less. In an open loop
//! requests leave at their own times ([`open_loop`]), and latency counts from when they were due.
//!
//! Each connection writes its requests into one buffer and sends them with one system call. Each
//! thread receives replies into one buffer and compares them there, byte by byte, with what they
//! must be. Nothing is allocated for a request once buffers have grown.
//!
//! # Not here
//! What is asked for ([`crate::workload`]); which server is asked, and how results are reported
//! ([`crate::commands`]).

mod absence;
mod agent_service;
mod agents;
mod clock;
mod connection;
mod datagrams;
mod dialect;
mod engine;
mod error;
mod find_max;
mod histogram;
mod link;
mod measured;
mod open_loop;
mod order;
mod own_datagrams;
mod own_stack;
mod plan;
mod requests;
mod schedule;
mod series;
mod setup;
mod team;

pub(crate) use absence::Absences;
pub(crate) use agent_service::Service as AgentService;
pub(crate) use engine::Engine;
pub(crate) use error::Error;
pub(crate) use find_max::{Bound, Found, find_max};
pub(crate) use measured::{Latencies, Measured, Run, microseconds};
pub(crate) use order::Order;
pub(crate) use plan::{Dialect, Plan};
pub(crate) use requests::Requests;
pub(crate) use schedule::{Arrivals, Pace};
pub(crate) use series::Row;
pub(crate) use setup::Setup;
pub(crate) use team::Team;
