//! What the machine has lost of the arena, and whether anything may still refer to it.
//!
//! A page that the machine loses is replaced by zeros at once (`coua-memory-errors`), and a count is
//! raised before anybody can read them. Two things are asked of that count here:
//!
//! - Is anything *unsettled*? A loss is settled when no slot points to anything that lay there, and
//!   every worker has been quiescent since. Whoever has copied bytes out of the arena asks after the
//!   copy; the answer is nearly always no, and costs a load and a comparison.
//! - Does what was read overlap an unsettled loss, or one since a given moment? That takes the list
//!   of losses, under a lock, and is asked only while the first answer is yes.
//!
//! Losses are numbered as the count counts them: number `n` raised it from `n` to `n + 1`.
//!
//! # Concurrency
//! The count moves before zeros can be read, so whoever has read zeros finds something unsettled.
//! It stays unsettled until all bursts have ended that could have read them, or that could have
//! begun to publish what lies there; see [`Mender`](crate::Mender).

use super::Store;
use crate::epoch::Guard;
use crate::index::slot::Location;
use crate::memory::{Mapping, Page, PageState, events_seen};
use crate::segment::Log;
use crate::segment::item::RawItem;
use crate::segment::layout::LEN_AT_MOST;
use std::collections::VecDeque;
use std::ops::Range;
// Not those of `sync`: loom knows no memory errors.
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Losses that are remembered, for what is kept over many bursts: pins, uploads, lent pages. What is
/// older than the oldest counts as lost.
const KEPT: usize = 1024;

/// See the module.
pub(crate) struct Losses {
    /// Losses before this number are settled.
    settled: AtomicU64,
    /// Before this number the index is in order.
    index_settled: AtomicU64,
    list: Mutex<List>,
}

#[derive(Default)]
struct List {
    #[cfg(not(loom))]
    events: Option<coua_memory_errors::Events>,
    /// The number of the first entry.
    first: u64,
    entries: VecDeque<Entry>,
    /// So many came at once that they were not all noted: anything may be lost.
    overflowed: bool,
    /// Errors outside of the arena.
    elsewhere: u64,
}

/// A lost range of the arena.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) range: Range<usize>,
    #[cfg(not(loom))]
    pub(crate) lost: coua_memory_errors::Lost,
}

pub(crate) fn overlap(one: &Range<usize>, other: &Range<usize>) -> bool {
    one.start < other.end && other.start < one.end
}

impl Losses {
    pub(crate) fn new() -> Losses {
        Losses {
            settled: AtomicU64::new(events_seen()),
            index_settled: AtomicU64::new(0),
            list: Mutex::default(),
        }
    }

    /// Whether slots may point to bytes that are lost.
    #[inline]
    pub(crate) fn are_unsettled(&self) -> bool {
        events_seen() != self.settled.load(Ordering::Relaxed)
    }

    /// The number of the first loss that may be unsettled: what is read from here on is to be
    /// compared with losses from it on.
    #[inline]
    pub(crate) fn mark(&self) -> u64 {
        self.settled.load(Ordering::Relaxed)
    }

    /// Whether a part of `range` was lost since `mark`.
    #[cold]
    pub(crate) fn overlaps(&self, log: &Log, mark: u64, range: &Range<usize>) -> bool {
        let list = self.list(log);
        mark < list.first
            || list.overflowed
            || list.since(mark).any(|entry| overlap(&entry.range, range))
    }

    /// As [`Losses::overlaps`], of memory that is not the arena's, by its address.
    #[cold]
    #[cfg(not(loom))]
    fn overlaps_elsewhere(&self, log: &Log, mark: u64, addresses: &Range<usize>) -> bool {
        let list = self.list(log);
        let is_there = |entry: &Entry| {
            let lost = entry.lost.address..entry.lost.address + entry.lost.length;
            overlap(&lost, addresses)
        };
        mark < list.first || list.overflowed || list.since(mark).any(is_there)
    }

    /// loom knows no errors.
    #[cfg(loom)]
    fn overlaps_elsewhere(&self, _: &Log, _: u64, _: &Range<usize>) -> bool {
        false
    }

    /// Whether buckets of the index were lost that are not put in order yet.
    #[cold]
    pub(crate) fn is_index_unsettled(&self, log: &Log) -> bool {
        let list = self.list(log);
        let mark = self.mark().max(self.index_settled.load(Ordering::Acquire));
        list.overflowed
            || list.since(mark).any(|entry| {
                log.pages_of(&entry.range)
                    .any(|page| log.entry(page).state() == PageState::Index)
            })
    }

    /// Marks the segments of all that has been counted so far.
    #[cold]
    pub(crate) fn note_all(&self, log: &Log) {
        drop(self.list(log));
    }

    /// The losses since `mark`; `None` if they are not all remembered.
    pub(crate) fn since(&self, log: &Log, mark: u64) -> Option<Vec<Range<usize>>> {
        let list = self.list(log);
        let is_whole = mark >= list.first && !list.overflowed;
        is_whole.then(|| list.since(mark).map(|entry| entry.range.clone()).collect())
    }

    /// The list with all that has been counted so far.
    fn list(&self, log: &Log) -> MutexGuard<'_, List> {
        let mut list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        list.refresh(log);
        list
    }
}

#[cfg(not(loom))]
impl Losses {
    /// Takes losses from `events` from now on.
    pub(crate) fn begin(&self, log: &Log, mut events: coua_memory_errors::Events) {
        let mut list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        let pending = events.take();
        list.first = events_seen().saturating_sub(pending.lost.len() as u64);
        list.add(log, pending);
        self.settled.store(list.first, Ordering::Relaxed);
        list.events = Some(events);
    }

