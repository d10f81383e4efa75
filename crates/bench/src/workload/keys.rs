//! Keys: a number in hexadecimal digits, padded to its size.

use thiserror::Error as ThisError;

use super::sizes::Sizes;

/// Writes key numbers as keys of one size: `k` as often as needed, then up to eight hexadecimal
/// digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeyFormat {
    size: usize,
}

/// The error if a key size has no room for so many numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ThisError)]
#[error(
    "--key-size {size}: {keys} different keys do not fit into this size; sizes from 8 to {} take any \
     number",
    KeyFormat::SIZE_MAX
)]
pub(crate) struct TooManyKeys {
    size: usize,
    keys: u32,
}

impl KeyFormat {
    /// Keys of ten bytes, for every number.
    pub(crate) const TEN: KeyFormat = KeyFormat { size: 10 };
    /// What pads a key before its digits.
    const FILLING: u8 = b'k';
    /// The longest key that memcached accepts.
    pub(crate) const SIZE_MAX: usize = 250;

    /// Keys of `size` bytes for the numbers below `keys`.
    ///
    /// # Errors
    /// If so many numbers do not fit, or no key may have this size.
    pub(crate) fn new(size: usize, keys: u32) -> Result<KeyFormat, TooManyKeys> {
        let fits = size >= 8 || u64::from(keys) <= 1u64 << (4 * size);
        match fits && (1..=Self::SIZE_MAX).contains(&size) {
            true => Ok(KeyFormat { size }),
            false => Err(TooManyKeys { size, keys }),
        }
    }

    /// Bytes of a key.
    pub(crate) const fn size(self) -> usize {
        self.size
    }

    /// Fills `key`, which is [`size`](Self::size) bytes long.
    pub(crate) fn write(self, number: u32, key: &mut [u8]) {
        key[..self.size.saturating_sub(8)].fill(Self::FILLING);
        self.rewrite(number, key);
    }

    /// Like [`write`](Self::write), into a buffer that already holds another key of this format.
    #[inline]
    pub(crate) fn rewrite(self, number: u32, key: &mut [u8]) {
        let digits = hexadecimal(number);
        match key.last_chunk_mut::<8>() {
            Some(place) => *place = digits,
            None => key.copy_from_slice(&digits[8 - self.size..]),
        }
    }

    /// Whether `key` is this number's key.
    #[inline]
    pub(crate) fn is(self, number: u32, key: &[u8]) -> bool {
        let digits = hexadecimal(number);
        match key.split_last_chunk::<8>() {
            _ if key.len() != self.size => false,
            Some((filling, end)) => {
                *end == digits && filling.iter().all(|byte| *byte == Self::FILLING)
            }
            None => *key == digits[8 - self.size..],
        }
    }

    /// Appends the key to `out`.
    #[inline]
    pub(crate) fn append(self, number: u32, out: &mut Vec<u8>) {
        let digits = hexadecimal(number);
        match self.size.checked_sub(8) {
            Some(filling) => {
                if filling > 0 {
                    out.resize(out.len() + filling, Self::FILLING);
                }
                out.extend_from_slice(&digits);
            }
            None => out.extend_from_slice(&digits[8 - self.size..]),
        }
    }
}

/// Keys of different sizes.
///
/// A number's key is that of a [`KeyFormat`] of its size. If the digits of the largest number need
/// more bytes, its size is theirs: keys of one size differ in their digits.
#[derive(Clone, Debug)]
pub(crate) struct Keys {
    sizes: Sizes,
    least: usize,
    count: u32,
}

impl Keys {
    /// The longest key, less the one byte that is added for a counter's key.
    pub(crate) const SIZE_MAX: usize = KeyFormat::SIZE_MAX - 1;

    /// Keys for the numbers below `count`; none if they do not fit a fixed size, or if keys would
    /// be too long.
    pub(crate) fn new(sizes: Sizes, count: u32) -> Option<Keys> {
        let digits = (count.max(2) - 1).ilog(16) as usize + 1;
        let fits = match sizes {
            Sizes::Fixed(size) => size >= digits,
            Sizes::Table { .. } => true,
        };
        (fits && sizes.max() <= Self::SIZE_MAX).then_some(Keys {
            sizes,
            least: digits,
            count,
        })
    }

