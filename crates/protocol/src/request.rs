//! Requests: from bytes to operations.
//!
//! [`parser`] keeps a connection's place in its input and finds the lines.
//! [`fast`] reads the most common requests in one go. [`command`] tells which
//! command a line is, and [`retrieval`], [`classic`] and [`meta`] read the rest of it.
//! [`keys`] takes the keys of a retrieval one by one. [`binary`] reads the requests of the
//! binary protocol. Their result is a [`step`].

pub(crate) mod binary;
pub(crate) mod classic;
pub(crate) mod command;
pub(crate) mod fast;
pub(crate) mod keys;
pub(crate) mod line;
pub(crate) mod meta;
pub(crate) mod parser;
pub(crate) mod retrieval;
pub(crate) mod step;
