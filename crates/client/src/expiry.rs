//! When an item expires.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// When an item expires, as the server takes it: in whole seconds.
///
/// The server reads a number above 30 days as a time of the clock. [`Expiry::after`] sends such a time
/// where the duration is longer, so any duration means what it says.
///
/// ```
/// use coua_client::Expiry;
/// use std::time::Duration;
///
/// let _never = Expiry::NEVER;
/// let _hour = Expiry::after(Duration::from_secs(3600));
/// let _year: Expiry = Duration::from_secs(365 * 86_400).into();
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Expiry(i64);

impl Expiry {
    /// The item stays until it is deleted or evicted.
    pub const NEVER: Expiry = Expiry(0);

    /// The item is expired at once.
    pub const NOW: Expiry = Expiry(-1);

    /// The longest number of seconds that the server does not read as a time of the clock.
    const RELATIVE_MAX: u64 = 30 * 86_400;

    /// After a duration from now, rounded up to whole seconds; a duration of 0 expires at once.
    #[must_use]
    pub fn after(duration: Duration) -> Expiry {
        let seconds = duration
            .as_secs()
            .saturating_add(u64::from(duration.subsec_nanos() > 0));
        match seconds {
            0 => Expiry::NOW,
            1..=Self::RELATIVE_MAX => Expiry(i64::try_from(seconds).unwrap_or(i64::MAX)),
            _ => Expiry::at(SystemTime::now().checked_add(duration)),
        }
    }

    /// At a time of the clock, rounded up to whole seconds; `None` is [`Expiry::NEVER`].
    #[must_use]
    pub fn at(time: impl Into<Option<SystemTime>>) -> Expiry {
        let Some(time) = time.into() else {
            return Expiry::NEVER;
        };
        let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
        let seconds = since
            .as_secs()
            .saturating_add(u64::from(since.subsec_nanos() > 0));
        match seconds {
            0..=Self::RELATIVE_MAX => Expiry::NOW,
            // The server keeps 31 bits of it; what lies beyond does not expire in its life.
            _ if seconds > i32::MAX as u64 => Expiry::NEVER,
            _ => Expiry(i64::try_from(seconds).unwrap_or(0)),
        }
    }

    /// The number exactly as it is sent: 0 for never, negative for expired, up to 2,592,000 for
    /// seconds from now, above it for seconds since 1970.
    #[must_use]
    pub const fn from_wire(number: i32) -> Expiry {
        Expiry(number as i64)
    }

    pub(crate) const fn wire(self) -> i64 {
        self.0
    }
}

impl From<Duration> for Expiry {
    fn from(duration: Duration) -> Expiry {
        Expiry::after(duration)
    }
}

impl From<SystemTime> for Expiry {
    fn from(time: SystemTime) -> Expiry {
        Expiry::at(time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sent() {
        assert_eq!(Expiry::after(Duration::ZERO), Expiry::NOW);
        assert_eq!(Expiry::after(Duration::from_millis(1)).wire(), 1);
        assert_eq!(Expiry::after(Duration::from_millis(1001)).wire(), 2);
        let days = |days: u64| Duration::from_secs(days * 86_400);
        assert_eq!(Expiry::after(days(30)).wire(), 30 * 86_400);
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = i64::try_from(now.expect("after 1970").as_secs()).expect("small");
        assert!(Expiry::after(days(31)).wire() >= now + 31 * 86_400);
        assert_eq!(Expiry::after(Duration::MAX), Expiry::NEVER);
        assert_eq!(Expiry::at(UNIX_EPOCH), Expiry::NOW);
        assert_eq!(
            Expiry::at(UNIX_EPOCH + days(20_000)).wire(),
            20_000 * 86_400
        );
        assert_eq!(Expiry::from_wire(-7).wire(), -7);
    }
}
