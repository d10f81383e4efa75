//! What clients do to items. Each operation is atomic.
//!
//! A writer finds the old item without a lock, writes the new one elsewhere, then locks the old
//! one's bucket and replaces the old item if it is still the same. If it is not, what was written
//! is dead and the operation starts over. So the lock is never held while a value is copied, and
//! conditions (add, cas, append …) hold at the moment of the replacement.

mod arithmetic;
mod delete;
mod fetched;
mod link;
mod meta;
mod pin;
#[cfg(not(loom))]
mod poison;
mod put;
mod recall;
mod touch;
mod upload;
mod uploading;
mod writer;

#[cfg(all(test, not(loom)))]
mod tests;

pub use pin::Pinned;
#[cfg(not(loom))]
pub use poison::{PoisonMeans, PoisonTarget};
pub use recall::Recall;
pub use upload::Upload;

use writer::Body;

use crate::index::slot::Slot;
use crate::look_ahead::Ahead;
use crate::request::{
    Access, Arithmetic, ArithmeticResult, Delete, Deleted, MetaGet, MetaHit, MetaMiss, Put,
    Refused, Stored, Untouched,
};
use crate::tags::{Invalidation, Tag};
use crate::time::{Expiry, UnixSeconds};
use crate::worker::Burst;
use crate::{Item, Key};

impl Burst<'_> {
    /// Stores `value` under `key` as `put` says.
    #[inline]
    pub fn store(&mut self, key: &Key<'_>, put: &Put, value: &[u8]) -> Stored {
        self.store_ahead(key, Ahead::NONE, put, value)
    }

    /// As [`Burst::store`], starting from where the look-ahead saw the item.
    #[inline]
    pub fn store_ahead(&mut self, key: &Key<'_>, ahead: Ahead, put: &Put, value: &[u8]) -> Stored {
        self.store_counting(key, ahead, put, value, true)
    }

    /// As [`Burst::store_ahead`], for a caller that calls that when this one refuses. An operation
    /// without memory is counted there and not here.
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
        let done = self.writer().set_over(key, &ahead, put, value);
        match done {
            Ok(stored) => stored,
            Err(written) => self.put_written(key, &ahead, put, value, written, counts_waits),
        }
    }

    /// As [`Burst::store_counting`], for all that is more than a set over an item that was seen. Most
    /// of its arguments are references, so that the fast path need not keep them at hand.
    #[inline(never)]
    fn put_written(
        &mut self,
        key: &Key<'_>,
        ahead: &Ahead,
        put: &Put,
        value: &[u8],
        written: Option<Slot>,
        counts_waits: bool,
    ) -> Stored {
        let mut writer = self.writer();
        writer.counts_waits = counts_waits;
        writer.put(key, *ahead, put, Body::Bytes(value), written)
    }

    /// Gives the item another expiry and returns it: touch, gat. This takes memory if the item has
    /// no room for an expiry.
    ///
    /// # Errors
    /// [`Untouched`] if there is no such item, or no memory for its first expiry.
    pub fn touch(
        &mut self,
        key: &Key<'_>,
        expiry: Expiry,
        access: Access,
    ) -> Result<Item<'_>, Untouched> {
        self.writer().touch(key, expiry, access)
    }

    /// `mg` with all that it can do besides reading.
    ///
    /// # Errors
    /// [`MetaMiss`] if there is no such item, or no memory for what was asked.
    pub fn meta_get(&mut self, key: &Key<'_>, get: &MetaGet) -> Result<MetaHit<'_>, MetaMiss> {
        self.writer().meta_get(key, get)
    }

    /// Deletes the item, or does the variant of that which `md` asks for.
    pub fn delete(&mut self, key: &Key<'_>, delete: &Delete) -> Deleted {
        self.writer().delete(key, delete)
    }

    /// Counts up or down.
    pub fn arithmetic(&mut self, key: &Key<'_>, arithmetic: &Arithmetic) -> ArithmeticResult {
        self.writer().arithmetic(key, arithmetic)
    }

    /// The tag of a name; see [`Store::tag`](crate::Store::tag).
    pub fn tag(&self, name: &[u8]) -> Tag {
        self.local.shared.tag(name)
    }

    /// Makes all items gone or stale that carry the tag and were stored so far. What is stored with
    /// it afterwards lives. It takes the same time however many items there are; their memory comes
    /// back as they are found.
    pub fn invalidate(&mut self, tag: Tag, how: Invalidation) {
        let store = self.local.shared;
        store.tags.invalidate(tag, how);
        self.local.counters().tags_invalidated.add(1);
    }

    /// Brings an item into the state that its tags ask for: marked stale, with a new CAS, if a tag
    /// of its was made stale since it was stored. To be called where its CAS is to be shown by
    /// [`Burst::get`] and [`Item::is_stale_by_tag`] says so.
    ///
    /// # Errors
    /// [`Refused`] if there is no memory for that.
    pub fn mark_if_stale(&mut self, key: &Key<'_>) -> Result<(), Refused> {
        let mut writer = self.writer();
        loop {
            match writer.local.find_live(key, writer.now) {
                Ok((place, item)) if writer.local.is_stale_by_tag(item) => {
                    writer.mark_stale_by_tag(place, item)?;
                }
                _ => return Ok(()),
            }
        }
    }

    /// Kills all that was stored so far, or, with a second in the future, all that will have been
    /// stored by then. A later call replaces one that has not taken effect yet.
    pub fn flush_all(&mut self, at: Option<UnixSeconds>) {
        let store = self.local.shared;
        match at {
            Some(second) if second > self.now.second() => store.flush.at(&store.log, second),
            _ => {
                let latest = store.flush.now(&store.log);
                self.own.renew(store, latest);
            }
        }
    }
}
