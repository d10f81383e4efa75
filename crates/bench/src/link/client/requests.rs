//! Requests for one key each; all gets have one size, and all sets another.

use std::ops::Range;
use std::sync::Arc;

use rand::rngs::Xoshiro256PlusPlus;
use rand::{Rng, SeedableRng};

use crate::workload::{KeyFormat, Sampler, Values};

/// What a request asks for, which decides its possible replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// `get` of one key or more.
    Get,
    /// `set`.
    Set,
}

/// The end of a line and of a value.
const END: &[u8] = b"\r\n";

/// Appends a range of several pieces that are thought of as one text.
pub(super) fn append_range(pieces: &[&[u8]], range: Range<usize>, out: &mut Vec<u8>) {
    let mut at = 0;
    for piece in pieces {
        let from = range.start.clamp(at, at + piece.len()) - at;
        let to = range.end.clamp(at, at + piece.len()) - at;
        out.extend_from_slice(&piece[from..to.max(from)]);
        at += piece.len();
    }
}

/// A source of requests.
#[derive(Clone, Debug)]
pub(crate) struct Requests {
    keys: KeyFormat,
    values: Arc<Values>,
    sampler: Sampler,
    /// Draws below this are sets; at 2^32 all are sets.
    set_below: u64,
    choice: Xoshiro256PlusPlus,
    /// A get of some key, and the first line of a set.
    get: Vec<u8>,
    set: Vec<u8>,
}

impl Requests {
    const GET: &[u8] = b"get ";
    const SET: &[u8] = b"set ";

    /// Requests of which the fraction `sets` (0 to 1) are sets, and the others gets.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the fraction is clamped, 2^32 fits"
    )]
    pub(crate) fn new(
        keys: KeyFormat,
        values: Arc<Values>,
        sampler: Sampler,
        sets: f64,
    ) -> Requests {
        let mut key = Vec::new();
        keys.append(0, &mut key);
        let get = [Self::GET, &key, END].concat();
        let set_tail = format!(" 0 0 {}\r\n", values.size());
        let set = [Self::SET, &key, set_tail.as_bytes()].concat();
        let set_below = (sets.clamp(0.0, 1.0) * 4_294_967_296.0) as u64;
        let choice = Xoshiro256PlusPlus::seed_from_u64(7);
        Requests {
            keys,
            values,
            sampler,
            set_below,
            choice,
            get,
            set,
        }
    }

    /// Bytes of a request for one key.
    #[inline]
    pub(crate) fn len_of(&self, kind: Kind) -> usize {
        match kind {
            Kind::Get => self.get.len(),
            Kind::Set => self.set.len() + self.values.size() + END.len(),
        }
    }

    /// Bytes of the longest request for one key.
    pub(crate) fn len_max(&self) -> usize {
        self.len_of(Kind::Get).max(self.len_of(Kind::Set))
    }

    /// Kind and key of the next request; `None` when there are no keys left.
    #[inline]
    pub(crate) fn draw(&mut self) -> Option<(Kind, u32)> {
        let is_set = self.set_below > 0 && u64::from(self.choice.next_u32()) < self.set_below;
        let kind = if is_set { Kind::Set } else { Kind::Get };
        Some((kind, self.sampler.next()?))
    }

    /// Appends a request for one key.
    #[inline]
    pub(crate) fn append(&self, kind: Kind, key: u32, out: &mut Vec<u8>) {
        let (line, word_len) = match kind {
            Kind::Get => (&self.get, Self::GET.len()),
            Kind::Set => (&self.set, Self::SET.len()),
        };
        let start = out.len();
        out.extend_from_slice(line);
        let place = &mut out[start + word_len..][..self.keys.size()];
        self.keys.rewrite(key, place);
        if kind == Kind::Set {
            out.extend_from_slice(self.values.of(key));
            out.extend_from_slice(END);
        }
    }

    /// Appends a range of what [`append`](Self::append) appends.
    pub(crate) fn append_part(
        &mut self,
        (kind, key): (Kind, u32),
        range: Range<usize>,
        out: &mut Vec<u8>,
    ) {
        let (line, word_len) = match kind {
            Kind::Get => (&mut self.get, Self::GET.len()),
            Kind::Set => (&mut self.set, Self::SET.len()),
        };
        self.keys
            .rewrite(key, &mut line[word_len..][..self.keys.size()]);
        match kind {
            Kind::Get => append_range(&[line], range, out),
            Kind::Set => append_range(&[line, self.values.of(key), END], range, out),
        }
    }
}
