//! flush_all as a point in the order of segments: all items in segments opened before it are dead.
//!
//! Every worker seals its open segments when it first sees the flush, before it executes anything
//! that a client sent after the flush was answered. The cleaner empties the dead segments before
//! all others. Until none is left, lookups compare an item's segment with the point.

use super::log::Log;
use crate::sync::{AtomicU32, AtomicU64, Ordering};
use crate::time::UnixSeconds;
use crossbeam_utils::CachePadded;

/// The flushes that were asked for.
pub(crate) struct FlushState {
    /// The point of the last flush that happened.
    latest: CachePadded<AtomicU64>,
    /// The second at which a flush is due; 0 if none is. A later request replaces it, as in
    /// memcached. The superblock keeps it until it has happened.
    due: AtomicU32,
}

impl FlushState {
    /// The flushes that the arena of `log` has recorded.
    pub(crate) fn of(log: &Log) -> FlushState {
        FlushState {
            latest: CachePadded::new(AtomicU64::new(0)),
            due: AtomicU32::new(log.superblock().state.flush_due.load(Ordering::Relaxed)),
        }
    }

    /// The point of the last flush. A flush that is due is carried out first.
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
        // Before, so that nothing on flash comes back if the process is killed in between; and after it,
        // for what came to flash meanwhile.
        log.kill_on_flash();
        let below = log.flush();
        log.kill_on_flash();
        self.latest.fetch_max(below, Ordering::Release);
        // Another flush may have been requested meanwhile.
        let due = self.due.load(Ordering::Relaxed);
        log.superblock().set_flush_due(due);
        below
    }

    /// At `second`, kills everything stored until then.
    pub(crate) fn at(&self, log: &Log, second: UnixSeconds) {
        log.superblock().set_flush_due(second.0);
        self.due.store(second.0, Ordering::Relaxed);
    }
}
