//! All segments together: appending to them, and what follows from a place in them.

use super::dead_bytes::DeadBytes;
use super::item::RawItem;
use super::layout::HEADER_LEN;
use super::queues::Queues;
use super::space::Space;
use super::{Queue, Released, SegmentEntry, SegmentState};
use crate::epoch::{Epoch, Epochs, Guard};
use crate::index::slot::{GRANULE, Location};
use crate::memory::{Mapping, PageId, Pages, Purpose, Slice};
use crate::sync::{AtomicU32, AtomicU64, AtomicUsize, Mutex, MutexGuard, Ordering};
use crate::time::UnixSeconds;
use coua_cpu::prefetch_write_at;
use crossbeam_utils::CachePadded;
use std::collections::VecDeque;
use std::sync::{Arc, PoisonError};

/// Bits of a CAS below the segment's sequence number: granules of the largest segment.
const PLACE_BITS: u32 = 18;

/// How far behind the end of an open segment memory is asked for lines to be written: a few large items.
const AHEAD_LEN: usize = 4 << 10;

/// Bytes of a line of the cache.
const LINE_LEN: usize = 64;

/// See the module.
pub(crate) struct Log {
    mapping: Arc<Mapping>,
    pages: Arc<Pages>,
    entries: Slice<SegmentEntry>,
    segment_len: usize,
    segment_shift: u32,
    /// The next sequence number: of a segment, a flush, or CASs that are written out.
    sequence: CachePadded<AtomicU64>,
    /// Segments opened so far.
    opened: AtomicU64,
    /// The time, as a worker has told it last.
    now: AtomicU32,
    /// Segments with a lower sequence number hold only what a flush killed; 0 when that is none.
    flushed_below: CachePadded<AtomicU64>,
    queues: Mutex<Queues>,
    retired: Mutex<VecDeque<(Epoch, PageId)>>,
    retired_count: AtomicUsize,
    dead: DeadBytes,
    /// Segments that somebody holds.
    held: AtomicUsize,
}

/// A place in a segment that is not cleaned and not used again until this is given back by
/// [`Log::release`].
#[derive(Debug)]
#[must_use = "a hold that is not released keeps its segment for ever"]
pub(crate) struct Hold {
    location: Location,
}

impl Hold {
    /// Where the item or piece is.
    pub(crate) fn location(&self) -> Location {
        self.location
    }
}

/// A worker's place to append to.
pub(crate) struct OpenSegment {
    queue: Queue,
    segment: Option<PageId>,
    used: usize,
    sequence: u64,
    /// A sequence number for CASs that are written out, where the segment's own is too low; or 0.
    cas_sequence: u64,
}

impl OpenSegment {
    pub(crate) fn new(queue: Queue) -> OpenSegment {
        OpenSegment {
            queue,
            segment: None,
            used: 0,
            sequence: 0,
            cas_sequence: 0,
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Log {
    pub(crate) fn new(
        pages: Arc<Pages>,
        entries: Slice<SegmentEntry>,
        workers: usize,
        now: UnixSeconds,
    ) -> Log {
        let segment_len = pages.page_len();
        let count = entries.len();
        Log {
            mapping: Arc::clone(entries.mapping()),
            segment_len,
            segment_shift: segment_len.trailing_zeros(),
            sequence: CachePadded::new(AtomicU64::new(1)),
            opened: AtomicU64::new(1),
            now: AtomicU32::new(now.0),
            flushed_below: CachePadded::new(AtomicU64::new(0)),
            queues: Mutex::new(Queues::with_capacity(count)),
            retired: Mutex::new(VecDeque::with_capacity(count)),
            retired_count: AtomicUsize::new(0),
            dead: DeadBytes::new(workers, count),
            held: AtomicUsize::new(0),
            pages,
            entries,
        }
    }

    /// Bytes of the heap for each segment, with so many workers.
    pub(crate) fn heap_len_per_segment(workers: usize) -> usize {
        let dead = (workers + 1) * size_of::<u32>();
        dead + Queues::LEN_PER_SEGMENT + size_of::<(Epoch, PageId)>()
    }

    pub(crate) fn segment_len(&self) -> usize {
        self.segment_len
    }

    pub(crate) fn pages(&self) -> &Arc<Pages> {
        &self.pages
    }

    pub(crate) fn mapping(&self) -> &Arc<Mapping> {
        &self.mapping
    }

    #[inline]
    pub(crate) fn entry(&self, segment: PageId) -> &SegmentEntry {
        &self.entries[segment as usize]
    }

    /// Segments and other pages that there are, the table's own included.
    #[expect(clippy::cast_possible_truncation, reason = "page numbers are 32 bits")]
    pub(crate) fn segment_count(&self) -> PageId {
        self.entries.len() as PageId
    }

    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "page numbers are 32 bits")]
    pub(crate) fn segment_of(&self, location: Location) -> PageId {
        (location.offset() >> self.segment_shift) as PageId
    }

    #[inline]
    pub(crate) fn entry_of(&self, location: Location) -> &SegmentEntry {
        self.entry(self.segment_of(location))
    }

    /// The location `offset` bytes into a segment.
    pub(crate) fn location_in(&self, segment: PageId, offset: usize) -> Location {
        Location::of_offset(segment as usize * self.segment_len + offset)
    }

    /// The item or piece at `location`, to be looked at while the guard lasts. The location was loaded
    /// under the same guard, from a slot or a head's table, or is that of an item that the caller
    /// has written, or lies in a segment that the caller owns.
    #[inline]
    #[expect(unsafe_code, reason = "follows a slot into segment memory")]
    pub(crate) fn item<'g>(&'g self, _: Guard<'g>, location: Location) -> RawItem<'g> {
        // SAFETY: slots and piece tables only ever hold locations of whole, published items, and a
        // segment is not used again before every burst that could have loaded one has ended
        // (`retire` and `reclaim`): the worker announces the end of its own by the presence that the
        // guard borrows.
        unsafe { RawItem::new(&self.mapping, location) }
    }

    /// The item or piece `offset` bytes into a segment whose items end at `end`. The caller owns the
    /// segment, or has seen it sealed under the same guard.
    ///
    /// # Panics
    /// Where it does not lie before `end`: then its header is none.
    pub(crate) fn item_in<'g>(
        &'g self,
        guard: Guard<'g>,
        segment: PageId,
        offset: usize,
        end: usize,
    ) -> (Location, RawItem<'g>) {
        assert!(offset + HEADER_LEN <= end && end <= self.segment_len);
        let location = self.location_in(segment, offset);
        let item = self.item(guard, location);
        assert!(
            item.total_len() <= end - offset,
            "an item that does not fit its segment"
        );
        (location, item)
    }

