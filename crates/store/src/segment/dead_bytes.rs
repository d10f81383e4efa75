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

use crate::memory::{PageId, Slice};
use crate::sync::{AtomicU32, Ordering, fence};

/// For each worker, bytes of each segment that it has made dead. Only the worker adds to its row, so
/// no line is fought over. The last row is for all others: those who are no workers, and workers of
/// higher numbers than the arena was made for.
///
/// ```text
///  worker 0: segment 0, 1, 2 … │ worker 1: segment 0, 1, 2 … │ … │ others: segment 0, 1, 2 …
/// ```
pub(crate) struct DeadBytes {
    cells: Slice<AtomicU32>,
    segments: usize,
    /// Where the row of the others begins.
    others: usize,
}

impl DeadBytes {
    /// Bytes of the arena for so many workers and segments.
    pub(crate) fn len_for(workers: usize, segments: usize) -> usize {
        (workers + 1) * segments * size_of::<u32>()
    }

    pub(crate) fn new(cells: Slice<AtomicU32>, segments: usize) -> DeadBytes {
        assert!(cells.len() >= segments && cells.len().is_multiple_of(segments));
        DeadBytes {
            others: cells.len() - segments,
            cells,
            segments,
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
        let at = worker * self.segments + segment as usize;
        if at >= self.others {
            return self.note_from_outside(segment, len);
        }
        let cell = &self.cells[at];
        let noted = cell.load(Ordering::Relaxed).wrapping_add(len as u32);
        cell.store(noted, Ordering::Release);
    }

    /// As [`DeadBytes::note`], for a thread that need not be a worker.
    #[cold]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "segments are at most 2 MiB"
    )]
    pub(crate) fn note_from_outside(&self, segment: PageId, len: usize) {
        let cell = &self.cells[self.others + segment as usize];
        cell.fetch_add(len as u32, Ordering::Release);
    }

    fn cells_of(&self, segment: PageId) -> impl Iterator<Item = &AtomicU32> {
        (segment as usize..self.cells.len())
            .step_by(self.segments)
            .map(|at| &self.cells[at])
    }

    /// Bytes of a segment that are known to be of no use.
    pub(crate) fn of(&self, segment: PageId) -> usize {
        self.cells_of(segment)
            .map(|cell| cell.load(Ordering::Relaxed) as usize)
            .sum()
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
        for cell in self.cells_of(segment) {
            cell.store(0, Ordering::Relaxed);
        }
    }
}
