//! Which key comes next.

use std::ops::Range;
use std::str::FromStr;
use std::sync::Arc;

use rand::rngs::Xoshiro256PlusPlus;
use rand::{Rng, SeedableRng};
use rand_distr::{Distribution, Zipf};

/// How often each key is asked for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Popularity {
    /// All keys equally often.
    Uniform,
    /// Zipf: the key of rank r in proportion to r to the power of minus this exponent.
    Zipf(f64),
    /// Some keys get most requests, all of them equally often; the other keys share the rest.
    Hot {
        /// Their share of the keys, from 0 to 1.
        keys: f64,
        /// Their share of the requests, from 0 to 1.
        requests: f64,
    },
}

impl FromStr for Popularity {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Popularity, &'static str> {
        const EXPECTED: &str = "expected \"uniform\", \"zipf:EXPONENT\" with an exponent from 0 to \
                                5, or \"hot:KEYS:REQUESTS\" with two shares from 0 to 1";
        let number = |text: &str, most: f64| {
            let number = text.parse::<f64>().ok();
            number.filter(|number| (0.0..=most).contains(number))
        };
        let words: Vec<&str> = text.split(':').collect();
        let popularity = match words[..] {
            ["uniform"] => Some(Popularity::Uniform),
            ["zipf", exponent] => number(exponent, 5.0).map(Popularity::Zipf),
            ["hot", keys, requests] => match (number(keys, 1.0), number(requests, 1.0)) {
                (Some(keys), Some(requests)) => Some(Popularity::Hot { keys, requests }),
                _ => None,
            },
            _ => None,
        };
        popularity.ok_or(EXPECTED)
    }
}

impl std::fmt::Display for Popularity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Popularity::Uniform => write!(f, "uniform"),
            Popularity::Zipf(exponent) => write!(f, "zipf:{exponent}"),
            Popularity::Hot { keys, requests } => write!(f, "hot:{keys}:{requests}"),
        }
    }
}

/// A source of key numbers; with the same seed it gives the same numbers.
#[derive(Clone, Debug)]
pub(crate) enum Sampler {
    /// Drawn when they are needed.
    Uniform {
        /// The generator.
        random: Xoshiro256PlusPlus,
        /// Numbers are below this.
        keys: u32,
    },
    /// Read over and over from a table that was drawn in advance: a draw would cost more than a
    /// request may.
    Table {
        /// The numbers drawn.
        numbers: Arc<[u32]>,
        /// The place of the next one.
        at: usize,
    },
    /// Drawn from one of two ranges of ranks.
    Hot {
        /// The generator.
        random: Xoshiro256PlusPlus,
        /// Draws below this are for the first range; with 2^32 all of them are.
        below: u64,
        /// Numbers of the first range.
        hot: u32,
        /// Numbers of both.
        keys: u32,
    },
    /// Every number of a range, once.
    Sequence(Range<u32>),
    /// Numbers drawn uniformly from a range, a limited number of times.
    Draws {
        /// The generator.
        random: Xoshiro256PlusPlus,
        /// The range.
        range: Range<u32>,
        /// How many draws are left.
        left: u64,
    },
}

impl Sampler {
    /// Numbers drawn into the table of a skewed sampler.
    const TABLE: usize = 1 << 22;

    /// Draws from `keys` numbers (one at least). Ranks are scattered over the numbers, in the same
    /// way for every seed.
    pub(crate) fn new(popularity: Popularity, keys: u32, seed: u64) -> Sampler {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        match popularity {
            Popularity::Uniform => Sampler::Uniform { random, keys },
            Popularity::Zipf(exponent) => {
                let ranks = Ranks::new(keys, exponent);
                let numbers = (0..Self::TABLE)
                    .map(|_| scattered(ranks.draw(&mut random), keys))
                    .collect();
                Sampler::Table { numbers, at: 0 }
            }
            Popularity::Hot {
                keys: key_share,
                requests,
            } => Sampler::hot(keys, key_share, requests, random),
        }
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "shares from 0 to 1"
    )]
    fn hot(keys: u32, key_share: f64, request_share: f64, random: Xoshiro256PlusPlus) -> Sampler {
        let hot = ((f64::from(keys) * key_share) as u32).clamp(1, keys);
        // If all keys are hot, there are no others to ask for.
        let request_share = if hot == keys { 1.0 } else { request_share };
        Sampler::Hot {
            random,
            below: (request_share * 4_294_967_296.0) as u64,
            hot,
            keys,
        }
    }

    /// Repeats recorded numbers for ever; there is at least one.
    pub(crate) fn replay(numbers: Arc<[u32]>) -> Sampler {
        Sampler::Table { numbers, at: 0 }
    }

    /// Draws `count` numbers uniformly from a range that is not empty.
    pub(crate) fn draws(range: Range<u32>, count: u64, seed: u64) -> Sampler {
        Sampler::Draws {
            random: Xoshiro256PlusPlus::seed_from_u64(seed),
            range,
            left: count,
        }
    }

    /// The sampler of one of `shares` connections or threads: it draws other numbers, or starts at
    /// another place of the table that all share, or takes its part of the sequence.
    pub(crate) fn for_share(&self, share: usize, shares: usize) -> Sampler {
        let mut sampler = self.clone();
        match &mut sampler {
            Sampler::Uniform { random, .. } | Sampler::Hot { random, .. } => {
                *random = Xoshiro256PlusPlus::seed_from_u64(random.next_u64() ^ share as u64);
            }
            Sampler::Table { numbers, at } => {
                let mut place =
                    Xoshiro256PlusPlus::seed_from_u64(*at as u64 ^ (share as u64) << 32);
                let length = u32::try_from(numbers.len()).expect("the table is shorter than 2^32");
                *at = below(length, &mut place) as usize;
            }
            Sampler::Sequence(range) => *range = part(range, share, shares),
            Sampler::Draws { random, left, .. } => {
                *random = Xoshiro256PlusPlus::seed_from_u64(random.next_u64() ^ share as u64);
                *left = left.div_ceil(shares.max(1) as u64);
            }
        }
        sampler
    }

    /// The next number; none at the end of a sequence.
    pub(crate) fn next(&mut self) -> Option<u32> {
        match self {
            Sampler::Uniform { random, keys } => Some(below(*keys, random)),
            Sampler::Table { numbers, at } => {
                let number = numbers[*at];
                *at += 1;
                if *at == numbers.len() {
                    *at = 0;
                }
                Some(number)
            }
            Sampler::Hot {
                random,
                below: hot_below,
                hot,
                keys,
            } => {
                let rank = match u64::from(random.next_u32()) < *hot_below {
                    true => below(*hot, random),
                    false => *hot + below(*keys - *hot, random),
                };
                Some(scattered(rank, *keys))
            }
            Sampler::Sequence(range) => range.next(),
            Sampler::Draws {
                random,
                range,
                left,
            } => {
                *left = left.checked_sub(1)?;
                Some(range.start + below(range.end - range.start, random))
            }
        }
    }
}

