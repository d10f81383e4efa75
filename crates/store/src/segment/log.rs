//! All segments together: appending to them, and what follows from a place in the log.

use super::dead_bytes::DeadBytes;
use super::item::RawItem;
use super::layout::HEADER_LEN;
use super::open::OpenRecord;
use super::queues::Queues;
use crate::epoch::{Epoch, Epochs, Guard};
use crate::index::slot::Location;
use crate::memory::{
    Doubled, Mapping, PageEntry, PageId, PageState, Pages, Released, Slice, Superblock, Twin,
};
use crate::sync::{AtomicU32, AtomicU64, AtomicUsize, Mutex, MutexGuard, Ordering};
use crate::time::UnixSeconds;
use coua_flash::log::Volume;
use crossbeam_utils::CachePadded;
use std::collections::VecDeque;
use std::sync::{Arc, OnceLock, PoisonError};

/// What the log keeps in the arena in addition to the segments.
#[derive(Clone)]
pub(crate) struct LogTables {
    pub(crate) superblock: Doubled<Superblock>,
    pub(crate) open_records: Slice<OpenRecord>,
    pub(crate) page_table: Doubled<PageEntry>,
    pub(crate) dead_bytes: Slice<AtomicU32>,
}

/// See the module.
pub(crate) struct Log {
    pub(super) mapping: Arc<Mapping>,
    pub(super) pages: Arc<Pages>,
    superblock: Doubled<Superblock>,
    entries: Doubled<PageEntry>,
    pub(super) open_records: Slice<OpenRecord>,
    pub(super) segment_len: usize,
    segment_shift: u32,
    /// Segments with a lower sequence number hold only what a flush killed; 0 if there are none.
    /// Every lookup reads it, so it is kept here, and in the superblock for a process that takes
    /// over.
    flushed_below: CachePadded<AtomicU64>,
    queues: Mutex<Queues>,
    retired: Mutex<VecDeque<(Epoch, PageId)>>,
    retired_count: AtomicUsize,
    pub(super) dead: DeadBytes,
    /// Segments that are held.
    held: AtomicUsize,
    /// Segments that are kept until their items are on flash, and these are being written.
    leaving: AtomicUsize,
    /// Where items go that are evicted.
    volume: OnceLock<Arc<Volume>>,
}

