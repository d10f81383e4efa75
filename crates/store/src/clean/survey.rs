//! How much of the dead memory a store without evictions can reclaim.
//!
//! Such a store has room for more if enough of it is dead, because the cleaner moves the live items
//! together. No counter says whether that is so: dead bytes in an open or held segment cannot be
//! used yet, and neither can those that are spread too thinly. So the cleaner sums up what it sees
//! on its round over all segments, and publishes the sum at the end of the round. What has died
//! since the round began is added when the sum is asked for.

use crate::time::{UnixSeconds, UnixTime};
use crate::worker_store::WorkerStore;

/// A worker's round over all segments.
#[derive(Default)]
pub(super) struct Survey {
    looked_at: u32,
    found: usize,
    died_before: u64,
    /// The second in which the last complete round found nothing to compact, and what had died
    /// before it.
    settled: Option<(UnixSeconds, u64)>,
}

impl Survey {
    /// Notes a segment that was looked at, of which `reclaimable` bytes can be reclaimed.
    pub(super) fn note(&mut self, local: WorkerStore<'_>, reclaimable: usize) {
        if self.looked_at == 0 {
            self.died_before = local.shared.died();
        }
        self.looked_at += 1;
        self.found += reclaimable;
    }

    /// Publishes what was found, if the round is complete.
    pub(super) fn settle(&mut self, local: WorkerStore<'_>, now: UnixTime) {
        let store = local.shared;
        if self.looked_at < store.log.segment_count() {
            return;
        }
        store.reclaimable.note_round(self.found, self.died_before);
        let is_settled = self.found == 0;
        *self = Survey {
            settled: is_settled.then_some((now.second(), self.died_before)),
            ..Survey::default()
        };
    }

    /// Whether another round would find nothing new: nothing has died since the last one found
    /// nothing. Segments may have been sealed or released since, so this holds only for a second.
    pub(super) fn is_settled(&self, local: WorkerStore<'_>, now: UnixTime) -> bool {
        self.settled
            .is_some_and(|(when, died)| when == now.second() && died == local.shared.died())
    }
}
