//! Memcached's language as a client speaks it, without I/O and without a clock.
//!
//! A [`Conversation`] is the state of one connection: [`Request`]s go in and become bytes, bytes of the
//! server go in and become [`Reply`]s. Whoever has a connection of its own kind, or a loop of its own,
//! builds on this; [`crate::Client`] and the asynchronous client do.
//!
//! ```
//! use coua_client::wire::{Conversation, Dialect, Limits, Reply, Request};
//!
//! let mut conversation = Conversation::new(Dialect::Meta, Limits::default());
//! let asked = conversation.push(&Request::get(b"greeting"))?;
//! assert_eq!(conversation.output(), b"mg greeting v f\r\n");
//! let len = conversation.output().len();
//! conversation.sent(len);
//!
//! let answer = b"VA 5 f0\r\nhello\r\n";
//! conversation.space()[..answer.len()].copy_from_slice(answer);
//! conversation.received(answer.len());
//! let completion = conversation.poll()?.expect("the answer is whole");
//! assert_eq!(completion.ticket, asked);
//! let Reply::Item(item) = completion.reply else { panic!("it is a hit") };
//! assert_eq!(item.value.as_deref(), Some(&b"hello"[..]));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Invariants
//! - No panic on any bytes; no length that a server sends sizes an allocation before the bytes are there.
//! - Answers belong to requests by their order alone. What cannot be an answer to the oldest request
//!   ends the conversation: it never goes on with another idea of the order than the server's.

mod answer;
mod conversation;
mod encode;
mod error;
mod limits;
mod meta;
pub(crate) mod reply;
pub(crate) mod request;

pub use answer::Ticket;
pub use conversation::{Abandoned, Completion, Conversation};
pub use encode::Dialect;
pub use error::{Effect, ProtocolError, RequestError};
pub use limits::Limits;
pub use meta::{Meta, MetaVerb};
pub use reply::{ItemReply, Refusal, Reply, ReplyDetails, ReplyFlags, Status};
pub use request::{Request, StoreMode};
