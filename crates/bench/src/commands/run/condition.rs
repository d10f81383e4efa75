//! Conditions under which a load counts as failed, for scripts: `p99>1ms`, `errors>0`.

use std::fmt::{self, Display};
use std::str::FromStr;

use super::Outcome;
use super::sample::Sample;
use crate::load::{Bound, Measured};

/// A figure, a sign, and a limit.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Condition {
    figure: Figure,
    sign: Sign,
    limit: f64,
    /// The text of the flag.
    text: String,
}

#[derive(Clone, Debug, PartialEq)]
enum Figure {
    /// Requests a second: the median of the measurements.
    Rate,
    /// A latency in seconds, of all measurements together.
    Latency(Bound),
    /// A count, summed over the measurements.
    Count(&'static Count),
    /// The same, as a percentage.
    Share(&'static Count),
}

/// Something that is counted, and the whole that it is a share of.
#[derive(Debug)]
struct Count {
    name: &'static str,
    of: fn(&Sample) -> u64,
    whole: fn(&Sample) -> u64,
}

/// Each name has one count, so counts are the same if their names are.
impl PartialEq for Count {
    fn eq(&self, other: &Count) -> bool {
        self.name == other.name
    }
}

const fn count(name: &'static str, of: fn(&Sample) -> u64, whole: fn(&Sample) -> u64) -> Count {
    Count { name, of, whole }
}

fn looked_up(sample: &Sample) -> u64 {
    sample.hits + sample.misses
}

fn due(sample: &Sample) -> u64 {
    sample.requests + sample.lost + sample.unsent
}

static COUNTS: [Count; 7] = [
    count("hits", |s| s.hits, looked_up),
    count("misses", |s| s.misses, looked_up),
    count("errors", |s| s.errors, due),
    count("wrong", |s| s.wrong, looked_up),
    count("lost", |s| s.lost, due),
    count("unsent", |s| s.unsent, due),
    count("late", |s| s.late, due),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sign {
    Above,
    AtLeast,
    Below,
    AtMost,
}

impl Sign {
    /// In the order in which they are parsed: longer ones first.
    const ALL: [(&str, Sign); 4] = [
        (">=", Sign::AtLeast),
        ("<=", Sign::AtMost),
        (">", Sign::Above),
        ("<", Sign::Below),
    ];

    fn holds(self, value: f64, limit: f64) -> bool {
        match self {
            Sign::Above => value > limit,
            Sign::AtLeast => value >= limit,
            Sign::Below => value < limit,
            Sign::AtMost => value <= limit,
        }
    }
}

impl Condition {
    /// The message if this condition holds, so that the load has failed; none if not.
    pub(super) fn failure(&self, outcome: &Outcome, merged: &Measured) -> Option<String> {
        let sum = |of: fn(&Sample) -> u64| outcome.sum(of) as f64;
        let (value, shown) = match &self.figure {
            Figure::Rate => {
                let rate = outcome.median(|sample| sample.requests_per_second);
                (rate, format!("{rate:.0} requests/s"))
            }
            Figure::Latency(bound) => {
                let latency = bound.of(merged);
                (latency.as_secs_f64(), format!("{latency:.1?}"))
            }
            Figure::Count(count) => {
                let value = sum(count.of);
                (value, format!("{value:.0}"))
            }
            Figure::Share(count) => {
                let value = 100.0 * sum(count.of) / sum(count.whole).max(1.0);
                (value, format!("{value:.3} %"))
            }
        };
        let fails = self.sign.holds(value, self.limit);
        fails.then(|| format!("{self}, it is {shown}"))
    }
}

impl FromStr for Condition {
    type Err = String;

    fn from_str(text: &str) -> Result<Condition, String> {
        let expected = || {
            let counts = COUNTS.iter().map(|count| count.name).collect::<Vec<_>>();
            format!(
                "expected a figure, one of > < >= <=, and a limit, as in p99>1ms, avg>200us, max>1s, \
                 rate<50000, errors>0 or misses>1%; there are rate, avg, max, percentiles and {}",
                counts.join(", ")
            )
        };
        let signs = Sign::ALL.into_iter();
        let split = |(spelling, sign)| text.split_once(spelling).map(|parts| (parts, sign));
        let ((name, limit), sign) = signs.into_iter().find_map(split).ok_or_else(expected)?;
        let (name, limit) = (name.trim(), limit.trim());
        let number = |text: &str| text.parse::<f64>().ok().filter(|number| *number >= 0.0);
        let counted = COUNTS.iter().find(|count| count.name == name);
        let (figure, limit) = match (counted, limit.strip_suffix('%')) {
            (Some(count), Some(percent)) => (Figure::Share(count), number(percent)),
            (Some(count), None) => (Figure::Count(count), number(limit)),
            (None, _) if name == "rate" => (Figure::Rate, number(limit)),
            (None, _) => {
                let bound: Bound = format!("{name}={limit}").parse().map_err(|_| expected())?;
                let limit = bound.most().as_secs_f64();
                (Figure::Latency(bound), Some(limit))
            }
        };
        Ok(Condition {
            figure,
            sign,
            limit: limit.ok_or_else(expected)?,
            text: text.to_owned(),
        })
    }
}

impl Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_are_read_from_text() {
        for (text, sign, limit) in [
            ("p99>1ms", Sign::Above, 1e-3),
            ("p99.9 >= 2s", Sign::AtLeast, 2.0),
            ("max>500us", Sign::Above, 500e-6),
            ("rate<50000", Sign::Below, 50_000.0),
            ("errors>0", Sign::Above, 0.0),
            ("hits<=99.5%", Sign::AtMost, 99.5),
        ] {
            let condition: Condition = text.parse().unwrap();
            assert_eq!(condition.sign, sign, "{text}");
            assert!((condition.limit - limit).abs() < 1e-12, "{text}");
            assert_eq!(condition.to_string(), text);
        }
        for text in [
            "p99",
            "p99>1",
            "p99=1ms",
            "rate<1%",
            "rate<",
            "errors>x",
            "p101>1s",
            "ops>1",
            ">1",
            "misses>-1",
        ] {
            assert!(text.parse::<Condition>().is_err(), "{text}");
        }
    }
}
