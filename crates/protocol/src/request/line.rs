//! One request line: which command it is.

use crate::error_line::ErrorLine;
use crate::limits::Limits;
use crate::op::{Op, Store};
use crate::request::keys::Keys;
use crate::request::parser::CloseReason;
use crate::request::token::word_len;
use crate::request::{classic, keys, meta};

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

    /// Parses the line. The command is what stands before the first space, so
    /// that a line with a space in front is none of those below.
    pub(crate) fn parse(&self, limits: &Limits) -> Parsed {
        // Two bytes and a line end of two are the least that memcached takes.
        if self.len < 4 {
            return Parsed::error(ErrorLine::BadFormat, false);
        }
        let command_len = word_len(self.text);
        match &self.text[..command_len] {
            b"get" | b"gets" => keys::get(self),
            b"gat" | b"gats" => keys::get_and_touch(self),
            b"mg" => Parsed::of(meta::get(self)),
            b"ms" => meta::set(self, limits),
            b"md" => Parsed::of(meta::delete(self)),
            b"ma" => Parsed::of(meta::arithmetic(self)),
            b"me" => Parsed::of(meta::debug(self)),
            b"mn" => Parsed::Op(Op::MetaNoop),
            b"quit" => Parsed::Op(Op::Quit),
            b"version" => Parsed::Op(Op::Version),
            command => classic::parse(self, command, limits),
        }
    }
}
