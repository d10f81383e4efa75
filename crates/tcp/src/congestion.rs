//! The congestion window: how many bytes may be in flight (RFC 5681; CUBIC: RFC 9438).
//!
//! During loss recovery it shrinks in proportion to what arrives, and reaches the new threshold
//! when recovery ends (RFC 9937): a window that shrank at once would keep the sender silent for
//! half a round trip. After a spurious timeout it is restored (RFC 4015).

use crate::config::Algorithm;
use crate::seq::SeqNumber;
use crate::time::Instant;

/// Segments of the initial window (RFC 6928).
const INITIAL_SEGMENTS: u32 = 10;

/// The most bytes of the initial window, unless two segments are more (RFC 6928, section 2).
const INITIAL_LEN: u32 = 14_600;

/// CUBIC's constants (RFC 9438, section 4.1): how fast the window grows, and what part is left
/// after a loss.
const C: f32 = 0.4;
const BETA: f32 = 0.7;

/// The window of one connection.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Congestion {
    /// The congestion window, in bytes. It comes first: a segment within it needs no other field.
    window: u32,
    /// The slow start threshold, in bytes: below it the window grows by what is acknowledged.
    threshold: u32,
    algorithm: Algorithm,
    /// The fraction of a byte by which the window has grown beyond whole bytes.
    carry: f32,
    cubic: Cubic,
    episode: Episode,
}

/// Why the window is reduced at the moment. All sizes in bytes.
#[derive(Clone, Copy, Debug)]
enum Episode {
    /// Nothing.
    None,
    /// A loss: the window shrinks in proportion to what is delivered (RFC 9937).
    Reduction {
        /// Bytes in flight when it began (`RecoverFS`).
        flight: u32,
        /// Bytes that have arrived since (`prr_delivered`).
        delivered: u32,
        /// Bytes that were sent since (`prr_out`).
        sent: u32,
    },
    /// A timeout.
    Timeout {
        /// The window before it.
        window: u32,
        /// The connection's clock when the timer expired.
        clock: u32,
    },
    /// A CE mark (RFC 3168), until this sequence number is acknowledged, which was then the next to
    /// be sent.
    Mark(SeqNumber),
}

/// All sizes in segments, all times in seconds (RFC 9438, section 4.1.2).
#[derive(Clone, Copy, Debug)]
struct Cubic {
    /// The window before the last reduction.
    w_max: f32,
    /// From the beginning of the epoch until the window is at `w_max` again.
    k: f32,
    /// The window that NewReno would have (section 4.3).
    w_est: f32,
    /// The window that `w_est` must reach to grow like NewReno's.
    w_prior: f32,
    /// When the window last began to grow after a reduction; `NEVER` if it has not.
    epoch: Instant,
}

impl Congestion {
    /// The offset of the window in the struct.
    #[cfg(test)]
    pub(crate) const WINDOW_AT: usize = std::mem::offset_of!(Congestion, window);

