//! Items that go to flash instead of being evicted: when they are written there their slots are changed, and the segments
//! that they lay in are retired.

use super::Cleaner;
use super::job::{Job, Kind};
use crate::flash::{Leaving, Settling, WorkerFlash, are_there};
use crate::index::slot::{Location, Slot};
use crate::key::KeyHash;
use crate::memory::{PageId, PageState, Queue};
use crate::segment::layout::{changing, mark};
use crate::store::tier::slot_of;
use crate::time::UnixTime;
use crate::worker_store::WorkerStore;
use coua_cpu::prefetch_for_write;
use coua_flash::log::Volume;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Slots that are changed in a turn, at most: they take a fraction of a millisecond.
const SLICE: usize = 1024;

/// Records whose buckets are prefetched before their slots are changed.
const AHEAD: usize = 16;

/// How long clients may wait for memory because a device is slow, in milliseconds. Then what waits for it is evicted.
const PATIENCE_MS: u64 = 5;

/// A turn counts as so much of that at most, in milliseconds: a worker that did not run could not see what was written.
const TURN_MS_MAX: u64 = 1;

/// The part of memory that may wait until a filling is full: one sixteenth, of all workers together.
const MEMORY_SHARE: usize = 16;

/// For how long somebody has waited for memory that is short, since anything was written.
#[derive(Clone, Copy)]
pub(super) struct Shortage {
    /// The end of the last turn, and the turns' time before, in milliseconds.
    until: u64,
    lasted: u64,
    /// How often something had to wait for memory until then.
    waits: u64,
}

impl Shortage {
    /// It goes on, at the end of a turn.
    fn goes_on(before: Option<Shortage>, local: WorkerStore<'_>, now: UnixTime) -> Shortage {
        let until = now.millis();
        let workers = local.shared.counters.iter();
        let waits = workers.map(|counters| counters.waits.read()).sum();
        let lasted = before.map_or(0, |it| {
            let counts = waits > it.waits;
            let turn = until.saturating_sub(it.until).min(TURN_MS_MAX);
            it.lasted + if counts { turn } else { 0 }
        });
        Shortage {
            until,
            lasted,
            waits,
        }
    }
}

impl Cleaner {
    /// Changes the slots of what was written, and evicts what could not be. True if more is left.
    pub(crate) fn settle(&mut self, local: WorkerStore<'_>, now: UnixTime) -> bool {
        let Some(mut flash) = self.flash.take() else {
            return false;
        };
        let mut left = SLICE;
        while left > 0
            && let Some(mut settling) = flash.take_settling()
        {
            let volume = Arc::clone(flash.volume.volume());
            if !settling.has_begun {
                settling.begin(local, &volume);
            }
            while left > 0 && settling.next < settling.copies.len() {
                if settling.written.is_lost() {
                    self.keep_in_memory(local, &mut flash, &settling, now);
                    settling.next = settling.copies.len();
                    break;
                }
                // Where it is lost meanwhile, keys and places are zeros, which lead to no slot.
                let count = self.settle_some(local, &volume, &mut settling, now);
                settling.next += count;
                left = left.saturating_sub(count);
            }
            if settling.next < settling.copies.len() {
                flash.settling.push_front(settling);
                break;
            }
            settling.end(local, &volume);
            // The device is not too slow.
            self.shortage = None;
            flash.end_large(local, Some(settling.written.sequence));
            settling.copies.clear();
            flash.spare.push(settling.copies);
            flash.volume.reuse(settling.written);
            self.retire_left(local, &mut flash);
        }
        if !flash.has_settling() && !flash.leaving.is_empty() {
            self.retire_left(local, &mut flash);
        }
        let more = flash.has_settling();
        self.flash = Some(flash);
        more
    }

    /// Changes the next few slots. Returns how many.
    fn settle_some(
        &mut self,
        local: WorkerStore<'_>,
        volume: &Volume,
        settling: &mut Settling,
        now: UnixTime,
    ) -> usize {
        let mut copied_bytes = 0;
        let records = || {
            settling
                .written
                .records_from(volume, settling.next)
                .take(AHEAD)
        };
        for (hash, _, _) in records() {
            for bucket in local.shared.index.buckets_of(KeyHash(hash)) {
                prefetch_for_write(bucket);
            }
        }
        let mut count = 0;
        for ((hash, place, bytes), copied) in records().zip(&settling.copies[settling.next..]) {
            count += 1;
            copied_bytes += bytes.len();
            let Some(memory) = copied.location() else {
                continue;
            };
            let hash = KeyHash(hash);
            let on_flash = slot_of(volume, hash, place);
            let is_there = settling.is_written && are_there(volume, bytes);
            let on_flash = is_there.then_some((on_flash, bytes));
            while !self.settle_one(local, hash, memory, on_flash, copied.leaves_ghost(), now) {}
        }
        settling.bytes += copied_bytes;
        // Each copy has its record.
        count.max(1)
    }

