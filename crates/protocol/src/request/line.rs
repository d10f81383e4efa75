//! One request line, and what it says.

use crate::error_line::ErrorLine;
use crate::op::{Op, Store};
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
    /// It has a body of `value_len` bytes and a line end that nobody wants.
    Refused { op: Op, value_len: u32 },
    /// It has keys, all of them of a valid length.
    Keys(Keys),
    /// It ends the connection.
    Close(CloseReason),
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
