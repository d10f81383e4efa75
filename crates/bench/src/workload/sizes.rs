//! Sizes of keys or values: each key has its own, the same in every run.
//!
//! A distribution is a table of its quantiles, 65,536 of them at equal steps, and a key's number
//! picks one. So a draw costs a multiplication and a load, whatever the distribution, and the size
//! of a value that is read back is known.

use std::fmt::{self, Display};
use std::sync::Arc;

/// How large the key or the value of each number is.
#[derive(Clone, Debug)]
pub(crate) enum Sizes {
    /// All the same.
    Fixed(usize),
    /// Picked from quantiles.
    Table {
        /// The text of the flag.
        text: Arc<str>,
        /// The sizes, in ascending order if the quantile function ascends.
        quantiles: Arc<[u32]>,
    },
}

impl Sizes {
    /// Quantiles in a table.
    const STEPS: u32 = 1 << 16;
    /// The largest size of a key or a value, in bytes.
    pub(crate) const MAX: usize = 64 << 20;

    /// The distribution that a flag spells `text` and whose quantile function is `quantile`. Its
    /// results are rounded down and kept between `least` and `most`.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "clamped to sizes before"
    )]
    pub(crate) fn of_quantiles(
        text: &str,
        least: usize,
        most: usize,
        quantile: impl Fn(f64) -> f64,
    ) -> Sizes {
        let sizes = (0..Self::STEPS).map(|step| {
            let at = (f64::from(step) + 0.5) / f64::from(Self::STEPS);
            quantile(at).clamp(least as f64, most as f64) as u32
        });
        Sizes::Table {
            text: text.into(),
            quantiles: sizes.collect(),
        }
    }

    /// The size of this number's key or value, in bytes.
    #[inline]
    pub(crate) fn of(&self, number: u32) -> usize {
        match self {
            Sizes::Fixed(size) => *size,
            // The factor differs from that of the values' content, so that size and content are
            // independent.
            Sizes::Table { quantiles, .. } => {
                quantiles[(number.wrapping_mul(0x85eb_ca6b) >> 16) as usize] as usize
            }
        }
    }

    /// The largest size.
    pub(crate) fn max(&self) -> usize {
        match self {
            Sizes::Fixed(size) => *size,
            Sizes::Table { quantiles, .. } => quantiles.iter().copied().max().unwrap_or(0) as usize,
        }
    }

    /// The mean over all quantiles.
    pub(crate) fn mean(&self) -> f64 {
        match self {
            Sizes::Fixed(size) => *size as f64,
            Sizes::Table { quantiles, .. } => {
                let sum: u64 = quantiles.iter().map(|&size| u64::from(size)).sum();
                sum as f64 / quantiles.len() as f64
            }
        }
    }

    /// Reads bytes or a uniform distribution, as in `100` or `10-1000`; none if `text` is neither,
    /// or is more than [`MAX`](Self::MAX).
    pub(super) fn parse(text: &str) -> Option<Sizes> {
        let bytes = |text: &str| text.parse::<usize>().ok().filter(|&size| size <= Self::MAX);
        let Some((least, most)) = text.split_once('-') else {
            return bytes(text).map(Sizes::Fixed);
        };
        let (least, most) = (bytes(least)?, bytes(most)?);
        let span = most.checked_sub(least)? as f64 + 1.0;
        Some(Sizes::of_quantiles(text, least, most, |at| {
            least as f64 + at * span
        }))
    }
}

/// As the flags take them.
impl Display for Sizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Sizes::Fixed(size) => write!(f, "{size}"),
            Sizes::Table { text, .. } => write!(f, "{text}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_uniform_with_both_ends() {
        let sizes = Sizes::parse("10-13").unwrap();
        let mut counts = [0u32; 4];
        for number in 0..40_000 {
            counts[sizes.of(number) - 10] += 1;
        }
        assert!(
            counts.iter().all(|count| (9_500..10_500).contains(count)),
            "{counts:?}"
        );
        assert_eq!((sizes.max(), sizes.mean()), (13, 11.5));
    }
}
