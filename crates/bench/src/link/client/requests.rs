//! Requests of one key each, of which no two sizes differ.

use std::sync::Arc;

use rand::rngs::Xoshiro256PlusPlus;
use rand::{Rng, SeedableRng};

use crate::workload::{KeyFormat, Sampler, Values};

/// What a request asks for, and so what its reply may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// `get` of one key or more.
    Get,
    /// `set`.
    Set,
}

/// A source of requests.
#[derive(Clone, Debug)]
pub(crate) struct Requests {
    keys: KeyFormat,
    values: Arc<Values>,
    sampler: Sampler,
    /// Draws below this are sets; 2^32 makes all of them sets.
    set_below: u64,
    choice: Xoshiro256PlusPlus,
    /// ` 0 0 <bytes>\r\n`, which follows the key of a set.
    set_tail: Vec<u8>,
}

impl Requests {
    /// Requests of which the fraction `sets` (0 to 1) store a value, and the others get one.
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
        let set_tail = format!(" 0 0 {}\r\n", values.size()).into_bytes();
        let set_below = (sets.clamp(0.0, 1.0) * 4_294_967_296.0) as u64;
        let choice = Xoshiro256PlusPlus::seed_from_u64(7);
        Requests {
            keys,
            values,
            sampler,
            set_below,
            choice,
            set_tail,
        }
    }

    /// Bytes of the longest request for one key.
    pub(crate) fn len_max(&self) -> usize {
        let set_len = b"set ".len() + self.set_tail.len() + self.values.size();
        self.keys.size() + set_len.max(b"get ".len()) + b"\r\n".len()
    }

    /// What the next request is and its key, or its first; none when the keys are at their end.
    #[inline]
    pub(crate) fn draw(&mut self) -> Option<(Kind, u32)> {
        let is_set = self.set_below > 0 && u64::from(self.choice.next_u32()) < self.set_below;
        let kind = if is_set { Kind::Set } else { Kind::Get };
        Some((kind, self.sampler.next()?))
    }

    /// Appends a request for one key.
    #[inline]
    pub(crate) fn append(&self, kind: Kind, key: u32, out: &mut Vec<u8>) {
        match kind {
            Kind::Get => self.append_get(key, out),
            Kind::Set => {
                out.extend_from_slice(b"set ");
                self.keys.append(key, out);
                out.extend_from_slice(&self.set_tail);
                out.extend_from_slice(self.values.of(key));
            }
        }
        out.extend_from_slice(b"\r\n");
    }

    /// Without the line's end.
    #[inline]
    fn append_get(&self, key: u32, out: &mut Vec<u8>) {
        out.extend_from_slice(b"get ");
        self.keys.append(key, out);
    }
}
