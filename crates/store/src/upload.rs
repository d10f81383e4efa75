//! Values that arrive in parts.
//!
//! A value that is stored whole gets its place, and its item's header, at once; a larger one gets
//! pieces as its bytes arrive. Until the upload is finished no slot points to any of it, and it
//! holds its segments, so that the cleaner leaves them alone. All unfinished uploads together hold
//! at most an eighth of memory; one that is alone may hold as much as its item is large.

use crate::index::slot::{Location, Slot};
use crate::key::{Key, KeyHash};
use crate::memory::Queue;
use crate::operations::{Body, KEY_MAX, Writer};
use crate::request::{Mode, Put, Refused, Stored};
use crate::segment::Hold;
use crate::segment::layout::{Draft, PIECE_HEADER_LEN, mark, piece_len};
use crate::segment::space::Space;
use crate::store::Store;
use crate::sync::Ordering;
use crate::worker::{Ahead, Burst};
use std::sync::Arc;

/// A value on its way in. Dropping it gives it up.
pub struct Upload {
    store: Arc<Store>,
    put: Put,
    key: Box<[u8]>,
    hash: KeyHash,
    value_len: usize,
    filled: usize,
    queue: Queue,
    whole: Option<Part>,
    pieces: Vec<Part>,
    /// Bytes that it holds of all uploads' share.
    held: usize,
    /// What was written belongs to an item now.
    adopted: std::cell::Cell<bool>,
}

/// A stretch of segment memory that the upload has for itself.
struct Part {
    hold: Hold,
    total: usize,
    data_at: usize,
    data_len: usize,
}

impl Burst<'_> {
    /// Begins to store a value of `value_len` bytes that arrives in parts. The burst may end
    /// before it is complete.
    ///
    /// # Errors
    /// [`Refused`]: the item would be too large, or there is no memory for it.
    pub fn begin_upload(
        &mut self,
        key: &Key<'_>,
        put: &Put,
        value_len: usize,
    ) -> Result<Upload, Refused> {
        let store = Arc::clone(self.store);
        let fits = store.item_size_max.checked_sub(key.bytes.len());
        if key.bytes.len() > KEY_MAX || fits.is_none_or(|most| value_len > most) {
            return Err(Refused::TooLarge);
        }
        let mut upload = Upload {
            put: *put,
            key: key.bytes.into(),
            hash: key.hash,
            value_len,
            filled: 0,
            queue: Queue::Small,
            whole: None,
            pieces: Vec::new(),
            held: 0,
            adopted: std::cell::Cell::new(false),
            store,
        };
        let mut writer = self.writer();
        let old = writer.local.find_live(key, writer.now).ok();
        upload.queue = writer.queue_for(key.hash, old.map(|(place, _)| place.slot.location()));
        let access = writer.access_word(0);
        let layout = upload.draft(access).layout();
        let total = layout.total;
        if total <= upload.store.whole_max {
            upload.reserve(total)?;
            let draft = upload.draft(access);
            let (slot, _) = writer.write_header(key.hash, upload.queue, &draft, 0)?;
            let guard = writer.local.guard();
            upload.whole = Some(Part {
                hold: writer.local.shared.log.hold(guard, slot.location()),
                total,
                data_at: layout.body_at,
                data_len: value_len,
            });
        }
        Ok(upload)
    }

    /// Where the value's next bytes go: at least one byte, unless the upload is complete. Fill some
    /// of it, then tell by [`Upload::advance`].
    ///
    /// # Errors
    /// [`Refused`]: there is no memory for the next part.
    pub fn upload_space<'u>(&mut self, upload: &'u mut Upload) -> Result<&'u mut [u8], Refused> {
        upload.assert_is_to(self.store);
        if upload.filled < upload.value_len && upload.filled == upload.reserved() {
            let left = upload.value_len - upload.filled;
            let (index, queue) = (upload.pieces.len(), upload.queue);
            let most = upload.store.whole_max.min(piece_len(left));
            upload.reserve(most)?;
            let mut writer = self.writer();
            let (location, data_len) = match writer.new_piece(upload.hash, queue, index, left) {
                Ok((location, data)) => (location, data.len()),
                Err(refused) => {
                    upload.give_back(most);
                    return Err(refused);
                }
            };
            upload.give_back(most.saturating_sub(piece_len(data_len)));
            upload.pieces.push(Part {
                hold: writer.local.shared.log.hold(writer.local.guard(), location),
                total: piece_len(data_len),
                data_at: PIECE_HEADER_LEN,
                data_len,
            });
        }
        Ok(upload.unfilled())
    }

    /// Publishes a complete upload. Where there is no memory at the moment the upload comes back,
    /// to be finished later.
    ///
    /// # Errors
    /// The upload, where there is no memory at the moment.
    ///
    /// # Panics
    /// Where the upload is not complete, or to another store.
    #[expect(clippy::result_large_err, reason = "the upload moves either way")]
    pub fn finish_upload(&mut self, upload: Upload) -> Result<Stored, Upload> {
        assert_eq!(
            upload.remaining(),
            0,
            "an upload is finished before it is complete"
        );
        upload.assert_is_to(self.store);
        let key = Key {
            bytes: upload.key(),
            hash: upload.hash,
        };
        let stored = self
            .writer()
            .put(&key, Ahead::NONE, &upload.put, Body::Upload(&upload), None);
        if stored == Stored::Refused(Refused::Wait) {
            Err(upload)
        } else {
            Ok(stored)
        }
    }
}

