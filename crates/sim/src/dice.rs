//! Choices from a seed.

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};

/// A source of choices. The same seed gives the same choices.
pub(crate) struct Dice(Xoshiro256PlusPlus);

impl Dice {
    pub(crate) fn new(seed: u64) -> Dice {
        Dice(Xoshiro256PlusPlus::seed_from_u64(seed))
    }

    /// Separate dice for one part of the run.
    pub(crate) fn part(&mut self) -> Dice {
        Dice::new(self.0.random())
    }

    /// Any number.
    pub(crate) fn number(&mut self) -> u64 {
        self.0.random()
    }

    /// A number below `end`, which is above 0.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        self.0.random_range(0..end)
    }

    /// A number from `from` to `to`, both included.
    pub(crate) fn within(&mut self, from: usize, to: usize) -> usize {
        self.0.random_range(from..=to)
    }

    /// True once in `count` times on average.
    pub(crate) fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    /// One of the given things.
    pub(crate) fn pick<T: Copy>(&mut self, things: &[T]) -> T {
        things[self.below(things.len())]
    }

    /// A size from `from` to `to`, both included and above 0; each order of magnitude is as likely.
    pub(crate) fn size(&mut self, from: usize, to: usize) -> usize {
        let magnitude = self.within(from.ilog2() as usize, to.max(from).ilog2() as usize);
        self.within(1, 2 << magnitude).clamp(from, to.max(from))
    }

    /// Shuffles things.
    pub(crate) fn shuffle<T>(&mut self, things: &mut [T]) {
        for at in (1..things.len()).rev() {
            let other = self.within(0, at);
            things.swap(at, other);
        }
    }
}
