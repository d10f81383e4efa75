//! Items on their way to flash: copied into a segment there, and in memory until that is written.
//!
//! ```text
//!  memory segment ── cleaner copies ──▶ open filling ── full ──▶ being written ── written ──▶ settled
//!      │ its slots name memory                                                     slots change, one by one
//!      └───────────────────────── leaving: neither retired nor picked again ───────────────▶ retired
//! ```

use crate::clean::Cleaner;
use crate::index::slot::{Location, Slot};
use crate::key::KeyHash;
use crate::memory::{PageId, PageState};
use crate::segment::item::RawItem;
use crate::segment::layout::{changing, mark};
use crate::sync::Ordering;
use crate::time::UnixTime;
use crate::worker_store::WorkerStore;
use coua_cpu::prefetch_for_write;
use coua_flash::log::{Appended, Draft, Event, Volume, WorkerVolume, WrittenSegment};
use std::collections::VecDeque;
use std::sync::Arc;

use super::{FlashRead, rules};

/// Slots that are changed in a turn, at most: they take a fraction of a millisecond.
const SLICE: usize = 1024;

/// The part of memory that may wait until a filling is full: one sixteenth, of all workers together.
const MEMORY_SHARE: usize = 16;

/// Records whose buckets are prefetched before their slots are changed.
const AHEAD: usize = 16;

/// A worker's part of the tier.
pub(crate) struct WorkerFlash {
    pub(super) volume: WorkerVolume,
    events: Vec<Event>,
    /// What was copied into fillings that have not ended, the oldest first.
    fillings: VecDeque<Filling>,
    /// Fillings that have ended and whose slots are being changed.
    settling: VecDeque<Settling>,
    /// Segments in memory that are kept until then.
    leaving: Vec<Leaving>,
    spare: Vec<Vec<Copied>>,
    scratch: Vec<u8>,
    /// Segments in memory that were counted as coming: what they wait for is being written.
    coming: usize,
    /// The open filling is to be ended, since a flush has killed it: nothing more is copied there.
    ends_filling: bool,
}

/// An item that was copied: where it is in memory, and whether its eviction would leave a ghost.
#[derive(Clone, Copy)]
struct Copied(u64);

struct Filling {
    sequence: u64,
    copies: Vec<Copied>,
}

struct Settling {
    written: WrittenSegment,
    copies: Vec<Copied>,
    is_written: bool,
    /// Whether it has begun; from then on a segment that was written is held.
    has_begun: bool,
    next: usize,
}

struct Leaving {
    segment: PageId,
    /// The latest filling that an item of it was copied into.
    until: u64,
}

impl Copied {
    const GHOST: u64 = 1 << 63;
    /// Nothing lies there.
    const CANCELLED: Copied = Copied(0);

    fn new(location: Location, leave_ghost: bool) -> Copied {
        Copied(location.raw() | if leave_ghost { Copied::GHOST } else { 0 })
    }

    fn location(self) -> Option<Location> {
        (self.0 != 0).then(|| Location::from_raw(self.0))
    }

    fn leaves_ghost(self) -> bool {
        self.0 & Copied::GHOST != 0
    }
}

impl WorkerFlash {
    pub(super) fn new(volume: WorkerVolume) -> WorkerFlash {
        WorkerFlash {
            volume,
            events: Vec::with_capacity(64),
            fillings: VecDeque::with_capacity(4),
            settling: VecDeque::with_capacity(4),
            leaving: Vec::new(),
            spare: Vec::new(),
            scratch: Vec::new(),
            coming: 0,
            ends_filling: false,
        }
    }

