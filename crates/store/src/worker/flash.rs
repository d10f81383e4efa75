//! What a worker does with flash between bursts, and how a burst begins to read there.

use super::{Burst, Worker};
use crate::flash::{FetchStart, FlashRead, WorkerFlash};
use crate::request::FlashPlace;
use crate::store::tier::location_of;
use coua_flash::Armed;
use coua_flash::log::{Fetched, ReadStart, WorkerVolume};
use std::os::fd::BorrowedFd;
use std::sync::Arc;

impl Burst<'_> {
    /// Begins to read the record of a place, which `token` will name. It is read once
    /// [`Worker::submit_flash`] was called.
    pub fn fetch(&mut self, place: FlashPlace, token: u64) -> FetchStart {
        let Some(flash) = &mut self.own.cleaner.flash else {
            // A worker without a handle: what it cannot read is gone for it.
            self.local.drop_on_flash(place.hash, place.slot);
            return FetchStart::Gone;
        };
        let location = location_of(flash.volume.volume(), place.slot);
        match flash.volume.read(location, token) {
            ReadStart::UnderWay => {
                self.local.counters().flash_reads.add(1);
                FetchStart::UnderWay
            }
            ReadStart::Busy => FetchStart::Busy,
            ReadStart::Gone => {
                self.drop_flash(place);
                FetchStart::Gone
            }
        }
    }

    /// Drops the slot of a place whose record could not be read.
    pub fn drop_flash(&mut self, place: FlashPlace) {
        if self.local.drop_on_flash(place.hash, place.slot).is_some() {
            self.local.counters().flash_dropped.add(1);
        }
    }
}

impl Worker {
    /// Sees to what has happened on flash: appends the reads that have ended to `reads`. To be called once a turn,
    /// between bursts. `now_ns` is a monotonic clock's time in nanoseconds.
    pub fn poll_flash(&mut self, now_ns: u64, reads: &mut Vec<FlashRead>) {
        let counters = &self.store.counters[self.id];
        if let Some(flash) = &mut self.own.cleaner.flash {
            flash.poll(counters, now_ns, reads);
        }
    }

    /// Tells the devices of everything that was begun: once a turn, after [`Worker::end`].
    pub fn submit_flash(&mut self, now_ns: u64) {
        if let Some(flash) = &mut self.own.cleaner.flash {
            flash.volume.submit(now_ns);
        }
    }

    /// Before the worker sleeps: whether it may, as far as flash is concerned. Then it wakes when one of
    /// [`Worker::flash_descriptors`] is readable.
    pub fn arm_flash(&mut self) -> Armed {
        match &mut self.own.cleaner.flash {
            Some(flash) if flash.has_settling() => Armed::Ready,
            Some(flash) => flash.volume.arm(),
            None => Armed::Sleep,
        }
    }

    /// What to wait for.
    pub fn flash_descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let flash = self.own.cleaner.flash.iter();
        flash.flat_map(|flash| flash.volume.descriptors())
    }

    /// Takes back what was read, once nothing of it is needed any more.
    pub fn give_back(&mut self, fetched: Fetched) {
        if let Some(flash) = &mut self.own.cleaner.flash {
            flash.volume.give_back(fetched);
        }
    }
}

impl Worker {
    /// Gives the worker its handle to the store's volume: from now on what it evicts goes there.
    ///
    /// # Panics
    /// If it is not a handle to the store's volume.
    pub fn attach_flash(&mut self, volume: WorkerVolume) {
        let flash = self.store.flash.get();
        let is_ours = flash.is_some_and(|flash| Arc::ptr_eq(&flash.volume, volume.volume()));
        assert!(is_ours, "a handle to another volume than the store's");
        self.own.cleaner.attach(WorkerFlash::new(volume));
    }
}
