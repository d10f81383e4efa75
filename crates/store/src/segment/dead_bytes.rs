//! How many bytes of each segment are of no use any more, and when that is all of them.
//!
//! # Concurrency
//! A segment whose bytes are all dead is freed without a look into the index, by whoever sums them
//! up. So the number has to tell what a look would: that no slot points into the segment. Each worker
//! notes an item *after* it has unlinked it, with Release; whoever finds all bytes dead raises an
//! Acquire fence and only then begins a grace period. What was unlinked before a note that is counted
//! is then unlinked for every burst that begins after the grace period did. With Relaxed on either
//! side a burst that is waited for by nobody could still load the old slot, and follow it into a
//! segment that is used again (`loom_tests` shows it).

use crate::memory::PageId;
use crate::sync::{AtomicU32, Ordering, fence};

/// For each worker, bytes of each segment that it has made dead. Only the worker adds to its row, so
/// no line is fought over. One row more is for whoever is no worker.
pub(crate) struct DeadBytes {
    rows: Box<[Box<[AtomicU32]>]>,
}

impl DeadBytes {
    pub(crate) fn new(workers: usize, segments: usize) -> DeadBytes {
        DeadBytes {
            rows: (0..=workers)
                .map(|_| (0..segments).map(|_| AtomicU32::new(0)).collect())
                .collect(),
        }
    }

    /// Notes that `len` bytes of `segment` are of no use any more. The caller is the worker, and no
    /// slot points to them.
    #[inline]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "segments are at most 2 MiB"
    )]
    pub(crate) fn note(&self, worker: usize, segment: PageId, len: usize) {
        let cell = &self.rows[worker][segment as usize];
        let noted = cell.load(Ordering::Relaxed).wrapping_add(len as u32);
        cell.store(noted, Ordering::Release);
    }

    /// As [`DeadBytes::note`], for a thread that need not be a worker.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "segments are at most 2 MiB"
    )]
    pub(crate) fn note_from_outside(&self, segment: PageId, len: usize) {
        if let Some(row) = self.rows.last() {
            row[segment as usize].fetch_add(len as u32, Ordering::Release);
        }
    }

    /// Bytes of a segment that are known to be of no use.
    pub(crate) fn of(&self, segment: PageId) -> usize {
        let dead = |row: &[AtomicU32]| row[segment as usize].load(Ordering::Relaxed) as usize;
        self.rows.iter().map(|row| dead(row)).sum()
    }

    /// Whether all `used` bytes of a sealed segment are dead. Where they are, the caller may retire it.
    pub(crate) fn are_all(&self, segment: PageId, used: usize) -> bool {
        let are_all = self.of(segment) >= used;
        if are_all {
            // Whoever unlinked them did so before this thread begins a grace period.
            fence(Ordering::Acquire);
        }
        are_all
    }

    /// Nothing of the segment is dead: it begins a new life. Nobody adds to it at this moment: no slot
    /// points into a free segment, and the last burst that saw one that did is over.
    pub(crate) fn reset(&self, segment: PageId) {
        for row in &self.rows {
            row[segment as usize].store(0, Ordering::Relaxed);
        }
    }
}
