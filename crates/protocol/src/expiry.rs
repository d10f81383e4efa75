//! When an item expires: how memcached reads the expiry on the wire.

/// Above this many seconds an expiry is a point in time, not a duration.
pub const RELATIVE_MAX: i32 = 60 * 60 * 24 * 30;

/// The absolute expiry in unix seconds, 0 for never.
///
/// `raw` is what the client sent. 0 never expires; a negative number has expired already. Up to
/// thirty days, it counts from `now_unix`; above that it is unix time, and a time up to
/// `started_unix` (when the server began) has expired already. An expired item gets `started_unix`,
/// which must not be after `now_unix`.
#[inline]
#[must_use]
pub fn expiry(raw: i32, now_unix: u32, started_unix: u32) -> u32 {
    let ended = started_unix.max(1);
    match raw {
        0 => 0,
        1..=RELATIVE_MAX => now_unix.saturating_add(raw.unsigned_abs()),
        i32::MIN..0 => ended,
        _ => raw.unsigned_abs().max(ended),
    }
}

/// An expiry as a client sends it: in seconds, as everywhere in memcached, or in milliseconds
/// (`T250ms`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Exptime(
    /// The number, and 1 below it for milliseconds. Requests are copied, so it is eight bytes.
    i64,
);

impl From<i32> for Exptime {
    #[inline]
    fn from(seconds: i32) -> Self {
        Exptime(i64::from(seconds) << 1)
    }
}

impl Exptime {
    /// A number of milliseconds.
    #[must_use]
    pub fn of_millis(number: i64) -> Self {
        Exptime(number.clamp(i64::MIN >> 1, i64::MAX >> 1) << 1 | 1)
    }

    /// The number of seconds; `None` if it is milliseconds.
    #[inline]
    #[must_use]
    pub fn seconds(self) -> Option<i32> {
        match self.0 & 1 {
            0 => i32::try_from(self.0 >> 1).ok(),
            _ => None,
        }
    }

    /// The absolute expiry in milliseconds of unix time, 0 for never, by the rules of [`expiry`].
    #[must_use]
    pub fn expiry_ms(self, now_unix_ms: u64, started_unix: u32) -> u64 {
        if let Some(seconds) = self.seconds() {
            let now = u32::try_from(now_unix_ms / 1000).unwrap_or(u32::MAX);
            return u64::from(expiry(seconds, now, started_unix)) * 1000;
        }
        let ended = u64::from(started_unix.max(1)) * 1000;
        match self.0 >> 1 {
            0 => 0,
            ms @ 1..=RELATIVE_MAX_MS => now_unix_ms + ms.unsigned_abs(),
            i64::MIN..0 => ended,
            ms => ms.unsigned_abs().max(ended),
        }
    }
}

/// [`RELATIVE_MAX`] in milliseconds.
const RELATIVE_MAX_MS: i64 = RELATIVE_MAX as i64 * 1000;

/// The item that [`crate::Meta::walk_ttl`] begins with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TtlStart {
    /// Its expiry in milliseconds of unix time, 0 for never.
    pub expiry_ms: u64,
    /// This request has just created it.
    pub created: bool,
    /// It is marked stale.
    pub stale: bool,
    /// Some client has been told that it won.
    pub token_sent: bool,
}

/// The result of a walk over the time flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TtlWalk {
    /// The item's expiry from now on, in milliseconds of unix time, 0 for never.
    pub expiry_ms: u64,
    /// The expiry that the flag `t` reports.
    pub expiry_shown_ms: u64,
    /// This client has won (`W`): mark it in the item.
    pub won: bool,
}

impl TtlWalk {
    /// What the flag `t` answers: seconds left, rounded up, 0 if the item has expired, negative if it
    /// never will.
    #[must_use]
    pub fn ttl_shown(&self, now_unix_ms: u64) -> i64 {
        match self.expiry_shown_ms {
            0 => -1,
            expiry => {
                let left = expiry.saturating_sub(now_unix_ms).div_ceil(1000);
                i64::try_from(left).unwrap_or(i64::MAX)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Exptime, expiry};

    #[test]
    fn milliseconds_go_by_the_rules_of_seconds() {
        const NOW: u64 = 1_800_000_000_250;
        const STARTED: u32 = 1_799_000_000;
        const ENDED: u64 = STARTED as u64 * 1000;
        let table = [
            (Exptime::from(0), 0),
            (Exptime::from(1), 1_800_000_001_000),
            (Exptime::of_millis(0), 0),
            (Exptime::of_millis(1), NOW + 1),
            (Exptime::of_millis(2_592_000_000), NOW + 2_592_000_000),
            (Exptime::of_millis(2_592_000_001), ENDED),
            (Exptime::of_millis(-1), ENDED),
            (Exptime::of_millis(i64::MIN), ENDED),
            (Exptime::of_millis(1_800_000_000_777), 1_800_000_000_777),
            (Exptime::of_millis(i64::MAX), u64::MAX >> 2),
        ];
        for (sent, expected) in table {
            assert_eq!(sent.expiry_ms(NOW, STARTED), expected, "{sent:?}");
        }
    }

    #[test]
    fn every_range() {
        const NOW: u32 = 1_800_000_000;
        const STARTED: u32 = 1_799_000_000;
        let table = [
            (0, 0),
            (1, NOW + 1),
            (2_592_000, NOW + 2_592_000),
            (2_592_001, STARTED),
            (-1, STARTED),
            (i32::MIN, STARTED),
            (1_799_000_000, STARTED),
            (1_799_000_001, 1_799_000_001),
            (i32::MAX, 2_147_483_647),
        ];
        for (raw, expected) in table {
            assert_eq!(expiry(raw, NOW, STARTED), expected, "{raw}");
        }
        assert_eq!(expiry(-1, 0, 0), 1);
        assert_eq!(expiry(5, u32::MAX, 0), u32::MAX);
    }
}
