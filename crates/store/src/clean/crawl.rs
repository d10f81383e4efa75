//! The crawler: finds items that have expired, or whose tag was invalidated, and that are never asked
//! for, so that the cleaner sees how empty their segments are. It passes over all segments about once
//! a minute, but reads only those that have an expired item, and, of those that have tags, an eighth.

use super::Cleaner;
use crate::memory::PageId;
use crate::memory::PageState;
use crate::request::Miss;
use crate::sync::Ordering;
use crate::time::UnixTime;
use crate::worker_store::WorkerStore;

/// Seconds that a pass over all segments takes.
const PASS_SECONDS: usize = 60;

/// Passes after which all segments have been read that have tags, if a tag was invalidated.
const TAG_PASSES: u64 = 8;

/// Items looked at in a slice: only their headers, in order.
const SLICE_ITEMS: usize = 256;

/// A worker's part of the crawl.
#[derive(Default)]
pub(super) struct Crawl {
    /// The second in which it was last given segments to look at.
    second: u32,
    /// Segments that it may still look at.
    credit: usize,
    at: Option<Position>,
}

struct Position {
    segment: PageId,
    /// The segment's sequence number, to check that the segment has not been reused.
    sequence: u64,
    offset: usize,
    /// Whether an item with tags lives in what was looked at.
    has_tags: bool,
}

impl Crawl {
    /// Leaves its current segment to other workers.
    pub(super) fn abandon(&mut self, local: WorkerStore<'_>) {
        if let Some(position) = self.at.take() {
            local.shared.log.entry(position.segment).make_crawl_due();
        }
    }
}

impl Cleaner {
    /// Does a slice of crawling. True if there is more to do at once.
    pub(super) fn crawl(&mut self, local: WorkerStore<'_>, now: UnixTime) -> bool {
        if self.crawling.second != now.second().0 {
            self.crawling.second = now.second().0;
            let all = local.shared.log.segment_count() as usize;
            let share = all.div_ceil(PASS_SECONDS * local.shared.workers());
            self.crawling.credit = share;
            let store = local.shared;
            let is_on_flash = |filling| store.flash.has_filling_up_to(filling);
            store.tags.give_back_unused(&store.epochs, is_on_flash);
        }
        let mut left = SLICE_ITEMS;
        while left > 0 {
            if let Some(position) = self.crawling.at.take() {
                self.crawling.at = self.crawl_segment(local, position, now, &mut left);
            } else if self.crawling.credit > 0 {
                self.crawling.credit -= 1;
                self.crawling.at = self.next_segment(local, now);
            } else {
                return false;
            }
        }
        true
    }

    fn next_segment(&self, local: WorkerStore<'_>, now: UnixTime) -> Option<Position> {
        let log = &local.shared.log;
        let turn = local.shared.crawl_next.fetch_add(1, Ordering::Relaxed);
        #[expect(
            clippy::cast_possible_truncation,
            reason = "below the number of segments"
        )]
        let segment = (turn % u64::from(log.segment_count())) as PageId;
        let entry = log.entry(segment);
        let latest = local.shared.tags.latest();
        // A pass looks at the tags of one segment in some.
        let pass = turn / u64::from(log.segment_count());
        let looks_at_tags = (pass + u64::from(segment)).is_multiple_of(TAG_PASSES);
        let is_due = entry.state() == PageState::Sealed
            && !entry.is_damaged()
            && (entry.expiry_min() <= now.second().0
                || looks_at_tags && entry.tags_are_due(latest));
        is_due.then(|| {
            entry.reset_expiry_min();
            entry.note_tags_crawled(latest);
            Position {
                segment,
                sequence: entry.sequence(),
                offset: 0,
                has_tags: false,
            }
        })
    }

    /// Checks items from `position` on. Returns where to continue.
    fn crawl_segment(
        &mut self,
        local: WorkerStore<'_>,
        mut position: Position,
        now: UnixTime,
        left: &mut usize,
    ) -> Option<Position> {
        let log = &local.shared.log;
        let entry = log.entry(position.segment);
        // A sealed segment is not reused before this worker's next quiescent state.
        if entry.state() != PageState::Sealed || entry.sequence() != position.sequence {
            return None;
        }
        while position.offset < entry.used() {
            if *left == 0 {
                return Some(position);
            }
            *left -= 1;
            local.counters().crawler_checked.add(1);
            let (guard, end) = (local.guard(), entry.used());
            let found = log.item_in(guard, position.segment, position.offset, end);
            let (location, item) = found.filter(|_| !local.is_damaged(position.segment))?;
            position.offset += item.total_len();
            if item.is_piece() {
                continue;
            }
            let Some(why) = local.end_of_life(item, now) else {
                entry.note_expiry(item.expiry());
                position.has_tags |= item.has_tags();
                continue;
            };
            let hash = local.shared.hasher.hash(item.key());
            let place = local
                .shared
                .index
                .find(hash, |slot| slot.location() == location);
            if let Some(place) = place
                && local.unlink_dead(place, item, why)
            {
                local.counters().crawler_reclaimed.add(1);
            } else {
                // What is gone by its tags stays so. An item that has expired for this worker may be touched by
                // another one, whose clock is a moment behind.
                position.has_tags |= item.has_tags() && why != Miss::Invalidated;
            }
        }
        if !position.has_tags {
            entry.clear_has_tags();
        }
        None
    }
}
