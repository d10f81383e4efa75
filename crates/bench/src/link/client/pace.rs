//! When the next batch is due.

/// What decides when a batch is sent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Pace {
    /// Nothing is sent.
    Rest,
    /// As soon as the last one is answered.
    Closed,
    /// At a fixed rate, whether or not the server keeps up.
    Open {
        /// When the next batch is due, in nanoseconds.
        next: f64,
        /// Nanoseconds between two batches.
        interval: f64,
    },
}

impl Pace {
    /// So many batches a second from now on.
    pub(crate) fn open(now: u64, batches_per_second: f64) -> Pace {
        Pace::Open {
            next: now as f64,
            interval: 1e9 / batches_per_second,
        }
    }

    /// When the batch that may be sent now was due; `None` if none may.
    #[inline]
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a time since the start"
    )]
    pub(crate) fn take(&mut self, now: u64) -> Option<u64> {
        match self {
            Pace::Rest => None,
            Pace::Closed => Some(now),
            Pace::Open { next, interval } => {
                let due = *next as u64;
                if due > now {
                    return None;
                }
                *next += *interval;
                Some(due)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_late_is_due_at_its_time() {
        let mut pace = Pace::open(1000, 1e7);
        assert_eq!(pace.take(999), None);
        assert_eq!(
            [0; 3].map(|_| pace.take(1200)),
            [Some(1000), Some(1100), Some(1200)]
        );
        assert_eq!(pace.take(1200), None);
    }
}
