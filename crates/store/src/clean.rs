//! The cleaner: makes free segments out of used ones, in slices at the end of bursts.
//!
//! Each worker cleans in proportion to what it appends, so no worker waits for a cleaning thread
//! that lags. A victim is chosen in this order: a segment that a flush or age has killed; when free
//! segments run low, the emptiest segment looked at, if a quarter of it or more is dead; the head
//! of the small queue, if that queue has more than its tenth; the head of the main queue. The
//! victim's live items move, or are evicted:
//!
//! | victim | read since its frequency was last lowered | not read |
//! |---|---|---|
//! | small queue's head | to main, frequency 0 | gone; a ghost stays |
//! | main queue's head | to the queue's end, frequency one less | gone |
//! | emptiest | to its own queue's end | the same |
//!
//! This is S3-FIFO over segments: the frequency is two bits of the slot, and the ghosts are in the
//! index, in slots that would be free. If nearly everything is read again and again, going round
//! the queue until an unread item comes would take longer than storing does. So when segments run
//! out meanwhile, an item is kept only if it has been read twice, or three times.
//!
//! # Invariants
//! - Room for an item is taken before it moves. If there is none, the item is evicted rather than
//!   lost; with evictions off the job waits.
//! - A victim retires once no slot points into it. With flash it waits until its evicted items are there
//!   (`flash/leaving.rs`).

mod crawl;
mod dead;
mod flush;
mod job;
mod leave;
mod leftovers;
mod moves;
mod pace;
mod pick;
mod survey;

use crate::flash::WorkerFlash;
use crate::memory::Queue;
use crate::segment::OpenSegment;
use crate::store::Store;
use crate::time::UnixTime;
use crate::worker_store::{Turn, WorkerStore};

use flush::FlushRound;
use job::Job;
use leave::Shortage;
use pace::{Limits, Pace, Room};
use survey::Survey;

/// The part of memory that may be emptied ahead of its use, with flash: one sixteenth, of all workers together.
const AHEAD_SHARE: usize = 16;

/// A worker's part of the cleaning.
pub(crate) struct Cleaner {
    /// The segment being cleaned.
    job: Option<Job>,
    /// The segments that items are moved to. They are separate from those for clients' items:
    /// clients must not use up the segments that are reserved for cleaning.
    pub(crate) open: [OpenSegment; 2],
    pace: Pace,
    survey: Survey,
    /// Where it next looks for sparse segments.
    look_at: u32,
    /// Where it next looks for segments without a live item.
    look_for_dead: u32,
    flush_round: FlushRound,
    crawling: crawl::Crawl,
    /// Where items go that are evicted.
    pub(crate) flash: Option<Box<WorkerFlash>>,
    /// The latest filling on flash that an item of the present job was copied into.
    pub(crate) copied: Option<u64>,
    /// Whether the present job evicts, though there is flash.
    evicts: bool,
    /// Whether the present job waits until something is on flash.
    pub(crate) waits: bool,
    /// How long clients have waited for memory because what leaves it is not on flash yet.
    shortage: Option<Shortage>,
}

impl Cleaner {
    pub(crate) fn new(store: &Store, worker: usize) -> Cleaner {
        let pages = store.log.pages();
        let limits = Limits {
            segment_len: store.log.segment_len(),
            segments: pages.limit(),
            reserve: pages.reserve(),
            workers: store.workers(),
            item_size_max: store.item_size_max,
            ahead: 0,
        };
        Cleaner {
            job: None,
            open: [
                OpenSegment::new(worker, Queue::Small, true),
                OpenSegment::new(worker, Queue::Main, true),
            ],
            pace: Pace::new(limits),
            survey: Survey::default(),
            look_at: 0,
            look_for_dead: 0,
            flush_round: FlushRound::default(),
            crawling: crawl::Crawl::default(),
            flash: None,
            copied: None,
            evicts: false,
            waits: false,
            shortage: None,
        }
    }

    /// Does the cleaning that is due after a turn in which `stored` bytes were stored. True if the
    /// next turn should come soon.
    pub(crate) fn clean(&mut self, turn: &mut Turn<'_>, stored: usize, now: UnixTime) -> bool {
        let mut local = turn.begin();
        let mut worked = false;
        let settles = self.settle(local, now);
        let stored = match local.shared.log.pages().excess() {
            0 => stored,
            // As if new items needed the room.
            _ => stored.max(local.shared.log.segment_len()),
        };
        self.pace.set_segments(local.shared.log.pages().limit());
        self.pace.set_ahead(self.ahead(local));
        let room = self.room(local);
        self.pace.begin(stored, room);
        loop {
            if self.job.is_none() {
                // If there is nothing to do, as after nearly every burst, nothing is written.
                let late = self.take_late(local);
                let Some(job) = late.or_else(|| self.pick(local, now, self.pace.owes())) else {
                    break;
                };
                self.job = Some(job);
            }
            worked = true;
            let goes_on = self.job.as_ref().is_some_and(|job| self.goes_on(job));
            if !goes_on || !self.work(local, now) {
                break;
            }
            if self.job.is_none() {
                // If no other worker is in a burst, the emptied segment is room to move items to.
                local = turn.reclaim();
                let room = self.room(local);
                self.pace.note_segment(room);
            }
        }
        let room = self.room(local);
        let is_behind = self.pace.end(self.job.is_some(), room);
        self.free_dead(local);
        let crawls = self.crawl(local, now);
        let has_dead = self.job.as_ref().is_some_and(Job::is_of_dead);
        let hurries = self.hurry(local, now);
        settles || hurries || crawls || has_dead || is_behind || shrinks(local, worked)
    }

    /// The free room for new items.
    fn room(&self, local: WorkerStore<'_>) -> Room {
        let log = &local.shared.log;
        // What waits for a slow device is not coming.
        let leaving = match self.is_late() {
            true => 0,
            false => log.leaving_count(),
        };
        Room {
            free: log.pages().free_count(),
            coming: log.coming_count() + leaving,
        }
    }

    /// What is evicted goes to flash from now on, if it may.
    pub(crate) fn attach(&mut self, flash: WorkerFlash) {
        self.flash = Some(Box::new(flash));
    }

    /// Segments that are emptied ahead of their use, so that those for clients last until others are on flash.
    fn ahead(&self, local: WorkerStore<'_>) -> usize {
        let log = &local.shared.log;
        self.flash.as_ref().map_or(0, |flash| {
            let most = log.pages().limit() / AHEAD_SHARE / local.shared.workers();
            let wanted = flash.segment_len() / log.segment_len();
            wanted.min(most).max(1)
        })
    }

    /// Gives half-cleaned segments back, for other workers.
    pub(crate) fn abandon(&mut self, local: WorkerStore<'_>, now: UnixTime) {
        self.crawling.abandon(local);
        if let Some(job) = self.job.take() {
            self.put_back(local, job);
        }
        self.abandon_flash(local, now);
    }
}

/// Takes a free page out of use, if the limit of memory has been lowered. True if the next turn may
/// find another: there was one, or this turn has `worked` on a segment.
#[inline]
fn shrinks(local: WorkerStore<'_>, worked: bool) -> bool {
    let log = &local.shared.log;
    log.pages().excess() > 0
        && (log.pages().withhold() || worked || log.coming_count() + log.leaving_count() > 0)
}
