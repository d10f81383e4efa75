//! `get`, `gets`, `gat` and `gats`: any number of keys on one line.

use crate::error_line::ErrorLine;
use crate::limits::KEY_LEN_MAX;
use crate::op::Op;
use crate::request::line::{Line, Parsed};
use crate::request::number::word_i32;
use crate::request::token::{Tokens, word_len};
use crate::span::Span;

/// What is done with each key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lookup {
    /// The new expiry.
    pub(crate) touch: Option<i32>,
    /// Answer with the CAS.
    pub(crate) cas: bool,
}

impl Lookup {
    #[inline]
    pub(crate) fn op(self, key: Span, last: bool) -> Op {
        let cas = self.cas;
        match self.touch {
            None => Op::Get { key, cas, last },
            Some(exptime) => Op::GetAndTouch {
                key,
                exptime,
                cas,
                last,
            },
        }
    }
}

/// The keys of a line, of which one at a time is taken from its front.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Keys {
    /// What is done with each.
    pub(crate) lookup: Lookup,
    /// Bytes from the front of the input to the first key.
    pub(crate) skip: u32,
    /// Bytes from the front of the input to the end of the line, that included.
    pub(crate) rest: u32,
    /// Bytes in the line's end.
    pub(crate) end_len: u32,
}

/// A key taken from a line.
pub(crate) struct Taken {
    pub(crate) key: Span,
    /// It is the last.
    pub(crate) last: bool,
    pub(crate) consumed: u32,
}

impl Keys {
    /// Takes the first key, or nothing if `input` has no longer the whole line.
    #[inline]
    pub(crate) fn take(&mut self, input: &[u8]) -> Option<Taken> {
        let end = self.rest.checked_sub(self.end_len)? as usize;
        let text = input.get(..end)?;
        let start = self.skip as usize;
        let next = start + word_len(text.get(start..)?);
        let gap = space_len(text.get(next..)?);
        let last = next + gap == end;
        let consumed = match last {
            true => self.rest,
            false => Span::between(0, next + gap).len,
        };
        self.skip = 0;
        self.rest -= consumed;
        Some(Taken {
            key: Span::between(start, next),
            last,
            consumed,
        })
    }
}

/// `get <key>+` and `gets <key>+`
pub(crate) fn get(line: &Line<'_>) -> Parsed {
    let command_len = word_len(line.text);
    let lookup = Lookup {
        touch: None,
        cas: command_len == b"gets".len(),
    };
    keys(line, command_len, lookup)
}

/// `gat <expiry> <key>+` and `gats <expiry> <key>+`
pub(crate) fn get_and_touch(line: &Line<'_>) -> Parsed {
    let command_len = word_len(line.text);
    let mut words = Tokens::new(&line.text[command_len..]);
    let (Some(exptime), Some(_)) = (words.next(), words.next()) else {
        return Parsed::error(ErrorLine::BadFormat, false);
    };
    let Some(touch) = word_i32(exptime) else {
        return Parsed::error(ErrorLine::BadExptime, false);
    };
    let gap = space_len(&line.text[command_len..]);
    let lookup = Lookup {
        touch: Some(touch),
        cas: command_len == b"gats".len(),
    };
    keys(line, command_len + gap + exptime.len(), lookup)
}

/// The keys behind the first `at` bytes of the line.
fn keys(line: &Line<'_>, at: usize, lookup: Lookup) -> Parsed {
    let words = &line.text[at..];
    let skip = at + space_len(words);
    if skip == line.text.len() {
        return Parsed::error(ErrorLine::BadFormat, false);
    }
    if has_long_word(words) {
        return Parsed::error(ErrorLine::BadFormat, false);
    }
    Parsed::Keys(Keys {
        lookup,
        skip: Span::between(0, skip).len,
        rest: line.len,
        end_len: line.len - Span::between(0, line.text.len()).len,
    })
}

/// Whether a word is longer than a key may be.
///
/// It looks for the last space among the next so many bytes, and goes on behind
/// it, so that most words are never looked at.
fn has_long_word(mut text: &[u8]) -> bool {
    while text.len() > KEY_LEN_MAX {
        match memchr::memrchr(b' ', &text[..=KEY_LEN_MAX]) {
            Some(at) => text = &text[at + 1..],
            None => return true,
        }
    }
    false
}

/// Spaces at the front.
#[inline]
pub(crate) fn space_len(text: &[u8]) -> usize {
    text.iter()
        .position(|&byte| byte != b' ')
        .unwrap_or(text.len())
}

#[cfg(test)]
mod tests {
    use super::{KEY_LEN_MAX, has_long_word};

    #[test]
    fn long_words_are_found_wherever_they_stand() {
        let step = if cfg!(miri) { 17 } else { 1 };
        for len in [KEY_LEN_MAX, KEY_LEN_MAX + 1] {
            for before in (0..2 * KEY_LEN_MAX).step_by(step) {
                for after in [0, 1, 2, 600] {
                    let text = [
                        &b"a ".repeat(before.div_ceil(2))[before % 2..],
                        &b"k".repeat(len),
                        &b" b".repeat(after)[..],
                    ]
                    .concat();
                    assert_eq!(has_long_word(&text), len > KEY_LEN_MAX, "{before} {after}");
                }
            }
        }
    }
}
