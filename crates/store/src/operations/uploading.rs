//! Stores a value that arrives in parts.

use super::upload::{Part, Upload};
use super::writer::{Body, KEY_MAX, Writer};
use crate::index::slot::Slot;
use crate::key::Key;
use crate::look_ahead::Ahead;
use crate::memory::Queue;
use crate::request::{Mode, Put, Refused, Stored};
use crate::segment::layout::{Draft, PIECE_HEADER_LEN, piece_len};
use crate::worker::Burst;
use std::sync::Arc;

impl Burst<'_> {
    /// Begins to store a value of `value_len` bytes that arrives in parts. The burst may end before
    /// the value is complete.
    ///
    /// # Errors
    /// [`Refused`] if the item would be too large, or there is no memory for it.
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
        let mut upload = Upload::of_pieces(store, key, *put, value_len, Queue::Small);
        let mut writer = self.writer();
        let old = writer.local.find_live(key, writer.now).ok();
        upload.queue = writer.queue_for(key.hash, old.map(|(place, _)| place.slot.location()));
        let access = writer.access_word(0);
        let tags = writer.tag_words(&put.tags)?;
        let layout = upload.draft(access, &tags).layout();
        let total = layout.total;
        if total <= upload.store.whole_max {
            upload.reserve(total)?;
            let draft = upload.draft(access, &tags);
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
    /// of it, then call [`Upload::advance`].
    ///
    /// # Errors
    /// [`Refused`] if there is no memory for the next part.
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

    /// Publishes a complete upload. If there is no memory now, or the old item that it depends on is on
    /// flash, the upload is returned, to be finished later.
    ///
    /// # Errors
    /// The upload, if there is no memory now, or if [`Upload::on_flash`] says where the old item may be.
    ///
    /// # Panics
    /// If the upload is not complete, or belongs to another store.
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
        upload.on_flash.set(None);
        match stored {
            Stored::Refused(Refused::Wait) => Err(upload),
            Stored::OnFlash(place) => {
                upload.on_flash.set(Some(place));
                Err(upload)
            }
            _ => Ok(stored),
        }
    }
}

impl Writer<'_> {
    /// An item to be published, made from a complete upload's own bytes where they are, or from a
    /// copy if that is not possible.
    pub(crate) fn adopt(
        &mut self,
        upload: &Upload,
        queue: Queue,
        draft: &Draft<'_>,
        cas_above: u64,
    ) -> Result<Slot, Refused> {
        let log = &self.local.shared.log;
        let can_be_adopted = !upload.adopted.get()
            && upload.whole.as_ref().is_none_or(|part| {
                let location = part.hold.location();
                let cas_fits = draft.cas.is_some() || log.cas_of(location) > cas_above;
                let tags = log.held_item(&part.hold).tags();
                let has_its_tags = tags.eq(draft.tags.iter().copied());
                // What was flushed or invalidated since the upload began must not kill the item.
                cas_fits
                    && has_its_tags
                    && !log.is_flushed(location)
                    && upload.put.mode != Mode::Cas
            });
        if !can_be_adopted {
            let body = [Body::Upload(upload)];
            return self.write(upload.hash, queue, draft, &body, cas_above);
        }
        let new = match &upload.whole {
            Some(part) => {
                // Only with `Mode::Cas` may the expiry differ from the upload's.
                debug_assert_eq!(draft.expiry, upload.put.expiry.given());
                Slot::item(upload.hash.tag(), part.hold.location(), part.total)
            }
            None => {
                let pieces = upload.piece_locations();
                self.write_head(upload.hash, queue, draft, &pieces, cas_above)?
            }
        };
        // From here on the bytes are the item's: if it loses a race it is abandoned as an item.
        upload.adopted.set(true);
        Ok(new)
    }
}