    /// The window of a new connection.
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
                epoch: Instant::NEVER,
            },
            episode: Episode::None,
        }
    }

    /// Bytes that may be in flight.
    #[inline]
    pub(crate) fn window(&self) -> u32 {
        self.window
    }

    /// Grows the window: `bytes` were acknowledged while the window was the limit. `rtt` is in
    /// microseconds.
    pub(crate) fn acknowledged(&mut self, bytes: u32, mss: u32, now: Instant, rtt: u32) {
        if self.window < self.threshold {
            // RFC 3465 with L = 8: acknowledgments of many segments are common.
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
        if cubic.epoch == Instant::NEVER {
            if cubic.w_max < window {
                cubic.w_max = window;
            }
            cubic.k = ((cubic.w_max - window) / C).cbrt();
            cubic.w_est = window;
            cubic.epoch = now;
        }
        let passed = now.micros_since(cubic.epoch) as f32 / 1e6;
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

    /// A loss was detected by duplicate acknowledgments, without SACK: the window is reduced at
    /// once.
    pub(crate) fn lost(&mut self, in_flight: u32, mss: u32) {
        self.reduce(in_flight, mss);
        self.window = self.threshold;
    }

    /// The peer reports a CE mark (RFC 3168, section 6.1.2): the window is reduced as for a loss,
    /// once for the data in flight, from `una` to before `nxt`. True if it was reduced.
    pub(crate) fn marked(
        &mut self,
        (una, nxt): (SeqNumber, SeqNumber),
        in_flight: u32,
        mss: u32,
    ) -> bool {
        let is_heeded = match self.episode {
            Episode::None => false,
            Episode::Mark(until) => una < until,
            Episode::Reduction { .. } | Episode::Timeout { .. } => true,
        };
        if !is_heeded {
            self.lost(in_flight, mss);
            self.episode = Episode::Mark(nxt);
        }
        !is_heeded
    }

    /// A loss was detected with SACK: the window is reduced step by step, with
    /// [`Congestion::delivered`]. `flight` is the number of bytes in flight, including those that
    /// have just arrived.
    pub(crate) fn begin_reduction(&mut self, in_flight: u32, flight: u32, mss: u32) {
        self.reduce(in_flight, mss);
        self.episode = Episode::Reduction {
            flight: flight.max(mss),
            delivered: 0,
            sent: 0,
        };
    }

    /// During a reduction, `bytes` have arrived, and `pipe` bytes are in flight (RFC 9937, section
    /// 6). `is_safe` says that `send.una` has advanced and no further loss was detected.
    pub(crate) fn delivered(&mut self, bytes: u32, pipe: u32, mss: u32, is_safe: bool) {
        let Episode::Reduction {
            flight,
            ref mut delivered,
            sent,
        } = self.episode
        else {
            return;
        };
        *delivered = delivered.saturating_add(bytes);
        let delivered = *delivered;
        let may_send = if pipe > self.threshold {
            let share = u64::from(delivered) * u64::from(self.threshold);
            let due = share.div_ceil(u64::from(flight));
            u32::try_from(due).unwrap_or(u32::MAX).saturating_sub(sent)
        } else {
            let mut limit = delivered.saturating_sub(sent);
            if is_safe {
                limit = limit.max(bytes) + mss;
            }
            limit.min(self.threshold - pipe)
        };
        self.window = pipe + may_send;
    }

    /// Notes that `bytes` were sent during a reduction.
    pub(crate) fn sent(&mut self, bytes: u32) {
        if let Episode::Reduction { sent, .. } = &mut self.episode {
            *sent = sent.saturating_add(bytes);
        }
    }

    /// Ends a reduction: the losses are repaired.
    pub(crate) fn end_reduction(&mut self) {
        if let Episode::Reduction { .. } = self.episode {
            self.episode = Episode::None;
            self.window = self.threshold;
        }
    }

    /// Saves the window before a timeout, in case the timeout turns out to be spurious. `clock` is
    /// the connection's timestamp clock.
    pub(crate) fn keep_for_undo(&mut self, clock: u32) {
        let window = self.window;
        self.episode = Episode::Timeout { window, clock };
    }

    /// The retransmission timer expired.
    pub(crate) fn timed_out(&mut self, in_flight: u32, mss: u32, is_first: bool) {
        if is_first {
            self.reduce(in_flight, mss);
        }
        self.window = mss;
    }

    /// Whether a timeout was spurious. `echo` is the timestamp that the first acknowledgment of new
    /// data after the timeout echoes: if it is from before the timeout, the original transmission
    /// arrived (RFC 3522, section 3.2).
    pub(crate) fn is_spurious(&mut self, echo: Option<u32>) -> bool {
        let Episode::Timeout { window, clock } = self.episode else {
            return false;
        };
        self.episode = Episode::None;
        let is_it = echo.is_some_and(|echo| echo.wrapping_sub(clock).cast_signed() < 0);
        if is_it {
            self.threshold = window;
        }
        is_it
    }

    /// After a spurious timeout: the window starts from the data in flight, and slow start brings
    /// it back to its former size (RFC 4015, section 3.4).
    pub(crate) fn undo_timeout(&mut self, acknowledged: u32, pipe: u32, mss: u32) {
        self.threshold = self.threshold.max(2 * mss);
        self.window = pipe + acknowledged.min(initial_window(mss));
    }

    #[expect(clippy::cast_possible_truncation, reason = "part of a u32")]
    fn reduce(&mut self, in_flight: u32, mss: u32) {
        let left = match self.algorithm {
            Algorithm::NewReno => in_flight / 2,
            Algorithm::Cubic => {
                let window = self.window as f32 / mss as f32;
                let cubic = &mut self.cubic;
                // Fast convergence: leaves room for flows that started later (section 4.7).
                cubic.w_max = match window < cubic.w_max {
                    true => window * (1.0 + BETA) / 2.0,
                    false => window,
                };
                cubic.w_prior = window;
                (in_flight.min(self.window) as f32 * BETA) as u32
            }
        };
        self.cubic.epoch = Instant::NEVER;
        self.carry = 0.0;
        self.threshold = left.max(2 * mss);
    }

    /// Nothing was sent for longer than the retransmission timeout, so the window no longer
    /// reflects the path (RFC 5681, section 4.1).
    pub(crate) fn rested(&mut self, mss: u32) {
        self.window = self.window.min(initial_window(mss));
        self.cubic.epoch = Instant::NEVER;
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

    /// RFC 9937, section 6: of 20 segments on their way one is lost. For each that arrives 0.7 are
    /// sent, and the window is at the threshold when all have.
    #[test]
    fn a_reduction_is_in_proportion_to_what_arrives() {
        let mut congestion = Congestion::new(Algorithm::Cubic, MSS);
        congestion.window = 20_000;
        congestion.begin_reduction(20_000, 20_000, MSS);
        let (mut pipe, mut sent) = (19_000, 0);
        for _ in 0..19 {
            pipe -= MSS;
            congestion.delivered(MSS, pipe, MSS, false);
            while pipe + MSS <= congestion.window() {
                pipe += MSS;
                sent += 1;
                congestion.sent(MSS);
            }
        }
        assert_eq!((sent, pipe), (14, 14_000));
        congestion.end_reduction();
        assert_eq!(congestion.window(), 14_000);
    }

    /// Where most is lost, as much is sent as arrives; where that comes in order, a segment more.
    #[test]
    fn many_losses_do_not_stop_it() {
        let mut congestion = Congestion::new(Algorithm::NewReno, MSS);
        congestion.window = 20_000;
        congestion.begin_reduction(20_000, 20_000, MSS);
        congestion.delivered(MSS, 3000, MSS, false);
        assert_eq!(congestion.window(), 4000);
        congestion.sent(MSS);
        congestion.delivered(MSS, 3000, MSS, true);
        assert_eq!(congestion.window(), 5000);
        congestion.delivered(MSS, 9500, MSS, true);
        assert_eq!(congestion.window(), 10_000, "the threshold");
    }

    #[test]
    fn a_spurious_timeout_is_undone() {
        let mut congestion = Congestion::new(Algorithm::Cubic, MSS);
        congestion.window = 50_000;
        congestion.keep_for_undo(1000);
        congestion.timed_out(50_000, MSS, true);
        congestion.timed_out(50_000, MSS, false);
        assert!(congestion.is_spurious(Some(999)));
        congestion.undo_timeout(2 * MSS, 30_000, MSS);
        assert_eq!(
            (congestion.window(), congestion.threshold),
            (32_000, 50_000)
        );
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
