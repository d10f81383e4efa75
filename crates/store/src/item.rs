//! An item as the store's users see it.

use crate::index::slot::Location;
use crate::segment::item::RawItem;
use crate::segment::layout::mark;
use crate::store::Store;
use crate::time::{Expiry, UnixSeconds};
use std::sync::atomic::{AtomicU64, Ordering};

/// An item that a burst has found. It stays readable, and as it was, until the burst ends, even
/// where it is replaced or deleted meanwhile.
#[derive(Clone, Copy)]
pub struct Item<'b> {
    pub(crate) raw: RawItem<'b>,
    pub(crate) store: &'b Store,
    pub(crate) location: Location,
    cas: u64,
}

impl<'b> Item<'b> {
    pub(crate) fn new(
        raw: RawItem<'b>,
        store: &'b Store,
        location: Location,
        cas: u64,
    ) -> Item<'b> {
        Item {
            raw,
            store,
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

    /// The value in one slice, or `None` for a large one that lies in pieces.
    #[inline]
    pub fn as_slice(&self) -> Option<&'b [u8]> {
        (!self.raw.is_head()).then(|| self.raw.value())
    }

    /// The value, piece by piece.
    pub fn value(&self) -> Chunks<'b> {
        Chunks::new(self.raw, self.store)
    }

    /// The client's 32 bits.
    pub fn client_flags(&self) -> u32 {
        self.raw.client_flags()
    }

    /// The CAS where the access asked for it, else 0.
    pub fn cas(&self) -> u64 {
        self.cas
    }

    /// When the item dies.
    pub fn expiry(&self) -> Expiry {
        self.raw.expiry()
    }

    /// Seconds since the last access that counted.
    pub fn idle_seconds(&self, now: UnixSeconds) -> u32 {
        self.raw.idle_seconds(now, self.store.made)
    }

    /// Whether it has been read since it was stored.
    pub fn fetched(&self) -> bool {
        self.raw.access() & mark::FETCHED != 0
    }

    /// Whether the key is shown in base64.
    pub fn key_is_binary(&self) -> bool {
        self.raw.key_is_binary()
    }

    /// Bytes of segment memory that it takes, its pieces included.
    pub fn stored_len(&self) -> usize {
        let pieces = self.raw.chunks().iter().map(|chunk| {
            let location = Location::from_raw(chunk.load(Ordering::Relaxed));
            self.store.log.item(location).total_len()
        });
        self.raw.total_len() + pieces.sum::<usize>()
    }
}

/// The slices of a value, in order.
#[derive(Clone)]
pub struct Chunks<'b> {
    store: &'b Store,
    whole: Option<&'b [u8]>,
    pieces: std::slice::Iter<'b, AtomicU64>,
}

impl<'b> Chunks<'b> {
    pub(crate) fn new(raw: RawItem<'b>, store: &'b Store) -> Chunks<'b> {
        Chunks {
            store,
            whole: (!raw.is_head()).then(|| raw.value()),
            pieces: raw.chunks().iter(),
        }
    }
}

impl<'b> Iterator for Chunks<'b> {
    type Item = &'b [u8];

    fn next(&mut self) -> Option<&'b [u8]> {
        if let Some(whole) = self.whole.take() {
            return Some(whole);
        }
        let piece = self.pieces.next()?.load(Ordering::Acquire);
        Some(self.store.log.item(Location::from_raw(piece)).piece_data())
    }
}
