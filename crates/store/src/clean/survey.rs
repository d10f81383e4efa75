//! How much a store without evictions can make of what has died in it.
//!
//! Such a store has room for more where enough is dead: the cleaner moves together what lives. Whether that
//! is so no counter says, since what is dead in an open segment, or in one that is held, cannot be used yet,
//! nor what is spread too thinly. So the cleaner adds up what it sees as it goes round all segments, and
//! publishes the sum when it has come round. What has died since it set out is added when somebody asks.

use crate::time::UnixSeconds;
use crate::worker_store::WorkerStore;

/// A worker's round over all segments.
#[derive(Default)]
pub(super) struct Survey {
    looked_at: u32,
    found: usize,
    died_before: u64,
    /// The second in which the last complete round found nothing to be compacted, and what had died before it.
    settled: Option<(UnixSeconds, u64)>,
}

impl Survey {
    /// A segment was looked at, of which so many bytes could be made use of.
    pub(super) fn note(&mut self, local: WorkerStore<'_>, reclaimable: usize) {
        if self.looked_at == 0 {
            self.died_before = local.shared.died();
        }
        self.looked_at += 1;
        self.found += reclaimable;
    }

    /// Publishes what was found, if this was a whole round.
    pub(super) fn settle(&mut self, local: WorkerStore<'_>, now: UnixSeconds) {
        let store = local.shared;
        if self.looked_at < store.log.segment_count() {
            return;
        }
        store.reclaimable.note_round(self.found, self.died_before);
        let is_settled = self.found == 0;
        *self = Survey {
            settled: is_settled.then_some((now, self.died_before)),
            ..Survey::default()
        };
    }

    /// Whether another round would find nothing new: nothing has died since the last one found nothing. Segments may have
    /// been sealed or let go since, so that holds for a second.
    pub(super) fn is_settled(&self, local: WorkerStore<'_>, now: UnixSeconds) -> bool {
        self.settled
            .is_some_and(|(when, died)| when == now && died == local.shared.died())
    }
}
