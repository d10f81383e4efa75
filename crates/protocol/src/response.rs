//! Responses: finds the ends of a server's answers, for clients.
//!
//! A [`Responses`] is to a client what [`crate::Parser`] is to a server: it keeps one
//! connection's place in its input. It recognizes the answers of classic text and meta
//! without knowing the requests.

use crate::number::{word_u32, word_u64};
use crate::span::Span;
use crate::token::{Tokens, word_len};

/// The longest line of an answer, its end included, in bytes.
pub const LINE_LEN_MAX: usize = 8192;

/// The answers of one connection.
///
/// # Contract
/// As for [`crate::Parser`]: call [`Responses::next`] with all bytes that have come,
/// and drop those consumed. After [`ResponseStep::More`] call again with the same
/// bytes and more behind them. A full buffer of [`LINE_LEN_MAX`] bytes always allows
/// a step forward.
#[derive(Clone, Copy, Debug)]
pub struct Responses {
    state: State,
}

/// One step through the answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponseStep {
    /// The input must hold this many bytes in all; nothing is consumed.
    More {
        /// Bytes in all.
        at_least: u32,
    },
    /// A piece of an answer; its spans are into the same input.
    Part {
        /// Bytes used up, never 0.
        consumed: u32,
        /// What these bytes are.
        part: Part,
        /// The answer ends here.
        complete: bool,
    },
    /// This is not an answer; the rest of the connection cannot be read either.
    Bad,
}

/// A piece of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// A line without a value.
    Line {
        /// What it says.
        answer: Answer,
        /// The line without its end.
        line: Span,
    },
    /// A hit of `get`, `gets` or `config get`; its value follows.
    Value {
        /// The key.
        key: Span,
        /// The client's flags.
        client_flags: u32,
        /// Bytes in the value.
        value_len: u32,
        /// The CAS, for `gets`.
        cas: Option<u64>,
    },
    /// A hit of `mg`, or a number of `ma`; its value follows.
    MetaValue {
        /// Bytes in the value.
        value_len: u32,
        /// The flags; [`crate::Flags`] iterates over them.
        flags: Span,
    },
    /// The next bytes of a value.
    Body {
        /// The bytes; empty only if they are the last.
        bytes: Span,
        /// The value ends here.
        last: bool,
    },
}

/// What a line says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// `STORED`
    Stored,
    /// `NOT_STORED`
    NotStored,
    /// `EXISTS`
    Exists,
    /// `NOT_FOUND`
    NotFound,
    /// `DELETED`
    Deleted,
    /// `TOUCHED`
    Touched,
    /// `OK`
    Ok,
    /// `END`, after any values or statistics.
    End,
    /// `RESET`
    Reset,
    /// `VERSION`
    Version,
    /// The result of `incr` or `decr`, which may have spaces behind it.
    Number(u64),
    /// `HD`
    MetaDone,
    /// `EN`
    MetaMiss,
    /// `NF`
    MetaNotFound,
    /// `EX`
    MetaExists,
    /// `NS`
    MetaNotStored,
    /// `MN`
    MetaNoop,
    /// `ME`
    MetaDebug,
    /// A line of a list that another line ends: `STAT`, `ITEM`, `key=`, `mg`.
    Listed,
    /// `ERROR`
    Error,
    /// `CLIENT_ERROR`
    ClientError,
    /// `SERVER_ERROR`
    ServerError,
    /// Another line: the server's administrative answers.
    Other,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// At the front of a line. Its first `scanned` bytes hold no line end.
    Line { scanned: u32 },
    /// Inside a value, with `rest` bytes left, or at its end. An answer
    /// of `mg` or `ma` ends with its value.
    Body { rest: u32, meta: bool },
}

impl Responses {
    /// At the beginning of a connection.
    #[must_use]
    pub const fn new() -> Self {
        Responses {
            state: State::Line { scanned: 0 },
        }
    }

    /// Takes one piece of an answer from the front of `input`.
    #[inline]
    pub fn next(&mut self, input: &[u8]) -> ResponseStep {
        let input = &input[..input.len().min(u32::MAX as usize)];
        match self.state {
            State::Line { scanned } => self.line(input, scanned as usize),
            State::Body { rest: 0, meta } => self.value_end(input, meta),
            State::Body { rest, meta } => self.body(input, rest, meta),
        }
    }

    fn line(&mut self, input: &[u8], scanned: usize) -> ResponseStep {
        let fresh = input.get(scanned..).unwrap_or_default();
        let Some(at) = memchr::memchr(b'\n', fresh) else {
            if input.len() >= LINE_LEN_MAX {
                return ResponseStep::Bad;
            }
            let held = Span::between(0, input.len()).len;
            self.state = State::Line { scanned: held };
            return ResponseStep::More { at_least: held + 1 };
        };
        let bytes = &input[..=scanned + at];
        let text = &bytes[..bytes.len() - 1];
        let text = text.strip_suffix(b"\r").unwrap_or(text);
        let consumed = Span::between(0, bytes.len()).len;
        self.state = State::Line { scanned: 0 };
        let (rest, meta, part) = if text.starts_with(b"VALUE ") {
            match value_line(text) {
                Some((value_len, part)) => (value_len, false, part),
                None => return ResponseStep::Bad,
            }
        } else if text.starts_with(b"VA ") {
            match meta_value_line(text) {
                Some((value_len, part)) => (value_len, true, part),
                None => return ResponseStep::Bad,
            }
        } else if text.starts_with(b"CONFIG ") {
            match other_value_line(text, b"CONFIG ".len()) {
                Some((value_len, part)) => (value_len, false, part),
                None => return ResponseStep::Bad,
            }
        } else {
            let answer = Answer::of(text);
            let line = Span::between(0, text.len());
            return ResponseStep::Part {
                consumed,
                part: Part::Line { answer, line },
                complete: answer != Answer::Listed,
            };
        };
        self.state = State::Body { rest, meta };
        ResponseStep::Part {
            consumed,
            part,
            complete: false,
        }
    }

