//! Whether a server is asked: ejection after failures, return after a while.
//!
//! ```text
//!             failures in a row                      the wait is over
//!   ┌──────┐ ─────────────────▶ ┌─────────┐ ─────────────────────────▶ ┌───────┐
//!   │ live │                    │ ejected │ ◀───────────────────────── │ trial │
//!   └──────┘ ◀──────────┐       └─────────┘    it fails: longer wait   └───┬───┘
//!                       └──────────────── an answer ───────────────────────┘
//! ```

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// When servers are ejected, and for how long.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ejection {
    /// Failures in a row.
    pub(crate) failures: u32,
    /// The first wait; each failed trial doubles it.
    pub(crate) wait_min: Duration,
    /// The longest wait.
    pub(crate) wait_max: Duration,
    /// How long a trial may take before another one may begin.
    pub(crate) trial: Duration,
}

/// The state of one server. Time is an argument: milliseconds since any moment.
///
/// # Concurrency
/// Each number stands alone. Two threads that fail at once may both count, and an ejection may begin one
/// failure early or late; no order of stores makes a server stay ejected for good.
#[derive(Debug, Default)]
pub(crate) struct Health {
    failures: AtomicU32,
    /// When the next trial may begin; 0 while the server is live.
    trial_at_ms: AtomicU64,
    /// Ejections since the last answer.
    ejections: AtomicU32,
}

/// How a server comes to be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    /// It is live.
    Live,
    /// It is ejected, and this request tries it.
    Trial,
}

impl Health {
    pub(crate) fn is_live(&self) -> bool {
        self.trial_at_ms.load(Ordering::Relaxed) == 0
    }

    /// Whether the server may be asked. Of those who come when the wait is over, one gets the trial.
    pub(crate) fn admit(&self, now_ms: u64, ejection: &Ejection) -> Option<Admission> {
        let trial_at = self.trial_at_ms.load(Ordering::Relaxed);
        if trial_at == 0 {
            return Some(Admission::Live);
        }
        if now_ms < trial_at {
            return None;
        }
        let next = now_ms + milliseconds(ejection.trial);
        let swap =
            self.trial_at_ms
                .compare_exchange(trial_at, next, Ordering::Relaxed, Ordering::Relaxed);
        swap.is_ok().then_some(Admission::Trial)
    }

    /// The server has answered. True where that ends its ejection.
    pub(crate) fn answered(&self) -> bool {
        // Nearly always there is nothing to store, and other threads read these lines.
        if self.failures.load(Ordering::Relaxed) != 0 {
            self.failures.store(0, Ordering::Relaxed);
        }
        if self.is_live() {
            return false;
        }
        self.ejections.store(0, Ordering::Relaxed);
        self.trial_at_ms.swap(0, Ordering::Relaxed) != 0
    }

    /// The server could not be reached, did not answer, or answered nonsense. `chance` is in `0.0..1.0`:
    /// it spreads the trials of many clients. True where that ejects the server.
    pub(crate) fn failed(
        &self,
        admission: Admission,
        now_ms: u64,
        chance: f64,
        ejection: &Ejection,
    ) -> bool {
        let failures = self.failures.fetch_add(1, Ordering::Relaxed) + 1;
        let is_due = match admission {
            Admission::Trial => true,
            Admission::Live => failures >= ejection.failures && self.is_live(),
        };
        if !is_due {
            return false;
        }
        let ejections = self.ejections.fetch_add(1, Ordering::Relaxed).min(31);
        let wait = ejection
            .wait_min
            .saturating_mul(1 << ejections)
            .min(ejection.wait_max)
            .mul_f64(0.75 + chance / 2.0);
        let trial_at = now_ms.saturating_add(milliseconds(wait)).max(1);
        self.trial_at_ms.swap(trial_at, Ordering::Relaxed) == 0
    }
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX / 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    const EJECTION: Ejection = Ejection {
        failures: 2,
        wait_min: Duration::from_secs(1),
        wait_max: Duration::from_secs(4),
        trial: Duration::from_secs(5),
    };

    #[test]
    fn ejection_and_return() {
        let health = Health::default();
        let fail = |admission, now_ms| health.failed(admission, now_ms, 0.5, &EJECTION);
        let admit = |now_ms| health.admit(now_ms, &EJECTION);

        fail(Admission::Live, 0);
        health.answered();
        fail(Admission::Live, 0);
        assert!(health.is_live(), "an answer between two failures counts");
        fail(Admission::Live, 0);
        assert!(!health.is_live());
        // What was under way fails too, and does not lengthen the wait.
        fail(Admission::Live, 900);
        assert_eq!(admit(999), None);
        assert_eq!(admit(1000), Some(Admission::Trial));
        assert_eq!(admit(1000), None, "one trial at a time");
        for (now, wait) in [(1000, 2000), (3000, 4000), (7000, 4000)] {
            fail(Admission::Trial, now);
            assert_eq!(admit(now + wait - 1), None);
            assert_eq!(admit(now + wait), Some(Admission::Trial));
        }
        assert_eq!(admit(11_000 + 4999), None);
        assert_eq!(admit(11_000 + 5000), Some(Admission::Trial), "a lost trial");
        health.answered();
        assert_eq!(admit(20_000), Some(Admission::Live));
        fail(Admission::Live, 20_000);
        fail(Admission::Live, 20_000);
        assert_eq!(
            admit(21_000),
            Some(Admission::Trial),
            "the wait is short again"
        );
    }

    #[test]
    fn waits_are_spread() {
        for (chance, wait) in [(0.0, 750), (0.999, 1249)] {
            let health = Health::default();
            health.failed(Admission::Live, 0, chance, &EJECTION);
            health.failed(Admission::Live, 0, chance, &EJECTION);
            assert_eq!(health.admit(wait - 1, &EJECTION), None);
            assert_eq!(health.admit(wait, &EJECTION), Some(Admission::Trial));
        }
    }
}
