//! How many bytes of each segment are dead, and when all of them are.
//!
//! # Concurrency
//! A segment whose bytes are all dead is freed without a look into the index, by the worker that
//! adds them up. So the count has to guarantee what the index would show: that no slot points into
//! the segment. Each worker notes an item *after* it has unlinked it, with Release. A worker that
//! finds all bytes dead raises an Acquire fence and only then begins a grace period. What was
//! unlinked before a counted note is then unlinked for every burst that begins after the grace
//! period began. With Relaxed on either side, a burst that the grace period does not wait for could
//! still load the old slot, and follow it into a segment that is in use again (`loom_tests` shows
//! it).

use crate::memory::{PageId, Slice};
use crate::sync::{AtomicU32, Ordering, fence};

/// For each worker, the bytes of each segment that it has made dead. Only the worker adds to its
/// row, so workers do not contend for cache lines. The last row is for all others: threads that are
/// not workers, and workers whose numbers are beyond those that the arena was made for.
///
/// ```text
///  worker 0: segment 0, 1, 2 … │ worker 1: segment 0, 1, 2 … │ … │ others: segment 0, 1, 2 …
/// ```
pub(crate) struct DeadBytes {
    cells: Slice<AtomicU32>,
    segments: usize,
    /// Where the row for the others begins.
    others: usize,
}

impl DeadBytes {
    /// Bytes that the table takes in the arena for so many workers and segments.
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

    /// Notes that `len` bytes of `segment` are dead. The caller is the worker, and no slot points
    /// to the bytes.
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

    /// As [`DeadBytes::note`], for a thread that may not be a worker.
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

    /// Bytes of a segment that are known to be dead.
    pub(crate) fn of(&self, segment: PageId) -> usize {
        self.cells_of(segment)
            .map(|cell| cell.load(Ordering::Relaxed) as usize)
            .sum()
    }

    /// Whether all `used` bytes of a sealed segment are dead. If so, the caller may retire it. If more
    /// are, a length was not what it had been, and nobody knows what lives.
    pub(crate) fn are_all(&self, segment: PageId, used: usize) -> bool {
        let are_all = self.of(segment) == used;
        if are_all {
            // Their unlinking happened before this thread begins a grace period.
            fence(Ordering::Acquire);
        }
        are_all
    }

    /// The segments whose counts lie in a range of the arena's bytes.
    #[cfg(not(loom))]
    pub(crate) fn segments_in(
        &self,
        bytes: &std::ops::Range<usize>,
    ) -> impl Iterator<Item = PageId> {
        let start = self.cells.mapping().offset_of(&self.cells[0]);
        let cell_at = |offset: usize| {
            let at = offset.saturating_sub(start).div_ceil(size_of::<u32>());
            at.min(self.cells.len())
        };
        // There may be many rows in a page.
        let cells = cell_at(bytes.start)..cell_at(bytes.end);
        let most = cells.start + cells.len().min(self.segments);
        #[expect(clippy::cast_possible_truncation, reason = "page numbers are 32 bits")]
        (cells.start..most).map(|cell| (cell % self.segments) as PageId)
    }

    /// Resets the count: the segment is reused. No thread adds to it now: no slot points into a
    /// free segment, and the last burst that saw such a slot is over.
    pub(crate) fn reset(&self, segment: PageId) {
        for cell in self.cells_of(segment) {
            cell.store(0, Ordering::Relaxed);
        }
    }
}