    /// The memory of a filling is lost from which its slots were to be changed: which records they are is not known for
    /// certain any more. Its items are where they were, and their segments are emptied once more.
    #[cold]
    fn keep_in_memory(
        &mut self,
        local: WorkerStore<'_>,
        flash: &mut WorkerFlash,
        settling: &Settling,
        now: UnixTime,
    ) {
        let (store, log) = (local.shared, &local.shared.log);
        let copies = &settling.copies[settling.next..];
        let segments = copies.iter().filter_map(|copied| copied.location());
        let segments: BTreeSet<PageId> = segments.map(|at| log.segment_of(at)).collect();
        let mut kept = BTreeSet::new();
        for at in (0..flash.leaving.len()).rev() {
            let segment = flash.leaving[at].segment;
            if segments.contains(&segment) {
                flash.leaving.swap_remove(at);
                flash.cancel(local, segment);
                self.return_segment(local, segment);
                kept.insert(segment);
            }
        }
        if let Some(job) = self.job.take_if(|job| segments.contains(&job.segment())) {
            self.copied = None;
            flash.cancel(local, job.segment());
            kept.insert(job.segment());
            self.put_back(local, job);
        }
        // Of a segment that nobody empties any more.
        for copied in copies {
            let Some(memory) = copied.location() else {
                continue;
            };
            if kept.contains(&log.segment_of(memory)) {
                continue;
            }
            let hash = store.hasher.hash(local.item(memory).key());
            while !self.settle_one(local, hash, memory, None, copied.leaves_ghost(), now) {}
        }
    }

    /// Changes a slot to what is on flash if nothing has changed since it was copied; otherwise its item stays in
    /// memory, or is evicted. False if the slot has changed under its hands.
    fn settle_one(
        &mut self,
        local: WorkerStore<'_>,
        hash: KeyHash,
        memory: Location,
        on_flash: Option<(Slot, &[u8])>,
        leave_ghost: bool,
        now: UnixTime,
    ) -> bool {
        let store = local.shared;
        let place = store.index.find(hash, |slot| slot.location() == memory);
        // It was replaced or deleted, or has moved.
        let Some(place) = place else { return true };
        // The item's segment is ours, and is not used again before we retire it.
        let item = local.item(memory);
        if let Some(why) = local.death(memory, item, now) {
            return local.unlink_dead(place, item, why);
        }
        let Some((slot, bytes)) = on_flash else {
            return self.evict(local, place, item, leave_ghost, now);
        };
        let Some(lock) = place.lock() else {
            return false;
        };
        let is_same = changing(bytes) == (item.access() & mark::CLIENTS, item.expiry())
            && !store.log.is_flushed(memory);
        let is_lost = local.is_unsettled() && local.is_lost(memory, item);
        if is_lost {
            drop(lock);
            return local.unlink_lost(place);
        }
        if is_same {
            let old = lock.slot;
            let gone = lock.replace(slot.with_frequency(old.frequency()));
            local.counters().flash_written.add(1);
            local.note_dead(gone);
            // Its segment is kept until this is over.
            local.tell_left_for_flash(item, now);
            return true;
        }
        drop(lock);
        // It was used meanwhile: it is dealt with as if it had not been copied.
        self.keep_or_evict(local, place, item, leave_ghost, now)
    }

    /// Retires the segments all of whose items have left.
    fn retire_left(&mut self, local: WorkerStore<'_>, flash: &mut WorkerFlash) {
        let oldest = flash.oldest().unwrap_or(u64::MAX);
        let mut at = 0;
        while at < flash.leaving.len() {
            let Leaving { segment, until } = flash.leaving[at];
            if until >= oldest || !self.try_retire(local, segment) {
                at += 1;
                continue;
            }
            flash.leaving.swap_remove(at);
        }
    }

