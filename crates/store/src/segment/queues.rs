//! The two queues of sealed segments, oldest first.
//!
//! New items go through the small queue; those that are read while they pass through it, and those
//! that come back soon after they were evicted (their ghost is there), live in the main queue.

use crate::memory::PageId;
use std::collections::VecDeque;

/// Which queue a segment belongs to, from when it is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Queue {
    /// Items on probation, about a tenth of memory.
    Small = 0,
    /// Items that have proved themselves.
    Main = 1,
}

/// Sealed segments in the order in which they were sealed.
#[derive(Default)]
pub(crate) struct Queues {
    small: VecDeque<PageId>,
    main: VecDeque<PageId>,
}

impl Queues {
    /// Queues that never allocate again, for at most `segments` segments.
    pub(crate) fn with_capacity(segments: usize) -> Queues {
        Queues {
            small: VecDeque::with_capacity(segments),
            main: VecDeque::with_capacity(segments),
        }
    }

    fn queue(&mut self, queue: Queue) -> &mut VecDeque<PageId> {
        match queue {
            Queue::Small => &mut self.small,
            Queue::Main => &mut self.main,
        }
    }

    pub(crate) fn push(&mut self, queue: Queue, segment: PageId) {
        self.queue(queue).push_back(segment);
    }

    pub(crate) fn small_len(&self) -> usize {
        self.small.len()
    }

    pub(crate) fn main_len(&self) -> usize {
        self.main.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = PageId> + '_ {
        self.small.iter().chain(&self.main).copied()
    }

    /// The oldest segment of `queue` that `may_take` allows.
    pub(crate) fn pop(
        &mut self,
        queue: Queue,
        may_take: impl Fn(PageId) -> bool,
    ) -> Option<PageId> {
        let queue = self.queue(queue);
        let at = queue.iter().position(|&segment| may_take(segment))?;
        queue.remove(at)
    }

    /// Takes `segment` out, wherever it is.
    pub(crate) fn remove(&mut self, segment: PageId) -> bool {
        for queue in [&mut self.small, &mut self.main] {
            if let Some(at) = queue.iter().position(|&other| other == segment) {
                queue.remove(at);
                return true;
            }
        }
        false
    }
}