    /// The item or piece whose segment `hold` keeps from being used again.
    #[inline]
    #[expect(unsafe_code, reason = "looks into a held segment")]
    pub(crate) fn held_item<'h>(&'h self, hold: &'h Hold) -> RawItem<'h> {
        // SAFETY: an item or piece was written there before the hold was made, and its segment is not
        // used again before the hold is released, which takes it by value.
        unsafe { RawItem::new(&self.mapping, hold.location) }
    }

    /// The CAS of an item at `location`, where the item does not carry one: its place in the log.
    #[inline]
    pub(crate) fn cas_of(&self, location: Location) -> u64 {
        let within = (location.offset() & (self.segment_len - 1)) / GRANULE;
        (self.entry_of(location).sequence() << PLACE_BITS) | within as u64
    }

    /// Tells the time, of which segments remember when they were opened. Once a turn.
    pub(crate) fn note_time(&self, now: UnixSeconds) {
        if self.now.load(Ordering::Relaxed) != now.0 {
            self.now.store(now.0, Ordering::Relaxed);
        }
    }

    /// When the oldest segment was opened of those that hold items, where there are any.
    pub(crate) fn oldest_opened_at(&self) -> Option<UnixSeconds> {
        let all = (0..self.segment_count()).map(|segment| self.entry(segment));
        let holds_items = |entry: &&SegmentEntry| {
            let state = entry.state();
            let is_old = matches!(state, SegmentState::Sealed | SegmentState::Cleaning);
            is_old || state == SegmentState::Open && entry.used() > 0
        };
        let opened = all.filter(holds_items).map(|entry| entry.opened_at().0);
        opened.min().map(UnixSeconds)
    }

    /// How many segments have been opened: the log's clock.
    pub(crate) fn clock(&self) -> u64 {
        self.opened.load(Ordering::Relaxed)
    }

