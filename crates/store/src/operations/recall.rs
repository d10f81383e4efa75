//! Brings a value in pieces back from flash, a piece at a time: what has been read lies in memory from then on, where it
//! will stay.

use super::fetched::{draft_of, queue_of};
use super::upload::Upload;
use crate::flash::{BroughtBack, FlashPieces, Useless, present};
use crate::key::Key;
use crate::request::{FlashPlace, Put, Refused};
use crate::tags::TagWords;
use crate::time::Expiry;
use crate::worker::Burst;
use coua_flash::log::Fetched;
use std::sync::Arc;

/// A value that is being brought back. Dropping it gives it up.
pub struct Recall {
    upload: Upload,
    pieces: FlashPieces,
    place: FlashPlace,
    next: usize,
}

impl Recall {
    /// The place of the head.
    pub fn place(&self) -> FlashPlace {
        self.place
    }

    /// The pieces that are still to be brought back, in this order: their numbers.
    pub fn missing(&self) -> std::ops::Range<usize> {
        self.next..self.pieces.count()
    }

    /// All pieces.
    pub fn pieces(&self) -> &FlashPieces {
        &self.pieces
    }
}

impl Burst<'_> {
    /// Begins to bring the value of `key` back, whose head was read from `place`. It holds memory as an upload does.
    ///
    /// # Errors
    /// What else is to be done: [`BroughtBack::Moved`] and the like.
    pub fn begin_recall(
        &mut self,
        key: &Key<'_>,
        place: FlashPlace,
        fetched: &Fetched,
    ) -> Result<Recall, BroughtBack> {
        let queue = match present(self.local, key, place, fetched, self.now) {
            Ok(present) => queue_of(&present),
            Err(Useless::OtherKey) => return Err(BroughtBack::OtherKey),
            Err(Useless::Moved) => return Err(BroughtBack::Moved),
            Err(Useless::Dead(why)) => return Err(BroughtBack::Dead(why)),
        };
        let found = self.flash_pieces(key, place, fetched);
        let (_, pieces) = found.ok_or(BroughtBack::Moved)?;
        let put = Put::set(0, Expiry::NEVER);
        let upload = Upload::of_pieces(Arc::clone(self.store), key, put, pieces.value_len(), queue);
        Ok(Recall {
            upload,
            pieces,
            place,
            next: 0,
        })
    }

    /// Takes the next missing piece. False if that is not what was read: then the value is lost.
    ///
    /// # Errors
    /// [`Refused`] if there is no memory now: nothing has changed, or a part of the piece is there already and is passed
    /// over the next time.
    pub fn recall(&mut self, recall: &mut Recall, piece: &Fetched) -> Result<bool, Refused> {
        let nth = recall.next;
        let Some(data) = recall.pieces.data(nth, piece) else {
            return Ok(false);
        };
        let ends_at = recall.upload.value_len() - recall.upload.remaining();
        let begins_at = recall.pieces.offset(nth);
        let mut rest = &data[ends_at - begins_at..];
        while !rest.is_empty() {
            let space = self.upload_space(&mut recall.upload)?;
            let count = space.len().min(rest.len());
            space[..count].copy_from_slice(&rest[..count]);
            recall.upload.advance(count);
            rest = &rest[count..];
        }
        // What was copied may be what stands where memory was lost.
        if piece.is_lost() {
            return Ok(false);
        }
        recall.next += 1;
        Ok(true)
    }

    /// All pieces are there: has the slot name the value in memory. `fetched` is the head, once more.
    ///
    /// # Errors
    /// The recall, if there is no memory now.
    #[expect(clippy::result_large_err, reason = "the recall moves either way")]
    pub fn finish_recall(
        &mut self,
        key: &Key<'_>,
        fetched: &Fetched,
        recall: Recall,
    ) -> Result<BroughtBack, Recall> {
        assert_eq!(recall.upload.remaining(), 0, "a recall that is complete");
        let present = match present(self.local, key, recall.place, fetched, self.now) {
            Ok(present) => present,
            Err(Useless::OtherKey) => return Ok(BroughtBack::OtherKey),
            Err(Useless::Moved) => return Ok(BroughtBack::Moved),
            Err(Useless::Dead(why)) => return Ok(BroughtBack::Dead(why)),
        };
        if recall.upload.is_doubtful() {
            return Ok(BroughtBack::Moved);
        }
        let tags = TagWords::of(present.item.tags());
        let draft = draft_of(present.item, present.cas, &tags);
        let mut writer = self.writer();
        let pieces = recall.upload.piece_locations();
        let head = writer.write_head(key.hash, queue_of(&present), &draft, &pieces, 0);
        let Ok(head) = head else {
            return Err(recall);
        };
        recall.upload.adopted.set(true);
        Ok(writer.put_back(&present, head))
    }
}
