//! Values: each key has its own, so that every byte that is read back can be checked.

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};

use super::sizes::Sizes;

/// Values: each is a stretch of one pool of letters; two keys have the same stretch once in 65,536.
#[derive(Debug)]
pub(crate) struct Values {
    pool: Vec<u8>,
    sizes: Sizes,
}

impl Values {
    const STRETCHES: usize = 1 << 16;

    /// Values of `size` bytes.
    pub(crate) fn new(size: usize) -> Values {
        Values::sized(Sizes::Fixed(size))
    }

    /// Values of these sizes.
    pub(crate) fn sized(sizes: Sizes) -> Values {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(0x76_61_6c_75_65);
        let pool = (0..Self::STRETCHES + sizes.max())
            .map(|_| random.random_range(b'a'..=b'z'))
            .collect();
        Values { pool, sizes }
    }

    /// Bytes of the largest value.
    pub(crate) fn size(&self) -> usize {
        self.sizes.max()
    }

    /// The sizes that make the same values with [`sized`](Self::sized).
    pub(crate) fn sizes(&self) -> &Sizes {
        &self.sizes
    }

    /// Bytes of a value, on average.
    pub(crate) fn size_mean(&self) -> f64 {
        self.sizes.mean()
    }

    /// The value of the key with this number: letters only, no line ends.
    #[inline]
    pub(crate) fn of(&self, number: u32) -> &[u8] {
        let start = (number.wrapping_mul(0x9e37_79b1) >> 16) as usize;
        &self.pool[start..start + self.sizes.of(number)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_differ_and_repeat() {
        let values = Values::new(16);
        assert_eq!(values.of(1), Values::new(16).of(1));
        assert!((2..1000).all(|number| values.of(number) != values.of(1)));
        assert!((0..1000).all(|number| values.of(number).len() == 16));
    }
}
