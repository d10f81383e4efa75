//! Which operations are done to the keys, and in which proportion.

use std::fmt::{self, Display};
use std::str::FromStr;

use rand::Rng;

use super::weighted::Weighted;

/// An operation of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    /// Reads the value.
    Get,
    /// Reads the value and its CAS.
    Gets,
    /// Reads the value and renews its lifetime.
    Gat,
    /// Stores a value.
    Set,
    /// Stores a value if the key is missing.
    Add,
    /// Stores a value if the key is there.
    Replace,
    /// Removes the key.
    Delete,
    /// Adds one to the key's counter, which is an item of its own beside the value.
    Incr,
    /// Subtracts one from the key's counter.
    Decr,
    /// Renews the lifetime.
    Touch,
}

impl Op {
    /// All operations, with their names in the protocol.
    pub(crate) const NAMES: [(Op, &str); 10] = [
        (Op::Get, "get"),
        (Op::Gets, "gets"),
        (Op::Gat, "gat"),
        (Op::Set, "set"),
        (Op::Add, "add"),
        (Op::Replace, "replace"),
        (Op::Delete, "delete"),
        (Op::Incr, "incr"),
        (Op::Decr, "decr"),
        (Op::Touch, "touch"),
    ];

    /// Its name in the protocol.
    pub(crate) fn name(self) -> &'static str {
        Self::NAMES[self as usize].1
    }

    /// Whether the reply holds the value.
    pub(crate) fn reads(self) -> bool {
        matches!(self, Op::Get | Op::Gets | Op::Gat)
    }

    /// Whether the request holds the value.
    pub(crate) fn stores(self) -> bool {
        matches!(self, Op::Set | Op::Add | Op::Replace)
    }

    /// Whether it is about the key's counter.
    pub(crate) fn counts(self) -> bool {
        matches!(self, Op::Incr | Op::Decr)
    }
}

/// Operations and their shares.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Mix(Weighted<Op>);

impl Mix {
    /// One operation only.
    pub(crate) fn only(op: Op) -> Mix {
        Mix(Weighted::only(op))
    }

    /// Gets, and this fraction (0 to 1) of sets.
    pub(crate) fn with_sets(sets: f64) -> Mix {
        let sets = sets.clamp(0.0, 1.0);
        let weights = [(Op::Get, 1.0 - sets), (Op::Set, sets)];
        Mix(Weighted::new(&weights).expect("the weights add up to 1"))
    }

    /// The text from which `parse` reads exactly the same mix.
    pub(crate) fn spell(&self) -> String {
        self.0.spell(Op::name)
    }

    /// Whether any operation is about counters.
    pub(crate) fn counts(&self) -> bool {
        self.0.shares().any(|(op, _)| op.counts())
    }

    /// Draws one operation.
    #[inline]
    pub(crate) fn draw(&self, random: &mut impl Rng) -> Op {
        self.0.draw(random)
    }
}

impl FromStr for Mix {
    type Err = String;

    fn from_str(text: &str) -> Result<Mix, String> {
        let op = |name: &str| Op::NAMES.iter().find(|(_, known)| *known == name);
        let weighted = Weighted::parse(text, |name| op(name).map(|&(op, _)| op));
        weighted.map(Mix).ok_or_else(|| {
            let names: Vec<&str> = Op::NAMES.iter().map(|(_, name)| *name).collect();
            format!(
                "expected operations with their weights, as in get=90,set=10; there are {}",
                names.join(", ")
            )
        })
    }
}

impl Display for Mix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (op, share)) in self.0.shares().enumerate() {
            let comma = if index > 0 { ", " } else { "" };
            write!(f, "{comma}{} {:.1} %", op.name(), share * 100.0)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mix_is_read_and_shown() {
        let mix: Mix = "get=89.5,set=10,incr=0.5".parse().unwrap();
        assert_eq!(mix.to_string(), "get 89.5 %, set 10.0 %, incr 0.5 %");
        assert_eq!("get".parse(), Ok(Mix::only(Op::Get)));
        assert_eq!(Mix::with_sets(1.0), Mix::only(Op::Set));
    }

    #[test]
    fn names_stand_at_their_places() {
        for (place, (op, _)) in Op::NAMES.iter().enumerate() {
            assert_eq!(*op as usize, place);
        }
    }

    #[test]
    fn what_is_no_mix_is_refused() {
        for wrong in ["", "got=1", "get=-1", "get=x", "get=0", "get=inf"] {
            assert!(wrong.parse::<Mix>().is_err(), "{wrong}");
        }
    }
}
