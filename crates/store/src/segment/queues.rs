//! The two queues of sealed segments, oldest first.
//!
//! New items go through the small queue. Items that are read while they pass through it, and items
//! that return soon after their eviction (their ghost is there), live in the main queue.

use crate::memory::{Doubled, PageEntry, PageId, Queue};

/// Sealed segments in the order in which they were sealed: two linked rings of segments, so that
/// any of them can be removed in constant time.
///
/// ```text
///  links:  segment 0 │ segment 1 │ … │ small's ends │ main's ends
/// ```
pub(crate) struct Queues {
    links: Box<[Link]>,
    lens: [usize; 2],
    /// Where the order is recorded for a process that takes over.
    table: Doubled<PageEntry>,
    /// The order numbers of the segment that is next put at the front, and of the one next put at
    /// the end.
    next: [u64; 2],
}

/// The order number of the first segment in its queue. It leaves more numbers below it than any
/// process uses up.
const ORDER_MIDDLE: u64 = 1 << 40;

/// A segment's neighbours, or a queue's first and last segment.
#[derive(Clone, Copy)]
struct Link {
    /// The next older one.
    older: PageId,
    /// The next younger one.
    younger: PageId,
    /// The queue that it is in.
    queue: Option<Queue>,
}

impl Queues {
    /// Heap bytes for each segment.
    pub(crate) const LEN_PER_SEGMENT: usize = size_of::<Link>();

    /// Empty queues for the segments of a table. They never allocate again.
    pub(crate) fn new(table: Doubled<PageEntry>) -> Queues {
        #[expect(clippy::cast_possible_truncation, reason = "page numbers are 32 bits")]
        let alone = |at: usize| Link {
            older: at as PageId,
            younger: at as PageId,
            queue: None,
        };
        Queues {
            links: (0..table.len() + 2).map(alone).collect(),
            lens: [0; 2],
            table,
            next: [ORDER_MIDDLE - 1, ORDER_MIDDLE],
        }
    }

    /// The link that keeps a queue's ends.
    #[expect(clippy::cast_possible_truncation, reason = "page numbers are 32 bits")]
    fn ends(&self, queue: Queue) -> PageId {
        (self.links.len() - 2 + queue as usize) as PageId
    }

    fn link(&mut self, at: PageId) -> &mut Link {
        &mut self.links[at as usize]
    }

    /// Adds a segment as the youngest.
    pub(crate) fn push(&mut self, queue: Queue, segment: PageId) {
        let ends = self.ends(queue);
        let youngest = self.link(ends).older;
        self.table.at(segment as usize).set_order(self.next[1]);
        self.next[1] += 1;
        self.insert(queue, segment, youngest, ends);
    }

    /// Adds a segment as the oldest.
    pub(crate) fn push_oldest(&mut self, queue: Queue, segment: PageId) {
        let ends = self.ends(queue);
        let oldest = self.link(ends).younger;
        self.table.at(segment as usize).set_order(self.next[0]);
        self.next[0] -= 1;
        self.insert(queue, segment, ends, oldest);
    }

    fn insert(&mut self, queue: Queue, segment: PageId, older: PageId, younger: PageId) {
        debug_assert!(self.link(segment).queue.is_none(), "in a queue already");
        *self.link(segment) = Link {
            older,
            younger,
            queue: Some(queue),
        };
        self.link(older).younger = segment;
        self.link(younger).older = segment;
        self.lens[queue as usize] += 1;
    }

    pub(crate) fn small_len(&self) -> usize {
        self.lens[Queue::Small as usize]
    }

    pub(crate) fn main_len(&self) -> usize {
        self.lens[Queue::Main as usize]
    }

    /// The oldest segment of `queue` that `may_take` allows. Those before it become the youngest,
    /// so that they are not passed over again and again.
    pub(crate) fn pop(
        &mut self,
        queue: Queue,
        may_take: impl Fn(PageId) -> bool,
    ) -> Option<PageId> {
        let ends = self.ends(queue);
        for _ in 0..self.lens[queue as usize] {
            let oldest = self.link(ends).younger;
            self.remove(oldest);
            if may_take(oldest) {
                return Some(oldest);
            }
            self.push(queue, oldest);
        }
        None
    }

