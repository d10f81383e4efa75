//! The server's time: read once a turn and passed on as a value.

#[cfg(feature = "simulated")]
use std::sync::Arc;
#[cfg(feature = "simulated")]
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use coua_store::{UnixSeconds, UnixTime};

/// Wall-clock time at the start, continued by the monotonic clock, so that a step of the wall clock
/// neither expires items nor keeps them for ever.
#[derive(Clone, Debug)]
pub struct Clock {
    start: Start,
    start_since_epoch: Duration,
}

/// How the time since the start is measured.
#[derive(Clone, Debug)]
enum Start {
    Monotonic(Instant),
    /// The milliseconds themselves, which a simulation increments.
    #[cfg(feature = "simulated")]
    Simulated(Arc<AtomicU64>),
}

/// One reading of the clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// Wall-clock time, in whole seconds.
    pub unix: UnixSeconds,
    /// The same, to the millisecond.
    pub time: UnixTime,
    /// Milliseconds since the server's start, monotonic.
    pub since_start_ms: u64,
}

impl Clock {
    /// Starts the clock.
    pub fn start() -> Clock {
        Clock {
            start: Start::Monotonic(Instant::now()),
            start_since_epoch: SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .unwrap_or_default(),
        }
    }

    /// A clock that started `start_since_epoch` and shows `since_start_ms` milliseconds since then.
    #[cfg(feature = "simulated")]
    pub fn simulated(start_since_epoch: Duration, since_start_ms: Arc<AtomicU64>) -> Clock {
        Clock {
            start: Start::Simulated(since_start_ms),
            start_since_epoch,
        }
    }

    /// Reads the clock.
    pub fn now(&self) -> Now {
        self.at(self.since_start())
    }

    /// The time since the start.
    #[inline]
    pub fn since_start(&self) -> Duration {
        match &self.start {
            Start::Monotonic(start) => start.elapsed(),
            #[cfg(feature = "simulated")]
            Start::Simulated(ms) => Duration::from_millis(ms.load(Relaxed)),
        }
    }

    /// The reading at this time since the start.
    #[inline]
    pub fn at(&self, since_start: Duration) -> Now {
        let since_epoch = self.start_since_epoch + since_start;
        let time = UnixTime::of_millis(u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX));
        Now {
            unix: time.second(),
            time,
            since_start_ms: u64::try_from(since_start.as_millis()).unwrap_or(u64::MAX),
        }
    }

    /// When the server started.
    pub fn started(&self) -> UnixSeconds {
        UnixSeconds(u32::try_from(self.start_since_epoch.as_secs()).unwrap_or(u32::MAX))
    }
}
