//! The round-trip time and the retransmission timeout (RFC 6298).

/// The timeout before anything was measured, in microseconds (RFC 6298, section 2.1).
const RTO_INITIAL: u32 = 1_000_000;

/// The same if a SYN had to be retransmitted (RFC 6298, section 5.7).
const RTO_OPENED_LATE: u32 = 3_000_000;

/// The longest timeout, in microseconds (RFC 6298, section 2.5).
const RTO_MAX: u32 = 60_000_000;

/// What is known of a path's round-trip time. All in microseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rtt {
    /// The smoothed round-trip time; 0 if nothing was measured.
    pub(crate) smoothed: u32,
    variation: u32,
    /// The shortest round-trip time.
    pub(crate) least: u32,
    /// Times in a row that the timeout expired.
    backoff: u8,
    /// A SYN had to be retransmitted in the handshake.
    opened_late: bool,
}

impl Rtt {
    pub(crate) const fn new() -> Rtt {
        Rtt {
            smoothed: 0,
            variation: 0,
            least: u32::MAX,
            backoff: 0,
            opened_late: false,
        }
    }

    /// Takes a measurement.
    pub(crate) fn measured(&mut self, micros: u64) {
        let sample = sample(micros);
        self.least = self.least.min(sample);
        self.smooth(sample);
    }

    /// Takes a measurement of a segment that arrived before others that were sent earlier. It does
    /// not count for the shortest time, as the segment may have taken another path.
    pub(crate) fn measured_ahead(&mut self, micros: u64) {
        self.smooth(sample(micros));
    }

    fn smooth(&mut self, sample: u32) {
        self.backoff = 0;
        if self.smoothed == 0 {
            self.smoothed = sample;
            self.variation = sample / 2;
        } else {
            let differs = self.smoothed.abs_diff(sample);
            self.variation = self.variation - self.variation / 4 + differs / 4;
            self.smoothed = (self.smoothed - self.smoothed / 8 + sample / 8).max(1);
        }
    }

    /// Resets the exponential backoff.
    #[inline]
    pub(crate) fn forget_backoff(&mut self) {
        self.backoff = 0;
    }

    /// The timeout expired: it doubles.
    pub(crate) fn back_off(&mut self) {
        self.backoff = (self.backoff + 1).min(16);
    }

    /// The handshake is done: if a SYN had to be retransmitted, the first timeout is three seconds
    /// (RFC 6298, section 5.7).
    pub(crate) fn opens(&mut self) {
        if self.backoff > 0 {
            (self.opened_late, self.backoff) = (true, 0);
        }
    }

    /// Times in a row that the timeout expired.
    pub(crate) fn backoffs(&self) -> u8 {
        self.backoff
    }

    /// The retransmission timeout in microseconds, at least `least`.
    #[inline]
    pub(crate) fn timeout(&self, least: u64) -> u64 {
        let least = u32::try_from(least).unwrap_or(RTO_MAX);
        let base = match self.smoothed {
            0 if self.opened_late => RTO_OPENED_LATE.max(least),
            0 => RTO_INITIAL.max(least),
            smoothed => smoothed.saturating_add((4 * self.variation).max(least)),
        };
        (u64::from(base) << self.backoff).min(u64::from(RTO_MAX))
    }
}

fn sample(micros: u64) -> u32 {
    u32::try_from(micros).unwrap_or(RTO_MAX).clamp(1, RTO_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEAST: u64 = 200_000;

    #[test]
    fn the_first_measurement_sets_all() {
        let mut rtt = Rtt::new();
        assert_eq!(rtt.timeout(LEAST), 1_000_000);
        rtt.measured(400_000);
        assert_eq!((rtt.smoothed, rtt.variation), (400_000, 200_000));
        assert_eq!(rtt.timeout(LEAST), 1_200_000);
    }

    #[test]
    fn later_ones_are_smoothed() {
        let mut rtt = Rtt::new();
        rtt.measured(80_000);
        rtt.measured(160_000);
        assert_eq!((rtt.smoothed, rtt.variation), (90_000, 50_000));
        for _ in 0..200 {
            rtt.measured(1000);
        }
        assert!(rtt.smoothed < 1100);
        assert!(rtt.timeout(LEAST) < 202_000 && rtt.timeout(LEAST) > 200_000);
        assert_eq!(rtt.least, 1000);
    }

    #[test]
    fn the_timeout_doubles_up_to_a_minute() {
        let mut rtt = Rtt::new();
        rtt.measured(1000);
        let first = rtt.timeout(LEAST);
        rtt.back_off();
        assert_eq!(rtt.timeout(LEAST), 2 * first);
        for _ in 0..100 {
            rtt.back_off();
        }
        assert_eq!(rtt.timeout(LEAST), 60_000_000);
        rtt.forget_backoff();
        assert_eq!(rtt.timeout(LEAST), first);
    }
}
