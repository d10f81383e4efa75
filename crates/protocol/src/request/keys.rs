//! The keys of a line that names any number of them.

use crate::op::Op;
use crate::span::Span;
use crate::token::word_len;

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

/// Spaces at the front.
#[inline]
pub(crate) fn space_len(text: &[u8]) -> usize {
    text.iter()
        .position(|&byte| byte != b' ')
        .unwrap_or(text.len())
}