    /// Takes the bytes of a value that have come. If its end has come too, the step
    /// includes it.
    fn body(&mut self, input: &[u8], rest: u32, meta: bool) -> ResponseStep {
        let held = Span::between(0, input.len()).len;
        if held == 0 {
            return ResponseStep::More { at_least: 1 };
        }
        let len = held.min(rest);
        let bytes = Span { start: 0, len };
        // The line end may not have come yet.
        let last = input[len as usize..].starts_with(b"\r\n");
        self.state = match last {
            true => State::Line { scanned: 0 },
            false => State::Body {
                rest: rest - len,
                meta,
            },
        };
        ResponseStep::Part {
            consumed: if last { len + 2 } else { len },
            part: Part::Body { bytes, last },
            complete: last && meta,
        }
    }

    fn value_end(&mut self, input: &[u8], meta: bool) -> ResponseStep {
        match input {
            [] | [b'\r'] => ResponseStep::More { at_least: 2 },
            [b'\r', b'\n', ..] => {
                self.state = State::Line { scanned: 0 };
                ResponseStep::Part {
                    consumed: 2,
                    part: Part::Body {
                        bytes: Span::default(),
                        last: true,
                    },
                    complete: meta,
                }
            }
            _ => ResponseStep::Bad,
        }
    }
}

impl Default for Responses {
    fn default() -> Self {
        Self::new()
    }
}

/// `VALUE <key> <flags> <length> [<cas>]`
fn value_line(text: &[u8]) -> Option<(u32, Part)> {
    plain_value_line(text).or_else(|| other_value_line(text, b"VALUE ".len()))
}

/// The line as servers write it: single spaces, no CAS.
#[inline]
fn plain_value_line(text: &[u8]) -> Option<(u32, Part)> {
    let start = b"VALUE ".len();
    let behind = text.get(start..)?;
    let key_len = word_len(behind);
    let (client_flags, behind) = leading_number(behind.get(key_len + 1..)?)?;
    let (value_len, behind) = leading_number(behind.strip_prefix(b" ")?)?;
    if key_len == 0 || !behind.is_empty() {
        return None;
    }
    let part = Part::Value {
        key: Span::between(start, start + key_len),
        client_flags,
        value_len,
        cas: None,
    };
    Some((value_len, part))
}

/// The digits at the front as a number, and what is behind them. `None` where a number is not short: its
/// checks are [`word_u32`]'s.
#[inline]
fn leading_number(text: &[u8]) -> Option<(u32, &[u8])> {
    let mut number = 0;
    for (at, byte) in text.iter().enumerate().take(10) {
        match byte.wrapping_sub(b'0') {
            digit @ 0..=9 if at < 9 => number = number * 10 + u32::from(digit),
            0..=9 => return None,
            _ => return (at > 0).then_some((number, &text[at..])),
        }
    }
    (!text.is_empty()).then_some((number, &[]))
}

/// The line with its first word and the blank behind it in front of `start`.
fn other_value_line(text: &[u8], start: usize) -> Option<(u32, Part)> {
    let mut words = Tokens::new(text).skip(1);
    let key = words.next()?;
    let client_flags = word_u32(words.next()?)?;
    let value_len = word_u32(words.next()?)?;
    let cas = match words.next() {
        Some(cas) => Some(word_u64(cas)?),
        None => None,
    };
    let part = Part::Value {
        // The key must follow directly after one space; the check is below.
        key: Span::between(start, start + key.len()),
        client_flags,
        value_len,
        cas,
    };
    text[start..].starts_with(key).then_some((value_len, part))
}

/// `VA <length> <flag>*`
fn meta_value_line(text: &[u8]) -> Option<(u32, Part)> {
    let start = b"VA ".len();
    let word = Tokens::new(&text[start..]).next()?;
    let value_len = word_u32(word)?;
    let flags = Span::between((start + word.len()).min(text.len()), text.len());
    let part = Part::MetaValue { value_len, flags };
    text[start..].starts_with(word).then_some((value_len, part))
}

impl Answer {
    fn of(text: &[u8]) -> Self {
        let word_len = memchr::memchr(b' ', text).unwrap_or(text.len());
        match &text[..word_len] {
            b"STORED" => Self::Stored,
            b"NOT_STORED" => Self::NotStored,
            b"EXISTS" => Self::Exists,
            b"NOT_FOUND" => Self::NotFound,
            b"DELETED" => Self::Deleted,
            b"TOUCHED" => Self::Touched,
            b"OK" => Self::Ok,
            b"END" => Self::End,
            b"RESET" => Self::Reset,
            b"VERSION" => Self::Version,
            b"HD" => Self::MetaDone,
            b"EN" => Self::MetaMiss,
            b"NF" => Self::MetaNotFound,
            b"EX" => Self::MetaExists,
            b"NS" => Self::MetaNotStored,
            b"MN" => Self::MetaNoop,
            b"ME" => Self::MetaDebug,
            b"STAT" | b"ITEM" | b"mg" => Self::Listed,
            b"ERROR" => Self::Error,
            b"CLIENT_ERROR" => Self::ClientError,
            b"SERVER_ERROR" | b"SERVER_ERROR:" => Self::ServerError,
            word if word.starts_with(b"key=") => Self::Listed,
            word => match word_u64(word) {
                Some(number) if !word.is_empty() => Self::Number(number),
                _ => Self::Other,
            },
        }
    }
}

#[cfg(test)]
mod tests;
