//! The parts of memcached's binary protocol that requests and replies share.
//!
//! ```text
//! byte 0       1        2           4        5        6          8           12       16    24
//!      +-------+--------+-----------+--------+--------+----------+-----------+--------+-----+
//!      | magic | opcode |    key    | extras | data   | vbucket, | body      | opaque | CAS |
//!      |       |        |   length  | length | type   | or status| length    |        |     |
//!      +-------+--------+-----------+--------+--------+----------+-----------+--------+-----+
//!      extras, key, value: the body
//! ```
//! Numbers are big-endian. The data type and vbucket of a request are ignored.

use crate::error_line::ErrorLine;
use crate::span::Span;

/// Bytes of a header.
pub(crate) const HEADER_LEN: u32 = 24;

/// The first byte of a request.
pub(crate) const REQUEST_MAGIC: u8 = 0x80;

/// The first byte of an answer.
pub(crate) const RESPONSE_MAGIC: u8 = 0x81;

/// The longest body that memcached accepts, in bytes: its largest item.
pub(crate) const BODY_LEN_MAX: u32 = 1 << 30;

/// Identifies the request that is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BinaryRequestId {
    /// The answer repeats it.
    pub opcode: u8,
    /// The answer repeats it.
    pub opaque: u32,
}

/// The opcodes, named as in memcached's `protocol_binary.h`.
pub(crate) mod opcode {
    pub(crate) const GET: u8 = 0x00;
    pub(crate) const SET: u8 = 0x01;
    pub(crate) const ADD: u8 = 0x02;
    pub(crate) const REPLACE: u8 = 0x03;
    pub(crate) const DELETE: u8 = 0x04;
    pub(crate) const INCREMENT: u8 = 0x05;
    pub(crate) const DECREMENT: u8 = 0x06;
    pub(crate) const QUIT: u8 = 0x07;
    pub(crate) const FLUSH: u8 = 0x08;
    pub(crate) const GETQ: u8 = 0x09;
    pub(crate) const NOOP: u8 = 0x0a;
    pub(crate) const VERSION: u8 = 0x0b;
    pub(crate) const GETK: u8 = 0x0c;
    pub(crate) const GETKQ: u8 = 0x0d;
    pub(crate) const APPEND: u8 = 0x0e;
    pub(crate) const PREPEND: u8 = 0x0f;
    pub(crate) const STAT: u8 = 0x10;
    pub(crate) const SETQ: u8 = 0x11;
    pub(crate) const ADDQ: u8 = 0x12;
    pub(crate) const REPLACEQ: u8 = 0x13;
    pub(crate) const DELETEQ: u8 = 0x14;
    pub(crate) const INCREMENTQ: u8 = 0x15;
    pub(crate) const DECREMENTQ: u8 = 0x16;
    pub(crate) const QUITQ: u8 = 0x17;
    pub(crate) const FLUSHQ: u8 = 0x18;
    pub(crate) const APPENDQ: u8 = 0x19;
    pub(crate) const PREPENDQ: u8 = 0x1a;
    pub(crate) const TOUCH: u8 = 0x1c;
    pub(crate) const GAT: u8 = 0x1d;
    pub(crate) const GATQ: u8 = 0x1e;
    pub(crate) const SASL_LIST_MECHS: u8 = 0x20;
    pub(crate) const SASL_AUTH: u8 = 0x21;
    pub(crate) const SASL_STEP: u8 = 0x22;
    pub(crate) const GATK: u8 = 0x23;
    pub(crate) const GATKQ: u8 = 0x24;
}

impl BinaryRequestId {
    /// Whether the command is quiet. A quiet get is answered only on a hit, every other quiet
    /// command only if it fails.
    #[inline]
    #[must_use]
    pub fn is_quiet(self) -> bool {
        matches!(
            self.opcode,
            opcode::GETQ | opcode::GETKQ | opcode::SETQ
                ..=opcode::PREPENDQ | opcode::GATQ | opcode::GATKQ
        )
    }
}

/// A binary request other than a store; stores are [`crate::Op::Store`] in both dialects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Binary {
    /// The request, for its answer.
    pub asked: BinaryRequestId,
    /// What to do.
    pub command: BinaryCommand,
}

