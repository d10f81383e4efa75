//! Values that arrive in parts.
//!
//! A value that is stored whole gets its place, and its item's header, at once; a larger one gets
//! pieces as its bytes arrive. Until the upload is finished no slot points to any of it, and it
//! holds its segments, so that the cleaner leaves them alone. All unfinished uploads together hold
//! at most an eighth of memory; if there is only one, it may hold as much as its item needs.

use crate::index::slot::Location;
use crate::key::{Key, KeyHash};
use crate::memory::{Queue, events_seen};
use crate::request::FlashPlace;
use crate::request::{Put, Refused};
use crate::segment::Hold;
use crate::segment::layout::{Draft, mark};
use crate::segment::space::Space;
use crate::store::Store;
use crate::sync::Ordering;
use crate::tags::TagWord;
use std::sync::Arc;

/// A value that is still arriving. Dropping it gives it up.
pub struct Upload {
    pub(super) store: Arc<Store>,
    pub(super) put: Put,
    pub(super) key: Box<[u8]>,
    pub(super) hash: KeyHash,
    pub(super) value_len: usize,
    pub(super) filled: usize,
    pub(super) queue: Queue,
    pub(super) whole: Option<Part>,
    pub(super) pieces: Vec<Part>,
    /// Bytes that it holds of the uploads' share.
    pub(super) held: usize,
    /// Whether what was written belongs to an item now.
    pub(super) adopted: std::cell::Cell<bool>,
    /// Where the old item may be that it waits for.
    pub(super) on_flash: std::cell::Cell<Option<FlashPlace>>,
    /// Losses before this number were settled when it began.
    pub(super) mark: u64,
}

/// A range of segment memory that belongs to the upload alone.
pub(super) struct Part {
    pub(super) hold: Hold,
    pub(super) total: usize,
    pub(super) data_at: usize,
    pub(super) data_len: usize,
}

impl Upload {
    /// Where the old item may be on flash that the upload depends on, after it could not be finished: it is to be
    /// [brought back](crate::Burst::bring_back) first.
    pub fn on_flash(&self) -> Option<FlashPlace> {
        self.on_flash.get()
    }

    /// A value that arrives in pieces, however short it is.
    pub(super) fn of_pieces(
        store: Arc<Store>,
        key: &Key<'_>,
        put: Put,
        value_len: usize,
        queue: Queue,
    ) -> Upload {
        Upload {
            put,
            key: key.bytes.into(),
            hash: key.hash,
            value_len,
            filled: 0,
            queue,
            whole: None,
            pieces: Vec::new(),
            held: 0,
            mark: store.losses.mark(),
            adopted: std::cell::Cell::new(false),
            on_flash: std::cell::Cell::new(None),
            store,
        }
    }

    /// Where its pieces lie.
    pub(super) fn piece_locations(&self) -> Vec<Location> {
        let pieces = self.pieces.iter();
        pieces.map(|part| part.hold.location()).collect()
    }

    pub(super) fn assert_is_to(&self, store: &Arc<Store>) {
        assert!(
            Arc::ptr_eq(store, &self.store),
            "an upload to another store"
        );
    }

    /// Bytes of the value, all of it.
    pub fn value_len(&self) -> usize {
        self.value_len
    }

    /// Bytes that are still to come.
    pub fn remaining(&self) -> usize {
        self.value_len - self.filled
    }

    /// Whether the machine may have lost a part of what has arrived. Then the value cannot be stored.
    #[inline]
    pub fn is_doubtful(&self) -> bool {
        events_seen() != self.mark && self.is_lost()
    }

    #[cold]
    fn is_lost(&self) -> bool {
        self.parts().any(|part| {
            let start = part.hold.location().offset();
            let range = start..start + part.total;
            (self.store.losses).overlaps(&self.store.log, self.mark, &range)
        })
    }

    /// The key.
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// The store operation.
    pub fn put(&self) -> &Put {
        &self.put
    }

    /// Notes that the first `n` bytes of the last [`Burst::upload_space`](crate::Burst::upload_space) are filled.
    ///
    /// # Panics
    /// If there was not so much space.
    pub fn advance(&mut self, n: usize) {
        assert!(
            self.filled + n <= self.reserved(),
            "more than there was space for"
        );
        self.filled += n;
    }

    pub(super) fn draft<'d>(&'d self, access: u32, tags: &'d [TagWord]) -> Draft<'d> {
        let known = if self.put.return_cas {
            mark::CAS_KNOWN
        } else {
            0
        };
        Draft {
            key: self.key(),
            key_is_binary: self.put.key_is_binary,
            client_flags: self.put.client_flags,
            cas: self.put.cas,
            expiry: self.put.expiry.given(),
            fine: self.put.expiry.is_fine(),
            tags,
            access: access | known,
            value_len: self.value_len,
            chunks: None,
        }
    }

    /// Reserves a part of what uploads may hold.
    pub(super) fn reserve(&mut self, bytes: usize) -> Result<(), Refused> {
        let before = self.store.upload_bytes.fetch_add(bytes, Ordering::Relaxed);
        // A few bytes can hold a whole segment.
        let holds_too_many = self.store.held_count() >= 2 * self.store.held_max();
        // A single upload may be as large as an item may be.
        let is_alone = before == self.held;
        if !is_alone && (before + bytes > self.store.upload_bytes_max() || holds_too_many) {
            self.store.upload_bytes.fetch_sub(bytes, Ordering::Relaxed);
            return Err(Refused::OutOfMemory);
        }
        self.held += bytes;
        Ok(())
    }

    /// Undoes a part of [`Upload::reserve`].
    pub(super) fn give_back(&mut self, bytes: usize) {
        self.store.upload_bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.held -= bytes;
    }

    fn parts(&self) -> impl Iterator<Item = &Part> {
        self.whole.iter().chain(&self.pieces)
    }

    /// Bytes of the value that have been given a place.
    pub(super) fn reserved(&self) -> usize {
        self.parts().map(|part| part.data_len).sum()
    }

    /// The place of the next bytes.
    pub(super) fn unfilled(&mut self) -> &mut [u8] {
        let reserved = self.reserved();
        let Some(part) = self.whole.as_ref().or(self.pieces.last()) else {
            return &mut [];
        };
        let len = reserved - self.filled;
        let start = part.data_at + part.data_len - len;
        #[expect(unsafe_code, reason = "segment memory that the upload has for itself")]
        // SAFETY: the part was appended for this upload alone, its segment is held, and no slot
        // points to it before it is adopted, which takes the upload.
        let space =
            unsafe { Space::new(self.store.log.mapping(), part.hold.location(), part.total) };
        space.detach(start, len)
    }

    /// Calls `f` with each slice of the value, in order.
    pub(crate) fn for_each(&self, mut f: impl FnMut(&[u8])) {
        let log = &self.store.log;
        if let Some(part) = &self.whole {
            f(log.held_item(&part.hold).value());
        }
        for part in &self.pieces {
            f(log.held_item(&part.hold).piece_data());
        }
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        let log = &self.store.log;
        for part in self.whole.take().into_iter().chain(self.pieces.drain(..)) {
            if !self.adopted.get() {
                log.note_dead_from_outside(part.hold.location(), part.total);
            }
            log.release(part.hold);
        }
        self.store
            .upload_bytes
            .fetch_sub(self.held, Ordering::Relaxed);
    }
}
