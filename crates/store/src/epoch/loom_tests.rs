//! Grace periods beside readers that come and go, in every interleaving.

use super::{Epochs, Presence};
use crate::loom_tests::{beside, check};
use crate::sync::{AtomicU64, Ordering};
use loom::cell::UnsafeCell;
use loom::sync::Arc;

/// A segment of one word, a slot that points to it, and the epochs that guard its reuse.
struct Reused {
    slot: AtomicU64,
    segment: UnsafeCell<u64>,
    epochs: Epochs,
}

// SAFETY: what the tests below check: nobody writes the segment while another reads it.
#[expect(unsafe_code, reason = "loom's cell stands for segment memory")]
unsafe impl Sync for Reused {}
// SAFETY: as above.
#[expect(unsafe_code, reason = "loom's cell stands for segment memory")]
unsafe impl Send for Reused {}

impl Reused {
    #[expect(unsafe_code, reason = "loom's cell stands for segment memory")]
    fn write(&self, value: u64) {
        // SAFETY: loom fails the test where another thread accesses the cell meanwhile.
        self.segment.with_mut(|word| unsafe { *word = value });
    }

    #[expect(unsafe_code, reason = "loom's cell stands for segment memory")]
    fn read(&self) -> u64 {
        // SAFETY: as above.
        self.segment.with(|word| unsafe { *word })
    }

    fn new() -> Arc<Reused> {
        let reused = Reused {
            slot: AtomicU64::new(0),
            segment: UnsafeCell::new(0),
            epochs: Epochs::new(1),
        };
        reused.write(1);
        reused.slot.store(1, Ordering::Release);
        Arc::new(reused)
    }

    /// Unlinks the item, and uses its segment again if the grace period is over.
    fn clean(&self, waits: bool) {
        self.slot.store(0, Ordering::Release);
        let epoch = self.epochs.advance();
        if !waits || self.epochs.is_over(epoch) {
            self.write(2);
        }
    }

    fn look(&self) {
        if self.slot.load(Ordering::Acquire) == 1 {
            assert_eq!(self.read(), 1);
        }
    }
}

fn reader_against_cleaner(waits: bool) {
    check(3, 5, move || {
        let reused = Reused::new();
        let mut presence = Presence::new(0);
        presence.announce(&reused.epochs);
        let cleaner = beside(&reused, move |reused| reused.clean(waits));
        let reader = beside(&reused, move |reused| {
            for _ in 0..2 {
                presence.announce(&reused.epochs);
                reused.look();
            }
        });
        cleaner.join().unwrap();
        reader.join().unwrap();
    });
}

#[test]
fn a_segment_is_not_used_again_under_a_reader() {
    reader_against_cleaner(true);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn without_a_grace_period_it_is() {
    reader_against_cleaner(false);
}

fn parked_against_cleaner(comes_back_with_fence: bool) {
    check(3, 5, move || {
        let reused = Reused::new();
        let cleaner = beside(&reused, |reused| reused.clean(true));
        let reader = beside(&reused, move |reused| {
            if comes_back_with_fence {
                Presence::new(0).announce(&reused.epochs);
            } else {
                reused.epochs.announce(0);
            }
            reused.look();
        });
        cleaner.join().unwrap();
        reader.join().unwrap();
    });
}

#[test]
fn a_parked_worker_comes_back_safely() {
    parked_against_cleaner(true);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_parked_worker_needs_the_fence() {
    parked_against_cleaner(false);
}
