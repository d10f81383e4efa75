//! Time as the server sees it: read once a turn, handed down as a value.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use coua_store::UnixSeconds;

/// Wall-clock time at the start, carried on by the monotonic clock, so that a step of the wall
/// clock neither kills items nor makes them immortal.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: Instant,
    start_since_epoch: Duration,
}

/// One reading of the clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// Wall-clock time.
    pub unix: UnixSeconds,
    /// Milliseconds since the server's start, monotonic.
    pub since_start_ms: u64,
}

impl Clock {
    /// Starts the clock.
    pub fn start() -> Clock {
        Clock {
            start: Instant::now(),
            start_since_epoch: SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .unwrap_or_default(),
        }
    }

    /// Reads the clock.
    pub fn now(&self) -> Now {
        let since_start = self.start.elapsed();
        let since_epoch = self.start_since_epoch + since_start;
        Now {
            unix: UnixSeconds(u32::try_from(since_epoch.as_secs()).unwrap_or(u32::MAX)),
            since_start_ms: u64::try_from(since_start.as_millis()).unwrap_or(u64::MAX),
        }
    }

    /// When the server started.
    pub fn started(&self) -> UnixSeconds {
        UnixSeconds(u32::try_from(self.start_since_epoch.as_secs()).unwrap_or(u32::MAX))
    }
}
