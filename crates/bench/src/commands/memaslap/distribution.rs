//! Latencies as memaslap counts them: in powers of two.

use hdrhistogram::Histogram;
use serde::Serialize;

/// Counts of latencies in whole microseconds: the first counts those up to 1, number `i` those
/// above 2^(i-1) and up to 2^i.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Distribution(Vec<u64>);

impl Distribution {
    pub(super) fn new(counts: Vec<u64>) -> Distribution {
        Distribution(counts)
    }

    /// Counts latencies in nanoseconds.
    pub(super) fn of(latency_ns: &Histogram<u64>) -> Distribution {
        let mut counts = Vec::new();
        for step in latency_ns.iter_recorded() {
            let us = step.value_iterated_to() / 1000;
            let place = us.max(1).next_power_of_two().ilog2() as usize;
            if counts.len() <= place {
                counts.resize(place + 1, 0);
            }
            counts[place] += step.count_since_last_iteration();
        }
        Distribution(counts)
    }

    /// How many powers have a count.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// The fraction of the latencies that are in a power.
    pub(super) fn share(&self, place: usize) -> f64 {
        let count = self.0.get(place).copied().unwrap_or(0);
        count as f64 / self.total().max(1) as f64
    }

    /// The latency, in microseconds, that this fraction of them did not exceed, as if those of a
    /// power were spread evenly on a logarithmic scale.
    pub(super) fn latency_us(&self, quantile: f64) -> f64 {
        let mut rank = quantile * self.total() as f64;
        for (place, &count) in self.0.iter().enumerate() {
            let count = count as f64;
            if rank <= count && count > 0.0 {
                return (place as f64 - 1.0 + rank / count).exp2();
            }
            rank -= count;
        }
        0.0
    }

    fn total(&self) -> u64 {
        self.0.iter().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_lie_between_powers_of_two() {
        let mut latency_ns = Histogram::new_with_max(60_000_000_000, 3).unwrap();
        for us in [0, 1, 2, 3, 4, 5, 8, 9] {
            latency_ns.record(us * 1000 + 10).unwrap();
        }
        let distribution = Distribution::of(&latency_ns);
        assert_eq!(distribution, Distribution::new(vec![2, 1, 2, 2, 1]));
        assert_eq!(distribution.share(2), 0.25);
        assert_eq!(distribution.share(9), 0.0);
        assert_eq!(distribution.latency_us(0.625), 4.0);
        assert_eq!(distribution.latency_us(1.0), 16.0);
        assert_eq!(Distribution::new(Vec::new()).latency_us(0.5), 0.0);
    }
}
