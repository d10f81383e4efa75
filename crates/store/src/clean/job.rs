//! A segment under cleaning.

use super::Cleaner;
use super::leftovers::Leftovers;
use crate::index::slot::Location;
use crate::key::KeyHash;
use crate::memory::PageId;
use crate::time::UnixTime;
use crate::worker_store::WorkerStore;
use coua_cpu::prefetch_for_write;

/// Items whose buckets are prefetched before the items are looked at.
const AHEAD: usize = 16;

/// Why a segment was picked, which decides the fate of its items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Nothing in it is known to be alive.
    Dead,
    /// Partly dead: live items stay in its queue.
    Compact,
    /// The small queue's head.
    Small,
    /// The main queue's head.
    Main,
}

/// A segment under cleaning, and the progress made.
pub(super) struct Job {
    kind: Kind,
    segment: PageId,
    offset: usize,
    end: usize,
    /// Whether what goes is evicted, though there is flash.
    evicts: bool,
    leftovers: Leftovers,
}

impl Job {
    pub(super) fn new(kind: Kind, segment: PageId, end: usize) -> Job {
        Job {
            kind,
            segment,
            offset: 0,
            end,
            evicts: false,
            leftovers: Leftovers::Unknown,
        }
    }

    /// For a segment whose items wait for flash for too long.
    pub(super) fn without_flash(kind: Kind, segment: PageId, end: usize) -> Job {
        Job {
            evicts: true,
            ..Job::new(kind, segment, end)
        }
    }

    pub(super) fn segment(&self) -> PageId {
        self.segment
    }

    /// Whether the job costs next to nothing and frees a whole segment.
    pub(super) fn is_of_dead(&self) -> bool {
        self.kind == Kind::Dead
    }
}

/// The current item of a job.
#[derive(Clone, Copy)]
pub(super) struct CleanedItem {
    pub(super) location: Location,
    pub(super) len: usize,
    pub(super) hash: KeyHash,
}

impl Cleaner {
    /// Works on the job. False if it can do nothing now.
    pub(super) fn work(&mut self, local: WorkerStore<'_>, now: UnixTime) -> bool {
        let Some(mut job) = self.job.take() else {
            return false;
        };
        let mut stuck = false;
        self.evicts = job.evicts;
        self.waits = false;
        while job.offset < job.end && !stuck && self.goes_on(&job) {
            let count = self.pace.items_at_once(AHEAD);
            let (batch, count) = self.next_batch(local, &job, count);
            if local.is_damaged(job.segment) {
                self.put_back(local, job);
                return false;
            }
            if count == 0 {
                // A header says what it cannot, so nobody knows where the next one is.
                job.offset = job.end;
                break;
            }
            let (mut looked_at, mut len, mut moved) = (0, 0, 0);
            for victim in &batch[..count] {
                if !self.pace.goes_beyond(len, moved) {
                    break;
                }
                let Some(bytes) = self.clean_item(local, job.kind, *victim, now) else {
                    stuck = true;
                    break;
                };
                looked_at += 1;
                len += victim.len;
                moved += bytes;
            }
            job.offset += len;
            self.pace.note_items(looked_at, len, moved);
        }
        if job.offset < job.end {
            if stuck && job.kind == Kind::Compact && job.offset == 0 {
                // There is no room to move anything: another worker may find segments to free.
                self.put_back(local, job);
                return false;
            }
            self.job = Some(job);
            return !stuck;
        }
        if local.is_damaged(job.segment) {
            // What was not found may have been looked for by a header of zeros.
            self.put_back(local, job);
            return false;
        }
        if local.is_unsettled() && local.shared.losses.is_index_unsettled(&local.shared.log) {
            // What was not found may stand where the index does not look until it is in order.
            self.job = Some(job);
            return false;
        }
        let leftovers = std::mem::take(&mut job.leftovers);
        job.leftovers = match self.copied {
            None => self.drop_leftovers(local, job.segment, leftovers),
            // They are looked for when its items are on flash.
            Some(_) => Leftovers::None,
        };
        if job.leftovers != Leftovers::None {
            let goes_on = job.leftovers.is_going_on();
            self.job = Some(job);
            return goes_on;
        }
        self.retire_or_leave(local, job.segment);
        true
    }

    /// Whether `job` continues in this turn.
    pub(super) fn goes_on(&self, job: &Job) -> bool {
        self.pace.items_at_once(1) > 0 && (self.pace.owes() || job.kind == Kind::Dead)
    }

    /// The next items of the segment; their buckets are prefetched.
    fn next_batch(
        &self,
        local: WorkerStore<'_>,
        job: &Job,
        count: usize,
    ) -> ([CleanedItem; AHEAD], usize) {
        let log = &local.shared.log;
        let start = job.segment as usize * log.segment_len();
        let none = CleanedItem {
            location: Location::of_offset(start),
            len: 0,
            hash: KeyHash(0),
        };
        let mut batch = [none; AHEAD];
        let (mut filled, mut offset) = (0, job.offset);
        while filled < count && offset < job.end {
            let found = log.item_in(local.guard(), job.segment, offset, job.end);
            let Some((location, item)) = found else { break };
            let hash = if item.is_piece() {
                KeyHash(item.piece_hash())
            } else {
                local.shared.hasher.hash(item.key())
            };
            for bucket in local.shared.index.buckets_of(hash) {
                prefetch_for_write(bucket);
            }
            let len = item.total_len();
            batch[filled] = CleanedItem {
                location,
                len,
                hash,
            };
            offset += len;
            filled += 1;
        }
        (batch, filled)
    }
}