    /// Retires an emptied segment of this cleaner's. False if it is too early to tell whether slots point to it.
    fn try_retire(&mut self, local: WorkerStore<'_>, segment: PageId) -> bool {
        let store = local.shared;
        if local.is_damaged(segment) {
            // What was not found may have been looked for by a header of zeros.
            self.return_segment(local, segment);
            return true;
        }
        if local.is_unsettled() && store.losses.is_index_unsettled(&store.log) {
            return false;
        }
        if !store.log.is_all_dead(segment) && !store.log.entry(segment).is_uncounted() {
            // Something may point to it that no header leads to: it is gone through once more, and looked for.
            self.return_segment(local, segment);
            return true;
        }
        local.counters().segments_cleaned.add(1);
        store.log.retire(segment, &store.epochs);
        true
    }

    /// Retires a segment that was emptied, or keeps it until its items are on flash.
    pub(crate) fn retire_or_leave(&mut self, local: WorkerStore<'_>, segment: PageId) {
        match (&mut self.flash, self.copied.take()) {
            (Some(flash), Some(until)) => flash.leaving.push(Leaving { segment, until }),
            _ => {
                local.counters().segments_cleaned.add(1);
                local.shared.log.retire(segment, &local.shared.epochs);
            }
        }
    }

    /// Items of a segment that is given back are not leaving.
    pub(crate) fn cancel_copies(&mut self, local: WorkerStore<'_>, segment: PageId) {
        if self.copied.take().is_some()
            && let Some(flash) = &mut self.flash
        {
            flash.cancel(local, segment);
        }
    }

    /// Has the open filling written before it is full, if too much of memory waits for it. True if memory is short
    /// until something is written.
    pub(crate) fn hurry(&mut self, local: WorkerStore<'_>, now: UnixTime) -> bool {
        let Some(flash) = &mut self.flash else {
            return false;
        };
        let log = &local.shared.log;
        let pages = log.pages();
        let is_short = pages.free_count() <= pages.reserve();
        let waiting = flash.waiting();
        let is_idle = !flash.volume.is_writing() && !flash.has_settling();
        let most = pages.limit() / MEMORY_SHARE / local.shared.workers();
        if waiting > 0 && (waiting > most || is_short && is_idle) {
            flash.seal();
        }
        let coming = flash.leaving.len() - flash.waiting();
        log.change_coming(flash.coming, coming);
        flash.coming = coming;
        let awaits = is_short && (!flash.leaving.is_empty() || self.waits && self.job.is_some());
        self.shortage = awaits.then(|| Shortage::goes_on(self.shortage, local, now));
        flash.has_settling() || awaits
    }

    /// Whether memory has been short for too long.
    pub(super) fn is_late(&self) -> bool {
        self.shortage.is_some_and(|it| it.lasted >= PATIENCE_MS)
    }

    /// A segment that waits for flash while memory has been short for too long, to be emptied without it: a device that
    /// is slow must not keep clients waiting.
    pub(super) fn take_late(&mut self, local: WorkerStore<'_>) -> Option<Job> {
        let log = &local.shared.log;
        let pages = log.pages();
        if !self.is_late() || pages.free_count() > pages.reserve() {
            return None;
        }
        let flash = self.flash.as_mut()?;
        // The last one would wait the longest.
        let segment = flash.leaving.pop()?.segment;
        flash.cancel(local, segment);
        let entry = log.entry(segment);
        let kind = match entry.queue() {
            Queue::Small => Kind::Small,
            Queue::Main => Kind::Main,
        };
        Some(Job::without_flash(kind, segment, entry.used()))
    }

    /// The worker ends: what is not on flash stays in memory.
    pub(crate) fn abandon_flash(&mut self, local: WorkerStore<'_>, now: UnixTime) {
        while self.settle(local, now) {}
        let Some(mut flash) = self.flash.take() else {
            return;
        };
        flash.end_large(local, None);
        local.shared.log.change_coming(flash.coming, 0);
        for leaving in &flash.leaving {
            self.return_segment(local, leaving.segment);
        }
    }

    /// Gives a segment back to its queue, as the oldest.
    fn return_segment(&mut self, local: WorkerStore<'_>, segment: PageId) {
        let log = &local.shared.log;
        let entry = log.entry(segment);
        entry.make_crawl_due();
        entry.set_state(PageState::Sealed);
        log.queues().push_oldest(entry.queue(), segment);
    }
}
