//! flush_all: all that was stored so far is dead, at once or at a second to come.
//!
//! A flush is a point in the order of segments: what lies in a segment opened before it is dead.
//! Every worker ends its open segments when it first sees the flush, which is before it executes
//! anything that a client sent after the flush was answered. The cleaner empties the dead segments
//! before all others; until none is left, lookups compare an item's segment with the point.

use crate::segment::Log;
use crate::sync::{AtomicU32, AtomicU64, Ordering};
use crate::time::UnixSeconds;
use crossbeam_utils::CachePadded;

/// The flushes that were asked for.
#[derive(Default)]
pub(crate) struct FlushState {
    /// The point of the last one that happened.
    latest: CachePadded<AtomicU64>,
    /// The second at which one is due; 0 for none. A later request takes its place, as in memcached.
    due: AtomicU32,
}

impl FlushState {
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
        below
    }

    /// Kills at `second` everything stored until then.
    pub(crate) fn at(&self, second: UnixSeconds) {
        self.due.store(second.0, Ordering::Relaxed);
    }
}
