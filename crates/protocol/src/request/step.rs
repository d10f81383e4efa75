//! What a parser finds, one step at a time.

use crate::op::Op;
use crate::span::Span;

/// One step of parsing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing can be done before the input holds this many bytes in all, which
    /// is more than it holds now. Nothing is consumed.
    More {
        /// Bytes in all.
        at_least: u32,
    },
    /// An operation; its spans are into the same input.
    Op {
        /// Bytes used up.
        consumed: u32,
        /// What to do.
        op: Op,
    },
    /// Bytes used up without an operation: of something that is refused, whose answer follows as
    /// the operation that uses up its last bytes.
    Skip {
        /// Bytes used up, never 0.
        consumed: u32,
    },
    /// Close the connection without an answer to what the input holds; answers to
    /// earlier requests may still go out.
    Close {
        /// Why, for statistics.
        reason: CloseReason,
    },
}

/// One key of a `get` or `gets`: [`Op::Get`] in few bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GetKey {
    /// Bytes used up.
    pub consumed: u32,
    /// The key, into the same input.
    pub key: Span,
    /// Answer with the CAS (`gets`).
    pub cas: bool,
    /// The request's last key: `END` follows it.
    pub last: bool,
}

/// Why a connection has to be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseReason {
    /// Too many bytes without a line end.
    LineTooLong,
    /// What came from somebody who has not logged in is too short, or too long, to be a login.
    NoLogin,
    /// Someone speaks HTTP.
    Http,
    /// What follows a binary request is none.
    BadMagic,
}
