//! Keeps segments on flash free: drops the oldest, what has expired, what a flush has killed, and what lies on a
//! device that is gone.

use crate::store::Store;
use crate::store::tier::{location_of, rules};
use crate::time::UnixSeconds;
use crate::worker_store::WorkerStore;
use coua_flash::log::Dropped;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// See the module. A thread of its own calls [`FlashKeeper::keep`] again and again.
pub struct FlashKeeper {
    store: Arc<Store>,
    /// Devices whose segments are dropped.
    gone: Vec<usize>,
    /// Fillings that a flush had killed when it last looked.
    killed_below: u64,
    /// The second in which it last looked for what has expired.
    looked_at: UnixSeconds,
}

impl Store {
    /// Who keeps segments on flash free; `None` without flash, or if there is one already.
    pub fn flash_keeper(self: &Arc<Store>) -> Option<FlashKeeper> {
        let flash = self.flash.get()?;
        if flash.has_keeper.swap(true, Ordering::AcqRel) {
            return None;
        }
        Some(FlashKeeper {
            gone: Vec::new(),
            killed_below: 0,
            looked_at: UnixSeconds(0),
            store: Arc::clone(self),
        })
    }
}

impl FlashKeeper {
    /// Drops what is due, and sweeps over the index for it. True if there was something. It takes as long as a pass
    /// over the index; workers go on meanwhile.
    pub fn keep(&mut self, now: UnixSeconds) -> bool {
        let store = Arc::clone(&self.store);
        let Some(flash) = store.flash.get() else {
            return false;
        };
        let volume = &flash.volume;
        let mut all: Vec<Dropped> = Vec::new();
        for device in volume.gone_devices() {
            if !self.gone.contains(&device) {
                self.gone.push(device);
                all.push(volume.drop_device(device));
            }
        }
        // A segment that was being written when its device was found gone is sealed later at the worst.
        let killed = &store.log.superblock().flash.killed_below;
        let killed_below = killed.load(Ordering::Acquire);
        if killed_below > self.killed_below {
            self.killed_below = killed_below;
            all.push(volume.drop_before(killed_below));
        }
        if now != self.looked_at {
            self.looked_at = now;
            all.push(volume.drop_expired(now.0));
        }
        flash.recalls.note_room(volume);
        let wanted = rules::free_segments(volume.segments());
        let free = volume.free_segments() + all.iter().map(count).sum::<u32>();
        if free < wanted {
            all.push(volume.drop_oldest(2 * wanted as usize - free as usize));
        }
        all.retain(|dropped| !dropped.is_empty());
        if all.is_empty() {
            return false;
        }
        let unwanted = |slot| {
            let location = location_of(volume, slot);
            all.iter().any(|dropped| dropped.contains(volume, location))
        };
        let gone = store.sweep_flash(unwanted, |id, guard| {
            WorkerStore::new(&store, id, guard).note_stranded();
        });
        // The last worker's set is the keeper's.
        if let Some(counters) = store.counters.last() {
            counters.flash_dropped.add(gone);
        }
        for dropped in all {
            for &segment in dropped.segments() {
                flash.fillings.set(segment, 0);
            }
            volume.release(dropped);
        }
        true
    }

    /// Waits until a worker finds few free segments, or for so long.
    pub fn wait(&self, most: Duration) {
        if let Some(flash) = self.store.flash.get() {
            flash.wanted.wait(most);
        }
    }
}

impl Drop for FlashKeeper {
    fn drop(&mut self) {
        if let Some(flash) = self.store.flash.get() {
            flash.has_keeper.store(false, Ordering::Release);
        }
    }
}

fn count(dropped: &Dropped) -> u32 {
    u32::try_from(dropped.len()).unwrap_or(u32::MAX)
}
