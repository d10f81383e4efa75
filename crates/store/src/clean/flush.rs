//! Finds the segments that a flush has killed; see [`crate::segment::FlushState`].

use crate::memory::{PageId, PageState};
use crate::worker_store::WorkerStore;

/// Segments looked at in a turn for those that a flush has killed.
const LOOK: u32 = 256;

/// Turns between two rounds, if dead segments remain that were in use.
const PAUSE: u32 = 256;

/// A worker's round over all segments for those that a flush has killed.
#[derive(Default)]
pub(super) struct FlushRound {
    /// The flush's point.
    below: u64,
    /// The segment looked at next.
    next: PageId,
    /// Whether some dead segments were in use.
    remains: bool,
    /// Turns until the next round.
    pause: u32,
}

impl FlushRound {
    /// Takes a segment from before the flush at `below` out of its queue. When a whole round has
    /// seen none, not even one in use, the flush is over.
    #[cold]
    pub(super) fn find(&mut self, local: WorkerStore<'_>, below: u64) -> Option<PageId> {
        let log = &local.shared.log;
        if self.below != below {
            *self = FlushRound {
                below,
                ..FlushRound::default()
            };
        }
        if self.pause > 0 {
            self.pause -= 1;
            return None;
        }
        let end = log.segment_count().min(self.next.saturating_add(LOOK));
        while self.next < end {
            let segment = self.next;
            let entry = log.entry(segment);
            self.next += 1;
            let state = entry.state();
            if !state.holds_items() || entry.sequence() >= below {
                continue;
            }
            let is_free = state == PageState::Sealed && entry.may_be_cleaned();
            if is_free && log.queues().remove(segment) {
                return Some(segment);
            }
            self.remains = true;
        }
        if end == log.segment_count() {
            if !self.remains {
                log.flush_is_over(below);
            }
            *self = FlushRound {
                below,
                pause: PAUSE,
                ..FlushRound::default()
            };
        }
        None
    }
}
