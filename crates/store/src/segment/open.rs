//! The segments that workers append to, and their records in the arena.

use crate::memory::{PageId, Queue, shared};
use crate::sync::{AtomicU32, Ordering};

/// Segments that a worker has open at a time: one of each queue for clients, and one of each for
/// the cleaner.
pub(crate) const OPEN_SEGMENTS: usize = 4;

shared! {
    /// How far a worker has filled an open segment, for a process that takes over.
    #[repr(C, align(16))]
    #[derive(Default)]
    pub(crate) struct OpenRecord {
        /// The segment; 0, which is never a segment, if the worker has none open.
        segment: AtomicU32,
        /// Bytes handed out. All of them are written, except perhaps the last item.
        used: AtomicU32,
    }
}

impl OpenRecord {
    /// The segment, and the bytes handed out of it.
    pub(crate) fn read(&self) -> Option<(PageId, usize)> {
        let segment = self.segment.load(Ordering::Relaxed);
        let used = self.used.load(Ordering::Relaxed);
        (segment != 0).then_some((segment, used as usize))
    }

    /// Notes that the worker has no segment open.
    pub(crate) fn clear(&self) {
        self.segment.store(0, Ordering::Release);
    }

    /// Notes that nothing of `segment` is handed out yet.
    pub(super) fn begin(&self, segment: PageId) {
        self.clear();
        self.used.store(0, Ordering::Relaxed);
        self.segment.store(segment, Ordering::Release);
    }

    /// Release: the items before have been written by then.
    #[inline]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "segments are at most 2 MiB"
    )]
    pub(super) fn note(&self, used: usize) {
        self.used.store(used as u32, Ordering::Release);
    }
}

/// A segment that a worker appends to.
pub(crate) struct OpenSegment {
    pub(super) queue: Queue,
    /// The number of its [`OpenRecord`].
    pub(super) record: usize,
    pub(super) segment: Option<PageId>,
    pub(super) used: usize,
    pub(super) sequence: u64,
    /// A sequence number for explicit CASs, used when the segment's own is too low; otherwise 0.
    pub(super) cas_sequence: u64,
}

impl OpenSegment {
    /// The segment, if there is one.
    pub(crate) fn segment(&self) -> Option<PageId> {
        self.segment
    }

    /// Worker `worker`'s segment for `queue`: for clients' items, or for those that the cleaner
    /// moves.
    pub(crate) fn new(worker: usize, queue: Queue, is_cleaners: bool) -> OpenSegment {
        OpenSegment {
            queue,
            record: worker * OPEN_SEGMENTS + 2 * usize::from(is_cleaners) + queue as usize,
            segment: None,
            used: 0,
            sequence: 0,
            cas_sequence: 0,
        }
    }
}
