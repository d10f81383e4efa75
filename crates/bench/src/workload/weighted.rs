//! A choice among a few things, each with its weight.

use std::fmt::Display;
use std::str::FromStr;

use rand::Rng;

/// Things and their shares.
///
/// # Invariants
/// - Not empty; bounds ascend, and the last is 2^32.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Weighted<T> {
    /// A draw of 32 bits means the first thing whose bound is above it.
    bounds: Vec<(u64, T)>,
}

impl<T: Copy> Weighted<T> {
    /// One thing only.
    pub(crate) fn only(thing: T) -> Weighted<T> {
        Weighted {
            bounds: vec![(1 << 32, thing)],
        }
    }

    /// Things with their weights, of which at least one must be positive; those of weight 0 are
    /// left out. None if a weight is negative or not finite, or if all are 0.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a share of 2^32"
    )]
    pub(crate) fn new(weights: &[(T, f64)]) -> Option<Weighted<T>> {
        let valid = |&(_, weight): &(T, f64)| weight.is_finite() && weight >= 0.0;
        let total: f64 = weights.iter().map(|(_, weight)| weight).sum();
        if !weights.iter().all(valid) || total <= 0.0 {
            return None;
        }
        let mut sum = 0.0;
        let mut bounds: Vec<(u64, T)> = Vec::with_capacity(weights.len());
        for &(thing, weight) in weights.iter().filter(|(_, weight)| *weight > 0.0) {
            sum += weight;
            bounds.push(((sum / total * 4_294_967_296.0) as u64, thing));
        }
        bounds.last_mut()?.0 = 1 << 32;
        Some(Weighted { bounds })
    }

    /// Reads `THING=WEIGHT,THING=WEIGHT`; a weight that is left out is 1.
    pub(crate) fn parse(text: &str, thing: impl Fn(&str) -> Option<T>) -> Option<Weighted<T>> {
        let weights: Option<Vec<(T, f64)>> = text
            .split(',')
            .map(|part| {
                let (name, weight) = part.split_once('=').unwrap_or((part, "1"));
                Some((thing(name)?, f64::from_str(weight).ok()?))
            })
            .collect();
        Weighted::new(&weights?)
    }

    /// The text from which [`parse`](Self::parse) reads exactly the same, with `name` for each
    /// thing.
    pub(crate) fn spell<N: Display>(&self, name: impl Fn(T) -> N) -> String {
        let mut before = 0;
        let parts = self.bounds.iter().map(|&(bound, thing)| {
            let weight = bound - before;
            before = bound;
            format!("{}={weight}", name(thing))
        });
        parts.collect::<Vec<String>>().join(",")
    }

    /// Draws one.
    #[inline]
    pub(crate) fn draw(&self, random: &mut impl Rng) -> T {
        if let [(_, only)] = self.bounds[..] {
            return only;
        }
        let draw = u64::from(random.next_u32());
        let hit = self.bounds.iter().find(|&&(bound, _)| draw < bound);
        hit.expect("the last bound is above every draw").1
    }

    /// Each thing with its share, from 0 to 1.
    pub(crate) fn shares(&self) -> impl Iterator<Item = (T, f64)> {
        let mut before = 0;
        self.bounds.iter().map(move |&(bound, thing)| {
            let share = (bound - before) as f64 / 4_294_967_296.0;
            before = bound;
            (thing, share)
        })
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand::rngs::Xoshiro256PlusPlus;

    use super::*;

    #[test]
    fn draws_come_in_their_shares() {
        let weighted = Weighted::new(&[('a', 89.5), ('b', 10.0), ('c', 0.5), ('d', 0.0)]).unwrap();
        let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
        let drawn: Vec<char> = (0..100_000).map(|_| weighted.draw(&mut random)).collect();
        let count = |thing| drawn.iter().filter(|&&drawn| drawn == thing).count();
        assert!((89_000..90_000).contains(&count('a')));
        assert!((9_600..10_400).contains(&count('b')));
        assert!((400..600).contains(&count('c')));
        assert_eq!(count('d'), 0);
        let shares: Vec<f64> = weighted.shares().map(|(_, share)| share).collect();
        assert!((shares[0] - 0.895).abs() < 1e-6 && shares.len() == 3);
    }

    #[test]
    fn what_is_spelled_is_read_the_same() {
        let read = |text: &str| Weighted::parse(text, |name| name.parse::<u32>().ok()).unwrap();
        for text in ["1=1,2=2", "3", "7=0.1,8=89.9,9=10"] {
            let weighted = read(text);
            assert_eq!(read(&weighted.spell(|thing| thing)), weighted);
        }
    }

    #[test]
    fn weights_are_positive_and_finite() {
        for wrong in [
            &[][..],
            &[('a', 0.0)],
            &[('a', -1.0)],
            &[('a', f64::INFINITY)],
        ] {
            assert!(Weighted::new(wrong).is_none(), "{wrong:?}");
        }
    }
}
