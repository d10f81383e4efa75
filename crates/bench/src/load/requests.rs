//! Which request comes next.

use std::ops::Range;
use std::sync::Arc;

use rand::rngs::Xoshiro256PlusPlus;
use rand::{Rng, SeedableRng};

use super::dialect::{self, PendingRequest};
use super::plan::{Dialect, Plan};
use crate::workload::{Keys, Mix, Sampler, Ttls, Values};

/// A source of requests. [`for_share`](Self::for_share) makes sources that draw other keys of the
/// same workload.
#[derive(Clone, Debug)]
pub(crate) struct Requests {
    plan: Arc<Plan>,
    sampler: Sampler,
    random: Xoshiro256PlusPlus,
    drawn: Vec<u32>,
}

impl Requests {
    /// Requests as planned, for the keys that the sampler draws.
    pub(crate) fn planned(plan: Arc<Plan>, sampler: Sampler, seed: u64) -> Requests {
        Requests {
            plan,
            sampler,
            random: Xoshiro256PlusPlus::seed_from_u64(seed ^ 0x6d_69_78),
            drawn: Vec::new(),
        }
    }

    /// Requests in the text dialect: the fraction `sets` (0 to 1) of them store a value, and the
    /// others get `keys_per_get` keys.
    pub(crate) fn new(
        keys: impl Into<Keys>,
        values: Arc<Values>,
        sampler: Sampler,
        keys_per_get: usize,
        sets: f64,
    ) -> Requests {
        let plan = Plan {
            dialect: Dialect::Text,
            keys: keys.into(),
            values,
            mix: Mix::with_sets(sets),
            ttls: Ttls::never(),
            keys_per_get: u32::try_from(keys_per_get).unwrap_or(u32::MAX).max(1),
            canned: false,
        };
        Requests::planned(plan.into(), sampler, 1)
    }

    /// One set for every key of the range, in the text dialect.
    pub(crate) fn filling(
        keys: impl Into<Keys>,
        values: Arc<Values>,
        range: Range<u32>,
    ) -> Requests {
        Requests::new(keys, values, Sampler::Sequence(range), 1, 1.0)
    }

    /// The same requests for a server that knows no keys and answers with made-up values.
    pub(crate) fn canned(&self) -> Requests {
        let mut requests = self.clone();
        Arc::make_mut(&mut requests.plan).canned = true;
        requests
    }

    /// The part of one connection or thread of `shares`.
    pub(crate) fn for_share(&self, share: usize, shares: usize) -> Requests {
        let mut requests = self.clone();
        requests.sampler = self.sampler.for_share(share, shares);
        let seed = requests.random.next_u64() ^ share as u64;
        requests.random = Xoshiro256PlusPlus::seed_from_u64(seed);
        requests
    }

    /// Where the numbers of keys come from.
    pub(super) fn sampler(&self) -> &Sampler {
        &self.sampler
    }

    /// A seed for [`planned`](Self::planned), drawn from that of these requests.
    pub(super) fn seed(&self) -> u64 {
        self.random.clone().next_u64()
    }

    /// What all the requests have in common.
    pub(super) fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Appends the next request to `out` and the keys that it asks for to `numbers`; none when
    /// there are no more keys.
    #[inline]
    pub(super) fn append(
        &mut self,
        at_ns: u64,
        out: &mut Vec<u8>,
        numbers: &mut impl Extend<u32>,
    ) -> Option<PendingRequest> {
        let plan = &*self.plan;
        let op = plan.mix.draw(&mut self.random);
        self.drawn.clear();
        self.drawn.push(self.sampler.next()?);
        for _ in 1..plan.keys_of(op) {
            match self.sampler.next() {
                Some(number) => self.drawn.push(number),
                None => break,
            }
        }
        let ttl = plan.ttls.draw(&mut self.random);
        dialect::append(plan, op, &self.drawn, ttl, out);
        numbers.extend(self.drawn.iter().copied());
        Some(PendingRequest {
            op,
            left: u32::try_from(self.drawn.len()).expect("as many keys as a request has"),
            many: op.reads() && plan.keys_per_get > 1,
            at_ns,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::KeyFormat;

    fn text(requests: &mut Requests) -> String {
        let (mut out, mut numbers) = (Vec::new(), Vec::new());
        while requests.append(0, &mut out, &mut numbers).is_some() {}
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn requests_end_with_their_keys() {
        let keys = KeyFormat::new(4, 4096).unwrap();
        let values = Arc::new(Values::new(3));
        let sampler = Sampler::Sequence(10..13);
        let mut gets = Requests::new(keys, values.clone(), sampler, 2, 0.0);
        assert_eq!(text(&mut gets), "get 000a 000b\r\nget 000c\r\n");
        let mut sets = Requests::filling(keys, values.clone(), 10..11);
        let value = String::from_utf8(values.of(10).to_vec()).unwrap();
        assert_eq!(text(&mut sets), format!("set 000a 0 0 3\r\n{value}\r\n"));
    }

    #[test]
    fn what_is_asked_is_noted() {
        let keys = KeyFormat::new(4, 4096).unwrap();
        let sampler = Sampler::Sequence(10..13);
        let mut gets = Requests::new(keys, Arc::new(Values::new(3)), sampler, 2, 0.0);
        let (mut out, mut numbers) = (Vec::new(), Vec::new());
        let first = gets.append(7, &mut out, &mut numbers).unwrap();
        assert_eq!((first.left, first.at_ns, first.many), (2, 7, true));
        assert_eq!(gets.append(8, &mut out, &mut numbers).unwrap().left, 1);
        assert_eq!(numbers, [10, 11, 12]);
        assert!(gets.append(9, &mut out, &mut numbers).is_none());
    }
}