/// What a [`Binary`] request wants.
///
/// Expiries are as in the text dialect, but never negative: an expiry that does not fit 31 bits
/// becomes the largest that does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BinaryCommand {
    /// `get`, `gat`, `touch` and their variants.
    Get {
        /// The key.
        key: Span,
        /// The new expiry, for commands that set it.
        touch: Option<i32>,
        /// Answer with the key.
        with_key: bool,
        /// Answer with the value: all but `touch`.
        with_value: bool,
    },
    /// `delete`.
    Delete {
        /// The key.
        key: Span,
        /// The CAS that the item must have; 0 for any.
        cas: u64,
    },
    /// `increment` and `decrement`.
    Arithmetic {
        /// The key.
        key: Span,
        /// The amount to add or subtract.
        delta: u64,
        /// The number in an item that is created on a miss.
        initial: u64,
        /// The expiry of that item; `None` creates none.
        vivify: Option<i32>,
        /// Subtract, but not below 0; otherwise add, wrapping at 2^64.
        decrement: bool,
        /// The CAS that the item must have; 0 for any.
        cas: u64,
    },
    /// `flush`.
    FlushAll {
        /// Seconds to wait; 0 for now.
        delay: i32,
    },
    /// `noop`.
    Noop,
    /// `version`.
    Version,
    /// `quit`: send what is queued, then close.
    Quit,
    /// `sasl list mechs`.
    SaslMechanisms,
    /// `stat`.
    Stats {
        /// Which statistics.
        args: Span,
    },
    /// Answer with an error.
    Error {
        /// The error.
        status: Status,
        /// Close after the answer: nobody can tell where the next request begins.
        closes: bool,
    },
}

/// Why a binary request is not answered with success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum Status {
    /// No item has the key.
    KeyNotFound = 0x01,
    /// An item has the key, or its CAS differs.
    KeyExists = 0x02,
    /// The item is over the size limit.
    TooLarge = 0x03,
    /// The lengths do not fit the command.
    InvalidArguments = 0x04,
    /// There is no item to append or prepend to.
    NotStored = 0x05,
    /// The value is not a number.
    NotNumeric = 0x06,
    /// Not allowed.
    AuthError = 0x20,
    /// Logging in takes another message.
    AuthContinue = 0x21,
    /// No such command.
    UnknownCommand = 0x81,
    /// No memory.
    OutOfMemory = 0x82,
}

impl Status {
    /// The text of the answer, for people.
    #[must_use]
    pub const fn text(self) -> &'static [u8] {
        match self {
            Self::KeyNotFound => b"Not found",
            Self::KeyExists => b"Data exists for key.",
            Self::TooLarge => b"Too large.",
            Self::InvalidArguments => b"Invalid arguments",
            Self::NotStored => b"Not stored.",
            Self::NotNumeric => b"Non-numeric server-side value for incr or decr",
            Self::AuthError => b"Auth failure.",
            Self::AuthContinue => b"",
            Self::UnknownCommand => b"Unknown command",
            Self::OutOfMemory => b"Out of memory",
        }
    }
}

/// The status and the text by which a binary answer replaces an error line.
impl From<ErrorLine> for (Status, &'static [u8]) {
    fn from(line: ErrorLine) -> Self {
        let status = match line {
            ErrorLine::TooLarge => Status::TooLarge,
            ErrorLine::NotNumeric => Status::NotNumeric,
            ErrorLine::FlushDisabled => Status::AuthError,
            ErrorLine::NotPermitted => return (Status::AuthError, b"Permission denied."),
            ErrorLine::OutOfMemoryStoring => {
                return (Status::OutOfMemory, b"Out of memory allocating item");
            }
            ErrorLine::OutOfMemory => {
                return (Status::OutOfMemory, b"Out of memory incrementing value");
            }
            ErrorLine::OutOfMemoryVivifying => {
                return (Status::OutOfMemory, b"Out of memory allocating new item");
            }
            ErrorLine::OutOfMemoryReading
            | ErrorLine::OutOfMemoryReply
            | ErrorLine::OutOfMemoryStats => Status::OutOfMemory,
            _ => Status::InvalidArguments,
        };
        (status, status.text())
    }
}
