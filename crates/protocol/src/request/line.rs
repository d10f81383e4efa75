//! One request line, and what it says.

use crate::binary::{Binary, BinaryCommand, BinaryRequestId, Status};
use crate::error_line::ErrorLine;
use crate::op::{Op, Store, StoreRefused, StoreReply};
use crate::request::keys::Keys;
use crate::request::step::CloseReason;

/// A line that is there as a whole.
pub(crate) struct Line<'a> {
    /// The line without its end, which is a newline with or without a carriage
    /// return before it.
    pub(crate) text: &'a [u8],
    /// Bytes in the line, its end included.
    pub(crate) len: u32,
}

/// What a line says.
pub(crate) enum Parsed {
    /// All there is to it.
    Op(Op),
    /// It has a body.
    Store(Store),
    /// It has a body that nobody wants, and is answered behind it.
    Refused(Refused),
    /// It has keys, all of them of a valid length.
    Keys(Keys),
    /// It ends the connection.
    Close(CloseReason),
}

/// A request that is refused although its body has to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refused {
    /// What to do at once: unlink what the key holds.
    pub(crate) store: Option<StoreRefused>,
    /// The answer.
    pub(crate) refusal: Refusal,
    /// Bytes in the value; a line end follows them.
    pub(crate) value_len: u32,
}

/// What a refused request is answered once the last byte of its body is there.
///
/// A client that reads while it writes takes an earlier answer for the end of its request, and may
/// leave the body unfinished. Then both sides wait for each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// An error line, unless nobody wants an answer.
    Line { error: ErrorLine, noreply: bool },
    /// An error of the binary protocol.
    Binary {
        asked: BinaryRequestId,
        status: Status,
    },
}

impl Refusal {
    /// The refusal of a store command that is answered so.
    pub(crate) fn of(error: ErrorLine, reply: StoreReply) -> Self {
        match reply {
            StoreReply::Binary(asked) => {
                let (status, _) = error.into();
                Refusal::Binary { asked, status }
            }
            StoreReply::Classic | StoreReply::Meta | StoreReply::MetaQuiet | StoreReply::None => {
                let noreply = reply == StoreReply::None;
                Refusal::Line { error, noreply }
            }
        }
    }

    /// The operation that answers it.
    pub(crate) fn op(self) -> Op {
        match self {
            Refusal::Line { error, noreply } => Op::Error { error, noreply },
            Refusal::Binary { asked, status } => Op::Binary(Binary {
                asked,
                command: BinaryCommand::Error {
                    status,
                    closes: false,
                },
            }),
        }
    }
}

impl Parsed {
    pub(crate) fn error(error: ErrorLine, noreply: bool) -> Self {
        Parsed::Op(Op::Error { error, noreply })
    }

    pub(crate) fn of(result: Result<Op, ErrorLine>) -> Self {
        match result {
            Ok(op) => Parsed::Op(op),
            Err(error) => Self::error(error, false),
        }
    }
}

impl<'a> Line<'a> {
    /// The line of these bytes, whose last is a newline.
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        let text = bytes.strip_suffix(b"\n").unwrap_or(bytes);
        Line {
            text: text.strip_suffix(b"\r").unwrap_or(text),
            len: u32::try_from(bytes.len()).unwrap_or(u32::MAX),
        }
    }
}
