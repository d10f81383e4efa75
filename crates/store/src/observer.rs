//! What happens to items, told to whoever wants to know.

use crate::time::Expiry;

/// Why an item is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemovalReason {
    /// A client deleted it.
    Deleted,
    /// Dropped to make room, never read since it was stored.
    EvictedUnread {
        /// Seconds since it was stored or touched.
        idle_s: u32,
    },
    /// Dropped to make room.
    Evicted {
        /// Seconds since it was last read, stored or touched.
        idle_s: u32,
    },
    /// Its expiry passed.
    Expired,
    /// A flush killed it.
    Flushed,
    /// A tag of its was invalidated.
    Invalidated,
}

/// An item as observers see it.
#[derive(Clone, Copy, Debug)]
pub struct ItemView<'a> {
    /// The key.
    pub key: &'a [u8],
    /// Bytes of its value.
    pub value_len: usize,
    /// The client's bits.
    pub client_flags: u32,
    /// When it dies or would have died.
    pub expiry: Expiry,
}

/// Called on the workers' threads, inside bursts: it must be quick, and must not call the store.
pub trait Observer: Send + Sync {
    /// Whether it wants to hear of items that are stored. It is asked once, when the store is made: who
    /// does not want to costs stores nothing.
    fn hears_of_stored(&self) -> bool {
        true
    }
    /// An item was stored, new or in place of another.
    fn stored(&self, item: ItemView<'_>);
    /// An item is gone.
    fn gone(&self, item: ItemView<'_>, why: RemovalReason);
    /// An item is on flash from now on, and no more in memory. It was last read, stored or touched `idle_s`
    /// seconds ago, and was read since it was stored if `is_fetched`.
    fn left_for_flash(&self, _item: ItemView<'_>, _is_fetched: bool, _idle_s: u32) {}
}
