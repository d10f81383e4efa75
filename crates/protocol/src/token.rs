//! Words of a line.

use crate::span::Span;

/// How many words of a line count; the rest is ignored.
pub(crate) const TOKENS_MAX: usize = 23;

/// The words of a piece of a line. Only spaces separate them.
#[derive(Clone, Debug)]
pub struct Tokens<'a> {
    rest: &'a [u8],
}

impl<'a> Tokens<'a> {
    /// The words of `text`, which has no line end.
    #[must_use]
    pub fn new(text: &'a [u8]) -> Self {
        Tokens { rest: text }
    }
}

impl<'a> Iterator for Tokens<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let start = self.rest.iter().position(|&byte| byte != b' ')?;
        let rest = &self.rest[start..];
        let len = word_len(rest);
        self.rest = &rest[len..];
        Some(&rest[..len])
    }
}

/// Bytes before the first space.
///
/// Words are short, so this looks at eight bytes at a time and calls no function.
#[inline]
pub(crate) fn word_len(text: &[u8]) -> usize {
    let mut len = 0;
    let mut chunks = text.chunks_exact(8);
    for chunk in &mut chunks {
        let chunk = u64::from_le_bytes(chunk.try_into().unwrap_or([0; 8]));
        let spaces = bytes_below(chunk ^ (ONES * b' ' as u64), 1);
        if spaces != 0 {
            return len + spaces.trailing_zeros() as usize / 8;
        }
        len += 8;
    }
    let rest = chunks.remainder();
    let found = rest.iter().position(|&byte| byte == b' ');
    len + found.unwrap_or(rest.len())
}

/// The value 1 in each byte.
const ONES: u64 = 0x0101_0101_0101_0101;

/// Marks the bytes of `chunk` that are below `limit` with their top bit. `limit` is at
/// most 128. The lowest mark is right; a borrow may set wrong marks above it.
#[inline]
pub(crate) fn bytes_below(chunk: u64, limit: u64) -> u64 {
    chunk.wrapping_sub(ONES * limit) & !chunk & (ONES << 7)
}

/// Where the first [`TOKENS_MAX`] words of a line stand.
#[derive(Debug)]
pub(crate) struct TokenSpans {
    spans: [Span; TOKENS_MAX],
    count: usize,
}

impl TokenSpans {
    /// No words. [`TokenSpans::split`] fills it in place, since it is too large to be
    /// copied.
    #[inline]
    pub(crate) const fn new() -> Self {
        const NONE: Span = Span { start: 0, len: 0 };
        TokenSpans {
            spans: [NONE; TOKENS_MAX],
            count: 0,
        }
    }

    /// Splits `line`, which has no line end.
    #[inline]
    pub(crate) fn split(&mut self, line: &[u8]) {
        self.count = 0;
        let mut at = 0;
        while let Some(&byte) = line.get(at) {
            if byte == b' ' {
                at += 1;
                continue;
            }
            let Some(span) = self.spans.get_mut(self.count) else {
                break;
            };
            let end = at + word_len(&line[at..]);
            *span = Span::between(at, end);
            self.count += 1;
            at = end + 1;
        }
    }

    /// The number of words, at most [`TOKENS_MAX`].
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Word `index`, counted from 0.
    pub(crate) fn get(&self, index: usize) -> Option<Span> {
        self.spans[..self.count].get(index).copied()
    }

    /// From the front of word `index` to the end of the last one; empty if there
    /// is no such word.
    pub(crate) fn from(&self, index: usize) -> Span {
        match (self.get(index), self.last()) {
            (Some(first), Some(last)) => Span {
                start: first.start,
                len: last.start + last.len - first.start,
            },
            _ => Span::default(),
        }
    }

    /// The last word.
    pub(crate) fn last(&self) -> Option<Span> {
        self.spans[..self.count].last().copied()
    }
}
