//! The Internet checksum (RFC 1071): the ones' complement sum of 16-bit words.

use super::Address;

/// A sum under way, of words in network order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[must_use]
pub struct Sum(u64);

impl Sum {
    /// Of nothing.
    pub const ZERO: Sum = Sum(0);

    /// Of `bytes`.
    #[inline]
    pub fn of(bytes: &[u8]) -> Sum {
        Sum::ZERO.with(bytes)
    }

    /// The sum with that of `bytes`, of which a last odd one counts as if a zero followed. All that
    /// was added before must have had an even length.
    #[inline]
    pub fn with(self, bytes: &[u8]) -> Sum {
        self.and(match bytes.len() {
            0..8 => sum_of_few(bytes),
            8..=16 => sum_of_short(bytes),
            17..VECTORS_FROM => sum_of_words(bytes),
            VECTORS_FROM.. => sum_of_long(bytes),
        })
    }

    /// As [`Sum::with`], of so many bytes, a multiple of four, that no loop is needed.
    #[inline(always)]
    pub(super) fn with_array<const LEN: usize>(self, bytes: &[u8; LEN]) -> Sum {
        const { assert!(LEN.is_multiple_of(4)) };
        let mut sum = self.0;
        let mut at = 0;
        while at < LEN {
            let word = [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]];
            sum += u64::from(u32::from_ne_bytes(word));
            at += 4;
        }
        Sum(sum)
    }

    /// The sum with a number's.
    #[inline]
    pub fn with_u16(self, number: u16) -> Sum {
        Sum(self.0 + u64::from(number.to_be()))
    }

    /// The sum with another.
    #[inline]
    pub fn and(self, other: Sum) -> Sum {
        Sum(self.0 + other.0)
    }

    /// The sum with that of four bytes, as [`Sum::with`].
    #[inline]
    pub fn with_u32(self, number: u32) -> Sum {
        Sum(self.0 + u64::from(number.to_be()))
    }

    /// The sum of the pseudo header of TCP, UDP or ICMPv6 (RFC 9293, section 3.1; RFC 8200,
    /// section 8.1), with the length of what it is put before.
    #[inline]
    pub fn pseudo_header(from: Address, to: Address, protocol: u8, len: usize) -> Sum {
        let sum = match from.is_v4() {
            true => Sum::of(&from.v4_octets()).with(&to.v4_octets()),
            false => Sum::of(&from.octets()).with(&to.octets()),
        };
        let len = u32::try_from(len).unwrap_or(u32::MAX);
        sum.with(&len.to_be_bytes()).with_u16(u16::from(protocol))
    }

    /// In 16 bits, not inverted, as a card wants it that goes on from there.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "folded to 16 bits")]
    pub fn folded(self) -> u16 {
        // Half is added to half, and what that carries to the end.
        let (sum, carries) = (self.0 as u32).overflowing_add((self.0 >> 32) as u32);
        let sum = sum + u32::from(carries);
        let both = sum.wrapping_add(sum.rotate_left(16));
        u16::from_be((both >> 16) as u16)
    }

    /// What is written into a header: the sum inverted.
    #[inline]
    pub fn checksum(self) -> u16 {
        !self.folded()
    }

    /// Whether it is the sum of something that holds its own right checksum.
    #[inline]
    pub fn is_right(self) -> bool {
        // Folding is counting modulo 2^16 - 1, of which only nothing at all gives zero.
        self.0 != 0 && self.0.is_multiple_of(0xffff)
    }
}

/// Bytes from which on a loop of vectors takes less time than one of words: a tenth less at 512
/// bytes, half at 4096.
const VECTORS_FROM: usize = 384;

// Words of any even length in the machine's order give the same sum but for the order of its two
// bytes (RFC 1071, section 2 B). Words of eight bytes are summed in 128 bits: an addition with its
// carry is all that a word takes.