/// One of several ranges that together are `range`.
fn part(range: &Range<u32>, share: usize, shares: usize) -> Range<u32> {
    let size = u64::from(range.end.saturating_sub(range.start));
    let bound = |share: usize| {
        let offset = size * share as u64 / shares.max(1) as u64;
        range.start + u32::try_from(offset).expect("an offset into the range is below its size")
    };
    bound(share)..bound(share + 1)
}

/// Ranks from 0, the most popular first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ranks(Zipf<f64>);

impl Ranks {
    /// `keys` ranks; the exponent is finite and not negative.
    pub(crate) fn new(keys: u32, exponent: f64) -> Ranks {
        let keys = f64::from(keys.max(1));
        Ranks(Zipf::new(keys, exponent).expect("the exponent is finite and not negative"))
    }

    /// Draws one.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a draw lies between 1 and the count of keys"
    )]
    pub(crate) fn draw(&self, random: &mut impl Rng) -> u32 {
        self.0.sample(random) as u32 - 1
    }
}

/// A number below `bound`; the bias of the plain product is under bound / 2^32.
pub(crate) fn below(bound: u32, random: &mut impl Rng) -> u32 {
    ((u64::from(random.next_u32()) * u64::from(bound)) >> 32) as u32
}

/// Spreads neighbouring ranks over the numbers. The factor is a prime, so that each number has one
/// rank.
#[expect(
    clippy::cast_possible_truncation,
    reason = "the remainder is below a 32-bit number"
)]
pub(crate) fn scattered(rank: u32, keys: u32) -> u32 {
    (u64::from(rank) * 2_654_435_761 % u64::from(keys)) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn popularity_is_read_from_text() {
        assert_eq!("uniform".parse(), Ok(Popularity::Uniform));
        assert_eq!("zipf:0.99".parse(), Ok(Popularity::Zipf(0.99)));
        let hot = Popularity::Hot {
            keys: 0.1,
            requests: 0.9,
        };
        assert_eq!("hot:0.1:0.9".parse(), Ok(hot));
        for wrong in ["zipf:", "zipf:-1", "zipf:nan", "gauss", "hot:1", "hot:2:1"] {
            assert!(wrong.parse::<Popularity>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn scattering_is_a_permutation() {
        let mut seen = vec![false; 1000];
        for rank in 0..1000 {
            seen[scattered(rank, 1000) as usize] = true;
        }
        assert!(seen.into_iter().all(|seen| seen));
    }

    #[test]
    fn the_first_rank_has_its_share() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
        let ranks = Ranks::new(1000, 1.0);
        let firsts = (0..100_000)
            .filter(|_| ranks.draw(&mut random) == 0)
            .count();
        // One in the thousandth harmonic number, 7.485.
        assert!((12_800..13_900).contains(&firsts), "{firsts}");
    }

    #[test]
    fn the_hot_set_gets_its_share() {
        let hot = "hot:0.1:0.9".parse().unwrap();
        let mut sampler = Sampler::new(hot, 100, 3);
        let mut counts = [0; 100];
        for _ in 0..100_000 {
            counts[sampler.next().unwrap() as usize] += 1;
        }
        counts.sort_unstable();
        let coldest: u32 = counts[..90].iter().sum();
        assert!((9_600..10_400).contains(&coldest), "{coldest}");
        assert!(counts[0] > 50 && counts[90] > 8_000, "{counts:?}");
    }

    #[test]
    fn uniform_numbers_stay_below_the_bound() {
        let mut sampler = Sampler::new(Popularity::Uniform, 10, 3);
        let mut counts = [0; 10];
        for _ in 0..10_000 {
            counts[sampler.next().unwrap() as usize] += 1;
        }
        assert!(
            counts.iter().all(|&count| (850..1150).contains(&count)),
            "{counts:?}"
        );
    }

    #[test]
    fn shares_are_the_whole_sequence() {
        let whole = Sampler::Sequence(5..12);
        let mut seen = Vec::new();
        for share in 0..3 {
            let mut sampler = whole.for_share(share, 3);
            seen.extend(std::iter::from_fn(|| sampler.next()));
        }
        assert_eq!(seen, (5..12).collect::<Vec<_>>());
    }

    #[test]
    fn a_sequence_ends() {
        let mut sampler = Sampler::Sequence(0..2);
        assert_eq!(
            [sampler.next(), sampler.next(), sampler.next()],
            [Some(0), Some(1), None]
        );
    }
}
