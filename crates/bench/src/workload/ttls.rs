//! How long stored values live.

use std::str::FromStr;

use rand::Rng;

use super::weighted::Weighted;

/// Lifetimes in seconds and their shares; 0 is for ever.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Ttls(Weighted<u32>);

impl Ttls {
    /// The longest lifetime in seconds; servers read larger numbers as dates.
    const MAX: u32 = 30 * 24 * 60 * 60;

    /// Nothing expires.
    pub(crate) fn never() -> Ttls {
        Ttls(Weighted::only(0))
    }

    /// The text from which `parse` reads exactly the same lifetimes.
    pub(crate) fn spell(&self) -> String {
        self.0.spell(|seconds| seconds)
    }

    /// Draws a lifetime in seconds.
    #[inline]
    pub(crate) fn draw(&self, random: &mut impl Rng) -> u32 {
        self.0.draw(random)
    }
}

impl FromStr for Ttls {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Ttls, &'static str> {
        let seconds = |text: &str| text.parse().ok().filter(|&seconds| seconds <= Self::MAX);
        Weighted::parse(text, seconds).map(Ttls).ok_or(
            "expected seconds from 0 (for ever) to 2592000, or several with their weights, as in \
             60=4,3600=6",
        )
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand::rngs::Xoshiro256PlusPlus;

    use super::*;

    #[test]
    fn lifetimes_come_in_their_shares() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
        let ttls: Ttls = "60=1,3600=3".parse().unwrap();
        let short = (0..10_000).filter(|_| ttls.draw(&mut random) == 60).count();
        assert!((2_300..2_700).contains(&short), "{short}");
        assert_eq!("7".parse::<Ttls>().unwrap().draw(&mut random), 7);
        assert_eq!(Ttls::never().draw(&mut random), 0);
    }

    #[test]
    fn what_is_no_lifetime_is_refused() {
        for wrong in ["", "-1", "2592001", "60=0", "60=x"] {
            assert!(wrong.parse::<Ttls>().is_err(), "{wrong}");
        }
    }
}