    /// Copies an item for flash. Its memory is to be kept until the filling of the returned number has been settled.
    /// `None` if it does not go to flash.
    pub(crate) fn copy(
        &mut self,
        local: WorkerStore<'_>,
        hash: KeyHash,
        location: Location,
        item: RawItem<'_>,
        leave_ghost: bool,
    ) -> Option<u64> {
        let flash = local.shared.flash.get()?;
        let len = item.total_len();
        let len_max = flash.volume.item_len_max();
        if self.ends_filling || !rules::goes_to_flash(len, flash.item_len_min, len_max) {
            return None;
        }
        self.scratch.resize(len, 0);
        item.copy_whole(&mut self.scratch);
        let expiry = match item.expiry().second_up() {
            0 => u32::MAX,
            second => second,
        };
        let draft = Draft {
            hash: hash.0,
            cas: local.cas_at(location, item),
            expiry,
            item: &self.scratch,
            key: item.key_range(),
        };
        // After all of it was read.
        if local.is_unsettled() && local.is_lost(location, item) {
            return None;
        }
        match self.volume.append(&draft) {
            Appended::At { sequence, .. } => {
                let counters = local.counters();
                counters.flash_appended.add(1);
                counters.flash_bytes_appended.add(len as u64);
                self.note(sequence, Copied::new(location, leave_ghost));
                Some(sequence)
            }
            Appended::VolumeFull => {
                flash.wanted.wake();
                local.counters().flash_refused.add(1);
                None
            }
            Appended::Busy | Appended::TooLong => {
                local.counters().flash_refused.add(1);
                None
            }
        }
    }

    fn note(&mut self, sequence: u64, copied: Copied) {
        if self
            .fillings
            .back()
            .is_none_or(|last| last.sequence != sequence)
        {
            let copies = self.spare.pop().unwrap_or_default();
            self.fillings.push_back(Filling { sequence, copies });
        }
        if let Some(last) = self.fillings.back_mut() {
            last.copies.push(copied);
        }
    }

    /// Items of a segment are not leaving after all: it may be emptied in another way.
    fn cancel(&mut self, local: WorkerStore<'_>, segment: PageId) {
        let log = &local.shared.log;
        let fillings = self.fillings.iter_mut().map(|filling| &mut filling.copies);
        let settling = self
            .settling
            .iter_mut()
            .map(|settling| &mut settling.copies);
        for copied in fillings.chain(settling).flatten() {
            if copied
                .location()
                .is_some_and(|at| log.segment_of(at) == segment)
            {
                *copied = Copied::CANCELLED;
            }
        }
    }

    /// The oldest filling whose slots still have to be changed.
    fn oldest(&self) -> Option<u64> {
        let settling = self
            .settling
            .iter()
            .map(|settling| settling.written.sequence);
        let fillings = self.fillings.iter().map(|filling| filling.sequence);
        settling.chain(fillings).min()
    }

    /// Has the open filling written. False if that has to wait for others.
    fn seal(&mut self) -> bool {
        self.volume.seal()
    }

    /// The open filling ends as soon as it can.
    pub(crate) fn end_filling(&mut self) {
        self.ends_filling = !self.seal();
    }

    /// Takes what has happened. Reads go to `reads`, the rest waits for the end of the turn.
    pub(super) fn poll(
        &mut self,
        local: &crate::counters::Counters,
        now_ns: u64,
        reads: &mut Vec<FlashRead>,
    ) {
        self.volume.poll(now_ns, &mut self.events);
        for event in self.events.drain(..) {
            let (written, is_written) = match event {
                Event::Read { token, result } => {
                    match result {
                        Err(coua_flash::log::NoRecord::Damaged) => local.flash_damaged.add(1),
                        Err(coua_flash::log::NoRecord::Failed(_)) => local.flash_failed.add(1),
                        Ok(_) => {}
                    }
                    reads.push(FlashRead { token, result });
                    continue;
                }
                Event::Written(written) => {
                    local.flash_segments_written.add(1);
                    (written, true)
                }
                Event::Lost(written, _) => {
                    local.flash_segments_lost.add(1);
                    (written, false)
                }
            };
            let is_it = |filling: &Filling| filling.sequence == written.sequence;
            let copies = self.fillings.iter().position(is_it);
            let copies = copies.and_then(|at| self.fillings.remove(at));
            self.settling.push_back(Settling {
                written,
                copies: copies.map(|filling| filling.copies).unwrap_or_default(),
                is_written,
                has_begun: false,
                next: 0,
            });
        }
        if self.ends_filling {
            self.end_filling();
        }
    }

    /// Segments in memory that wait for the open filling, which nobody writes yet.
    fn waiting(&self) -> usize {
        let Some(open) = self.volume.open_filling() else {
            return 0;
        };
        let waiting = self.leaving.iter().filter(|it| it.until >= open);
        waiting.count()
    }

    /// Whether slots wait to be changed.
    pub(super) fn has_settling(&self) -> bool {
        !self.settling.is_empty()
    }
}

