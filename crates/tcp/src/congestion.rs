//! The congestion window: how many bytes may be on their way (RFC 5681; CUBIC: RFC 9438).

use crate::config::Algorithm;
use crate::time::Instant;

/// Segments of the initial window (RFC 6928).
const INITIAL_SEGMENTS: u32 = 10;

/// Bytes of the initial window at most, unless two segments are more (RFC 6928, section 2).
const INITIAL_LEN: u32 = 14_600;

/// CUBIC's constants (RFC 9438, section 4.1): how fast it grows, and what is left after a loss.
const C: f32 = 0.4;
const BETA: f32 = 0.7;

/// The window of one connection.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Congestion {
    /// Bytes. It comes first: nothing else of this is needed for what is within the window.
    window: u32,
    /// Below this the window grows by what is acknowledged (slow start).
    threshold: u32,
    algorithm: Algorithm,
    /// Parts of a byte, or of a segment, that the window has grown by.
    carry: f32,
    cubic: Cubic,
}

/// All sizes in segments, all times in seconds (RFC 9438, section 4.1.2).
#[derive(Clone, Copy, Debug)]
struct Cubic {
    /// The window before the last reduction.
    w_max: f32,
    /// From the beginning of the epoch until the window is there again.
    k: f32,
    /// What NewReno would have.
    w_est: f32,
    /// The window that `w_est` must reach to grow like NewReno's.
    w_prior: f32,
    /// When the window last began to grow after a reduction; none where it has not.
    epoch: Option<Instant>,
}

impl Congestion {
    /// Where the window stands.
    #[cfg(test)]
    pub(crate) const WINDOW_AT: usize = std::mem::offset_of!(Congestion, window);

    /// The window of a connection that begins.
    pub(crate) fn new(algorithm: Algorithm, mss: u32) -> Congestion {
        Congestion {
            window: initial_window(mss),
            threshold: u32::MAX,
            algorithm,
            carry: 0.0,
            cubic: Cubic {
                w_max: 0.0,
                k: 0.0,
                w_est: 0.0,
                w_prior: 0.0,
                epoch: None,
            },
        }
    }

    /// Bytes that may be on their way.
    #[inline]
    pub(crate) fn window(&self) -> u32 {
        self.window
    }

    /// Bytes were acknowledged that used the window up; `rtt` in microseconds.
    pub(crate) fn acknowledged(&mut self, bytes: u32, mss: u32, now: Instant, rtt: u32) {
        if self.window < self.threshold {
            // RFC 3465 with L = 8: acknowledgments of many segments are usual.
            self.window = self.window.saturating_add(bytes.min(8 * mss));
            return;
        }
        match self.algorithm {
            Algorithm::NewReno => {
                let grown = self.carry + mss as f32 * (bytes as f32 / self.window as f32);
                self.grow(grown);
            }
            Algorithm::Cubic => self.grow_cubic(bytes, mss, now, rtt),
        }
    }

    #[expect(clippy::cast_possible_truncation, reason = "it saturates")]
    fn grow(&mut self, bytes: f32) {
        let whole = bytes.floor();
        self.carry = bytes - whole;
        self.window = self.window.saturating_add(whole as u32);
    }

    /// RFC 9438, sections 4.2 to 4.5.
    fn grow_cubic(&mut self, bytes: u32, mss: u32, now: Instant, rtt: u32) {
        let (segment, acked) = (mss as f32, bytes as f32 / mss as f32);
        let window = self.window as f32 / segment;
        let cubic = &mut self.cubic;
        let epoch = *cubic.epoch.get_or_insert_with(|| {
            if cubic.w_max < window {
                cubic.w_max = window;
            }
            cubic.k = ((cubic.w_max - window) / C).cbrt();
            cubic.w_est = window;
            now
        });
        let passed = now.micros_since(epoch) as f32 / 1e6;
        let w_cubic = |time: f32| C * (time - cubic.k).powi(3) + cubic.w_max;
        let alpha = match cubic.w_est < cubic.w_prior {
            true => 3.0 * (1.0 - BETA) / (1.0 + BETA),
            false => 1.0,
        };
        cubic.w_est += alpha * acked / window;
        let grown = if w_cubic(passed) < cubic.w_est {
            (cubic.w_est - window).max(0.0)
        } else {
            let target = w_cubic(passed + rtt as f32 / 1e6).clamp(window, 1.5 * window);
            (target - window) / window * acked
        };
        let carry = self.carry;
        self.grow(carry + grown * segment);
    }

