//! What the callers of the store see of items on flash.

use super::{FlashPlace, location_of};
use crate::item::Item;
use crate::request::Miss;
use crate::worker::{Burst, Worker};
use coua_flash::Armed;
use coua_flash::log::{Fetched, NoRecord, ReadStart};
use std::os::fd::BorrowedFd;

/// What came of asking for a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FetchStart {
    /// [`Worker::poll_flash`] will say what was read.
    UnderWay,
    /// There is no record any more. The operation is to be executed again; it finds something else.
    Gone,
    /// So many reads are under way that there is no room for another: again after the next poll.
    Busy,
}

/// A read that has ended.
#[derive(Debug)]
pub struct FlashRead {
    /// That of [`Burst::fetch`].
    pub token: u64,
    /// The record, of whichever key it is. Without one, the place is to be given to [`Burst::drop_flash`]
    /// before the operation is executed again.
    pub result: Result<Fetched, NoRecord>,
}

/// What a plain read finds in a record.
#[derive(Clone, Copy)]
pub enum FetchedGet<'b> {
    /// The item. Its bytes are those of the record that was read: it is readable as long as that is kept, and
    /// cannot be [pinned](Burst::pin).
    Hit(Item<'b>),
    /// The record is another key's. The worker remembers that: the operation is to be executed again.
    OtherKey,
    /// The item is no longer where it was read: the operation is to be executed again.
    Moved,
    /// The item is dead, and was unlinked.
    Dead(Miss),
}

/// What became of an item that was to be brought back to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BroughtBack {
    /// The operation, executed again, finds it in memory.
    InMemory,
    /// As [`FetchedGet::OtherKey`].
    OtherKey,
    /// As [`FetchedGet::Moved`].
    Moved,
    /// There was no memory: nothing has changed. As with [`Refused::Wait`](crate::Refused::Wait), it is to be
    /// tried again in a later burst.
    NoMemory,
    /// The item is dead, and was unlinked: executed again, the operation misses it.
    Dead(Miss),
}

impl Burst<'_> {
    /// Begins to read the record of a place, which `token` will name. It is read once
    /// [`Worker::submit_flash`] was called.
    pub fn fetch(&mut self, place: FlashPlace, token: u64) -> FetchStart {
        let Some(flash) = &mut self.own.cleaner.flash else {
            // A worker without a handle: what it cannot read is gone for it.
            self.local.drop_on_flash(place.hash, place.slot);
            return FetchStart::Gone;
        };
        match flash.volume.read(location_of(place.slot), token) {
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
