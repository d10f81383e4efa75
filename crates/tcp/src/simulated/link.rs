//! A cable with an end on both sides.

use super::card::Card;
use super::counters::CableCounters;
use super::end::{End, lay};
use super::faults::Faults;
use super::state::{Destination, Shared};

/// Two ends and the cable between them. Ends are 0 and 1; a direction goes by the end that sends.
pub struct Link {
    network: Shared,
}

impl Link {
    /// Lays a cable that behaves the same in both directions, and whose every choice comes from
    /// `seed`. Time is 0.
    pub fn new(seed: u64, cards: [Card; 2], faults: Faults) -> (Link, [End; 2]) {
        let across = vec![Destination::End(1), Destination::End(0)];
        let (network, ends) = lay(seed, &cards, faults, across, None);
        let ends = ends
            .try_into()
            .unwrap_or_else(|_| unreachable!("two cards"));
        (Link { network }, ends)
    }

    /// Changes what happens to the frames that end `from` sends from now on.
    ///
    /// # Panics
    /// Where `from` is neither 0 nor 1.
    pub fn set_faults(&self, from: usize, faults: Faults) {
        self.network.lock().cables[from].faults = faults;
    }

    /// Frames that end `from` sends before `until_us` are gone. What is under way arrives.
    ///
    /// # Panics
    /// As of `set_faults`.
    pub fn cut(&self, from: usize, until_us: u64) {
        self.network.lock().cables[from].cut(until_us * 1000);
    }

    /// What has happened to the frames that end `from` sent.
    ///
    /// # Panics
    /// As of `set_faults`.
    pub fn counters(&self, from: usize) -> CableCounters {
        self.network.lock().cables[from].counters
    }

    /// The time, in microseconds.
    pub fn now_us(&self) -> u64 {
        self.network.lock().now_us()
    }

    /// When the next frame arrives, if any is under way; it may be now.
    pub fn next_event_us(&self) -> Option<u64> {
        self.network.lock().next_event_us()
    }

    /// Lets time pass and arrive what is due by then.
    ///
    /// # Panics
    /// Where it would go back.
    pub fn advance_to(&self, now_us: u64) {
        self.network.lock().advance_to(now_us);
    }
}
