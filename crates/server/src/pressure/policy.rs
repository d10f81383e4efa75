//! How much memory to hold back under pressure.
//!
//! Under pressure one step more is held back, down to a floor, and then some seconds pass in which the
//! memory goes back and helps. After some time without pressure one step is taken again. If the
//! pressure returns soon after that, the next step waits twice as long, so that limits do not go up and
//! down for ever.
//!
//! It only computes with numbers: it knows no clock, no kernel and no store.

use std::time::Duration;

/// From one step down to the next.
const LOWER_PAUSE: Duration = Duration::from_secs(4);

/// Without pressure for so long, a step is taken again.
const QUIET: Duration = Duration::from_secs(30);

/// The longest that a step waits for.
const QUIET_MAX: Duration = Duration::from_secs(960);

/// See the module.
pub(super) struct Policy {
    floor: usize,
    step: usize,
    held_back: usize,
    /// When the last step down was.
    lowered: Option<Duration>,
    /// When the last step up was, until pressure has answered it.
    raised: Option<Duration>,
    /// Since when there is no pressure, or the last step up was.
    quiet_since: Duration,
    /// How long the next step up waits.
    quiet: Duration,
}

impl Policy {
    /// Holds memory back by `step` bytes at a time, and leaves `floor` bytes.
    pub(super) fn new(floor: usize, step: usize) -> Policy {
        Policy {
            floor,
            step: step.max(1),
            held_back: 0,
            lowered: None,
            raised: None,
            quiet_since: Duration::ZERO,
            quiet: QUIET,
        }
    }

    /// How many bytes of the `goal` to hold back, at `now` since some moment in the past.
    pub(super) fn observe(&mut self, now: Duration, goal: usize, is_pressed: bool) -> usize {
        let most = goal.saturating_sub(self.floor);
        self.held_back = self.held_back.min(most);
        if is_pressed {
            self.quiet_since = now;
            // The last step up was one too many.
            if self
                .raised
                .take()
                .is_some_and(|raised| now - raised < self.quiet)
            {
                self.quiet = (self.quiet * 2).min(QUIET_MAX);
            }
            if self
                .lowered
                .is_none_or(|lowered| now - lowered >= LOWER_PAUSE)
            {
                self.lowered = Some(now);
                self.held_back = (self.held_back + self.step).min(most);
            }
        } else if now - self.quiet_since >= self.quiet {
            if self.held_back == 0 {
                // It is over.
                self.quiet = QUIET;
            } else {
                self.held_back = self.held_back.saturating_sub(self.step);
                self.raised = Some(now);
            }
            self.quiet_since = now;
        }
        self.held_back
    }
}

#[cfg(test)]
mod tests;
