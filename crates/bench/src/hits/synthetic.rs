//! Synthetic streams: skew, scans, drift, overwrites. They are the same in every run.

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};

use super::stream::Stream;
use crate::workload::{Ranks, scattered};

/// What a stream is made of.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Recipe {
    /// Zipf's exponent of the popularity.
    zipf: f64,
    /// What disturbs the popularity.
    disturbance: Disturbance,
    /// Fraction of requests that overwrite a key.
    sets: f64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Disturbance {
    None,
    /// Now and then comes a scan: keys that never come again, a fiftieth of the number of all keys,
    /// mixed half and half with the others.
    Scans,
    /// In the course of the stream every key's popularity passes to a new key.
    Drift,
}

impl Recipe {
    /// All recipes: skew alone, with scans, with drift, and with 10 to 50 % sets.
    pub(crate) fn all() -> Vec<Recipe> {
        let plain = |zipf| Recipe {
            zipf,
            disturbance: Disturbance::None,
            sets: 0.0,
        };
        let mut recipes: Vec<Recipe> = [0.7, 0.8, 0.9, 0.99, 1.1, 1.2].map(plain).to_vec();
        for zipf in [0.8, 0.99] {
            recipes.push(Recipe {
                disturbance: Disturbance::Scans,
                ..plain(zipf)
            });
            recipes.push(Recipe {
                disturbance: Disturbance::Drift,
                ..plain(zipf)
            });
        }
        recipes.extend([0.1, 0.3, 0.5].map(|sets| Recipe {
            sets,
            ..plain(0.99)
        }));
        recipes
    }

    /// The name that users read, and that `--only` takes.
    pub(crate) fn name(self) -> String {
        let mut name = format!("zipf {}", self.zipf);
        match self.disturbance {
            Disturbance::None => {}
            Disturbance::Scans => name += ", scans",
            Disturbance::Drift => name += ", drift",
        }
        if self.sets > 0.0 {
            name += &format!(", {:.0} % sets", self.sets * 100.0);
        }
        name
    }

    /// Makes the stream of `length` requests, the first half of them warm-up, over `keys` popular
    /// keys.
    pub(crate) fn stream(self, keys: u32, length: usize) -> Stream {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(11);
        let ranks = Ranks::new(keys, self.zipf);
        let mut fresh = u64::from(keys);
        let mut scan_left = 0u32;
        let scans_every = 100_000.min(length / 10).max(1);
        let requests = (0..length).map(|at| {
            if self.disturbance == Disturbance::Scans {
                if at % scans_every == 0 {
                    scan_left = keys / 50;
                }
                if scan_left > 0 && random.random_bool(0.5) {
                    (scan_left, fresh) = (scan_left - 1, fresh + 1);
                    return (fresh, false);
                }
            }
            let key = scattered(ranks.draw(&mut random), keys);
            let set = self.sets > 0.0 && random.random_bool(self.sets);
            let changed = self.disturbance == Disturbance::Drift
                && u64::from(moment(key)) * (length as u64) < (at as u64) << 32;
            (
                u64::from(key) + if changed { u64::from(keys) } else { 0 },
                set,
            )
        });
        Stream::new(self.name(), requests.collect::<Vec<_>>(), length / 2)
    }
}

/// When a key's popularity passes on, as a fraction of 2^32; it does not depend on the key's rank.
fn moment(key: u32) -> u32 {
    key.wrapping_mul(0x9e37_79b1).wrapping_add(1 << 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recipe(name: &str) -> Recipe {
        Recipe::all()
            .into_iter()
            .find(|recipe| recipe.name() == name)
            .unwrap()
    }

    #[test]
    fn names_are_unlike() {
        let mut names: Vec<String> = Recipe::all().iter().map(|recipe| recipe.name()).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), Recipe::all().len());
    }

    #[test]
    fn sets_have_their_share() {
        let stream = recipe("zipf 0.99, 30 % sets").stream(1000, 20_000);
        let sets = stream.requests.iter().filter(|request| request.set).count();
        assert!((5500..6500).contains(&sets), "{sets}");
    }

    #[test]
    fn scans_bring_keys_that_come_once() {
        let plain = recipe("zipf 0.8").stream(1000, 20_000);
        let scans = recipe("zipf 0.8, scans").stream(1000, 20_000);
        assert!(plain.keys <= 1000);
        assert_eq!(
            scans.keys - plain.keys.min(1000),
            10 * (1000 / 50),
            "{} {}",
            scans.keys,
            plain.keys
        );
    }

    #[test]
    fn drift_ends_with_other_keys() {
        let stream = recipe("zipf 0.99, drift").stream(1000, 20_000);
        let early: std::collections::HashSet<u32> = stream.requests[..1000]
            .iter()
            .map(|request| request.key)
            .collect();
        let late = stream.requests[19_000..]
            .iter()
            .filter(|request| early.contains(&request.key))
            .count();
        assert!(late < 150, "{late}");
    }
}