    /// The oldest of the first `most` segments of `queue` that `is_wanted`. The queue stays as it is.
    pub(crate) fn oldest(
        &self,
        queue: Queue,
        most: usize,
        is_wanted: impl Fn(PageId) -> bool,
    ) -> Option<PageId> {
        let ends = self.ends(queue);
        let younger = |&at: &PageId| Some(self.links[at as usize].younger);
        std::iter::successors(younger(&ends), younger)
            .take(most.min(self.lens[queue as usize]))
            .find(|&segment| is_wanted(segment))
    }

    /// Removes `segment`, wherever it is. False if it is in no queue.
    pub(crate) fn remove(&mut self, segment: PageId) -> bool {
        let Link {
            older,
            younger,
            queue,
        } = *self.link(segment);
        let Some(queue) = queue else { return false };
        self.link(older).younger = younger;
        self.link(younger).older = older;
        self.link(segment).queue = None;
        self.lens[queue as usize] -= 1;
        true
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::memory::Mapping;

    fn queues(segments: usize) -> Queues {
        let memory = Mapping::reserve(1).unwrap();
        Queues::new(Doubled::new(&memory, (0, 4096), segments))
    }

    /// All segments of a queue, oldest first.
    fn drain(queues: &mut Queues, queue: Queue) -> Vec<PageId> {
        std::iter::from_fn(|| queues.pop(queue, |_| true)).collect()
    }

    #[test]
    fn an_oldest_one_is_found_without_a_change() {
        let mut queues = queues(8);
        for segment in 0..6 {
            queues.push(Queue::Small, segment);
        }
        let odd = |segment: PageId| segment % 2 == 1;
        assert_eq!(queues.oldest(Queue::Small, 4, odd), Some(1));
        assert_eq!(queues.oldest(Queue::Small, 1, odd), None);
        assert_eq!(queues.oldest(Queue::Small, 99, |s| s > 5), None);
        assert_eq!(queues.oldest(Queue::Main, 4, |_| true), None);
        assert_eq!(drain(&mut queues, Queue::Small), [0, 1, 2, 3, 4, 5]);
    }

    #[test]
    fn segments_leave_in_the_order_in_which_they_came() {
        let mut queues = queues(8);
        for segment in [3, 0, 7] {
            queues.push(Queue::Small, segment);
        }
        queues.push(Queue::Main, 5);
        queues.push_oldest(Queue::Small, 1);
        assert_eq!((queues.small_len(), queues.main_len()), (4, 1));
        assert_eq!(drain(&mut queues, Queue::Small), [1, 3, 0, 7]);
        assert_eq!(drain(&mut queues, Queue::Main), [5]);
        assert_eq!((queues.small_len(), queues.main_len()), (0, 0));
    }

    #[test]
    fn any_segment_can_be_taken_out_once() {
        for taken in 0..4 {
            let mut queues = queues(4);
            for segment in 0..4 {
                queues.push(Queue::Main, segment);
            }
            assert!(queues.remove(taken) && !queues.remove(taken));
            queues.push(Queue::Small, taken);
            let rest: Vec<PageId> = (0..4).filter(|&segment| segment != taken).collect();
            assert_eq!(drain(&mut queues, Queue::Main), rest);
            assert_eq!(drain(&mut queues, Queue::Small), [taken]);
        }
    }

    #[test]
    fn what_may_not_be_taken_is_passed_once() {
        let mut queues = queues(4);
        for segment in 0..4 {
            queues.push(Queue::Main, segment);
        }
        assert_eq!(queues.pop(Queue::Main, |segment| segment > 1), Some(2));
        // The segment offered next is not one that was passed over.
        assert_eq!(queues.pop(Queue::Main, |_| true), Some(3));
        assert_eq!(queues.pop(Queue::Main, |_| false), None);
        assert_eq!(drain(&mut queues, Queue::Main), [0, 1]);
    }
}
