//! Segments that workers append to, and what is known of them in the arena.

use crate::memory::{PageId, Queue, shared};
use crate::sync::{AtomicU32, Ordering};

/// Segments that a worker has open at a time: of each queue one for clients and one for the cleaner.
pub(crate) const OPEN_SEGMENTS: usize = 4;

shared! {
    /// How far a worker has come in an open segment, for whoever takes its memory over.
    #[repr(C, align(16))]
    #[derive(Default)]
    pub(crate) struct OpenRecord {
        /// The segment; 0, which is none, where the worker has none open.
        segment: AtomicU32,
        /// Bytes handed out. What lies there is written but for the last item, of which that is not
        /// known.
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

    /// The worker has no segment open.
    pub(crate) fn clear(&self) {
        self.segment.store(0, Ordering::Release);
    }

    /// Nothing of `segment` is handed out yet.
    pub(super) fn begin(&self, segment: PageId) {
        self.clear();
        self.used.store(0, Ordering::Relaxed);
        self.segment.store(segment, Ordering::Release);
    }

    /// Release: what was written of the items before it stands there.
    #[inline]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "segments are at most 2 MiB"
    )]
    pub(super) fn note(&self, used: usize) {
        self.used.store(used as u32, Ordering::Release);
    }
}

/// A worker's place to append to.
pub(crate) struct OpenSegment {
    pub(super) queue: Queue,
    /// The number of its [`OpenRecord`].
    pub(super) record: usize,
    pub(super) segment: Option<PageId>,
    pub(super) used: usize,
    pub(super) sequence: u64,
    /// A sequence number for CASs that are written out, where the segment's own is too low; or 0.
    pub(super) cas_sequence: u64,
}

impl OpenSegment {
    /// Worker `worker`'s segment for `queue`, of clients' items or of those that the cleaner moves.
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
