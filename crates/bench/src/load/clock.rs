//! The time since the engine was made.

use std::time::{Duration, Instant};

/// A clock in nanoseconds, which fit 64 bits for 584 years.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock(Instant);

impl Clock {
    /// Starts the clock.
    pub(super) fn start() -> Clock {
        Clock(Instant::now())
    }

    /// Nanoseconds since the beginning.
    #[inline]
    pub(super) fn now_ns(self) -> u64 {
        nanoseconds(self.0.elapsed())
    }
}

/// A duration in whole nanoseconds.
#[inline]
pub(super) fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
