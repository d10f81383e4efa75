//! What a worker has seen to be another key's record, so that it does not read it again for the same key.

use crate::index::slot::Slot;
use crate::key::KeyHash;
use coua_flash::log::Volume;
// Only its worker uses it: loom has nothing to find here.
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// How many are remembered. A request with a false match is executed again at once, so few suffice.
const KEPT: usize = 64;

/// The last few of one worker.
pub(super) struct Foreign {
    next: AtomicUsize,
    seen: [Seen; KEPT],
}

#[derive(Default)]
struct Seen {
    hash: AtomicU64,
    place: AtomicU64,
    /// The filling: the place may be the key's in the next.
    sequence: AtomicU64,
}

impl Default for Foreign {
    fn default() -> Foreign {
        Foreign {
            next: AtomicUsize::new(0),
            seen: std::array::from_fn(|_| Seen::default()),
        }
    }
}

impl Foreign {
    /// The record that the slot names, of this filling, is not that of a key with this hash.
    pub(super) fn remember(&self, hash: KeyHash, slot: Slot, sequence: u64) {
        let at = self.next.load(Ordering::Relaxed);
        self.next.store((at + 1) % KEPT, Ordering::Relaxed);
        let seen = &self.seen[at];
        seen.hash.store(hash.0, Ordering::Relaxed);
        seen.place.store(slot.flash_place(), Ordering::Relaxed);
        seen.sequence.store(sequence, Ordering::Relaxed);
    }

    /// Whether a slot on flash is known to be another key's.
    pub(super) fn has(&self, hash: KeyHash, slot: Slot, volume: &Volume) -> bool {
        let is_it = |seen: &&Seen| {
            seen.hash.load(Ordering::Relaxed) == hash.0
                && seen.place.load(Ordering::Relaxed) == slot.flash_place()
        };
        self.seen.iter().filter(is_it).any(|seen| {
            let sequence = seen.sequence.load(Ordering::Relaxed);
            sequence != 0 && volume.filling_of(super::location_of(volume, slot)) == Some(sequence)
        })
    }
}
