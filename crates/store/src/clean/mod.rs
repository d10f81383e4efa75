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
//! index where free slots stood.
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

use crate::hand::Hand;
use crate::segment::{OpenSegment, Queue};
use crate::time::UnixSeconds;

use job::Job;

/// Items that a slice looks at.
const SLICE_ITEMS: usize = 64;

/// The same where nobody can store until a segment is free.
const URGENT_SLICE_ITEMS: usize = 512;

/// Bytes that a slice moves, as far as whole items allow.
const SLICE_BYTES: usize = 128 << 10;

/// A worker's cleaning.
pub(crate) struct Cleaner {
    /// What it is at.
    job: Option<Job>,
    /// Where what moves goes, apart from where clients' items go: clients must not use up the
    /// segments that are set aside for cleaning.
    pub(crate) open: [OpenSegment; 2],
    /// Bytes that it ought to look at.
    debt: usize,
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
            look_at: 0,
            look_for_dead: 0,
            flush_pause: 0,
            crawling: crawl::Crawl::default(),
        }
    }
}

/// How much of a slice is left.
struct Slice {
    items: usize,
    bytes: usize,
}

impl Slice {
    fn is_spent(&self) -> bool {
        self.items == 0 || self.bytes == 0
    }

    fn spend(&mut self, bytes: usize) {
        self.items = self.items.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(bytes);
    }
}

impl Cleaner {
    /// Does a slice of cleaning, `appended` bytes having been stored since the last one. True where
    /// the next slice should come soon.
    pub(crate) fn clean(&mut self, hand: Hand<'_>, appended: usize, now: UnixSeconds) -> bool {
        let pages = hand.store.log.pages();
        let (free, low) = (pages.free_count(), pages.reserve());
        let high = low + hand.store.free_margin();
        let urgent = free <= low;
        if free < high {
            // From one and a half times what is appended, where segments begin to run low, to eight
            // times where none are left.
            let factor = 3 + 13 * (high - free.max(low)) / (high - low);
            self.debt = self.debt.saturating_add(appended * factor / 2);
        } else {
            self.debt = 0;
        }
        let mut slice = Slice {
            items: if urgent {
                URGENT_SLICE_ITEMS
            } else {
                SLICE_ITEMS
            },
            bytes: SLICE_BYTES,
        };
        while !slice.is_spent() {
            let owes = urgent || self.debt > 0;
            if self.job.is_none() {
                // Nothing is written where there is nothing to do, which is after nearly every burst.
                let Some(job) = self.pick(hand, now, owes) else {
                    break;
                };
                self.job = Some(job);
            }
            match &self.job {
                Some(job) if owes || job.is_of_dead() => {}
                _ => break,
            }
            if !self.work(hand, now, &mut slice) {
                break;
            }
        }
        if self.job.is_none() {
            self.debt = 0;
        }
        self.free_dead(hand);
        let crawls = self.crawl(hand, now);
        let has_dead = self.job.as_ref().is_some_and(Job::is_of_dead);
        let is_short = urgent && self.job.is_some();
        crawls || has_dead || is_short
    }

    /// Puts half-done segments back, for other workers.
    pub(crate) fn abandon(&mut self, hand: Hand<'_>) {
        self.crawling.abandon(hand);
        if let Some(job) = self.job.take() {
            self.put_back(hand, job);
        }
    }
}