    /// Ends that.
    pub(crate) fn end(&self) -> Option<coua_memory_errors::Events> {
        let mut list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        list.events.take()
    }

    /// The unsettled losses, and the number behind the last.
    pub(crate) fn unsettled(&self, log: &Log) -> (u64, Vec<Entry>) {
        let list = self.list(log);
        let behind = list.first + list.entries.len() as u64;
        (behind, list.since(self.mark()).cloned().collect())
    }

    /// Nothing refers to losses before this number any more.
    pub(crate) fn settle(&self, behind: u64) {
        self.settled.fetch_max(behind, Ordering::Release);
    }

    /// The index is in order, as far as losses before this number go.
    pub(crate) fn settle_index(&self, behind: u64) {
        self.index_settled.fetch_max(behind, Ordering::Release);
    }

    /// Whether so many came at once that they were not all noted, and how many errors were met
    /// outside of the arena.
    pub(crate) fn beyond(&self, log: &Log) -> (bool, u64) {
        let list = self.list(log);
        (list.overflowed, list.elsewhere)
    }
}

impl Store {
    /// Whether a part of the item, or of one of its pieces, is lost and unsettled. Its arguments are few
    /// and small, so that whoever asks keeps what it has in registers.
    #[cold]
    #[inline(never)]
    pub(crate) fn is_item_lost<'g>(
        &'g self,
        guard: Guard<'g>,
        location: Location,
        item: RawItem<'_>,
    ) -> bool {
        let (log, mark) = (&self.log, self.losses.mark());
        if location == Location::NOWHERE {
            return self.is_record_lost(item);
        }
        let is_lost = |location, total| self.losses.overlaps(log, mark, &extent(location, total));
        // What is no piece is lost, or its head is.
        let is_piece_lost = |at| match log.piece(guard, at) {
            Some(piece) => is_lost(at, piece.total_len()),
            None => true,
        };
        is_lost(location, item.total_len()) || item.pieces().any(is_piece_lost)
    }

    /// Whether a part of an item that was read from flash is lost and unsettled.
    #[cold]
    pub(crate) fn is_record_lost(&self, item: RawItem<'_>) -> bool {
        let start = item.address();
        let bytes = start..start + item.total_len().max(LEN_AT_MOST);
        let losses = &self.losses;
        losses.overlaps_elsewhere(&self.log, losses.mark(), &bytes)
    }

    /// How many times the machine has lost a part of the memory of this process.
    #[inline]
    pub fn losses_seen(&self) -> u64 {
        events_seen()
    }

    /// What was lost of a lent page since [`Store::losses_seen`] was `seen`, as ranges of its bytes.
    /// To be asked after bytes of it were copied, and before the copy is used.
    pub fn lost_of(&self, page: &Page, seen: u64) -> Vec<Range<usize>> {
        let own = page.range();
        let Some(lost) = self.losses.since(&self.log, seen) else {
            // Longer ago than is remembered.
            return std::iter::once(0..own.len()).collect();
        };
        let lost = lost.into_iter().filter(|lost| overlap(lost, &own));
        let within = lost.map(|lost| lost.start.max(own.start)..lost.end.min(own.end));
        within
            .map(|lost| lost.start - own.start..lost.end - own.start)
            .collect()
    }
}

impl List {
    fn since(&self, mark: u64) -> impl Iterator<Item = &Entry> {
        let skipped = usize::try_from(mark.saturating_sub(self.first)).unwrap_or(usize::MAX);
        self.entries.iter().skip(skipped)
    }

    #[cfg(loom)]
    fn refresh(&mut self, _: &Log) {}

    #[cfg(not(loom))]
    fn refresh(&mut self, log: &Log) {
        let known = self.first + self.entries.len() as u64;
        if events_seen() != known
            && let Some(events) = &mut self.events
        {
            let taken = events.take();
            self.add(log, taken);
        }
    }

    /// Adds what was lost, and marks the segments that it lay in before anybody concludes anything
    /// from the list.
    #[cfg(not(loom))]
    fn add(&mut self, log: &Log, taken: coua_memory_errors::Taken) {
        self.overflowed |= taken.overflowed;
        self.elsewhere += taken.elsewhere;
        for lost in taken.lost {
            let range = offsets(log.mapping(), &lost);
            log.note_uncounted(&range);
            for page in log.pages_of(&range) {
                let entry = log.entry(page);
                if lost.is_detached {
                    entry.set_detached();
                }
                if entry.state().holds_items() || entry.state() == PageState::Retired {
                    entry.set_damaged();
                }
            }
            self.entries.push_back(Entry { range, lost });
            if self.entries.len() > KEPT {
                self.entries.pop_front();
                self.first += 1;
            }
        }
    }
}

/// Where in the arena a range was lost; empty if it is another's.
#[cfg(not(any(miri, loom)))]
fn offsets(mapping: &Mapping, lost: &coua_memory_errors::Lost) -> Range<usize> {
    let start = crate::memory::address_of(mapping, 0);
    match lost.address.checked_sub(start) {
        Some(offset) if offset < mapping.len() => offset..offset + lost.length,
        _ => 0..0,
    }
}

#[cfg(all(miri, not(loom)))]
fn offsets(_: &Mapping, _: &coua_memory_errors::Lost) -> Range<usize> {
    0..0
}

/// The bytes of an item or piece that says it has `total` of them. What determines its length lies in
/// its first bytes; if they are not lost, it is right.
fn extent(location: Location, total: usize) -> Range<usize> {
    location.offset()..location.offset() + total.max(LEN_AT_MOST)
}
