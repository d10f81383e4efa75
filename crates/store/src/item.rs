//! An item as the users of the store see it.

use crate::epoch::Guard;
use crate::index::slot::Location;
use crate::segment::Log;
use crate::segment::item::RawItem;
use crate::segment::layout::mark;
use crate::store::Store;
use crate::sync::{AtomicU64, Ordering};
use crate::tags::{Standing, TagWord};
use crate::time::{Expiry, UnixTime};

/// An item that a burst has found. It stays readable and unchanged until the burst ends, even if it
/// is replaced or deleted meanwhile. [`Burst::pin`](crate::Burst::pin) keeps a value for longer.
///
/// ```
/// # use coua_store::{Access, Config, Expiry, Put, Store, UnixSeconds};
/// # let now = UnixSeconds(1_700_000_000);
/// # let store = Store::new(Config::default(), now)?;
/// # let mut worker = store.worker(0);
/// let mut burst = worker.burst(now);
/// let key = burst.key(b"key");
/// burst.store(&key, &Put::set(0, Expiry::NEVER), b"value");
/// let item = burst.get(&key, Access::default()).unwrap();
/// assert_eq!(item.as_slice(), Some(&b"value"[..]));
/// burst.close();
/// worker.end(now);
/// # Ok::<(), coua_store::StoreError>(())
/// ```
/// Its memory may be reused as soon as the burst is over, so nothing of it can be kept: neither the
/// item
///
/// ```compile_fail,E0505
/// # use coua_store::{Access, Config, Expiry, Put, Store, UnixSeconds};
/// # let now = UnixSeconds(1_700_000_000);
/// # let store = Store::new(Config::default(), now)?;
/// # let mut worker = store.worker(0);
/// let mut burst = worker.burst(now);
/// let key = burst.key(b"key");
/// burst.store(&key, &Put::set(0, Expiry::NEVER), b"value");
/// let item = burst.get(&key, Access::default()).unwrap();
/// burst.close();
/// assert_eq!(item.as_slice(), Some(&b"value"[..]));
/// # Ok::<(), coua_store::StoreError>(())
/// ```
/// nor its value, nor a slice of a large value,
///
/// ```compile_fail,E0499
/// # use coua_store::{Access, Config, Expiry, Put, Store, UnixSeconds};
/// # let now = UnixSeconds(1_700_000_000);
/// # let store = Store::new(Config::default(), now)?;
/// # let mut worker = store.worker(0);
/// let mut burst = worker.burst(now);
/// let key = burst.key(b"key");
/// burst.store(&key, &Put::set(0, Expiry::NEVER), b"value");
/// let value = burst.get(&key, Access::default()).unwrap().value().next();
/// worker.end(now);
/// assert_eq!(value, Some(&b"value"[..]));
/// # Ok::<(), coua_store::StoreError>(())
/// ```
/// nor a burst, and with it its items, while the worker parks.
///
/// ```compile_fail,E0499
/// # use coua_store::{Config, Store, UnixSeconds};
/// # let now = UnixSeconds(1_700_000_000);
/// # let store = Store::new(Config::default(), now)?;
/// # let mut worker = store.worker(0);
/// let burst = worker.burst(now);
/// worker.park();
/// burst.close();
/// # Ok::<(), coua_store::StoreError>(())
/// ```
#[derive(Clone, Copy)]
pub struct Item<'b> {
    pub(crate) raw: RawItem<'b>,
    pub(crate) store: &'b Store,
    guard: Guard<'b>,
    pub(crate) location: Location,
    cas: u64,
}

