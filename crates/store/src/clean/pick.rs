//! Chooses the segment to clean next.

use super::Cleaner;
use super::job::{Job, Kind};
use crate::memory::PageId;
use crate::memory::{PageState, Queue};
use crate::store::Store;
use crate::time::UnixTime;
use crate::worker_store::WorkerStore;

/// Segments looked at in one search for a sparse one. A pick takes a few microseconds, however much
/// memory there is; all segments are looked at in turn.
const LOOK: u32 = 256;

/// A segment is compacted when less of it than this is alive: three quarters. Even if no item fits
/// into the rest of a segment, more of it than that is in use.
const LIVE_QUARTERS: usize = 3;

/// Without evictions it is compacted when this part of it is dead: one in 64. So at most 64
/// segments are moved to gain one.
const DEAD_SHARE: usize = 64;

/// A segment of another node of memory is compacted only if it yields an eighth more: the items that move
/// come to this worker's node, and so does the room. It then costs less than it saves.
const FAR_EIGHTHS: usize = 7;

/// Of so many oldest segments of a queue the first one of this worker's node is emptied. That changes the
/// order of eviction by as many at most.
const NEAR_LOOK: usize = 8;

/// The small queue's share of sealed segments: one in ten.
const SMALL_SHARE: usize = 10;

impl Store {
    /// How many segments may have been opened since an eviction for its ghost to count.
    pub(crate) fn ghost_age_max(&self) -> u64 {
        self.log.pages().limit() as u64
    }
}

impl Cleaner {
    /// Takes a victim out of its queue: a dead one, or any if space is wanted.
    pub(super) fn pick(
        &mut self,
        local: WorkerStore<'_>,
        now: UnixTime,
        wants_space: bool,
    ) -> Option<Job> {
        let below = local.shared.log.flushed_below();
        if below != 0
            && let Some(segment) = self.flush_round.find(local, below)
        {
            return Some(self.begin(local, Kind::Dead, segment));
        }
        if !wants_space {
            return None;
        }
        let (kind, segment) = self
            .pick_sparse(local, now)
            .or_else(|| self.pick_oldest(local))?;
        Some(self.begin(local, kind, segment))
    }

    fn is_free(&self, local: WorkerStore<'_>, segment: PageId) -> bool {
        local.shared.log.entry(segment).may_be_cleaned()
    }

    /// A segment whose items have all expired, or the emptiest of those looked at that are worth
    /// compacting.
    fn pick_sparse(&mut self, local: WorkerStore<'_>, now: UnixTime) -> Option<(Kind, PageId)> {
        let log = &local.shared.log;
        if !local.shared.evict && self.survey.is_settled(local, now) {
            return None;
        }
        let count = log.segment_count();
        let mut best: Option<(usize, PageId)> = None;
        let mut expired = None;
        let spread = log.pages().spread();
        let here = (spread.len() > 1).then(|| spread.here());
        for _ in 0..LOOK.min(count) {
            self.look_at = (self.look_at + 1) % count;
            let segment = self.look_at;
            let entry = log.entry(segment);
            let state = entry.state();
            // A segment being cleaned cannot be picked, but its bytes count.
            let counts = state == PageState::Cleaning && !local.shared.evict;
            let is_of_use = (state == PageState::Sealed || counts) && entry.may_be_cleaned();
            let reclaimable = if is_of_use {
                reclaimable(local, segment)
            } else {
                0
            };
            if !local.shared.evict {
                self.survey.note(local, reclaimable);
            }
            if state != PageState::Sealed || !is_of_use {
                continue;
            }
            if entry.expiry_max() <= now.second().0 && !entry.has_pieces() {
                expired = Some(segment);
                break;
            }
            let yields = match here {
                Some(here) if spread.node_of(segment) != here => reclaimable / 8 * FAR_EIGHTHS,
                _ => reclaimable,
            };
            if yields > best.map_or(0, |(most, _)| most) {
                best = Some((yields, segment));
            }
        }
        if !local.shared.evict {
            self.survey.settle(local, now);
        }
        let (kind, segment) = match (expired, best) {
            (Some(segment), _) => (Kind::Dead, segment),
            (None, Some((_, segment))) => (Kind::Compact, segment),
            (None, None) => return None,
        };
        // Another worker may have taken it by now.
        log.queues().remove(segment).then_some((kind, segment))
    }

    fn pick_oldest(&self, local: WorkerStore<'_>) -> Option<(Kind, PageId)> {
        let log = &local.shared.log;
        if !local.shared.evict {
            return None;
        }
        let mut queues = log.queues();
        let sealed = queues.small_len() + queues.main_len();
        let small_first = queues.small_len() * SMALL_SHARE >= sealed;
        let order = if small_first {
            [Queue::Small, Queue::Main]
        } else {
            [Queue::Main, Queue::Small]
        };
        let spread = log.pages().spread();
        let here = (spread.len() > 1).then(|| spread.here());
        order.into_iter().find_map(|queue| {
            let kind = if queue == Queue::Small {
                Kind::Small
            } else {
                Kind::Main
            };
            if let Some(here) = here {
                let is_near = |segment| spread.node_of(segment) == here;
                let is_wanted = |segment| is_near(segment) && self.is_free(local, segment);
                if let Some(segment) = queues.oldest(queue, NEAR_LOOK, is_wanted) {
                    queues.remove(segment);
                    return Some((kind, segment));
                }
            }
            queues
                .pop(queue, |segment| self.is_free(local, segment))
                .map(|segment| (kind, segment))
        })
    }

    fn begin(&self, local: WorkerStore<'_>, kind: Kind, segment: PageId) -> Job {
        let entry = local.shared.log.entry(segment);
        entry.set_state(PageState::Cleaning);
        if kind == Kind::Dead && local.shared.log.flushed_below() == 0 {
            local.counters().segments_expired.add(1);
        }
        Job::new(kind, segment, entry.used())
    }

    /// Gives back a segment that is not emptied, for any worker to take: it becomes the oldest of
    /// its queue.
    pub(super) fn put_back(&mut self, local: WorkerStore<'_>, job: Job) {
        self.cancel_copies(local, job.segment());
        let log = &local.shared.log;
        let entry = log.entry(job.segment());
        // A crawl may have abandoned it meanwhile.
        entry.make_crawl_due();
        entry.set_state(PageState::Sealed);
        log.queues().push_oldest(entry.queue(), job.segment());
    }
}

/// Bytes that compacting a segment gains; 0 if it is not worth it.
fn reclaimable(local: WorkerStore<'_>, segment: PageId) -> usize {
    let log = &local.shared.log;
    let (len, used) = (log.segment_len(), log.entry(segment).used());
    let dead = log.dead_bytes(segment).min(used);
    if used - dead < len / 4 * LIVE_QUARTERS {
        len - (used - dead)
    } else if !local.shared.evict && dead >= len / DEAD_SHARE {
        dead
    } else {
        0
    }
}
