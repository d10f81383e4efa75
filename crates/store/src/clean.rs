//! The cleaner: makes free segments out of used ones, in slices at the end of bursts.
//!
//! Each worker cleans in measure with what it appends, so nobody waits for a thread that lags. A
//! victim is, in this order: a segment that a flush or age has killed; where free segments run low,
//! the emptiest segment looked at, if a quarter of it or more is dead; the head of the small queue
//! where that has more than its tenth; the head of the main queue. What lives in it moves, or goes:
//!
//! | victim | read since its frequency was last lowered | not read |
//! |---|---|---|
//! | small queue's head | to main, frequency 0 | gone; a ghost stays |
//! | main queue's head | to the queue's end, frequency one less | gone |
//! | emptiest | to its own queue's end | the same |
//!
//! This is S3-FIFO over segments: the frequency is the slot's two bits, the ghosts stand in the
//! index where free slots stood. Where nearly everything is read again and again, going round until
//! something is not would take longer than storing does: where no segments are left meanwhile, an item
//! must have been read twice since to be kept, or three times.
//!
//! # Invariants
//! - Room for what moves is taken before it moves. Where there is none an item is evicted rather
//!   than lost from sight; with evictions off the job waits.
//! - A victim retires once no slot points into it.

mod crawl;
mod dead;
pub(crate) mod flush;
mod job;
mod moves;
mod pick;

use crate::segment::{OpenSegment, Queue};
use crate::time::UnixSeconds;
use crate::worker_store::{Turn, WorkerStore};

use job::{AHEAD, Job};

/// Items that a slice looks at.
const SLICE_ITEMS: usize = 64;

/// Bytes that a slice moves until there is another free segment to move to, as far as whole items allow: less than is
/// set aside for cleaning.
const SLICE_BYTES: usize = 128 << 10;

/// Bytes of items that a slice looks at, beyond these limits, for what has been stored since the last, or four times as
/// much as that; at least, where nobody can store until a segment is free. They take half a millisecond where items are
/// small.
const OWED_MAX: usize = 512 << 10;

/// Turns after which a burst that stored much is as good as forgotten.
const PEAK_TURNS: usize = 256;

/// A worker's cleaning.
pub(crate) struct Cleaner {
    /// What it is at.
    job: Option<Job>,
    /// Where what moves goes, apart from where clients' items go: clients must not use up the
    /// segments that are set aside for cleaning.
    pub(crate) open: [OpenSegment; 2],
    /// Bytes that it ought to look at.
    debt: usize,
    /// The most bytes that were lately stored between two slices.
    peak: usize,
    /// Whether too much stays.
    kept: Kept,
    /// Where it looks for empty segments next.
    look_at: u32,
    /// Where it looks for segments without a live item next.
    look_for_dead: u32,
    /// Bursts before it looks for flushed segments again.
    flush_pause: u32,
    crawling: crawl::Crawl,
}

impl Cleaner {
    pub(crate) fn new() -> Cleaner {
        Cleaner {
            job: None,
            open: [
                OpenSegment::new(Queue::Small),
                OpenSegment::new(Queue::Main),
            ],
            debt: 0,
            peak: 0,
            kept: Kept::default(),
            look_at: 0,
            look_for_dead: 0,
            flush_pause: 0,
            crawling: crawl::Crawl::default(),
        }
    }
}

/// How much of memory has been looked at when it is told how much is kept, and bytes at most.
const KEPT_PART: usize = 64;
const KEPT_MAX: usize = 16 << 20;

/// How much of what is looked at stays.
#[derive(Default)]
struct Kept {
    looked_at: usize,
    kept: usize,
    /// There were free segments meanwhile.
    had_free: bool,
    /// Reads that do not keep an item, since too much would be kept.
    haste: u64,
}

impl Kept {
    fn note(&mut self, looked_at: usize, kept: usize) {
        self.looked_at += looked_at;
        self.kept += kept;
    }