impl<'b> Item<'b> {
    pub(crate) fn new(
        raw: RawItem<'b>,
        (store, guard): (&'b Store, Guard<'b>),
        location: Location,
        cas: u64,
    ) -> Item<'b> {
        Item {
            raw,
            store,
            guard,
            location,
            cas,
        }
    }

    /// The key.
    pub fn key(&self) -> &'b [u8] {
        self.raw.key()
    }

    /// Bytes of the value.
    #[inline]
    pub fn value_len(&self) -> usize {
        self.raw.value_len()
    }

    /// The value in one slice, or `None` for a large one that is in pieces.
    #[inline]
    pub fn as_slice(&self) -> Option<&'b [u8]> {
        (!self.raw.is_head()).then(|| self.raw.value())
    }

    /// The value, piece by piece.
    pub fn value(&self) -> Chunks<'b> {
        Chunks {
            log: &self.store.log,
            guard: self.guard,
            whole: self.as_slice(),
            pieces: match self.is_fetched() {
                // They lie on flash too.
                true => [].iter(),
                false => self.raw.chunks().iter(),
            },
        }
    }

    /// The client flags.
    pub fn client_flags(&self) -> u32 {
        self.raw.client_flags()
    }

    /// The CAS if the access asked for it, otherwise 0.
    pub fn cas(&self) -> u64 {
        self.cas
    }

    /// When the item expires.
    pub fn expiry(&self) -> Expiry {
        self.raw.expiry()
    }

    /// Seconds since the last access that counted.
    pub fn idle_seconds(&self, now: impl Into<UnixTime>) -> u32 {
        self.raw.idle_seconds(now.into(), self.store.made)
    }

    /// Whether a tag of its was made stale since it was stored, and nobody has marked it yet.
    pub fn is_stale_by_tag(&self) -> bool {
        self.raw.has_tags() && self.store.tags.standing(self.raw.tags()) == Standing::Stale
    }

    /// Whether it is marked stale, or somebody has its win token: then `mg` does more than read.
    pub fn is_marked(&self) -> bool {
        self.raw.access() & (mark::STALE | mark::WON) != 0
    }

    /// The numbers of its tags, in the order in which they were given.
    pub fn tags(&self) -> impl Iterator<Item = u32> + 'b {
        self.raw.tags().map(TagWord::number)
    }

    /// Whether it has been read since it was stored.
    pub fn fetched(&self) -> bool {
        self.raw.access() & mark::FETCHED != 0
    }

    /// Whether the key is shown in base64.
    pub fn key_is_binary(&self) -> bool {
        self.raw.key_is_binary()
    }

    /// Whether its bytes are those of a record that was read from flash: see
    /// [`FetchedGet::Hit`](crate::FetchedGet::Hit).
    #[inline]
    pub fn is_fetched(&self) -> bool {
        self.location == Location::NOWHERE
    }

    /// Whether the machine may have lost a part of what was read of the item. To be asked after the
    /// bytes were copied and before the copy is used; then the item is none. A load and a comparison,
    /// as long as the machine loses nothing.
    #[inline]
    pub fn is_doubtful(&self) -> bool {
        self.store.losses.are_unsettled()
            && self.store.is_item_lost(self.guard, self.location, self.raw)
    }

    /// Bytes of segment memory that it takes, its pieces included.
    pub fn stored_len(&self) -> usize {
        let log = &self.store.log;
        let pieces = self.raw.pieces();
        let pieces = pieces.filter_map(|piece| log.piece(self.guard, piece));
        self.raw.total_len() + pieces.map(RawItem::total_len).sum::<usize>()
    }
}

/// The slices of a value, in order.
#[derive(Clone)]
pub struct Chunks<'b> {
    log: &'b Log,
    guard: Guard<'b>,
    whole: Option<&'b [u8]>,
    pieces: std::slice::Iter<'b, AtomicU64>,
}

impl<'b> Iterator for Chunks<'b> {
    type Item = &'b [u8];

    fn next(&mut self) -> Option<&'b [u8]> {
        if let Some(whole) = self.whole.take() {
            return Some(whole);
        }
        let piece = self.pieces.next()?.load(Ordering::Acquire);
        // Where a part of the head or of the piece is lost, whoever copies the value finds that out.
        let piece = self.log.piece(self.guard, Location::from_raw(piece));
        piece.map(RawItem::piece_data)
    }
}
