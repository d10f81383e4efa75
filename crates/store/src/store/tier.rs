//! The tier below memory, as far as all workers share it: the volume, what is known of its segments, and who keeps some
//! of them free. `flash.rs` says how it is used.

mod admission;
mod attach;
mod fillings;
mod foreign;
mod recalls;
pub(crate) mod rules;
mod stats;
mod wanted;

pub use admission::Admission;
pub(crate) use admission::Candidate;
pub use attach::{FlashOptions, FlashRefused};
pub use stats::FlashStats;

use crate::index::slot::Slot;
use crate::key::KeyHash;
use admission::Gate;
use coua_flash::log::{Location, Volume};
use crossbeam_utils::CachePadded;
use fillings::Fillings;
use foreign::Foreign;
use recalls::Recalls;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use wanted::Wanted;

/// The store's part of the tier below memory, if it has one.
#[derive(Default)]
pub(crate) struct Tier {
    attached: OnceLock<Attached>,
    /// Slots on flash that were taken over, and nobody has looked at yet.
    taken_over: AtomicU64,
    /// Whether a worker was made.
    has_begun: AtomicBool,
}

/// What all workers share of it.
pub(crate) struct Attached {
    pub(crate) volume: Arc<Volume>,
    /// Says which items go there.
    pub(crate) gate: Gate,
    /// What each worker has seen to be other keys' records.
    foreign: Box<[CachePadded<Foreign>]>,
    pub(crate) fillings: Fillings,
    /// How much reads may bring back.
    pub(crate) recalls: Recalls,
    /// Wakes the keeper.
    pub(crate) wanted: Wanted,
    /// Whether there is a keeper.
    pub(crate) has_keeper: AtomicBool,
    /// Items that were taken over.
    items_taken_over: u64,
}

impl Tier {
    #[inline]
    pub(crate) fn get(&self) -> Option<&Attached> {
        self.attached.get()
    }

    /// Whether a filling of that number or an older one is there.
    pub(crate) fn has_filling_up_to(&self, latest: u64) -> bool {
        let is_such = |filling: u64| filling != 0 && filling <= latest;
        self.get()
            .is_some_and(|flash| flash.volume.sequences().any(is_such))
    }

    #[inline]
    pub(crate) fn is_attached(&self) -> bool {
        self.attached.get().is_some()
    }

    pub(crate) fn note_taken_over(&self, items: u64) {
        self.taken_over.store(items, Ordering::Relaxed);
    }
}

/// The place on flash that a slot names.
pub(crate) fn location_of(volume: &Volume, slot: Slot) -> Location {
    volume.apart(slot.flash_place()).0
}

/// The slot of an item on flash. The bits that its location leaves over lengthen its tag.
pub(crate) fn slot_of(volume: &Volume, hash: KeyHash, location: Location) -> Slot {
    let place = volume.joined(location, hash.beside_tag());
    Slot::flash(hash.tag(), place)
}

impl Attached {
    /// Whether a slot on flash may be that of a key with this hash, as far as a worker knows.
    pub(crate) fn may_be(&self, worker: usize, hash: KeyHash, slot: Slot) -> bool {
        let volume = &self.volume;
        let lowest = (1 << volume.spare_bits()) - 1;
        volume.apart(slot.flash_place()).1 == hash.beside_tag() & lowest
            && !self.foreign[worker].has(hash, slot, &self.volume)
    }

    /// A worker has seen that the record of a slot, of this filling, is another key's.
    pub(crate) fn note_foreign(&self, worker: usize, hash: KeyHash, slot: Slot, sequence: u64) {
        self.foreign[worker].remember(hash, slot, sequence);
    }
}