    /// `len` bytes at the end of the worker's open segment, or of a new one; `None` where no page
    /// is to be had. `len` is at most a segment's.
    #[inline]
    pub(crate) fn append(
        &self,
        open: &mut OpenSegment,
        len: usize,
        purpose: Purpose,
    ) -> Option<Space<'_>> {
        debug_assert!(len <= self.segment_len && len.is_multiple_of(GRANULE));
        if open.segment.is_none()
            || open.used + len > self.segment_len
            || open.sequence < self.flushed_below()
        {
            self.open_next(open, purpose)?;
        }
        let segment = open.segment?;
        let location = Location::of_offset((segment as usize * self.segment_len) + open.used);
        self.ask_ahead(location, len, self.segment_len - open.used);
        open.used += len;
        #[expect(unsafe_code, reason = "hands out segment memory")]
        // SAFETY: the segment is the worker's, and each byte of it is handed out once in its life.
        Some(unsafe { Space::new(&self.mapping, location, len) })
    }

    /// Has memory fetch the lines that are written [`AHEAD_LEN`] bytes behind an item of `len`: none of them
    /// is in a cache, and a core that stores into many such lines waits for each. `room` are the bytes from the item
    /// on that are the segment's.
    #[inline]
    fn ask_ahead(&self, item: Location, len: usize, room: usize) {
        let from = item.offset();
        let start = self.mapping.at(from).as_ptr();
        let mut line = (from + AHEAD_LEN).next_multiple_of(LINE_LEN);
        let end = from + (AHEAD_LEN + len.min(AHEAD_LEN)).min(room);
        while line < end {
            prefetch_write_at(start.wrapping_add(line - from));
            line += LINE_LEN;
        }
    }

    /// The least CAS that the next item appended will have by its place.
    #[inline]
    pub(crate) fn next_cas(&self, open: &OpenSegment) -> u64 {
        match open.segment {
            Some(_) => (open.sequence << PLACE_BITS) | (open.used / GRANULE) as u64,
            None => self.sequence.load(Ordering::Relaxed) << PLACE_BITS,
        }
    }

    /// A CAS above `above` for the next item appended, to be written out, and never given to
    /// another. `None` where its place gives it one. Nothing comes after the highest CAS, which
    /// only a client can have chosen: then the item's place decides again.
    #[inline]
    pub(crate) fn cas_after(&self, open: &mut OpenSegment, above: u64) -> Option<u64> {
        if self.next_cas(open) > above {
            return None;
        }
        self.explicit_cas_after(open, above)
    }

    #[cold]
    fn explicit_cas_after(&self, open: &mut OpenSegment, above: u64) -> Option<u64> {
        // Numbers of this segment's own, one for each place in it, so that none is given twice.
        let place = (open.used / GRANULE) as u64;
        if (open.cas_sequence << PLACE_BITS) | place <= above {
            open.cas_sequence = self.sequence.fetch_add(1, Ordering::AcqRel);
        }
        let cas = (open.cas_sequence << PLACE_BITS) | place;
        if cas > above {
            Some(cas)
        } else {
            // A client has chosen a CAS that the log will not come to.
            above.checked_add(1)
        }
    }

    /// Bytes that fit into the open segment without another.
    pub(crate) fn room(&self, open: &OpenSegment) -> usize {
        if open.segment.is_some() {
            self.segment_len - open.used
        } else {
            0
        }
    }

    #[cold]
    fn open_next(&self, open: &mut OpenSegment, purpose: Purpose) -> Option<()> {
        let next = self.pages.take(purpose)?;
        self.seal(open);
        self.dead.reset(next);
        // Acquire: who opens a segment that a flush does not kill sees the flush.
        let sequence = self.sequence.fetch_add(1, Ordering::AcqRel);
        self.opened.fetch_add(1, Ordering::Relaxed);
        let now = UnixSeconds(self.now.load(Ordering::Relaxed));
        self.entry(next).open(open.queue, sequence, now);
        *open = OpenSegment {
            queue: open.queue,
            segment: Some(next),
            used: 0,
            sequence,
            cas_sequence: 0,
        };
        Some(())
    }

    /// Ends an open segment, if there is one.
    pub(crate) fn seal(&self, open: &mut OpenSegment) {
        let Some(segment) = open.segment.take() else {
            return;
        };
        let entry = self.entry(segment);
        entry.set_used(open.used);
        entry.set_state(SegmentState::Sealed);
        lock(&self.queues).push(open.queue, segment);
    }

    /// Notes that `len` bytes at `location` are of no use any more.
    #[inline]
    pub(crate) fn note_dead(&self, worker: usize, location: Location, len: usize) {
        self.dead.note(worker, self.segment_of(location), len);
    }

    /// As [`Log::note_dead`], for a thread that need not be a worker.
    pub(crate) fn note_dead_from_outside(&self, location: Location, len: usize) {
        self.dead.note_from_outside(self.segment_of(location), len);
    }

    /// Bytes of a segment that are known to be of no use.
    pub(crate) fn dead_bytes(&self, segment: PageId) -> usize {
        self.dead.of(segment)
    }

    /// Whether all of a sealed segment is of no use, so that it can be retired.
    pub(crate) fn is_all_dead(&self, segment: PageId) -> bool {
        self.dead.are_all(segment, self.entry(segment).used())
    }

    /// Bytes of segments that items take which are not known to be dead.
    pub(crate) fn live_bytes(&self) -> usize {
        (0..self.segment_count())
            .filter(|&segment| {
                matches!(
                    self.entry(segment).state(),
                    SegmentState::Open | SegmentState::Sealed | SegmentState::Cleaning
                )
            })
            .map(|segment| {
                self.entry(segment)
                    .used()
                    .saturating_sub(self.dead_bytes(segment))
            })
            .sum()
    }

    /// Lets others see how full an open segment is.
    pub(crate) fn publish_used(&self, open: &OpenSegment) {
        if let Some(segment) = open.segment {
            self.entry(segment).set_used(open.used);
        }
    }

    /// The queues of sealed segments. Held for a few microseconds, once a segment.
    pub(crate) fn queues(&self) -> MutexGuard<'_, Queues> {
        lock(&self.queues)
    }

    /// Hands over a segment that no slot points into any more, to be free after a grace period.
    pub(crate) fn retire(&self, segment: PageId, epochs: &Epochs) {
        self.entry(segment).set_state(SegmentState::Retired);
        let mut retired = lock(&self.retired);
        // Under the lock, so that the queue is in the order of the epochs.
        retired.push_back((epochs.advance(), segment));
        self.retired_count.store(retired.len(), Ordering::Relaxed);
    }

    /// Frees retired segments whose grace period is over. Those that somebody still holds are freed by
    /// [`Log::release`].
    pub(crate) fn reclaim(&self, epochs: &Epochs) {
        if self.retired_count.load(Ordering::Relaxed) == 0 {
            return;
        }
        let Ok(mut retired) = self.retired.try_lock() else {
            return;
        };
        while let Some(&(epoch, segment)) = retired.front()
            && epochs.is_over(epoch)
        {
            retired.pop_front();
            if self.entry(segment).become_unreachable() {
                self.free(segment);
            }
        }
        self.retired_count.store(retired.len(), Ordering::Relaxed);
    }

    fn free(&self, segment: PageId) {
        self.entry(segment).end();
        self.pages.give_back(segment);
    }

    /// Retired segments whose grace period lasts, as of a moment ago.
    pub(crate) fn coming_count(&self) -> usize {
        self.retired_count.load(Ordering::Relaxed)
    }

    /// Keeps the item or piece at `location` readable after the burst; see [`Log::item`] for which
    /// locations these are.
    pub(crate) fn hold(&self, _: Guard<'_>, location: Location) -> Hold {
        if self.entry_of(location).hold() {
            self.held.fetch_add(1, Ordering::Relaxed);
        }
        Hold { location }
    }

    /// Gives a [`Log::hold`] back.
    pub(crate) fn release(&self, hold: Hold) {
        let segment = self.segment_of(hold.location);
        let released = self.entry(segment).release();
        if released != Released::Held {
            self.held.fetch_sub(1, Ordering::Relaxed);
        }
        if released == Released::Unreachable {
            self.free(segment);
        }
    }

    /// Segments that somebody holds.
    pub(crate) fn held_count(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    /// Kills everything stored so far. Returns the sequence number below which all is dead.
    pub(crate) fn flush(&self) -> u64 {
        let mut last = self.sequence.load(Ordering::Relaxed);
        loop {
            // The mark first, so that whoever opens a segment that is not killed sees it.
            self.flushed_below.fetch_max(last + 1, Ordering::Release);
            match self.sequence.compare_exchange_weak(
                last,
                last + 1,
                Ordering::AcqRel,
                Ordering::Relaxed,
            ) {
                Ok(_) => break,
                Err(now) => last = now,
            }
        }
        // The cleaner may have taken an earlier attempt's mark away.
        self.flushed_below.fetch_max(last + 1, Ordering::Release);
        last + 1
    }

    /// The flush whose dead are still being cleared away; 0 where none are.
    #[inline]
    pub(crate) fn flushed_below(&self) -> u64 {
        self.flushed_below.load(Ordering::Acquire)
    }

    /// Says that nothing is left of what the flush at `below` killed.
    pub(crate) fn flush_is_over(&self, below: u64) {
        let _ = self
            .flushed_below
            .compare_exchange(below, 0, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Whether a flush has killed the item at `location`.
    #[inline]
    pub(crate) fn is_flushed(&self, location: Location) -> bool {
        let below = self.flushed_below();
        below != 0 && self.entry_of(location).sequence() < below
    }

    /// Whether a flush came between the items at two locations, so that what was made from one must
    /// not take its place at the other: one of them is dead, the other is not.
    #[inline]
    pub(crate) fn are_parted(&self, one: Location, other: Location) -> bool {
        let below = self.flushed_below();
        below != 0
            && (self.entry_of(one).sequence() < below) != (self.entry_of(other).sequence() < below)
    }

    /// Ends an open segment that is older than `below`: what is in it is dead, what comes must not
    /// be.
    pub(crate) fn seal_older(&self, open: &mut OpenSegment, below: u64) {
        if open
            .segment
            .is_some_and(|segment| self.entry(segment).sequence() < below)
        {
            self.seal(open);
        }
    }
}