/// A place in a segment that is neither cleaned nor reused until the hold is given back with
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

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Log {
    /// The log of an arena. Its sealed segments are in no queue yet.
    pub(crate) fn new(tables: LogTables, pages: Arc<Pages>) -> Log {
        let LogTables {
            superblock,
            open_records,
            page_table: entries,
            dead_bytes,
        } = tables;
        let segment_len = pages.page_len();
        let flushed_below = superblock.at(0).state.flushed_below.load(Ordering::Relaxed);
        Log {
            mapping: Arc::clone(entries.mapping()),
            segment_len,
            segment_shift: segment_len.trailing_zeros(),
            superblock,
            open_records,
            flushed_below: CachePadded::new(AtomicU64::new(flushed_below)),
            queues: Mutex::new(Queues::new(entries.clone())),
            retired: Mutex::new(VecDeque::with_capacity(entries.len())),
            retired_count: AtomicUsize::new(0),
            dead: DeadBytes::new(dead_bytes, entries.len()),
            held: AtomicUsize::new(0),
            leaving: AtomicUsize::new(0),
            volume: OnceLock::new(),
            pages,
            entries,
        }
    }

    /// Heap bytes for each segment.
    pub(crate) const HEAP_LEN_PER_SEGMENT: usize =
        Queues::LEN_PER_SEGMENT + size_of::<(Epoch, PageId)>();

    /// What the next process has to know.
    pub(crate) fn superblock(&self) -> Twin<'_, Superblock> {
        self.superblock.at(0)
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
    pub(crate) fn entry(&self, segment: PageId) -> Twin<'_, PageEntry> {
        self.entries.at(segment as usize)
    }

    /// The bytes of the arena that a page takes.
    pub(crate) fn range_of(&self, page: PageId) -> std::ops::Range<usize> {
        let start = page as usize * self.segment_len;
        start..start + self.segment_len
    }

    /// The pages that a range of the arena lies in.
    #[expect(clippy::cast_possible_truncation, reason = "page numbers are 32 bits")]
    pub(crate) fn pages_of(&self, range: &std::ops::Range<usize>) -> impl Iterator<Item = PageId> {
        let pages = range.start >> self.segment_shift..range.end.div_ceil(self.segment_len);
        let pages = pages.start.min(self.entries.len())..pages.end.min(self.entries.len());
        (pages.start..pages.end).map(|page| page as PageId)
    }

    /// The number of pages, segments or not, including the tables' own.
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
    pub(crate) fn entry_of(&self, location: Location) -> Twin<'_, PageEntry> {
        self.entry(self.segment_of(location))
    }

    /// The location `offset` bytes into a segment.
    pub(crate) fn location_in(&self, segment: PageId, offset: usize) -> Location {
        Location::of_offset(segment as usize * self.segment_len + offset)
    }

    /// The item or piece at `location`, readable while the guard lives. The location was loaded
    /// under the same guard, from a slot or a head's table; or the caller has written the item; or
    /// the caller owns the segment.
    #[inline]
    #[expect(unsafe_code, reason = "follows a slot into segment memory")]
    pub(crate) fn item<'g>(&'g self, _: Guard<'g>, location: Location) -> RawItem<'g> {
        // SAFETY: slots and piece tables only ever hold locations of whole, published items, and a
        // segment is not reused before every burst that could have loaded one has ended (`retire`
        // and `reclaim`): the worker announces the end of its own burst by the presence that the
        // guard borrows.
        unsafe { RawItem::new(&self.mapping, location) }
    }

    /// The item or piece `offset` bytes into a segment whose items end at `end`. The caller owns the
    /// segment, or has seen it sealed under the same guard.
    ///
    /// `None` if it does not lie before `end`: then there is no header, since a part of the segment
    /// is lost, or says what it cannot.
    pub(crate) fn item_in<'g>(
        &'g self,
        guard: Guard<'g>,
        segment: PageId,
        offset: usize,
        end: usize,
    ) -> Option<(Location, RawItem<'g>)> {
        if offset + HEADER_LEN > end || end > self.segment_len {
            return None;
        }
        let location = self.location_in(segment, offset);
        let item = self.item(guard, location);
        item.ends_within(end - offset).then_some((location, item))
    }

    /// Whether an item or piece ends in its segment, as its header says; see [`RawItem::ends_within`].
    pub(crate) fn is_within(&self, location: Location, item: RawItem<'_>) -> bool {
        item.ends_within(self.room_at(location))
    }

    /// Bytes from a location to the end of its segment.
    #[inline]
    pub(crate) fn room_at(&self, location: Location) -> usize {
        self.segment_len - (location.offset() & (self.segment_len - 1))
    }

    /// The piece at a location from a head's table, readable while the guard lives. `None` if there
    /// is none: the head, or the piece, is not what was written.
    pub(crate) fn piece<'g>(&'g self, guard: Guard<'g>, location: Location) -> Option<RawItem<'g>> {
        let page = location.offset() >> self.segment_shift;
        if page >= self.entries.len() {
            return None;
        }
        let state = self.entry_of(location).state();
        // Until this burst ends, a piece that has died may lie in a segment that was emptied.
        let may_be_there = state.holds_items() || state == PageState::Retired;
        let piece = self.item(guard, location);
        (may_be_there && piece.is_piece() && self.is_within(location, piece)).then_some(piece)
    }

    /// The item or piece in the segment that `hold` keeps from being reused.
    #[inline]
    #[expect(unsafe_code, reason = "looks into a held segment")]
    pub(crate) fn held_item<'h>(&'h self, hold: &'h Hold) -> RawItem<'h> {
        // SAFETY: an item or piece was written there before the hold was made, and its segment is
        // not reused before the hold is released, which takes it by value.
        unsafe { RawItem::new(&self.mapping, hold.location) }
    }

    /// Sets the time that segments record when they are opened. Called once a turn.
    pub(crate) fn note_time(&self, now: UnixSeconds) {
        if self.superblock().state.now.load(Ordering::Relaxed) != now.0 {
            self.superblock().set_now(now.0);
        }
    }

    /// What was noted last.
    pub(crate) fn noted_time(&self) -> UnixSeconds {
        UnixSeconds(self.superblock().state.now.load(Ordering::Relaxed))
    }

    /// Whether anything has ever been evicted.
    pub(crate) fn is_evicting(&self) -> bool {
        self.superblock().state.evicting.load(Ordering::Relaxed) != 0
    }

    /// Notes that something is evicted.
    pub(crate) fn note_eviction(&self) {
        if !self.is_evicting() {
            self.superblock().set_evicting();
        }
    }

    /// When the oldest segment that holds items was opened, if there is one.
    pub(crate) fn oldest_opened_at(&self) -> Option<UnixSeconds> {
        let all = (0..self.segment_count()).map(|segment| self.entry(segment));
        let holds_items = |entry: &Twin<'_, PageEntry>| {
            let state = entry.state();
            let is_old = matches!(state, PageState::Sealed | PageState::Cleaning);
            is_old || state == PageState::Open && entry.used() > 0
        };
        let opened = all.filter(holds_items).map(|entry| entry.opened_at().0);
        opened.min().map(UnixSeconds)
    }

    /// The number of segments opened so far: the log's clock.
    pub(crate) fn clock(&self) -> u64 {
        self.superblock().sequences.opened.load(Ordering::Relaxed)
    }

    /// Notes that `len` bytes at `location` are dead.
    #[inline]
    pub(crate) fn note_dead(&self, worker: usize, location: Location, len: usize) {
        self.dead.note(worker, self.segment_of(location), len);
    }

    /// As [`Log::note_dead`], for a thread that may not be a worker.
    pub(crate) fn note_dead_from_outside(&self, location: Location, len: usize) {
        self.dead.note_from_outside(self.segment_of(location), len);
    }

    /// Bytes of a segment that are known to be dead.
    pub(crate) fn dead_bytes(&self, segment: PageId) -> usize {
        self.dead.of(segment)
    }

    /// Notes that of some segments fewer bytes are known to be dead than are, since a range of the
    /// arena is lost.
    #[cfg(not(loom))]
    pub(crate) fn note_uncounted(&self, lost: &std::ops::Range<usize>) {
        for segment in self.dead.segments_in(lost) {
            self.entry(segment).set_uncounted();
        }
    }

    /// Whether all of a sealed segment is dead, so that it can be retired.
    pub(crate) fn is_all_dead(&self, segment: PageId) -> bool {
        self.dead.are_all(segment, self.entry(segment).used())
    }

    /// Bytes of items in segments that are not known to be dead.
    pub(crate) fn live_bytes(&self) -> usize {
        (0..self.segment_count())
            .filter(|&segment| self.entry(segment).state().holds_items())
            .map(|segment| {
                self.entry(segment)
                    .used()
                    .saturating_sub(self.dead_bytes(segment))
            })
            .sum()
    }

    /// The queues of sealed segments. Locked for a few microseconds, once a segment.
    pub(crate) fn queues(&self) -> MutexGuard<'_, Queues> {
        lock(&self.queues)
    }

    /// Retires a segment that no slot points into any more; it becomes free after a grace period.
    pub(crate) fn retire(&self, segment: PageId, epochs: &Epochs) {
        self.entry(segment).set_state(PageState::Retired);
        let mut retired = lock(&self.retired);
        // Under the lock, so that the queue is in the order of the epochs.
        retired.push_back((epochs.advance(), segment));
        self.retired_count.store(retired.len(), Ordering::Relaxed);
    }

    /// Frees retired segments whose grace period is over. Segments that are still held are freed by
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

    /// The approximate number of retired segments whose grace period is not over.
    pub(crate) fn coming_count(&self) -> usize {
        self.retired_count.load(Ordering::Relaxed)
    }

    /// Keeps the item or piece at `location` readable after the burst; [`Log::item`] says which
    /// locations are allowed.
    pub(crate) fn hold(&self, _: Guard<'_>, location: Location) -> Hold {
        if self.entry_of(location).hold() {
            self.held.fetch_add(1, Ordering::Relaxed);
        }
        Hold { location }
    }

    /// Gives back a [`Log::hold`].
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

    /// The number of segments that are held.
    pub(crate) fn held_count(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    /// Kills everything stored so far. Returns the sequence number below which all is dead.
    pub(crate) fn flush(&self) -> u64 {
        let mut last = self.superblock().sequences.next_now();
        loop {
            // The mark first, so that a worker that opens a segment that is not killed sees it.
            self.raise_flushed_below(last + 1);
            match self.superblock().draw_if(last) {
                Ok(()) => break,
                Err(now) => last = now,
            }
        }
        // The cleaner may have reset the mark of an earlier attempt.
        self.raise_flushed_below(last + 1);
        last + 1
    }

    /// The volume on flash. It is set once.
    pub(crate) fn attach(&self, volume: Arc<Volume>) {
        let _ = self.volume.set(volume);
    }

    /// Kills everything that lies on flash, and in segments that have begun to be filled.
    pub(crate) fn kill_on_flash(&self) {
        if let Some(volume) = self.volume.get() {
            let below = volume.next_sequence();
            self.superblock().raise_killed_on_flash(below);
        }
    }

    /// Whether a flush has killed what lies in a filling of a segment on flash.
    pub(crate) fn is_killed_on_flash(&self, sequence: u64) -> bool {
        sequence < self.superblock().flash.killed_below.load(Ordering::Acquire)
    }

    /// The counter of segments that become free when what is being written to flash is there.
    pub(crate) fn leaving(&self) -> &AtomicUsize {
        &self.leaving
    }

    /// The superblock first: what this process has shown as dead must not come back after a
    /// takeover.
    fn raise_flushed_below(&self, below: u64) {
        self.superblock().raise_flushed_below(below);
        self.flushed_below.fetch_max(below, Ordering::Release);
    }

    /// The mark of the flush whose dead items are still being cleaned; 0 if there are none.
    #[inline]
    pub(crate) fn flushed_below(&self) -> u64 {
        self.flushed_below.load(Ordering::Acquire)
    }

    /// Notes that nothing is left of what the flush at `below` killed.
    pub(crate) fn flush_is_over(&self, below: u64) {
        let mark = &self.flushed_below;
        let _ = mark.compare_exchange(below, 0, Ordering::Relaxed, Ordering::Relaxed);
        self.superblock().end_flush(below);
    }

    /// Whether a flush has killed the item at `location`.
    #[inline]
    pub(crate) fn is_flushed(&self, location: Location) -> bool {
        let below = self.flushed_below();
        below != 0 && self.entry_of(location).sequence() < below
    }

    /// Whether a flush came between the items at two locations: one of them is dead and the other
    /// is not. Then what was made from one must not replace the other.
    #[inline]
    pub(crate) fn are_parted(&self, one: Location, other: Location) -> bool {
        let below = self.flushed_below();
        below != 0
            && (self.entry_of(one).sequence() < below) != (self.entry_of(other).sequence() < below)
    }
}
