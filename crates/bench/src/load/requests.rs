//! Requests, built from templates into one burst a connection.

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

/// A source of bursts. Those of [`for_share`](Self::for_share) draw other keys of the same
/// workload.
#[derive(Clone, Debug)]
pub(crate) struct Requests {
    keys: KeyFormat,
    values: Arc<Values>,
    sampler: Sampler,
    keys_per_get: usize,
    /// Draws below this are sets; 2^32 makes all of them sets.
    set_below: u64,
    choice: Xoshiro256PlusPlus,
    /// ` 0 0 <bytes>\r\n`, which follows the key of a set.
    set_tail: Vec<u8>,
}

impl Requests {
    /// Requests of which the fraction `sets` (0 to 1) store a value, and the others get
    /// `keys_per_get` keys.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the fraction is clamped, 2^32 fits"
    )]
    pub(crate) fn new(
        keys: KeyFormat,
        values: Arc<Values>,
        sampler: Sampler,
        keys_per_get: usize,
        sets: f64,
    ) -> Requests {
        let set_tail = format!(" 0 0 {}\r\n", values.size()).into_bytes();
        let set_below = (sets.clamp(0.0, 1.0) * 4_294_967_296.0) as u64;
        let choice = Xoshiro256PlusPlus::seed_from_u64(7);
        Requests {
            keys,
            values,
            sampler,
            keys_per_get: keys_per_get.max(1),
            set_below,
            choice,
            set_tail,
        }
    }

    /// Sets of every key of the range, once.
    pub(crate) fn filling(
        keys: KeyFormat,
        values: Arc<Values>,
        range: std::ops::Range<u32>,
    ) -> Requests {
        Requests::new(keys, values, Sampler::Sequence(range), 1, 1.0)
    }

    /// The part of one of `shares` connections or threads.
    pub(crate) fn for_share(&self, share: usize, shares: usize) -> Requests {
        let mut requests = self.clone();
        requests.sampler = self.sampler.for_share(share, shares);
        requests.choice =
            Xoshiro256PlusPlus::seed_from_u64(requests.choice.next_u64() ^ share as u64);
        requests
    }

    /// Appends up to `depth` requests to `out` and their kinds to `kinds`; fewer when the keys are
    /// at their end.
    pub(crate) fn append_burst(&mut self, depth: usize, out: &mut Vec<u8>, kinds: &mut Vec<Kind>) {
        for _ in 0..depth {
            let set = self.set_below > 0 && u64::from(self.choice.next_u32()) < self.set_below;
            let Some(first) = self.sampler.next() else {
                return;
            };
            if set {
                out.extend_from_slice(b"set ");
                self.keys.append(first, out);
                out.extend_from_slice(&self.set_tail);
                out.extend_from_slice(self.values.of(first));
                kinds.push(Kind::Set);
            } else {
                out.extend_from_slice(b"get ");
                self.keys.append(first, out);
                for _ in 1..self.keys_per_get {
                    let Some(number) = self.sampler.next() else {
                        break;
                    };
                    out.push(b' ');
                    self.keys.append(number, out);
                }
                kinds.push(Kind::Get);
            }
            out.extend_from_slice(b"\r\n");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requests(sampler: Sampler, keys_per_get: usize, sets: f64) -> Requests {
        let keys = KeyFormat::new(4, 4096).unwrap();
        Requests::new(keys, Arc::new(Values::new(3)), sampler, keys_per_get, sets)
    }

    #[test]
    fn a_burst_is_text_that_a_server_takes() {
        let (mut out, mut kinds) = (Vec::new(), Vec::new());
        requests(Sampler::Sequence(10..13), 2, 0.0).append_burst(5, &mut out, &mut kinds);
        assert_eq!(
            String::from_utf8_lossy(&out),
            "get 000a 000b\r\nget 000c\r\n"
        );
        assert_eq!(kinds, [Kind::Get, Kind::Get]);
        out.clear();
        requests(Sampler::Sequence(10..11), 1, 1.0).append_burst(5, &mut out, &mut kinds);
        let value = String::from_utf8(Values::new(3).of(10).to_vec()).unwrap();
        assert_eq!(
            String::from_utf8_lossy(&out),
            format!("set 000a 0 0 3\r\n{value}\r\n")
        );
    }

    #[test]
    fn kinds_come_in_their_proportion() {
        let (mut out, mut kinds) = (Vec::new(), Vec::new());
        requests(Sampler::Sequence(0..4000), 1, 0.25).append_burst(4000, &mut out, &mut kinds);
        let sets = kinds.iter().filter(|&&kind| kind == Kind::Set).count();
        assert!((900..1100).contains(&sets), "{sets}");
    }
}
