//! A fast path for the commonest requests: `get` and `gets` of one key, and `set`
//! with plain numbers; [`crate::request::meta`] has the like for `mg` and `ms`.
//!
//! What these functions take they read as [`crate::request::line`] would; for
//! everything else, errors above all, they return `None`.

use crate::limits::KEY_LEN_MAX;
use crate::op::{Store, StoreMode, StoreReply};
use crate::request::step::GetKey;
use crate::span::Span;
use crate::token::bytes_below;

/// A store command that sets a value whatever is there, all of it in the input, and that is answered
/// in a word: [`crate::Op::Store`] in few bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlainSet {
    /// Bytes used up.
    pub consumed: u32,
    /// The key, into the same input.
    pub key: Span,
    /// The value, likewise.
    pub value: Span,
    /// The client's flags.
    pub client_flags: u32,
    /// The expiry as sent.
    pub exptime: i32,
    /// How it is answered; a meta answer repeats no flags.
    pub reply: StoreReply,
}

/// The key of a `get` of one key, or of a `gets`, which is to be answered with
/// the CAS.
#[inline(always)]
pub(crate) fn get(input: &[u8]) -> Option<GetKey> {
    let (start, cas) = match input.first_chunk()? {
        b"get " => (4, false),
        b"gets" if input.get(4) == Some(&b' ') => (5, true),
        _ => return None,
    };
    let key = key(input, start)?;
    let end = start + key.len as usize;
    let consumed = Span::between(0, end + 2).len;
    let ended = input[end..].starts_with(b"\r\n");
    ended.then_some(GetKey {
        consumed,
        key,
        cas,
        last: true,
    })
}

/// The line of a `set` and its bytes.
#[inline(always)]
pub(crate) fn set(input: &[u8]) -> Option<(u32, Store)> {
    const START: usize = b"set ".len();
    if input.first_chunk() != Some(b"set ") {
        return None;
    }
    let key = key(input, START)?;
    let mut at = START + key.len as usize;
    let (client_flags, exptime) = match input.get(at..at + 5)? {
        // Most often.
        b" 0 0 " => {
            at += 4;
            (0, 0)
        }
        _ => (
            spaced_number(input, &mut at)?,
            spaced_number(input, &mut at)?,
        ),
    };
    let value_len = spaced_number(input, &mut at)?;
    let (end, reply) = match input.get(at..at + 2)? {
        b"\r\n" => (at + 2, StoreReply::Classic),
        _ if input[at..].starts_with(b" noreply\r\n") => (at + 10, StoreReply::None),
        _ => return None,
    };
    let store = Store {
        key,
        value: Span::default(),
        tokens: Span::default(),
        value_len,
        client_flags,
        exptime: exptime.cast_signed().into(),
        cas: 0,
        explicit_cas: 0,
        explicit: false,
        key_base64: false,
        invalidate: false,
        mode: StoreMode::Set,
        reply,
    };
    Some((Span::between(0, end).len, store))
}

/// A store command whose line of `line_len` bytes is at the front of `input`, if it is a plain set with
/// its value behind it.
#[inline(always)]
pub(crate) fn plain(store: &Store, line_len: u32, input: &[u8]) -> Option<PlainSet> {
    let exptime = store.exptime.seconds()?;
    let is_plain = store.mode == StoreMode::Set
        && store.explicit_cas().is_none()
        && !store.key_base64
        && (store.tokens.len == 0
            || store
                .flags(input)
                .all(|(flag, _)| matches!(flag, b'F' | b'T' | b'q')));
    let start = line_len as usize;
    let end = start + store.value_len as usize;
    let ended = is_plain && input.get(end..)?.starts_with(b"\r\n");
    ended.then_some(PlainSet {
        consumed: Span::between(0, end + 2).len,
        key: store.key,
        value: Span::between(start, end),
        client_flags: store.client_flags,
        exptime,
        reply: store.reply,
    })
}

/// The key at `start`: up to the first byte that is a space or below one.
#[inline]
pub(crate) fn key(input: &[u8], start: usize) -> Option<Span> {
    let text = &input[start..];
    let text = &text[..text.len().min(KEY_LEN_MAX + 1)];
    let mut len = 0;
    let mut chunks = text.chunks_exact(8);
    let found = chunks.find_map(|chunk| {
        let chunk = u64::from_le_bytes(chunk.try_into().unwrap_or([0; 8]));
        match bytes_below(chunk, u64::from(b' ') + 1) {
            0 => {
                len += 8;
                None
            }
            marks => Some(len + marks.trailing_zeros() as usize / 8),
        }
    });
    let len = match found {
        Some(len) => len,
        None => len + chunks.remainder().iter().position(|&byte| byte <= b' ')?,
    };
    (len > 0).then(|| Span::between(start, start + len))
}

/// A space and a number of one to nine digits, which fits 32 bits with a sign, and which does not
/// end the input.
#[inline(always)]
pub(crate) fn spaced_number(input: &[u8], at: &mut usize) -> Option<u32> {
    let text = input.get(*at..)?.strip_prefix(b" ")?;
    let mut number = 0u32;
    for (len, byte) in text.iter().enumerate().take(10) {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            *at += 1 + len;
            return (len > 0).then_some(number);
        }
        // Ten digits are one too many, whatever they come to here.
        number = number.wrapping_mul(10).wrapping_add(u32::from(digit));
    }
    None
}
