//! The page table: what each page of the arena is, and what is known of a segment.
//!
//! ```text
//!  ┌─────────────────────────── free ◀──────────────────────────┐
//!  │ take                                            grace over │
//!  ├──▶ index                                                   │
//!  ├──▶ lent ──drop──▶ free                                     │
//!  ├──▶ tags, fillings                                          │
//!  └──▶ open ──seal──▶ sealed ──pick──▶ cleaning ──retire──▶ retired
//!
//!  tables   the arena's first pages, always
//! ```

use super::doubled::Twin;
use super::mapping::shared;
use super::seen::events_seen;
use crate::sync::{AtomicU32, AtomicU64, Ordering};
use crate::time::{Expiry, UnixSeconds};

/// A page's number: its offset in the arena in pages. Segments use the same numbers.
pub(crate) type PageId = u32;

/// What a page is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum PageState {
    /// Not in use.
    Free = 0,
    /// A segment that a worker appends to.
    Open = 1,
    /// A segment that is full, in one of the two queues.
    Sealed = 2,
    /// A segment that is being emptied.
    Cleaning = 3,
    /// A segment that no slot points into, in its grace period or held.
    Retired = 4,
    /// Sub-tables of the index.
    Index = 5,
    /// Buffers of the server's connections.
    Lent = 6,
    /// The superblock, the page table, the directory and whatever else is before the first page
    /// that can be given out.
    Tables = 7,
    /// A part of the table of tags' generations.
    Tags = 8,
    /// A part of the table of the fillings of segments on flash.
    Fillings = 9,
}

impl PageState {
    /// Whether slots may point into the page.
    pub(crate) fn holds_items(self) -> bool {
        matches!(
            self,
            PageState::Open | PageState::Sealed | PageState::Cleaning
        )
    }
}

/// The queue that a segment belongs to, from when it is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Queue {
    /// Items on probation, about a tenth of memory.
    Small = 0,
    /// Items that were read while on probation, or came back soon after their eviction.
    Main = 1,
}

/// A bit of a segment's holds: no burst can find anything here any more, so the thread that
/// releases the last hold frees the segment.
const UNREACHABLE: u32 = 1 << 31;

/// A bit of a segment's holds: one of them may be counted twice, since the machine lost the page of the table between
/// it and its copy. The segment counts as held for as long as this process lives: it is a segment less, in an event
/// of some nanoseconds' length.
const DISTRUSTED: u32 = 1 << 30;

/// Traits of a page: there are pieces of large items here; the machine has lost a part of the segment
/// in this life; what is in memory here is not in the file, which could give no fresh page; fewer bytes
/// are known to be dead than are.
const HAS_PIECES: u32 = 1;
const DAMAGED: u32 = 2;
const DETACHED: u32 = 4;
const UNCOUNTED: u32 = 8;

/// The state of a segment after a hold was released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Released {
    /// Other holds remain.
    Held,
    /// Nothing holds it.
    Unheld,
    /// Nothing holds it, and no burst can reach it: the thread that released it frees it.
    Unreachable,
}

shared! {
    /// A line of the page table.
    #[repr(C, align(64))]
    #[derive(Default)]
    pub(crate) struct PageEntry {
        /// A [`PageState`].
        state: AtomicU32,
        /// A [`Queue`].
        queue: AtomicU32,
        /// Orders segments by when they were opened; the CASs of their items are derived from it. Of
        /// a page of tags: the bits that its tags end with.
        sequence: AtomicU64,
        /// Bytes appended, once sealed.
        used: AtomicU32,
        /// The latest expiry of an item here; `u32::MAX` if one never expires.
        expiry_max: AtomicU32,
        /// The earliest expiry of an item here, as of the last crawl; `u32::MAX` if none expires.
        expiry_min: AtomicU32,
        /// Unfinished uploads and pinned values here, and [`UNREACHABLE`].
        holds: AtomicU32,
        /// [`HAS_PIECES`], [`DAMAGED`], [`DETACHED`] and [`UNCOUNTED`].
        traits: AtomicU32,
        /// The second in which it was opened.
        opened_at: AtomicU32,
        /// Orders the sealed segments of a queue, the oldest first. Of a page of tags: how many bits
        /// its tags have in common.
        order: AtomicU64,
        /// Whether there are items with tags here, and the generation that was drawn last when they
        /// were crawled.
        has_tags: AtomicU32,
        tags_crawled: AtomicU32,
    }
}

