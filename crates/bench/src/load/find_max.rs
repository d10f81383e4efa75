//! The highest rate at which a server keeps a bound on latency.

use std::fmt::{self, Display};
use std::str::FromStr;
use std::time::Duration;

use super::measured::Measured;

/// A bound on latency.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Bound {
    statistic: Statistic,
    most: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Statistic {
    Mean,
    Quantile(f64),
    Max,
}

impl Bound {
    /// The time that the bound allows.
    pub(crate) fn most(&self) -> Duration {
        self.most
    }

    /// The measured value that the bound is about.
    pub(crate) fn of(&self, measured: &Measured) -> Duration {
        match self.statistic {
            Statistic::Mean => measured.latency_mean(),
            Statistic::Quantile(quantile) => measured.latency(quantile),
            Statistic::Max => measured.latency_max(),
        }
    }

    /// Whether the bound was kept. Replies that were errors, lost or wrong are worth nothing, so a
    /// rate at which more than one in a thousand are such does not hold either.
    pub(crate) fn holds(&self, measured: &Measured) -> bool {
        let bad = measured.refused + measured.lost + measured.wrong;
        measured.replies > 0 && bad * 1000 <= measured.replies && self.of(measured) <= self.most
    }
}

impl FromStr for Bound {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Bound, &'static str> {
        const EXPECTED: &str =
            "expected avg=, max= or a percentile with a time, as in avg=1ms, p99=500us or p99.9=2s";
        let (name, time) = text.split_once('=').ok_or(EXPECTED)?;
        let statistic = match name {
            "avg" => Statistic::Mean,
            "max" => Statistic::Max,
            _ => {
                let percent = name.strip_prefix('p').ok_or(EXPECTED)?;
                let percent: f64 = percent.parse().map_err(|_| EXPECTED)?;
                if !(0.0..=100.0).contains(&percent) {
                    return Err(EXPECTED);
                }
                Statistic::Quantile(percent / 100.0)
            }
        };
        let digits = time.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let unit = match &time[digits.len()..] {
            "us" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            _ => return Err(EXPECTED),
        };
        let seconds = digits.parse::<f64>().map_err(|_| EXPECTED)? * unit;
        let most = Duration::try_from_secs_f64(seconds).map_err(|_| EXPECTED)?;
        Ok(Bound { statistic, most })
    }
}

impl Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.statistic {
            Statistic::Mean => write!(f, "avg")?,
            Statistic::Quantile(quantile) => write!(f, "p{}", quantile * 100.0)?,
            Statistic::Max => write!(f, "max")?,
        }
        write!(f, " ≤ {:?}", self.most)
    }
}

/// One rate that was tried.
#[derive(Clone, Debug)]
pub(crate) struct Trial {
    /// Requests a second.
    pub(crate) rate: f64,
    /// Whether the bound was kept.
    pub(crate) held: bool,
    /// What was measured.
    pub(crate) measured: Measured,
}

/// The result of the search.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    /// The highest rate that held; `None` if none did.
    pub(crate) best: Option<Trial>,
    /// All rates that were tried, in order.
    pub(crate) trials: Vec<Trial>,
}

/// Starts with `guess` and doubles it until it does not hold. Then bisects until the highest rate
/// that holds and the lowest that does not are within `precision` (a fraction) of each other. A
/// rate that does not hold is tried once more: a single pause of the machine is not the server's
/// limit.
pub(crate) fn find_max<E>(
    bound: &Bound,
    guess: f64,
    precision: f64,
    mut measure: impl FnMut(f64) -> Result<Measured, E>,
) -> Result<Found, E> {
    // The highest rate that held, and the lowest that did not.
    let (mut low, mut high) = (0.0, f64::INFINITY);
    let mut found = Found {
        best: None,
        trials: Vec::new(),
    };
    let mut rate = guess;
    while (high.is_infinite() || high - low > precision * high) && found.trials.len() < TRIALS_MAX {
        let mut held = false;
        for _ in 0..2 {
            let measured = measure(rate)?;
            held = bound.holds(&measured);
            let trial = Trial {
                rate,
                held,
                measured,
            };
            if held {
                found.best = Some(trial.clone());
            }
            found.trials.push(trial);
            if held {
                break;
            }
        }
        match held {
            true => low = rate,
            false => high = rate,
        }
        rate = if high.is_infinite() {
            2.0 * low
        } else {
            (low + high) / 2.0
        };
    }
    Ok(found)
}

/// The most rates that are tried.
const TRIALS_MAX: usize = 60;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::clock::nanoseconds;

    /// A queue with one server: latency is service time / (1 − load), and without a bound above its
    /// capacity.
    fn queue(rate: f64, capacity: f64) -> Measured {
        let mut measured = Measured::new();
        let load = rate / capacity;
        let seconds = match load < 1.0 {
            true => 1.0 / capacity / (1.0 - load),
            false => 10.0,
        };
        let latency_ns = nanoseconds(Duration::from_secs_f64(seconds));
        for _ in 0..100 {
            measured.reply(crate::workload::Op::Get);
        }
        measured.record(latency_ns, 100);
        measured
    }

    #[test]
    fn the_search_converges_from_either_side() {
        let bound: Bound = "avg=1ms".parse().unwrap();
        // 10 µs / (1 − load) is 1 ms at a load of 0.99.
        for ceiling in [120_000.0, 1_000_000.0, 20_000.0, 100.0] {
            let found = find_max(&bound, ceiling, 0.01, |rate| {
                Ok::<_, ()>(queue(rate, 100_000.0))
            });
            let best = found.unwrap().best.unwrap().rate;
            assert!((97_500.0..=99_000.0).contains(&best), "{ceiling}: {best}");
        }
    }

    #[test]
    fn one_hiccup_does_not_lower_the_result() {
        let bound: Bound = "p99=1ms".parse().unwrap();
        let mut calls = 0;
        let found = find_max(&bound, 120_000.0, 0.01, |rate| {
            calls += 1;
            let hiccup = calls % 3 == 0;
            Ok::<_, ()>(queue(if hiccup { 1e9 } else { rate }, 100_000.0))
        });
        let best = found.unwrap().best.unwrap().rate;
        assert!((97_000.0..=99_000.0).contains(&best), "{best}");
    }

    #[test]
    fn a_bound_that_nothing_keeps_is_given_up() {
        let bound: Bound = "max=1us".parse().unwrap();
        let found = find_max(&bound, 1000.0, 0.01, |rate| {
            Ok::<_, ()>(queue(rate, 100_000.0))
        });
        assert!(found.unwrap().best.is_none());
    }

    #[test]
    fn bounds_are_read_from_text() {
        let bound: Bound = "p99.9=500us".parse().unwrap();
        assert_eq!(bound.most, Duration::from_micros(500));
        assert_eq!("avg=1ms".parse::<Bound>().unwrap().to_string(), "avg ≤ 1ms");
        for wrong in [
            "", "avg", "avg=1", "p=1ms", "p101=1ms", "med=1ms", "avg=-1ms",
        ] {
            assert!(wrong.parse::<Bound>().is_err(), "{wrong}");
        }
    }
}
