//! Wall-clock time as items carry it: whole seconds, or milliseconds where a client asks for them.

/// Seconds since the Unix epoch, as the caller's clock has them. The store never reads a clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnixSeconds(pub u32);

/// A moment to the millisecond, as the caller's clock has it.
///
/// ```text
/// 63                              32 31                 10 9              0
/// +---------------------------------+---------------------+----------------+
/// |  seconds since the Unix epoch   |          0          |  milliseconds  |
/// +---------------------------------+---------------------+----------------+
/// ```
/// So moments compare as numbers do, and the second is found without a division.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnixTime(u64);

impl UnixTime {
    /// The moment `millis` milliseconds after the Unix epoch, or the last one that there is, in the
    /// year 2106.
    pub const fn of_millis(millis: u64) -> UnixTime {
        let second = millis / 1000;
        if second > u32::MAX as u64 {
            return UnixTime(((u32::MAX as u64) << 32) | 999);
        }
        UnixTime((second << 32) | (millis % 1000))
    }

    /// The second that the moment is in.
    #[inline]
    pub const fn second(self) -> UnixSeconds {
        UnixSeconds((self.0 >> 32) as u32)
    }

    /// Milliseconds since the Unix epoch.
    pub const fn millis(self) -> u64 {
        (self.0 >> 32) * 1000 + (self.0 & 0xffff_ffff)
    }
}

impl From<UnixSeconds> for UnixTime {
    #[inline]
    fn from(second: UnixSeconds) -> UnixTime {
        UnixTime(u64::from(second.0) << 32)
    }
}

/// When an item dies: a moment, or never.
///
/// An item is dead from that moment on (`expiry <= now`), as in memcached. An expiry at a whole
/// second takes four bytes in an item, any other eight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Expiry(u64);

impl Expiry {
    /// The item stays until it is evicted, deleted or flushed.
    pub const NEVER: Expiry = Expiry(0);

    /// Dies at `second`. Zero stands for [`Expiry::NEVER`].
    #[inline]
    pub const fn at(second: UnixSeconds) -> Expiry {
        Expiry((second.0 as u64) << 32)
    }

    /// Dies `millis` milliseconds after the Unix epoch. Zero stands for [`Expiry::NEVER`].
    pub const fn at_millis(millis: u64) -> Expiry {
        Expiry(UnixTime::of_millis(millis).0)
    }

    /// The second from whose beginning on the item is dead, or `None` where it never dies.
    pub const fn second(self) -> Option<UnixSeconds> {
        if self.0 == 0 {
            None
        } else {
            Some(UnixSeconds(self.second_up()))
        }
    }

    /// The moment in milliseconds since the Unix epoch, or `None` where it never dies.
    pub const fn millis(self) -> Option<u64> {
        if self.0 == 0 {
            None
        } else {
            Some(UnixTime(self.0).millis())
        }
    }

    /// Whether the item is dead at `now`.
    #[inline]
    pub fn is_past(self, now: impl Into<UnixTime>) -> bool {
        self.0 != 0 && self.0 <= now.into().0
    }

    /// Whether both are moments, and this one comes first.
    pub(crate) const fn is_before(self, other: Expiry) -> bool {
        self.0 != 0 && self.0 < other.0
    }

    /// Itself, or `None` for [`Expiry::NEVER`]: what an item needs room for.
    pub(crate) const fn given(self) -> Option<Expiry> {
        if self.0 == 0 { None } else { Some(self) }
    }

    /// Whether it is at no whole second, so that four bytes do not hold it.
    #[inline]
    pub(crate) const fn is_fine(self) -> bool {
        self.0 & 0xffff_ffff != 0
    }

    /// The whole second, for four bytes of an item; 0 for never.
    #[inline]
    pub(crate) const fn coarse(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// What [`Expiry::coarse`] has returned.
    #[inline]
    pub(crate) const fn of_coarse(second: u32) -> Expiry {
        Expiry((second as u64) << 32)
    }

    /// The second, rounded up; 0 for never.
    pub(crate) const fn second_up(self) -> u32 {
        self.coarse().saturating_add(self.is_fine() as u32)
    }

    /// All of it, for eight bytes of an item.
    pub(crate) const fn fine(self) -> u64 {
        self.0
    }

    /// What [`Expiry::fine`] has returned.
    pub(crate) const fn of_fine(bits: u64) -> Expiry {
        Expiry(bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn milliseconds_come_back() {
        for millis in [
            0,
            1,
            999,
            1000,
            1_700_000_000_250,
            u64::from(u32::MAX) * 1000 + 999,
        ] {
            let time = UnixTime::of_millis(millis);
            assert_eq!(time.millis(), millis);
            assert_eq!(u64::from(time.second().0), millis / 1000);
            assert_eq!(Expiry::at_millis(millis).millis().unwrap_or(0), millis);
        }
        assert_eq!(
            UnixTime::of_millis(u64::MAX).second(),
            UnixSeconds(u32::MAX)
        );
    }

    #[test]
    fn an_expiry_is_past_from_its_millisecond_on() {
        let expiry = Expiry::at_millis(10_250);
        assert!(!expiry.is_past(UnixTime::of_millis(10_249)));
        assert!(expiry.is_past(UnixTime::of_millis(10_250)));
        assert_eq!(expiry.second(), Some(UnixSeconds(11)));
        assert!(expiry.is_fine() && !Expiry::at(UnixSeconds(10)).is_fine());
        assert_eq!(Expiry::at_millis(10_000), Expiry::at(UnixSeconds(10)));
        assert!(!Expiry::NEVER.is_past(UnixTime::of_millis(u64::MAX)));
        assert!(expiry.is_before(Expiry::at_millis(10_251)));
        assert!(!Expiry::NEVER.is_before(expiry) && !expiry.is_before(Expiry::NEVER));
    }
}