impl PageEntry {
    pub(crate) fn state(&self) -> PageState {
        match self.state.load(Ordering::Acquire) {
            1 => PageState::Open,
            2 => PageState::Sealed,
            3 => PageState::Cleaning,
            4 => PageState::Retired,
            5 => PageState::Index,
            6 => PageState::Lent,
            7 => PageState::Tables,
            8 => PageState::Tags,
            9 => PageState::Fillings,
            _ => PageState::Free,
        }
    }

    /// What [`PageEntry::begin_tags`] has noted.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "they come from the same types"
    )]
    pub(crate) fn tags_part(&self) -> (usize, u32) {
        (self.sequence() as usize, self.order() as u32)
    }

    #[inline]
    pub(crate) fn queue(&self) -> Queue {
        if self.queue.load(Ordering::Relaxed) == Queue::Main as u32 {
            Queue::Main
        } else {
            Queue::Small
        }
    }

    /// The second in which it was opened.
    pub(crate) fn opened_at(&self) -> UnixSeconds {
        UnixSeconds(self.opened_at.load(Ordering::Relaxed))
    }

    #[inline]
    pub(crate) fn sequence(&self) -> u64 {
        self.sequence.load(Ordering::Relaxed)
    }

    /// Its position among the sealed segments of its queue.
    pub(crate) fn order(&self) -> u64 {
        self.order.load(Ordering::Relaxed)
    }

    /// Shows how far an open segment is filled.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "segments are at most 2 MiB"
    )]
    pub(crate) fn show_used(&self, used: usize) {
        self.used.store(used as u32, Ordering::Relaxed);
    }

    pub(crate) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed) as usize
    }

    /// Notes that an item here lives until `expiry`, or for ever. Call it before the item can be
    /// found with that expiry.
    #[inline]
    pub(crate) fn note_expiry(&self, expiry: Expiry) {
        self.note_expiry_second(expiry.second_up());
    }

    /// As [`PageEntry::note_expiry`], for the second, rounded up; 0 for ever.
    #[inline]
    pub(crate) fn note_expiry_second(&self, second: u32) {
        let until = match second {
            0 => u32::MAX,
            second => second,
        };
        if self.expiry_max.load(Ordering::Relaxed) < until {
            self.expiry_max.fetch_max(until, Ordering::Relaxed);
        }
        if until != u32::MAX && self.expiry_min.load(Ordering::Relaxed) > until {
            self.expiry_min.fetch_min(until, Ordering::Relaxed);
        }
    }

    pub(crate) fn expiry_max(&self) -> u32 {
        self.expiry_max.load(Ordering::Relaxed)
    }

    pub(crate) fn expiry_min(&self) -> u32 {
        self.expiry_min.load(Ordering::Relaxed)
    }

    /// Called before a crawl reads the items; the crawl notes those that stay.
    pub(crate) fn reset_expiry_min(&self) {
        self.expiry_min.store(u32::MAX, Ordering::Relaxed);
    }

    /// Makes the next crawl read the items, whatever their expiry.
    pub(crate) fn make_crawl_due(&self) {
        self.expiry_min.store(0, Ordering::Relaxed);
    }

    pub(crate) fn is_held(&self) -> bool {
        self.holds.load(Ordering::Acquire) != 0
    }

    pub(crate) fn has_pieces(&self) -> bool {
        self.traits.load(Ordering::Relaxed) & HAS_PIECES != 0
    }

    /// Whether a part of the segment was lost in this life.
    #[inline]
    pub(crate) fn is_damaged(&self) -> bool {
        self.traits.load(Ordering::Acquire) & DAMAGED != 0
    }

    /// Whether the page is not to be used.
    pub(crate) fn is_detached(&self) -> bool {
        self.traits.load(Ordering::Relaxed) & DETACHED != 0
    }

    /// Whether fewer bytes of the segment may be known to be dead than are.
    pub(crate) fn is_uncounted(&self) -> bool {
        self.traits.load(Ordering::Relaxed) & UNCOUNTED != 0
    }

    /// Whether a cleaner may empty the segment, if it is sealed.
    pub(crate) fn may_be_cleaned(&self) -> bool {
        !self.is_held() && !self.is_damaged()
    }

    /// Notes that there is an item with tags here; whether that was not known. To be called before the
    /// item can be found; see `tags/give_back.rs`.
    #[inline]
    pub(crate) fn set_has_tags(&self) -> bool {
        let is_new = self.has_tags.load(Ordering::Relaxed) == 0;
        if is_new {
            self.has_tags.store(1, Ordering::Relaxed);
        }
        is_new
    }

    /// A crawl has seen that no item with tags lives here. None can come: the segment is sealed.
    pub(crate) fn clear_has_tags(&self) {
        self.has_tags.store(0, Ordering::Release);
    }

    /// Whether an item with tags may live here, or still be looked at.
    pub(crate) fn may_have_tags(&self) -> bool {
        let state = self.state();
        (state.holds_items() || state == PageState::Retired)
            && self.has_tags.load(Ordering::Acquire) != 0
    }

    /// Whether there are tags here, and a generation has been drawn since they were crawled.
    pub(crate) fn tags_are_due(&self, latest: u32) -> bool {
        self.has_tags.load(Ordering::Relaxed) != 0
            && self.tags_crawled.load(Ordering::Relaxed) != latest
    }

    /// Notes that a crawl begins that finds all that was invalidated by now.
    pub(crate) fn note_tags_crawled(&self, latest: u32) {
        if self.has_tags.load(Ordering::Relaxed) != 0 {
            self.tags_crawled.store(latest, Ordering::Relaxed);
        }
    }

    /// Of an entry that was restored from its copy: the copies of some words do not follow. What they
    /// say now is right of any segment, and has it crawled once more.
    #[cfg(not(any(miri, loom)))]
    pub(crate) fn distrust_hints(&self) {
        self.expiry_max.store(u32::MAX, Ordering::Relaxed);
        self.expiry_min.store(0, Ordering::Relaxed);
        self.has_tags.store(1, Ordering::Relaxed);
        self.tags_crawled.store(0, Ordering::Relaxed);
    }
}

