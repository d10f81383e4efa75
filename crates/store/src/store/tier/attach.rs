//! How a store and its workers come by a volume, and what of it was taken over.

use super::admission::{Admission, Gate};
use super::fillings::Fillings;
use super::recalls::Recalls;
use super::{Attached, location_of};
use crate::epoch::{Guard, Presence};
use crate::index::Visited;
use crate::index::slot::Slot;
use crate::memory::PageState;
use crate::store::Store;
use coua_flash::log::Volume;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Which items go to flash.
#[derive(Clone, Copy, Debug)]
pub struct FlashOptions {
    /// Shorter items, header and key included, are evicted as without flash: extstore's `ext_item_size`.
    pub item_len_min: usize,
    /// So are longer ones.
    pub item_len_max: usize,
    /// Which of the others go there.
    pub admission: Admission,
    /// Bytes of items that may be written a day, if there is a limit. An hour's may be saved up.
    pub write_budget: Option<u64>,
}

impl Default for FlashOptions {
    /// A record has 48 bytes beside its item.
    fn default() -> FlashOptions {
        FlashOptions {
            item_len_min: 64,
            item_len_max: usize::MAX,
            admission: Admission::All,
            write_budget: None,
        }
    }
}

/// Why a volume was not attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FlashRefused {
    /// The store has a volume.
    #[error("the store has a volume on flash already")]
    Attached,
    /// Workers have begun without it.
    #[error("a volume on flash is attached before the first worker")]
    WorkersExist,
    /// There is no memory for the table of its segments' fillings.
    #[error("no memory for the table of the volume's segments")]
    NoMemory,
}

impl Store {
    /// Attaches a volume, before the first worker is made. What the store has taken over is kept if this is the
    /// same volume, and as far as its segments have the fillings that the store believes in; all else that lies
    /// on the volume is dropped.
    ///
    /// # Errors
    /// [`FlashRefused`] if it comes too late, or there is no memory for its table.
    pub fn attach_flash(
        &self,
        volume: Arc<Volume>,
        options: FlashOptions,
    ) -> Result<(), FlashRefused> {
        if self.flash.is_attached() {
            return Err(FlashRefused::Attached);
        }
        if self.flash.has_begun.load(Ordering::Acquire) {
            return Err(FlashRefused::WorkersExist);
        }
        let items_taken_over = self.flash.taken_over.load(Ordering::Relaxed);
        let log = &self.log;
        let superblock = log.superblock();
        let mut fillings = Fillings::left_in(log);
        let is_same = superblock.flash.volume.load(Ordering::Relaxed) == volume.id();
        if !is_same {
            self.drop_taken_over(|_| false);
            fillings.clear();
            // After the table: half of both is of neither.
            superblock.set_volume(volume.id());
        }
        if fillings.extend(log, volume.segments() as usize).is_none() {
            self.drop_taken_over(|_| false);
            fillings.free(log);
            return Err(FlashRefused::NoMemory);
        }
        let present =
            |sequence: u64, segment: u32| sequence != 0 && fillings.of_segment(segment) == sequence;
        let sequences: Vec<u64> = volume.sequences().collect();
        // What nobody believes in is lost space until it is dropped.
        let is_strange = (0..)
            .zip(&sequences)
            .any(|(segment, &sequence)| sequence != 0 && !present(sequence, segment));
        if is_strange {
            self.drop_taken_over(|_| false);
            volume.release(volume.drop_before(u64::MAX));
            fillings.clear();
        } else {
            self.drop_taken_over(|slot| {
                let location = location_of(&volume, slot);
                let segment = volume.segment_of(location);
                let filling = volume.filling_of(location);
                segment
                    .zip(filling)
                    .is_some_and(|(segment, it)| present(it, segment))
            });
        }
        // Items with tags may be in all of them.
        self.tags
            .note_on_flash(sequences.iter().copied().max().unwrap_or(0));
        for (segment, sequence) in (0..).zip(sequences) {
            if sequence == 0 {
                fillings.set(segment, 0);
            }
        }
        log.attach(Arc::clone(&volume));
        let attached = Attached {
            gate: Gate::new(
                options.item_len_min..=options.item_len_max,
                options.admission,
                options.write_budget,
                u64::from(volume.segments()) * volume.segment_len() as u64,
            ),
            foreign: self.counters.iter().map(|_| Default::default()).collect(),
            fillings,
            recalls: Recalls::new(&volume),
            wanted: Default::default(),
            has_keeper: AtomicBool::new(false),
            // Those that were dropped count as unlinked.
            items_taken_over,
            volume,
        };
        self.flash
            .attached
            .set(attached)
            .map_err(|_| FlashRefused::Attached)
    }

    /// What the slots that were taken over believe of a volume's segments, for
    /// [`Start::Index`](coua_flash::log::Start::Index): the fillings of segments, 0 for none. Empty if there is
    /// nothing on flash.
    pub fn flash_sequences(&self) -> Vec<u64> {
        if self.flash.taken_over.load(Ordering::Relaxed) == 0 {
            return Vec::new();
        }
        Fillings::left_in(&self.log).all()
    }

    /// Drops those slots on flash that were taken over and are not `kept`.
    fn drop_taken_over(&self, kept: impl Fn(Slot) -> bool) {
        if self.flash.taken_over.swap(0, Ordering::Relaxed) == 0 {
            return;
        }
        let mut stay = 0;
        let unwanted = |slot: Slot| {
            let stays = kept(slot);
            stay += u64::from(stays);
            !stays
        };
        // No split is under way yet.
        self.sweep_flash(unwanted, |_, _| ());
        self.flash.taken_over.store(stay, Ordering::Relaxed);
    }

    /// Drops all slots on flash that are `unwanted`, which may be asked twice of the same. Returns how many. Not to
    /// be called by two threads at once. After each sub-table `after` is called in the same burst, with the number that
    /// the sweep counts by.
    pub(crate) fn sweep_flash(
        &self,
        mut unwanted: impl FnMut(Slot) -> bool,
        after: impl Fn(usize, Guard<'_>),
    ) -> u64 {
        // Behind the menders.
        let id = self.counters.len() - 1;
        let mut presence = Presence::new(id);
        let (mut word, mut dropped) = (0, 0);
        while word < self.index.words() {
            let guard = presence.announce(&self.epochs);
            word = self.index.sweep(word, None::<fn(Slot)>, |place| {
                if !place.slot.is_on_flash() || !unwanted(place.slot) {
                    return Visited::Done;
                }
                let Some(lock) = place.lock() else {
                    return Visited::Again;
                };
                let _ = lock.replace(Slot::EMPTY).into_slot();
                self.counters[id].unlinked.add(1);
                self.counters[id].flash_unlinked.add(1);
                dropped += 1;
                Visited::Done
            });
            after(id, guard);
        }
        presence.leave(&self.epochs);
        dropped
    }

    /// A worker begins: without a volume, what was taken over of one is of no use any more.
    pub(crate) fn begin_flash(&self) {
        if self.flash.has_begun.swap(true, Ordering::AcqRel) || self.flash.is_attached() {
            return;
        }
        // First: the next process must not believe in what this one has not come to drop.
        let line = &self.log.superblock().flash;
        line.volume.store(0, Ordering::Release);
        self.drop_taken_over(|_| false);
        let is_left = |page| self.log.entry(page).state() == PageState::Fillings;
        if (0..self.log.segment_count()).any(is_left) {
            Fillings::left_in(&self.log).free(&self.log);
        }
    }
}