    /// The arguments that make the same keys with [`new`](Self::new).
    pub(crate) fn parts(&self) -> (&Sizes, u32) {
        (&self.sizes, self.count)
    }

    /// Appends the key to `out`.
    #[inline]
    pub(crate) fn append(&self, number: u32, out: &mut Vec<u8>) {
        let size = self.sizes.of(number).max(self.least);
        KeyFormat { size }.append(number, out);
    }

    /// Whether `key` is this number's key.
    #[inline]
    pub(crate) fn is(&self, number: u32, key: &[u8]) -> bool {
        let size = self.sizes.of(number).max(self.least);
        KeyFormat { size }.is(number, key)
    }

    /// Bytes of a key, on average.
    pub(crate) fn size_mean(&self) -> f64 {
        self.sizes.mean().max(self.least as f64)
    }

    /// Writes the key to the front of `buffer` and returns it.
    #[inline]
    pub(crate) fn write<'a>(
        &self,
        number: u32,
        buffer: &'a mut [u8; KeyFormat::SIZE_MAX],
    ) -> &'a [u8] {
        let key = &mut buffer[..self.sizes.of(number).max(self.least)];
        KeyFormat { size: key.len() }.write(number, key);
        key
    }
}

impl From<KeyFormat> for Keys {
    fn from(format: KeyFormat) -> Keys {
        Keys {
            sizes: Sizes::Fixed(format.size),
            least: format.size,
            // As many as the digits can tell apart.
            count: match format.size {
                size @ 0..8 => 1 << (4 * size),
                _ => u32::MAX,
            },
        }
    }
}

/// Makes all eight digits at once: nibbles are spread to bytes, and bytes above 9 become letters.
#[inline]
fn hexadecimal(number: u32) -> [u8; 8] {
    let mut x = u64::from(number);
    x = (x | x << 16) & 0x0000_ffff_0000_ffff;
    x = (x | x << 8) & 0x00ff_00ff_00ff_00ff;
    x = (x | x << 4) & 0x0f0f_0f0f_0f0f_0f0f;
    let letters = ((x + 0x0606_0606_0606_0606) >> 4) & 0x0101_0101_0101_0101;
    (x + 0x3030_3030_3030_3030 + letters * 0x27).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_those_of_the_formatter() {
        for number in [0, 1, 9, 10, 0xf, 0x10, 0xabcd_ef01, 0x1234_5678, u32::MAX] {
            assert_eq!(hexadecimal(number), format!("{number:08x}").as_bytes());
        }
    }

    #[test]
    fn keys_have_their_size() {
        let mut out = Vec::new();
        KeyFormat::new(10, 1000).unwrap().append(0x2a, &mut out);
        KeyFormat::new(3, 4096).unwrap().append(0xfff, &mut out);
        assert_eq!(out, b"kk0000002afff");
    }

    #[test]
    fn keys_of_many_sizes_are_all_different() {
        let sizes = Sizes::of_quantiles("1-12", 1, 12, |at| 1.0 + at * 12.0);
        let keys = Keys::new(sizes, 10_000).unwrap();
        let mut seen = std::collections::HashSet::new();
        for number in 0..10_000 {
            let mut key = Vec::new();
            keys.append(number, &mut key);
            assert_eq!(keys.write(number, &mut [0; 250]), key);
            assert!(keys.is(number, &key) && !keys.is(number ^ 1, &key));
            assert!((4..=12).contains(&key.len()) && seen.insert(key));
        }
        assert!(Keys::new(Sizes::Fixed(3), 4097).is_none());
        assert!(Keys::new(Sizes::Fixed(3), 4096).is_some());
        assert!(Keys::new(Sizes::Fixed(250), 1).is_none());
    }

    #[test]
    fn numbers_that_do_not_fit_are_refused() {
        assert!(KeyFormat::new(3, 4097).is_err());
        assert!(KeyFormat::new(0, 1).is_err());
        assert!(KeyFormat::new(251, 1).is_err());
        assert!(KeyFormat::new(8, u32::MAX).is_ok());
    }
}
