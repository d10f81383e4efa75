//! What goes wrong, from a seed.

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};

/// How often something goes wrong: once in so many messages on average; 0 for never.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// A message comes late, by up to twenty times the latency.
    pub late: u32,
    /// A queue pair breaks: the message is lost, or arrives and is not acknowledged, and the connection ends.
    pub breaks: u32,
    /// A node dies with the message.
    pub dies: u32,
    /// A write is done twice.
    pub twice: u32,
}

/// Choices from a seed.
pub(super) struct Dice(Xoshiro256PlusPlus);

impl Dice {
    pub(super) fn new(seed: u64) -> Dice {
        Dice(Xoshiro256PlusPlus::seed_from_u64(seed))
    }

    /// True once in `count` times; never if that is 0.
    pub(super) fn one_in(&mut self, count: u32) -> bool {
        count > 0 && self.0.random_range(0..count) == 0
    }

    /// A number below `end`, or 0.
    pub(super) fn below(&mut self, end: u64) -> u64 {
        if end == 0 {
            0
        } else {
            self.0.random_range(0..end)
        }
    }
}
