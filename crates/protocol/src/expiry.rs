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

/// The item that [`crate::Meta::walk_ttl`] begins with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TtlStart {
    /// Its expiry in unix seconds, 0 for never.
    pub expiry: u32,
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
    /// The item's expiry from now on, in unix seconds, 0 for never.
    pub expiry: u32,
    /// The expiry that the flag `t` reports.
    pub expiry_shown: u32,
    /// This client has won (`W`): mark it in the item.
    pub won: bool,
}

impl TtlWalk {
    /// What the flag `t` answers: seconds left, 0 if the item has expired, negative if it never
    /// will.
    #[must_use]
    pub fn ttl_shown(&self, now_unix: u32) -> i64 {
        match self.expiry_shown {
            0 => -1,
            expiry => i64::from(expiry.saturating_sub(now_unix)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::expiry;

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
