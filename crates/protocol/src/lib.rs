//! Memcached's language: classic text, meta and binary, both directions.
//!
//! The crate turns bytes into plain values, and plain values into bytes. A [`Parser`] is
//! the state of one connection. It reads bytes that its caller owns and yields [`Op`]s.
//! Their [`Span`]s point into these bytes, so that the operations of many connections can
//! stand in one list before any is executed. A [`Reply`] appends answers to a bounded
//! buffer, and [`response`] finds the boundaries of answers for a client. The behaviour,
//! down to the error lines, is that of memcached 1.6.45; [`Parser`] lists the differences
//! and their reasons.
//!
//! ```
//! use coua_protocol::{Limits, Op, Parser, Reply, Step};
//!
//! let input = b"get greeting\r\nget far";
//! let mut parser = Parser::new();
//! let Step::Op { consumed, op: Op::Get { key, cas, last } } =
//!     parser.next(input, &Limits::default())
//! else {
//!     panic!("a whole request stands there");
//! };
//! let (key, rest) = (key.of(input), &input[consumed as usize..]);
//! assert_eq!(key, b"greeting");
//!
//! let mut room = [0; 64];
//! let mut reply = Reply::new(&mut room);
//! reply.value(key, 0, cas.then_some(1), b"hello", last)?;
//! assert_eq!(reply.written(), b"VALUE greeting 0 5\r\nhello\r\nEND\r\n");
//!
//! // The second request is not whole yet: nothing of it is consumed.
//! assert!(matches!(parser.next(rest, &Limits::default()), Step::More { .. }));
//! # Ok::<(), coua_protocol::reply::Full>(())
//! ```
//!
//! # Invariants
//! - No I/O, no allocation, no clock, no `unsafe`, no panic on any input.
//! - A span that an [`Op`] carries lies inside the slice that was parsed.
//!
//! # Not here
//! The store decides what an operation does to an item. The server decides which
//! operations are allowed, and answers `stats` and the administrative commands.
#![no_std]

#[cfg(test)]
extern crate std;

pub mod base64;
mod binary;
pub mod datagram;
mod error_line;
pub mod expiry;
mod flags;
mod limits;
mod login;
mod number;
mod op;
pub mod reply;
mod request;
pub mod response;
mod span;
mod token;

pub use binary::{Binary, BinaryCommand, BinaryRequestId, Status};
pub use error_line::ErrorLine;
pub use flags::{Echo, FlagSet, Flags, TagNames};
pub use limits::{KEY_LEN_MAX, Limits, VALUE_LEN_MAX};
pub use login::{Attempt, Login, SASL_MECHANISM};
pub use op::{
    AdminCommand, Arithmetic, Meta, MetaArithmetic, Op, ShutdownMode, Store, StoreMode,
    StoreRefused, StoreReply,
};
pub use reply::Reply;
pub use request::fast::PlainSet;
pub use request::parser::{Awaited, Dialect, Front, Parser};
pub use request::step::{CloseReason, GetKey, Step};
pub use span::Span;
pub use token::Tokens;