/// What must not be lost.
impl Twin<'_, PageEntry> {
    pub(crate) fn set_state(self, state: PageState) {
        self.store(|entry| &entry.state, state as u32, Ordering::Release);
    }

    /// Begins a new use as an open segment.
    pub(crate) fn open(self, queue: Queue, sequence: u64, now: UnixSeconds) {
        let relaxed = Ordering::Relaxed;
        self.store(|entry| &entry.opened_at, now.0, relaxed);
        self.store(|entry| &entry.queue, queue as u32, relaxed);
        self.store(|entry| &entry.sequence, sequence, relaxed);
        self.store(|entry| &entry.used, 0, relaxed);
        self.expiry_max.store(0, relaxed);
        self.expiry_min.store(u32::MAX, relaxed);
        self.clear_has_tags();
        self.tags_crawled.store(0, relaxed);
        let kept = self.traits.load(relaxed) & DETACHED;
        self.store(|entry| &entry.traits, kept, relaxed);
        self.set_state(PageState::Open);
    }

    /// Begins a new use as a part of the table of tags: of those that end with the `depth` bits
    /// `prefix`.
    pub(crate) fn begin_tags(self, prefix: usize, depth: u32) {
        self.store(|entry| &entry.sequence, prefix as u64, Ordering::Relaxed);
        self.set_order(depth.into());
        self.set_state(PageState::Tags);
    }

    /// Begins a new use as the `nth` part of the table of fillings.
    pub(crate) fn begin_fillings(self, nth: usize) {
        self.store(|entry| &entry.sequence, nth as u64, Ordering::Relaxed);
        self.set_state(PageState::Fillings);
    }

    pub(crate) fn set_order(self, order: u64) {
        self.store(|entry| &entry.order, order, Ordering::Relaxed);
    }

    #[expect(
        clippy::cast_possible_truncation,
        reason = "segments are at most 2 MiB"
    )]
    pub(crate) fn set_used(self, used: usize) {
        self.store(|entry| &entry.used, used as u32, Ordering::Relaxed);
    }

    /// Keeps the segment from being cleaned or used again. Only for a segment that is open, or
    /// from inside the burst in which an item of it was found.
    pub(crate) fn hold(self) -> bool {
        let seen = events_seen();
        // The copy never counts less, whoever else is between the two steps: if the page is lost and restored, no hold
        // is undone, though one may be counted twice.
        if let Some(copy) = self.copy() {
            copy.holds.fetch_add(1, Ordering::AcqRel);
        }
        let before = self.holds.fetch_add(1, Ordering::AcqRel);
        self.distrust_if_lost(seen);
        before == 0
    }

    /// Undoes one [`Twin::hold`].
    pub(crate) fn release(self) -> Released {
        let seen = events_seen();
        let before = self.holds.fetch_sub(1, Ordering::AcqRel);
        if let Some(copy) = self.copy() {
            copy.holds.fetch_sub(1, Ordering::AcqRel);
        }
        self.distrust_if_lost(seen);
        match before {
            1 => Released::Unheld,
            holds if holds == UNREACHABLE | 1 => Released::Unreachable,
            _ => Released::Held,
        }
    }

    /// The segment is retired and its grace period is over, so nobody can begin to hold it. True where nobody
    /// does: then it is to be freed by the caller, otherwise by who lets go last.
    pub(crate) fn become_unreachable(self) -> bool {
        let seen = events_seen();
        if let Some(copy) = self.copy() {
            copy.holds.fetch_or(UNREACHABLE, Ordering::AcqRel);
        }
        let before = self.holds.fetch_or(UNREACHABLE, Ordering::AcqRel);
        self.distrust_if_lost(seen);
        before == 0
    }

    /// The holds were changed; if anything was lost since `seen`, they may count too many.
    #[inline]
    fn distrust_if_lost(self, seen: u64) {
        if events_seen() != seen {
            self.distrust();
        }
    }

    #[cold]
    fn distrust(self) {
        loop {
            let seen = events_seen();
            for entry in self.copy().into_iter().chain([self.own()]) {
                entry.holds.fetch_or(DISTRUSTED, Ordering::AcqRel);
            }
            if events_seen() == seen {
                return;
            }
        }
    }

    /// Nobody holds it: those who did died with their process.
    pub(crate) fn forget_holds(self) {
        self.store(|entry| &entry.holds, 0, Ordering::Relaxed);
    }

    /// Ends a segment's life: it is nobody's.
    pub(crate) fn end(self) {
        self.forget_holds();
        self.set_state(PageState::Free);
    }

    fn set_trait(self, bit: u32, order: Ordering) {
        self.repeat(
            |entry| &entry.traits,
            |traits| {
                traits.fetch_or(bit, order);
            },
        );
    }

    pub(crate) fn set_has_pieces(self) {
        if !self.has_pieces() {
            self.set_trait(HAS_PIECES, Ordering::Relaxed);
        }
    }

    /// Notes that a part of the segment is lost. From here on nobody steps from item to item in it,
    /// until it begins a new life.
    pub(crate) fn set_damaged(self) {
        self.set_trait(DAMAGED, Ordering::AcqRel);
    }

    /// Notes that the file does not have what is in memory here: the page is never used again, in this
    /// process or the next.
    #[cfg(not(loom))]
    pub(crate) fn set_detached(self) {
        self.set_trait(DETACHED, Ordering::AcqRel);
    }

    /// Notes that it is not known any more how many bytes of the segment are dead.
    #[cfg(not(loom))]
    pub(crate) fn set_uncounted(self) {
        self.set_trait(UNCOUNTED, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;
    use std::thread;

    /// However the end of the grace period and the last ones to let go meet, one of them frees the segment.
    #[test]
    fn a_segment_is_freed_once() {
        for _ in 0..if cfg!(miri) { 20 } else { 2000 } {
            let (entry, freed) = (PageEntry::default(), AtomicUsize::new(0));
            let entry = Twin::alone(&entry);
            assert!(entry.hold() && !entry.hold());
            thread::scope(|scope| {
                for _ in 0..2 {
                    scope.spawn(|| {
                        let frees = entry.release() == Released::Unreachable;
                        freed.fetch_add(usize::from(frees), Ordering::Relaxed);
                    });
                }
                let frees = entry.become_unreachable();
                freed.fetch_add(usize::from(frees), Ordering::Relaxed);
            });
            assert_eq!(freed.into_inner(), 1);
        }
    }

    #[test]
    fn a_new_life_knows_nothing_of_the_last() {
        let entry = PageEntry::default();
        let entry = Twin::alone(&entry);
        assert!(entry.become_unreachable());
        entry.end();
        assert!(entry.hold() && entry.is_held());
        assert_eq!(entry.release(), Released::Unheld);
    }

    /// Two threads hold and release a segment while a third loses the page of the table that says so: no hold is undone
    /// in a way that nobody knows of.
    #[cfg(not(any(miri, loom)))]
    #[test]
    fn holds_are_right_or_distrusted_when_their_page_is_lost() {
        use crate::memory::poison;
        use crate::{Config, Store};
        use std::sync::atomic::AtomicBool;

        let _events =
            coua_memory_errors::install().expect("the only test of these that loses memory");
        let config = || Config {
            memory: 64 << 20,
            survives_memory_errors: true,
            ..Config::default()
        };
        for _ in 0..400 {
            let store = Store::new(config(), UnixSeconds(1)).expect("there is memory");
            let (log, page) = (&store.log, store.log.segment_count() - 1);
            let mapping = log.mapping();
            let offset = mapping.offset_of(log.entry(page).own());
            if poison(mapping, offset).is_err() {
                return;
            }
            let (ends, held) = (AtomicBool::new(false), AtomicUsize::new(0));
            thread::scope(|scope| {
                for _ in 0..2 {
                    scope.spawn(|| {
                        let _stack = coua_memory_errors::install_thread();
                        while !ends.load(Ordering::Relaxed) {
                            log.entry(page).hold();
                            held.fetch_add(1, Ordering::Relaxed);
                            // Whoever holds it finds it held.
                            assert!(log.entry(page).is_held(), "a hold was undone");
                            log.entry(page).release();
                        }
                    });
                }
                scope.spawn(|| {
                    let _stack = coua_memory_errors::install_thread();
                    for _ in 0..40 {
                        let before = held.load(Ordering::Relaxed);
                        poison(mapping, offset).expect("it was possible before");
                        // It is met.
                        while log.entry(page).state() != PageState::Free
                            || held.load(Ordering::Relaxed) == before
                        {
                            thread::yield_now();
                        }
                    }
                    ends.store(true, Ordering::Relaxed);
                });
            });
            let holds = log.entry(page).holds.load(Ordering::Relaxed);
            assert!(holds == 0 || holds > DISTRUSTED / 2, "{holds:#x}");
            if holds != 0 {
                // What it is for has happened.
                return;
            }
        }
    }
}
