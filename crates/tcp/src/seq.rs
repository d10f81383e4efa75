//! Sequence numbers, which wrap around (RFC 9293, section 3.4).

use std::cmp::Ordering;
use std::fmt;
use std::ops::{Add, AddAssign, Sub};

/// A position in the byte stream of one direction.
///
/// They compare modulo 2^32: their distance must be below 2^31.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct SeqNumber(pub u32);

impl SeqNumber {
    /// The later of the two.
    #[inline]
    #[must_use]
    pub fn max(self, other: SeqNumber) -> SeqNumber {
        if other > self { other } else { self }
    }

    /// The earlier of the two.
    #[inline]
    #[must_use]
    pub fn min(self, other: SeqNumber) -> SeqNumber {
        if other < self { other } else { self }
    }

    /// Bytes from `earlier` to this; 0 if this is the earlier one.
    #[inline]
    #[must_use]
    pub fn since(self, earlier: SeqNumber) -> u32 {
        let distance = self.0.wrapping_sub(earlier.0);
        if distance < 1 << 31 { distance } else { 0 }
    }
}

impl fmt::Debug for SeqNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl PartialOrd for SeqNumber {
    #[inline]
    fn partial_cmp(&self, other: &SeqNumber) -> Option<Ordering> {
        // The sign of the difference modulo 2^32.
        Some(self.0.wrapping_sub(other.0).cast_signed().cmp(&0))
    }
}

impl Add<u32> for SeqNumber {
    type Output = SeqNumber;

    #[inline]
    fn add(self, bytes: u32) -> SeqNumber {
        SeqNumber(self.0.wrapping_add(bytes))
    }
}

impl AddAssign<u32> for SeqNumber {
    #[inline]
    fn add_assign(&mut self, bytes: u32) {
        *self = *self + bytes;
    }
}

impl Sub<u32> for SeqNumber {
    type Output = SeqNumber;

    #[inline]
    fn sub(self, bytes: u32) -> SeqNumber {
        SeqNumber(self.0.wrapping_sub(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_goes_round_the_circle() {
        let last = SeqNumber(u32::MAX);
        assert!(last + 1 > last);
        assert!(SeqNumber(0) > last);
        assert_eq!(SeqNumber(4).since(last), 5);
        assert_eq!(last.since(SeqNumber(4)), 0);
        assert_eq!(SeqNumber(3).max(last), SeqNumber(3));
        assert_eq!(SeqNumber(3).min(last), last);
        assert_eq!(SeqNumber(3) - 4, last);
    }
}
