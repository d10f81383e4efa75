//! flush_all as a point in the order of segments: what lies in a segment opened before it is dead.
//!
//! Every worker ends its open segments when it first sees the flush, which is before it executes
//! anything that a client sent after the flush was answered. The cleaner empties the dead segments
//! before all others; until none is left, lookups compare an item's segment with the point.

use super::log::Log;
use crate::sync::{AtomicU32, AtomicU64, Ordering};
use crate::time::UnixSeconds;
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