impl Settling {
    /// Holds the segment, and says in the table that it is believed in. What a flush has killed meanwhile counts as
    /// not written.
    fn begin(&mut self, local: WorkerStore<'_>, volume: &Volume) {
        self.has_begun = true;
        let Some(flash) = local.shared.flash.get() else {
            return;
        };
        let WrittenSegment {
            segment, sequence, ..
        } = self.written;
        self.is_written = self.is_written
            && !local.shared.log.is_killed_on_flash(sequence)
            && volume.hold_filling(segment, sequence);
        if self.is_written {
            flash.fillings.set(segment, sequence);
        }
        if volume.room() <= rules::free_segments(volume.segments()) {
            flash.wanted.wake();
        }
    }

    /// All slots are changed. If the segment was dropped meanwhile, the sweep may have passed by some of them.
    fn end(&self, local: WorkerStore<'_>, volume: &Volume) {
        if !self.is_written {
            return;
        }
        if !volume.is_sealed_still(self.written.segment) {
            for (hash, place) in self.written.records(volume) {
                let hash = KeyHash(hash);
                let slot = Slot::flash(hash.tag(), place.to_bits());
                while local.find_on_flash(hash, slot).is_some() {
                    local.drop_on_flash(hash, slot);
                }
            }
        }
        volume.let_go(self.written.segment);
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
            && let Some(mut settling) = flash.settling.pop_front()
        {
            let volume = Arc::clone(flash.volume.volume());
            if !settling.has_begun {
                settling.begin(local, &volume);
            }
            while left > 0 && settling.next < settling.copies.len() {
                let count = self.settle_some(local, &volume, &settling, now);
                settling.next += count;
                left = left.saturating_sub(count);
            }
            if settling.next < settling.copies.len() {
                flash.settling.push_front(settling);
                break;
            }
            settling.end(local, &volume);
            settling.copies.clear();
            flash.spare.push(settling.copies);
            flash.volume.reuse(settling.written);
            self.retire_left(local, &mut flash);
        }
        if flash.settling.is_empty() && !flash.leaving.is_empty() {
            self.retire_left(local, &mut flash);
        }
        let more = !flash.settling.is_empty();
        self.flash = Some(flash);
        more
    }

    /// Changes the next few slots. Returns how many.
    fn settle_some(
        &mut self,
        local: WorkerStore<'_>,
        volume: &Volume,
        settling: &Settling,
        now: UnixTime,
    ) -> usize {
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
            let Some(memory) = copied.location() else {
                continue;
            };
            let hash = KeyHash(hash);
            let on_flash = Slot::flash(hash.tag(), place.to_bits());
            let on_flash = settling.is_written.then_some((on_flash, bytes));
            while !self.settle_one(local, hash, memory, on_flash, copied.leaves_ghost(), now) {}
        }
        // Each copy has its record.
        count.max(1)
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
        local.counters().segments_cleaned.add(1);
        store.log.retire(segment, &store.epochs);
        true
    }

    /// Retires a segment that was emptied, or keeps it until its items are on flash.
    pub(crate) fn retire_or_leave(&mut self, local: WorkerStore<'_>, segment: PageId) {
        let until = self.copied.take();
        let waits = |flash: &WorkerFlash, until| flash.oldest().is_some_and(|it| it <= until);
        match (&mut self.flash, until) {
            (Some(flash), Some(until)) if waits(flash, until) => {
                flash.leaving.push(Leaving { segment, until });
            }
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
    pub(crate) fn hurry(&mut self, local: WorkerStore<'_>) -> bool {
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
        flash.has_settling() || is_short && !flash.leaving.is_empty()
    }

    /// The worker ends: what is not on flash stays in memory.
    pub(crate) fn abandon_flash(&mut self, local: WorkerStore<'_>, now: UnixTime) {
        while self.settle(local, now) {}
        let Some(flash) = self.flash.take() else {
            return;
        };
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

impl crate::segment::Log {
    /// The number of segments changes that become free when what is being written to flash is there.
    fn change_coming(&self, from: usize, to: usize) {
        if from != to {
            self.leaving()
                .fetch_add(to.wrapping_sub(from), Ordering::Relaxed);
        }
    }

    /// Segments that become free when what is being written to flash is there.
    pub(crate) fn leaving_count(&self) -> usize {
        self.leaving().load(Ordering::Relaxed)
    }
}
