//! The load generator: many connections on one thread, each with a burst of requests in flight.
//!
//! A connection writes a burst of `depth` requests at once, and the next burst when the last reply
//! of this one is there. That is what a pipelining client does, and it bounds what is in flight to
//! connections × depth. Requests are built from templates and replies are recognized by their first
//! byte and the size that a hit must have, so that the client costs less than any server does
//! beside what the kernel takes for both.
//!
//! # Not here What is asked for ([`crate::workload`]); who is asked and how the sides of a
//! comparison are told apart ([`crate::commands`]).

mod connection;
mod engine;
mod measured;
mod replies;
mod requests;
pub(crate) mod verify;

pub(crate) use engine::{Engine, Error};
pub(crate) use measured::Measured;
pub(crate) use replies::Shape;
pub(crate) use requests::Requests;
