//! What clients do to items, each operation as if it were alone.
//!
//! A writer finds the old item without a lock, writes the new one beside it, then locks the old
//! one's bucket and replaces it there if it is still the same; where it is not, what was written is
//! dead and the operation starts over. So the lock is never held over a copy of a value, and
//! conditions (add, cas, append …) hold at the moment of the replacement.

mod arithmetic;
mod delete;
mod link;
mod meta;
mod pin;
mod put;
mod touch;
mod upload;
mod uploading;
mod writer;

#[cfg(all(test, not(loom)))]
mod tests;

pub use pin::Pinned;
pub use upload::Upload;

use writer::Body;

use crate::look_ahead::Ahead;
use crate::request::{
    Access, Arithmetic, ArithmeticResult, Delete, Deleted, MetaGet, MetaHit, MetaMiss, Put, Stored,
    Untouched,
};
use crate::time::{Expiry, UnixSeconds};
use crate::worker::Burst;
use crate::{Item, Key};

impl Burst<'_> {
    /// Stores `value` under `key` as `put` says.
    #[inline]
    pub fn store(&mut self, key: &Key<'_>, put: &Put, value: &[u8]) -> Stored {
        self.store_ahead(key, Ahead::NONE, put, value)
    }

    /// As [`Burst::store`], beginning where the look-ahead saw the item.
    #[inline]
    pub fn store_ahead(&mut self, key: &Key<'_>, ahead: Ahead, put: &Put, value: &[u8]) -> Stored {
        self.store_counting(key, ahead, put, value, true)
    }

    /// As [`Burst::store_ahead`], for a caller that stores by that where this is refused. It counts as an
    /// operation without memory there, and not here.
    #[inline]
    pub fn try_store_ahead(
        &mut self,
        key: &Key<'_>,
        ahead: Ahead,
        put: &Put,
        value: &[u8],
    ) -> Stored {
        self.store_counting(key, ahead, put, value, false)
    }

    #[inline]
    fn store_counting(
        &mut self,
        key: &Key<'_>,
        ahead: Ahead,
        put: &Put,
        value: &[u8],
        counts_waits: bool,
    ) -> Stored {
        let written = match self.writer().set_over(key, ahead, put, value) {
            Ok(stored) => return stored,
            Err(written) => written,
        };
        let mut writer = self.writer();
        writer.counts_waits = counts_waits;
        writer.put(key, ahead, put, Body::Bytes(value), written)
    }

    /// Gives the item another expiry and shows it: touch, gat. That takes memory where the item never had
    /// one.
    ///
    /// # Errors
    /// [`Untouched`]: there is no such item, or no memory for its first expiry.
    pub fn touch(
        &mut self,
        key: &Key<'_>,
        expiry: Expiry,
        access: Access,
    ) -> Result<Item<'_>, Untouched> {
        self.writer().touch(key, expiry, access)
    }

    /// `mg` with all it can do beside reading.
    ///
    /// # Errors
    /// [`MetaMiss`]: there is no such item, or no memory for what was asked.
    pub fn meta_get(&mut self, key: &Key<'_>, get: &MetaGet) -> Result<MetaHit<'_>, MetaMiss> {
        self.writer().meta_get(key, get)
    }

    /// Deletes the item, or what `md` makes of that.
    pub fn delete(&mut self, key: &Key<'_>, delete: &Delete) -> Deleted {
        self.writer().delete(key, delete)
    }

    /// Counts up or down.
    pub fn arithmetic(&mut self, key: &Key<'_>, arithmetic: &Arithmetic) -> ArithmeticResult {
        self.writer().arithmetic(key, arithmetic)
    }

    /// Kills all that was stored so far, or, with a second to come, all that will have been stored
    /// by then. A later call takes the place of one that has not happened yet.
    pub fn flush_all(&mut self, at: Option<UnixSeconds>) {
        let store = self.local.shared;
        match at {
            Some(second) if second > self.now => store.flush.at(&store.log, second),
            _ => {
                let latest = store.flush.now(&store.log);
                self.own.renew(store, latest);
            }
        }
    }
}
