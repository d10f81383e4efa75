//! How many errors are too many.

use std::collections::VecDeque;
use std::time::Duration;

use crate::Lost;

/// Errors that may happen within a time. One page now and then is what memory does; many at once are
/// a module that dies, and the process is better off on another machine.
#[derive(Clone, Debug)]
pub struct Limit {
    within: Duration,
    at_most: usize,
    /// When the latest errors were, no more than `at_most`.
    latest_ns: VecDeque<u64>,
}

impl Limit {
    /// At most `at_most` errors in any `within`.
    #[must_use]
    pub fn new(at_most: usize, within: Duration) -> Limit {
        Limit {
            within,
            at_most,
            latest_ns: VecDeque::with_capacity(at_most),
        }
    }

    /// Counts an error; whether it is one too many. Errors come in the order in which they were taken.
    #[must_use = "one too many is told once"]
    pub fn is_exceeded_by(&mut self, lost: &Lost) -> bool {
        let within_ns = u64::try_from(self.within.as_nanos()).unwrap_or(u64::MAX);
        let is_recent = |&at: &u64| lost.monotonic_ns.saturating_sub(at) < within_ns;
        while self.latest_ns.front().is_some_and(|at| !is_recent(at)) {
            self.latest_ns.pop_front();
        }
        if self.latest_ns.len() == self.at_most {
            return true;
        }
        self.latest_ns.push_back(lost.monotonic_ns);
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Severity;

    fn at(seconds: u64) -> Lost {
        Lost {
            address: 4096,
            length: 4096,
            severity: Severity::ActionOptional,
            monotonic_ns: seconds * 1_000_000_000,
            is_detached: false,
            is_restored: false,
        }
    }

    #[test]
    fn one_too_many_within_the_time_is_told() {
        let mut limit = Limit::new(2, Duration::from_secs(10));
        assert!(!limit.is_exceeded_by(&at(1)));
        assert!(!limit.is_exceeded_by(&at(5)));
        assert!(limit.is_exceeded_by(&at(10)));
        // The first is ten seconds ago.
        assert!(!limit.is_exceeded_by(&at(11)));
        assert!(limit.is_exceeded_by(&at(14)));
        assert!(!limit.is_exceeded_by(&at(15)));
    }

    #[test]
    fn a_limit_of_none_is_exceeded_by_the_first() {
        assert!(Limit::new(0, Duration::from_secs(1)).is_exceeded_by(&at(1)));
    }
}
