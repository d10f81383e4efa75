//! `get`, `gets`, `gat` and `gats`: the commands that read any number of keys.

use crate::error_line::ErrorLine;
use crate::limits::KEY_LEN_MAX;
use crate::number::word_i32;
use crate::request::keys::{Keys, Lookup, space_len};
use crate::request::line::{Line, Parsed};
use crate::span::Span;
use crate::token::{Tokens, word_len};

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
