//! Keys: a number in hexadecimal digits, filled up to a fixed size.

/// Writes key numbers as keys of one size: `k` as often as needed, then up to eight hexadecimal
/// digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeyFormat {
    size: usize,
}

impl KeyFormat {
    /// Keys of ten bytes, for every number.
    pub(crate) const TEN: KeyFormat = KeyFormat { size: 10 };
    /// The longest key that a memcached takes.
    pub(crate) const SIZE_MAX: usize = 250;

    /// Keys of `size` bytes for the numbers below `keys`; none where so many numbers do not fit.
    pub(crate) fn new(size: usize, keys: u32) -> Option<KeyFormat> {
        let fits = size >= 8 || u64::from(keys) <= 1u64 << (4 * size);
        (fits && (1..=Self::SIZE_MAX).contains(&size)).then_some(KeyFormat { size })
    }

    /// Bytes a key.
    pub(crate) const fn size(self) -> usize {
        self.size
    }

    /// Fills `key`, which is [`size`](Self::size) bytes long.
    pub(crate) fn write(self, number: u32, key: &mut [u8]) {
        let digits = hexadecimal(number);
        match self.size.checked_sub(8) {
            Some(filling) => {
                key[..filling].fill(b'k');
                key[filling..].copy_from_slice(&digits);
            }
            None => key.copy_from_slice(&digits[8 - self.size..]),
        }
    }

    /// Appends the key to `out`.
    pub(crate) fn append(self, number: u32, out: &mut Vec<u8>) {
        let start = out.len();
        out.resize(start + self.size, b'k');
        self.write(number, &mut out[start..]);
    }
}

/// Eight digits at once: nibbles are spread to bytes, and bytes above 9 are lifted to the letters.
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
    fn numbers_that_do_not_fit_are_refused() {
        assert!(KeyFormat::new(3, 4097).is_none());
        assert!(KeyFormat::new(0, 1).is_none());
        assert!(KeyFormat::new(251, 1).is_none());
        assert!(KeyFormat::new(8, u32::MAX).is_some());
    }
}
