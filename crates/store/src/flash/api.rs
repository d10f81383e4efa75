//! What the callers of the store see of items on flash.

use super::FlashPlace;
use crate::item::Item;
use crate::key::Key;
use crate::request::{Access, Miss};
use crate::worker::{Burst, Worker};
use coua_flash::Armed;
use coua_flash::log::{Fetched, NoRecord};
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
    /// The item. Its bytes are those of the record that was read: it is readable as long as that is kept, and is
    /// not to be [pinned](Burst::pin).
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
    /// The item is dead, and was unlinked.
    Dead(Miss),
}

impl Burst<'_> {
    /// Begins to read the record of a place, which `token` will name. It is read once
    /// [`Worker::submit_flash`] was called.
    pub fn fetch(&mut self, place: FlashPlace, token: u64) -> FetchStart {
        let _ = (place, token);
        FetchStart::Gone
    }
}

impl<'w> Burst<'w> {
    /// A plain read of `key`, whose record was read from `place`. An item that is read often comes back to memory
    /// on the way.
    pub fn get_fetched<'f>(
        &mut self,
        key: &Key<'_>,
        place: FlashPlace,
        fetched: &'f Fetched,
        access: Access,
    ) -> FetchedGet<'f>
    where
        'w: 'f,
    {
        let _ = (key, place, fetched, access);
        FetchedGet::Moved
    }

    /// Brings the item of `key`, whose record was read from `place`, back to memory, with its CAS, for an operation
    /// that does more than read.
    pub fn bring_back(
        &mut self,
        key: &Key<'_>,
        place: FlashPlace,
        fetched: &Fetched,
    ) -> BroughtBack {
        let _ = (key, place, fetched);
        BroughtBack::Moved
    }

    /// Drops the slot of a place whose record could not be read.
    pub fn drop_flash(&mut self, place: FlashPlace) {
        let _ = place;
    }
}

impl Worker {
    /// Sees to what has happened on flash: appends the reads that have ended to `reads`. To be called once a turn,
    /// between bursts. `now_ns` is a monotonic clock's time in nanoseconds.
    pub fn poll_flash(&mut self, now_ns: u64, reads: &mut Vec<FlashRead>) {
        let _ = (now_ns, reads);
    }

    /// Tells the devices of everything that was begun: once a turn.
    pub fn submit_flash(&mut self, now_ns: u64) {
        let _ = now_ns;
    }

    /// Before the worker sleeps: whether it may, as far as flash is concerned. Then it wakes when one of
    /// [`Worker::flash_descriptors`] is readable.
    pub fn arm_flash(&mut self) -> Armed {
        Armed::Sleep
    }

    /// What to wait for.
    pub fn flash_descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        std::iter::empty()
    }

    /// Takes back what was read, once nothing of it is needed any more.
    pub fn give_back(&mut self, fetched: Fetched) {
        drop(fetched);
    }
}
