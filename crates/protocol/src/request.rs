//! Requests: from bytes to operations.
//!
//! [`parser`] keeps a connection's place in its input and finds the lines;
//! [`fast`] reads the commonest of them at one glance; [`line`] tells which
//! command a line is, and [`keys`], [`classic`] and [`meta`] read the rest of it.
//! [`binary`] reads the requests of the binary protocol.
//! [`token`] and [`number`] are what memcached calls a word and a number.

pub(crate) mod binary;
pub(crate) mod classic;
pub(crate) mod fast;
pub(crate) mod flags;
pub(crate) mod keys;
pub(crate) mod line;
pub(crate) mod meta;
pub(crate) mod number;
pub(crate) mod parser;
pub(crate) mod token;