/// The sum of less than 8 bytes.
#[cold]
fn sum_of_few(bytes: &[u8]) -> Sum {
    let mut word = [0; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    folded_once(u128::from(u64::from_ne_bytes(word)))
}

/// The sum of 8 to 16 bytes, as most replies without a value have.
#[inline]
fn sum_of_short(bytes: &[u8]) -> Sum {
    let last = last_word(bytes, bytes.len() - 8);
    folded_once(u128::from(word_at(bytes, 0)) + u128::from(last))
}

/// The sum of bytes by a loop that the compiler makes of vectors, and of what is left behind it.
#[inline(never)]
fn sum_of_long(bytes: &[u8]) -> Sum {
    let (lines, rest) = bytes.as_chunks::<32>();
    // The halves of the words, so that no carry is lost.
    let (mut low, mut high) = ([0u64; 4], [0u64; 4]);
    for line in lines {
        for (at, &word) in line.as_chunks::<8>().0.iter().enumerate() {
            let word = u64::from_ne_bytes(word);
            low[at] += word & 0xffff_ffff;
            high[at] += word >> 32;
        }
    }
    Sum(low.iter().chain(&high).sum()).with(rest)
}

/// The sum of 8 bytes and more.
fn sum_of_words(bytes: &[u8]) -> Sum {
    let mut sum = u128::from(last_word(bytes, bytes.len() % 8));
    let mut add = |words: &[u8], at: usize| sum += u128::from(word_at(words, at));
    let (lines, rest) = bytes.as_chunks::<32>();
    for line in lines {
        (0..32).step_by(8).for_each(|at| add(line, at));
    }
    // A loop over three words at most costs more than they.
    let (pairs, rest) = rest.as_chunks::<16>();
    if let [pair] = pairs {
        add(pair, 0);
        add(pair, 8);
    }
    if rest.len() >= 8 {
        add(rest, 0);
    }
    folded_once(sum)
}

/// The eight bytes from `at` on; zero where there are fewer.
#[inline(always)]
fn word_at(bytes: &[u8], at: usize) -> u64 {
    let word = bytes[at..].first_chunk();
    word.map_or(0, |&word| u64::from_ne_bytes(word))
}

/// The last `len` of eight bytes or more, as a word that goes on with zeros.
#[inline(always)]
fn last_word(bytes: &[u8], len: usize) -> u64 {
    let last = bytes
        .last_chunk()
        .map_or(0, |&word| u64::from_le_bytes(word));
    // The bytes before them go out at the word's low end.
    let shift = u32::try_from(64 - 8 * len).unwrap_or(64);
    last.unbounded_shr(shift).to_le()
}

/// A sum of words of eight bytes, of which fewer than 2^32 were added, as one of words of four.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "it is taken apart")]
fn folded_once(sum: u128) -> Sum {
    let (carries, sum) = ((sum >> 64) as u64, sum as u64);
    Sum((sum & 0xffff_ffff) + (sum >> 32) + carries)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Word by word, as the RFC defines it.
    fn defined(bytes: &[u8]) -> u16 {
        let mut sum = 0u32;
        for pair in bytes.chunks(2) {
            let word = u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
            sum += word;
            sum = (sum >> 16) + (sum & 0xffff);
        }
        u16::try_from(sum).expect("folded")
    }

    #[test]
    fn the_example_of_the_rfc() {
        // RFC 1071, section 3.
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(Sum::of(&bytes).folded(), 0xddf2);
    }

    #[test]
    fn carries_count() {
        for len in 0..600 {
            let bytes = vec![0xff; len];
            assert_eq!(Sum::of(&bytes).folded(), defined(&bytes), "{len} bytes");
        }
    }

    proptest! {
        #[test]
        fn it_is_as_defined(bytes in proptest::collection::vec(any::<u8>(), 0..1000)) {
            prop_assert_eq!(Sum::of(&bytes).folded(), defined(&bytes));
        }

        #[test]
        fn arrays_count_as_their_bytes(bytes in any::<[u8; 20]>(), before in any::<u16>()) {
            let before = Sum::ZERO.with_u16(before);
            prop_assert_eq!(before.with_array(&bytes).folded(), before.with(&bytes).folded());
        }

        #[test]
        fn parts_add_up(bytes in proptest::collection::vec(any::<u8>(), 2..300), at in 0usize..300) {
            let at = (at % bytes.len()) & !1;
            let sum = Sum::of(&bytes[..at]).with(&bytes[at..]);
            prop_assert_eq!(sum.folded(), defined(&bytes));
        }

        #[test]
        fn what_holds_its_checksum_is_right(bytes in proptest::collection::vec(any::<u8>(), 2..300)) {
            let mut bytes = bytes;
            bytes[..2].fill(0);
            let checksum = Sum::of(&bytes).checksum();
            bytes[..2].copy_from_slice(&checksum.to_be_bytes());
            prop_assert!(Sum::of(&bytes).is_right());
            bytes[0] ^= 1;
            prop_assert!(!Sum::of(&bytes).is_right());
        }
    }
}
