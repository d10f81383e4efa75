//! Requests to log in: the pretended `set` of the text dialect, and SASL PLAIN (RFC 4616) of the binary
//! protocol.
//!
//! ```text
//! set KEY FLAGS EXPTIME BYTES\r\n        all but BYTES is ignored
//! USER PASSWORD\r\n                      the first space parts them
//!
//! sasl auth, key PLAIN, value AUTHZID \0 USER \0 PASSWORD
//! ```

use crate::binary::BinaryRequestId;
use crate::limits::Limits;
use crate::span::Span;

/// The name of the only mechanism of SASL that is known.
pub const SASL_MECHANISM: &[u8] = b"PLAIN";

/// The longest name of a mechanism that memcached looks at, in bytes.
pub(crate) const MECHANISM_LEN_MAX: u32 = 32;

/// The longest user and password, together with what parts them, in bytes. No file of users has lines as
/// long as that.
pub(crate) const LOGIN_LEN_MAX: u32 = 1024;

// A login is gathered in the buffer that gathers short values and lines.
const _: () = assert!(LOGIN_LEN_MAX < Limits::LINE_MAX_FLOOR);

/// An attempt to log in.
///
/// Nothing of the connection is parsed behind it until the caller has decided: it replaces the parser by
/// an open one where the attempt succeeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Login {
    /// What was said.
    pub attempt: Attempt,
    /// The binary request; `None` in the text dialect.
    pub asked: Option<BinaryRequestId>,
}

/// What somebody who wants to log in has said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attempt {
    /// A name and a password.
    Password {
        /// The name.
        user: Span,
        /// The password.
        password: Span,
    },
    /// SASL without its message: it is asked for, and comes with `sasl step`.
    Begin,
    /// SASL with another mechanism, with a message that is none of PLAIN's, or out of order. It fails.
    Malformed,
}

/// The bytes that follow the line of a pretended `set`, its line end not counted. `line` has no newline,
/// but the carriage return before it. `None` where the line is no login.
pub(crate) fn announced(line: &[u8]) -> Option<u32> {
    if !line.starts_with(b"set") {
        return None;
    }
    let text = line.strip_suffix(b"\r");
    let words = text.unwrap_or(line).split(|&byte| byte == b' ');
    let mut words = words.filter(|word| !word.is_empty());
    let number = words.nth(4)?;
    // memcached reads a number up to what ends it, and a newline alone does not.
    let is_ended = text.is_some() || words.next().is_some() || line.ends_with(b" ");
    let is_number = is_ended && number.iter().all(u8::is_ascii_digit);
    let digits = core::str::from_utf8(number).ok().filter(|_| is_number)?;
    digits.parse().ok()
}

/// A message of PLAIN, which begins `base` bytes into the input. Nobody may act for another user: the
/// identity to act as is empty, or the user's own.
pub(crate) fn plain(message: &[u8], base: u32) -> Attempt {
    let mut parts = message.split(|&byte| byte == 0);
    let (Some(identity), Some(user), Some(password), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Attempt::Malformed;
    };
    if !identity.is_empty() && identity != user {
        return Attempt::Malformed;
    }
    let span = |start: usize, len: usize| Span::between(start, start + len).shifted(base);
    let user_at = identity.len() + 1;
    Attempt::Password {
        user: span(user_at, user.len()),
        password: span(user_at + user.len() + 1, password.len()),
    }
}