    /// A loss was found by acknowledgments.
    pub(crate) fn lost(&mut self, in_flight: u32, mss: u32) {
        self.reduce(in_flight, mss);
        self.window = self.threshold;
    }

    /// The retransmission timer expired.
    pub(crate) fn timed_out(&mut self, in_flight: u32, mss: u32, is_first: bool) {
        if is_first {
            self.reduce(in_flight, mss);
        }
        self.window = mss;
    }

    #[expect(clippy::cast_possible_truncation, reason = "part of a u32")]
    fn reduce(&mut self, in_flight: u32, mss: u32) {
        let left = match self.algorithm {
            Algorithm::NewReno => in_flight / 2,
            Algorithm::Cubic => {
                let window = self.window as f32 / mss as f32;
                let cubic = &mut self.cubic;
                // Fast convergence: leave room to those that came later (section 4.7).
                cubic.w_max = match window < cubic.w_max {
                    true => window * (1.0 + BETA) / 2.0,
                    false => window,
                };
                cubic.w_prior = window;
                (in_flight.min(self.window) as f32 * BETA) as u32
            }
        };
        self.cubic.epoch = None;
        self.carry = 0.0;
        self.threshold = left.max(2 * mss);
    }

    /// Nothing was sent for longer than the timeout: what the window was says nothing any more
    /// (RFC 5681, section 4.1).
    pub(crate) fn rested(&mut self, mss: u32) {
        self.window = self.window.min(initial_window(mss));
        self.cubic.epoch = None;
    }
}

fn initial_window(mss: u32) -> u32 {
    (INITIAL_SEGMENTS * mss).min(INITIAL_LEN.max(2 * mss))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MSS: u32 = 1000;

    #[test]
    fn the_first_window() {
        for (mss, window) in [(536, 5360), (1460, 14_600), (8960, 17_920)] {
            let congestion = Congestion::new(Algorithm::Cubic, mss);
            assert_eq!(congestion.window(), window);
        }
    }

    #[test]
    fn slow_start_doubles_it_in_a_round_trip() {
        for algorithm in [Algorithm::Cubic, Algorithm::NewReno] {
            let mut congestion = Congestion::new(algorithm, MSS);
            for _ in 0..10 {
                congestion.acknowledged(MSS, MSS, Instant::default(), 1000);
            }
            assert_eq!(congestion.window(), 20_000);
        }
    }

    #[test]
    fn newreno_halves_and_grows_by_a_segment_in_a_round_trip() {
        let mut congestion = Congestion::new(Algorithm::NewReno, MSS);
        congestion.lost(10_000, MSS);
        assert_eq!(congestion.window(), 5000);
        for _ in 0..5 {
            congestion.acknowledged(MSS, MSS, Instant::default(), 1000);
        }
        assert!(
            (5800..=6000).contains(&congestion.window()),
            "{}",
            congestion.window()
        );
    }

    #[test]
    fn cubic_comes_back_to_where_it_was() {
        let mut congestion = Congestion::new(Algorithm::Cubic, MSS);
        congestion.window = 100_000;
        congestion.lost(100_000, MSS);
        assert_eq!(congestion.window(), 70_000);
        // K is the cube root of 30 / 0.4: 4.2 s.
        let rtt = 100_000;
        let mut now = Instant::from_micros(5);
        let mut window_at = Vec::new();
        for _ in 0..60 {
            for _ in 0..congestion.window() / MSS {
                congestion.acknowledged(MSS, MSS, now, rtt);
            }
            window_at.push(congestion.window());
            now = now.after(u64::from(rtt));
        }
        assert!((92_000..=103_000).contains(&window_at[40]), "{window_at:?}");
        assert!(window_at[59] > 100_000, "{window_at:?}");
        assert!(window_at.is_sorted());
    }

    #[test]
    fn a_timeout_begins_anew() {
        let mut congestion = Congestion::new(Algorithm::Cubic, MSS);
        congestion.timed_out(10_000, MSS, true);
        assert_eq!((congestion.window(), congestion.threshold), (MSS, 7000));
        congestion.timed_out(MSS, MSS, false);
        assert_eq!((congestion.window(), congestion.threshold), (MSS, 7000));
    }
}
