//! flush_all: all that was stored so far is dead, at once or at a second to come.
//!
//! A flush is a point in the order of segments: what lies in a segment opened before it is dead.
//! Every worker ends its open segments when it first sees the flush, which is before it executes
//! anything that a client sent after the flush was answered. The cleaner empties the dead segments
//! before all others; until none is left, lookups compare an item's segment with the point.

use crate::memory::PageId;
use crate::memory::PageState;
use crate::segment::Log;
use crate::sync::{AtomicU32, AtomicU64, Ordering};
use crate::time::UnixSeconds;
use crate::worker_store::WorkerStore;
use crossbeam_utils::CachePadded;

/// The flushes that were asked for.
pub(crate) struct FlushState {
    /// The point of the last one that happened.
    latest: CachePadded<AtomicU64>,
    /// The second at which one is due; 0 for none. A later request takes its place, as in memcached.
    /// The superblock has it until it has happened.
    due: AtomicU32,
}

impl FlushState {
    /// What the arena of `log` says.
    pub(crate) fn of(log: &Log) -> FlushState {
        FlushState {
            latest: CachePadded::new(AtomicU64::new(0)),
            due: AtomicU32::new(kept_due(log).load(Ordering::Relaxed)),
        }
    }

    /// The point of the last flush, after making one that is due happen.
    #[inline]
    pub(crate) fn latest(&self, log: &Log, now: UnixSeconds) -> u64 {
        let due = self.due.load(Ordering::Relaxed);
        if due != 0 && due <= now.0 {
            self.make_due_happen(log, due);
        }
        self.latest.load(Ordering::Acquire)
    }

    #[cold]
    fn make_due_happen(&self, log: &Log, due: u32) {
        if self
            .due
            .compare_exchange(due, 0, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok()
        {
            self.happen(log);
        }
    }

    /// Kills everything stored so far. Returns the flush's point.
    pub(crate) fn now(&self, log: &Log) -> u64 {
        self.due.store(0, Ordering::Relaxed);
        self.happen(log)
    }

    fn happen(&self, log: &Log) -> u64 {
        let below = log.flush();
        self.latest.fetch_max(below, Ordering::Release);
        // Another may have been asked for meanwhile.
        kept_due(log).store(self.due.load(Ordering::Relaxed), Ordering::Relaxed);
        below
    }

    /// Kills at `second` everything stored until then.
    pub(crate) fn at(&self, log: &Log, second: UnixSeconds) {
        kept_due(log).store(second.0, Ordering::Relaxed);
        self.due.store(second.0, Ordering::Relaxed);
    }
}

fn kept_due(log: &Log) -> &AtomicU32 {
    &log.superblock().state.flush_due
}

/// Segments looked at in a turn for those that a flush has killed.
const LOOK: u32 = 256;

/// Turns between two rounds, where what remains is in use.
const PAUSE: u32 = 256;

/// A worker's round over all segments for those that a flush has killed.
#[derive(Default)]
pub(super) struct FlushRound {
    /// The flush.
    below: u64,
    /// The segment looked at next.
    next: PageId,
    /// Some that are dead were in use.
    remains: bool,
    /// Turns until the next round.
    pause: u32,
}

impl FlushRound {
    /// A segment from before the flush at `below`, taken out of its queue. When a whole round has seen none,
    /// not even in use, the flush is over.
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
            let is_free = state == PageState::Sealed && !entry.is_held();
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
