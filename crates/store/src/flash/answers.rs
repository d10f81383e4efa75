//! What the callers of the store are told of items on flash.

use crate::item::Item;
use crate::request::Miss;
use coua_flash::log::{Fetched, NoRecord};

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
    /// The item, whose value lies elsewhere on flash: [`Burst::flash_pieces`](crate::Burst::flash_pieces).
    InPieces {
        /// As in [`FetchedGet::Hit`], but that it shows no value.
        item: Item<'b>,
        /// Whether it is read so often that it should be [recalled](crate::Burst::begin_recall), and answered from memory.
        comes_back: bool,
    },
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
    /// Its value is in pieces: [`Burst::begin_recall`](crate::Burst::begin_recall).
    InPieces,
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
