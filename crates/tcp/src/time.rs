//! Points in time, as the caller gives them to the stack.

use std::ops::Add;
use std::time::Duration;

/// A moment on the caller's monotonic clock, in microseconds since a beginning of its choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Instant {
    micros: u64,
}

impl Instant {
    /// Later than all.
    pub const NEVER: Instant = Instant { micros: u64::MAX };

    /// The moment `micros` microseconds after the beginning.
    #[inline]
    pub const fn from_micros(micros: u64) -> Instant {
        Instant { micros }
    }

    /// Microseconds since the beginning.
    #[inline]
    pub const fn micros(self) -> u64 {
        self.micros
    }

    /// Milliseconds since the beginning.
    #[inline]
    pub const fn millis(self) -> u64 {
        self.micros / 1000
    }

    /// Milliseconds since the beginning, on a clock of 32 bits that wraps around after 49 days.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "the clock wraps around")]
    pub const fn wrapping_millis(self) -> u32 {
        self.millis() as u32
    }

    /// Microseconds since `earlier`; 0 if that is later.
    #[inline]
    pub const fn micros_since(self, earlier: Instant) -> u64 {
        self.micros.saturating_sub(earlier.micros)
    }

    /// The moment `micros` microseconds later.
    #[inline]
    #[must_use]
    pub const fn after(self, micros: u64) -> Instant {
        Instant {
            micros: self.micros.saturating_add(micros),
        }
    }
}

impl Add<Duration> for Instant {
    type Output = Instant;

    fn add(self, time: Duration) -> Instant {
        self.after(u64::try_from(time.as_micros()).unwrap_or(u64::MAX))
    }
}