    /// Where more than seven eighths stay, looking at eight times what is stored makes no room for it.
    fn judge(&mut self, has_free: bool, memory: usize) {
        self.had_free |= has_free;
        if self.looked_at < KEPT_MAX.min(memory / KEPT_PART) {
            return;
        }
        if !self.had_free && self.kept > self.looked_at / 8 * 7 {
            self.haste = (self.haste + 1).min(2);
        } else if self.had_free {
            self.haste = self.haste.saturating_sub(1);
        }
        (self.looked_at, self.kept, self.had_free) = (0, 0, false);
    }
}

/// How much of a slice is left.
struct Slice {
    items: usize,
    bytes: usize,
    /// Bytes of items that are looked at in any case: however much a burst stores, cleaning keeps pace.
    owed: usize,
}

impl Slice {
    fn is_spent(&self) -> bool {
        self.bytes == 0 || self.items == 0 && self.owed == 0
    }

    /// Items that may be looked at together.
    fn items_at_once(&self) -> usize {
        if self.owed > 0 {
            AHEAD
        } else {
            self.items.min(AHEAD)
        }
    }

    fn spend(&mut self, looked_at: usize, moved: usize) {
        self.items = self.items.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(moved);
        self.owed = self.owed.saturating_sub(looked_at);
    }
}

impl Cleaner {
    /// Does a slice of cleaning, `appended` bytes having been stored since the last one. True where
    /// the next slice should come soon.
    pub(crate) fn clean(&mut self, turn: &mut Turn<'_>, appended: usize, now: UnixSeconds) -> bool {
        let log = &turn.shared().log;
        let mut local = turn.begin();
        let pages = log.pages();
        let (free, low) = (pages.free_count(), pages.reserve());
        self.peak = appended.max(self.peak - self.peak.div_ceil(PEAK_TURNS));
        let high = low + local.shared.free_margin(self.peak);
        let urgent = free <= low;
        let memory = log.segment_count() as usize * log.segment_len();
        self.kept.judge(!urgent, memory);
        let mut owed = 0;
        if free < high {
            // From one and a half times what is appended, where segments begin to run low, to eight
            // times where none are left.
            let factor = 3 + 13 * (high - free.max(low)) / (high - low);
            owed = appended * factor / 2;
            self.debt = self.debt.saturating_add(owed);
        } else {
            self.debt = 0;
        }
        let mut slice = Slice {
            items: SLICE_ITEMS,
            bytes: SLICE_BYTES,
            owed: match urgent {
                true => OWED_MAX.max(owed),
                false => owed.min(OWED_MAX.max(4 * appended)),
            },
        };
        while !slice.is_spent() {
            let owes = urgent || self.debt > 0;
            if self.job.is_none() {
                // Nothing is written where there is nothing to do, which is after nearly every burst.
                let Some(job) = self.pick(local, now, owes) else {
                    break;
                };
                self.job = Some(job);
            }
            match &self.job {
                Some(job) if owes || job.is_of_dead() => {}
                _ => break,
            }
            if !self.work(local, now, &mut slice) {
                break;
            }
            if self.job.is_none() {
                // What was emptied is room to move more to, where no other worker is in a burst.
                local = turn.reclaim();
                if 2 * pages.free_count() > low {
                    slice.bytes = SLICE_BYTES;
                }
            }
        }
        if self.job.is_none() {
            self.debt = 0;
        }
        self.free_dead(local);
        let crawls = self.crawl(local, now);
        let has_dead = self.job.as_ref().is_some_and(Job::is_of_dead);
        let is_short = urgent && self.job.is_some();
        crawls || has_dead || is_short
    }

    /// Puts half-done segments back, for other workers.
    pub(crate) fn abandon(&mut self, local: WorkerStore<'_>) {
        self.crawling.abandon(local);
        if let Some(job) = self.job.take() {
            self.put_back(local, job);
        }
    }
}
