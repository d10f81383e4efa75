//! When the requests of an open loop are due.

use clap::ValueEnum;
use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use serde::{Deserialize, Serialize};

/// How requests are spread over time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Arrivals {
    /// At exponential gaps (a Poisson process), as the requests of many independent users are
    Poisson,
    /// At equal gaps
    Constant,
}

/// The rate of an open loop.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Pace {
    /// Requests a second, over all threads.
    pub(crate) rate: f64,
    /// How they are spread.
    pub(crate) arrivals: Arrivals,
    /// Seed of the gaps.
    pub(crate) seed: u64,
}

/// The times of one thread's requests in an open loop.
#[derive(Debug)]
pub(super) struct Schedule {
    gap_ns: f64,
    next_ns: f64,
    arrivals: Arrivals,
    random: Xoshiro256PlusPlus,
}

impl Schedule {
    /// The part of one of `shares` threads, from `start_ns` on.
    pub(super) fn new(pace: &Pace, share: usize, shares: usize, start_ns: u64) -> Schedule {
        let shares = shares.max(1) as f64;
        let gap_ns = 1e9 * shares / pace.rate.max(1e-9);
        let mut schedule = Schedule {
            gap_ns,
            next_ns: start_ns as f64,
            arrivals: pace.arrivals,
            random: Xoshiro256PlusPlus::seed_from_u64(pace.seed ^ (share as u64) << 40),
        };
        match pace.arrivals {
            Arrivals::Poisson => schedule.advance(),
            // Threads take turns.
            Arrivals::Constant => schedule.next_ns += gap_ns * share as f64 / shares,
        }
        schedule
    }

    /// When the next request is due, in nanoseconds of the engine's clock.
    #[inline]
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a time from the start on, which takes 53 bits in a hundred days"
    )]
    pub(super) fn next_ns(&self) -> u64 {
        self.next_ns as u64
    }

    /// Goes on to the next request.
    #[inline]
    pub(super) fn advance(&mut self) {
        self.next_ns += match self.arrivals {
            Arrivals::Constant => self.gap_ns,
            // The draw is below 1, so that the logarithm is finite.
            Arrivals::Poisson => -(1.0 - self.random.random::<f64>()).ln() * self.gap_ns,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gaps(pace: &Pace, count: usize) -> Vec<f64> {
        let mut schedule = Schedule::new(pace, 0, 1, 0);
        let mut before = schedule.next_ns();
        let gap = |_| {
            schedule.advance();
            let next = schedule.next_ns();
            let gap = next - before;
            before = next;
            gap as f64
        };
        (0..count).map(gap).collect()
    }

    #[test]
    fn gaps_of_poisson_arrivals_have_their_mean_and_variance() {
        const GAPS: usize = 200_000;
        let pace = Pace {
            rate: 10_000.0,
            arrivals: Arrivals::Poisson,
            seed: 42,
        };
        let gaps = gaps(&pace, GAPS);
        let mean = gaps.iter().sum::<f64>() / GAPS as f64;
        let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / GAPS as f64;
        // With so many gaps the mean is off by a few parts in 450 at most. An exponential
        // distribution's deviation is its mean.
        assert!((mean / 100_000.0 - 1.0).abs() < 0.01, "{mean}");
        assert!(
            (variance.sqrt() / 100_000.0 - 1.0).abs() < 0.02,
            "{variance}"
        );
        // And it has no memory: e^-1 of the gaps are longer than the mean.
        let longer = gaps.iter().filter(|&&gap| gap > 100_000.0).count() as f64 / GAPS as f64;
        assert!((longer - (-1f64).exp()).abs() < 0.01, "{longer}");
    }

    #[test]
    fn threads_of_constant_arrivals_take_turns() {
        let pace = Pace {
            rate: 1000.0,
            arrivals: Arrivals::Constant,
            seed: 1,
        };
        let mut due = Vec::new();
        for share in 0..4 {
            let mut schedule = Schedule::new(&pace, share, 4, 500);
            for _ in 0..3 {
                due.push(schedule.next_ns());
                schedule.advance();
            }
        }
        due.sort_unstable();
        let expected: Vec<u64> = (0..12).map(|index| 500 + index * 1_000_000).collect();
        assert_eq!(due, expected);
    }
}