impl Upload {
    fn assert_is_to(&self, store: &Arc<Store>) {
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

    /// The key.
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// The store operation.
    pub fn put(&self) -> &Put {
        &self.put
    }

    /// The first `n` bytes of the last [`Burst::upload_space`] are filled.
    ///
    /// # Panics
    /// Where there was not so much space.
    pub fn advance(&mut self, n: usize) {
        assert!(
            self.filled + n <= self.reserved(),
            "more than there was space for"
        );
        self.filled += n;
    }

    fn draft(&self, access: u32) -> Draft<'_> {
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
            access: access | known,
            value_len: self.value_len,
            chunks: None,
        }
    }

    /// Takes a part of what uploads may hold.
    fn reserve(&mut self, bytes: usize) -> Result<(), Refused> {
        let before = self.store.upload_bytes.fetch_add(bytes, Ordering::Relaxed);
        // A few bytes hold a whole segment.
        let holds_too_many = self.store.held_count() >= 2 * self.store.held_max;
        // One that is alone may be as large as an item may be.
        let is_alone = before == self.held;
        if !is_alone && (before + bytes > self.store.upload_bytes_max || holds_too_many) {
            self.store.upload_bytes.fetch_sub(bytes, Ordering::Relaxed);
            return Err(Refused::OutOfMemory);
        }
        self.held += bytes;
        Ok(())
    }

    /// Undoes a part of [`Upload::reserve`].
    fn give_back(&mut self, bytes: usize) {
        self.store.upload_bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.held -= bytes;
    }

    fn parts(&self) -> impl Iterator<Item = &Part> {
        self.whole.iter().chain(&self.pieces)
    }

    /// Bytes of the value that have a place.
    fn reserved(&self) -> usize {
        self.parts().map(|part| part.data_len).sum()
    }

    /// The place of the bytes that come next.
    fn unfilled(&mut self) -> &mut [u8] {
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

impl Writer<'_> {
    /// An item of a complete upload's own bytes, where they are, to be published. Where that cannot
    /// be, of a copy.
    pub(crate) fn adopt(
        &mut self,
        upload: &Upload,
        queue: Queue,
        draft: &Draft<'_>,
        cas_above: u64,
    ) -> Result<Slot, Refused> {
        let log = &self.local.shared.log;
        let new = match &upload.whole {
            Some(part) => {
                let location = part.hold.location();
                let cas_fits = draft.cas.is_some() || log.cas_of(location) > cas_above;
                // What was flushed since it began to arrive must not die by that.
                let is_as_wanted = cas_fits
                    && !log.is_flushed(location)
                    && upload.put.mode != Mode::Cas
                    && !upload.adopted.get();
                if !is_as_wanted {
                    return self.write(
                        upload.hash,
                        queue,
                        draft,
                        &[Body::Upload(upload)],
                        cas_above,
                    );
                }
                // Only with `Mode::Cas` it may be another than the upload began with.
                debug_assert_eq!(draft.expiry, upload.put.expiry.given());
                Slot::item(upload.hash.tag(), location, part.total)
            }
            None if upload.adopted.get() => {
                return self.write(
                    upload.hash,
                    queue,
                    draft,
                    &[Body::Upload(upload)],
                    cas_above,
                );
            }
            None => {
                let pieces: Vec<Location> = upload
                    .pieces
                    .iter()
                    .map(|part| part.hold.location())
                    .collect();
                self.write_head(upload.hash, queue, draft, &pieces, cas_above)?
            }
        };
        // From here on the bytes are the item's: should it lose a race it is abandoned as an item.
        upload.adopted.set(true);
        Ok(new)
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
