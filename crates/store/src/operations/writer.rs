//! A worker that is about to write: the store, its open segments, and how new items are written
//! into them.

use super::upload::Upload;
use crate::index::Migration;
use crate::index::slot::{Location, Slot};
use crate::key::KeyHash;
use crate::memory::Purpose;
use crate::memory::Queue;
use crate::request::Refused;
use crate::segment::item::RawItem;
use crate::segment::layout::{Draft, PIECE_HEADER_LEN, piece_len};
use crate::segment::space::Space;
use crate::segment::{Hold, OpenSegment};
use crate::sync::Ordering;
use crate::tags::{TagWords, Tags};
use crate::time::{Expiry, UnixTime};
use crate::worker::Burst;
use crate::worker_store::WorkerStore;

/// See the module.
pub(crate) struct Writer<'p> {
    pub(crate) local: WorkerStore<'p>,
    pub(crate) open: &'p mut [OpenSegment; 2],
    pub(crate) migrations: &'p mut Vec<Migration>,
    pub(crate) appended: &'p mut usize,
    pub(crate) now: UnixTime,
    /// Whether a lack of memory has been counted.
    pub(crate) counts_waits: bool,
    /// Pieces that this operation has written. Their segments are held.
    unlinked: Vec<Hold>,
}

impl Drop for Writer<'_> {
    #[inline]
    fn drop(&mut self) {
        for piece in self.unlinked.drain(..) {
            self.local.shared.log.release(piece);
        }
    }
}

/// The longest key.
pub(crate) const KEY_MAX: usize = 250;

/// Where a value comes from.
#[derive(Clone, Copy)]
pub(crate) enum Body<'a> {
    /// A slice of the request.
    Bytes(&'a [u8]),
    /// A complete upload.
    Upload(&'a Upload),
    /// Another item's value.
    Item(RawItem<'a>),
}

impl Body<'_> {
    pub(crate) fn len(&self) -> usize {
        match self {
            Body::Bytes(bytes) => bytes.len(),
            Body::Upload(upload) => upload.value_len(),
            Body::Item(item) => item.value_len(),
        }
    }

    /// Calls `f` with each slice of the value, in order.
    fn for_each(&self, local: WorkerStore<'_>, mut f: impl FnMut(&[u8])) {
        match self {
            Body::Bytes(bytes) => f(bytes),
            Body::Upload(upload) => upload.for_each(f),
            Body::Item(item) if item.is_head() => {
                for (_, piece) in local.pieces(*item) {
                    f(piece.piece_data());
                }
            }
            Body::Item(item) => f(item.value()),
        }
    }
}

impl Burst<'_> {
    /// The handle for operations that write.
    #[inline]
    pub(crate) fn writer(&mut self) -> Writer<'_> {
        Writer {
            local: self.local,
            open: &mut self.own.open,
            migrations: &mut self.own.migrations,
            appended: &mut self.own.appended,
            now: self.now,
            counts_waits: true,
            unlinked: Vec::new(),
        }
    }
}

impl<'p> Writer<'p> {
    /// Appends elsewhere from now on, where a part of a segment that is being filled is lost.
    #[cold]
    pub(crate) fn leave_lost(&mut self) {
        for open in &mut *self.open {
            self.local.leave_lost(open);
        }
    }

    /// An access word for an item made now.
    #[inline]
    pub(crate) fn access_word(&self, marks: u32) -> u32 {
        self.local.shared.access_time(self.now) | marks
    }

    /// The tags of an item that is stored now. Asked for before the operation looks at the old item;
    /// see [`crate::tags`].
    #[inline]
    pub(crate) fn tag_words(&mut self, tags: &Tags) -> Result<TagWords, Refused> {
        if tags[0].is_none() {
            return Ok(TagWords::NONE);
        }
        let store = self.local.shared;
        let words = store.tags.words(tags);
        words.ok_or_else(|| self.refused(store.log.segment_len()))
    }

    /// The queue that an item belongs to: that of the item it replaces, or else by whether it was
    /// evicted recently.
    #[inline]
    pub(crate) fn queue_for(&self, hash: KeyHash, old: Option<Location>) -> Queue {
        let store = self.local.shared;
        if let Some(location) = old {
            return store.log.entry_of(location).queue();
        }
        if !store.log.is_evicting() {
            return Queue::Small;
        }
        match store.index.ghost(hash) {
            Some(stamp) if store.log.clock().saturating_sub(stamp) <= store.ghost_age_max() => {
                self.local.counters().ghost_hits.add(1);
                Queue::Main
            }
            _ => Queue::Small,
        }
    }

    /// Writes an item whose value is `parts`, one after the other. Its CAS will exceed `cas_above`,
    /// unless the draft names one. Large values are split into pieces.
    pub(crate) fn write(
        &mut self,
        hash: KeyHash,
        queue: Queue,
        draft: &Draft<'_>,
        parts: &[Body<'_>],
        cas_above: u64,
    ) -> Result<Slot, Refused> {
        if draft.layout().total > self.local.shared.whole_max {
            return self.write_large(hash, queue, draft, parts, cas_above);
        }
        let local = self.local;
        let (slot, body) = self.write_header(hash, queue, draft, cas_above)?;
        if let ([Body::Bytes(value)], true) = (parts, draft.chunks.is_none()) {
            body.copy_from_slice(value);
        } else {
            let mut at = 0;
            for part in parts {
                part.for_each(local, |bytes| {
                    // What is lost meanwhile may be shorter than it was, and never longer.
                    body[at..at + bytes.len()].copy_from_slice(bytes);
                    at += bytes.len();
                });
            }
        }
        Ok(slot)
    }

    /// Writes an item except its value. Returns the slot, to be published once the value is in the
    /// returned bytes.
    pub(crate) fn write_header(
        &mut self,
        hash: KeyHash,
        queue: Queue,
        draft: &Draft<'_>,
        cas_above: u64,
    ) -> Result<(Slot, &'p mut [u8]), Refused> {
        let log = &self.local.shared.log;
        let open = &mut self.open[queue as usize];
        let mut draft = *draft;
        if draft.cas.is_none() {
            // Another worker's segment may be younger than ours.
            draft.cas = log.cas_after(open, cas_above);
        }
        let total = draft.layout().total;
        if draft.key.len() > KEY_MAX || total > log.segment_len() {
            return Err(Refused::TooLarge);
        }
        let Some(space) = log.append(open, total, Purpose::Items) else {
            return Err(self.refused(total));
        };
        Ok(self.fill_header(hash, space, &draft))
    }

    /// Writes an item except its value into its space; see [`Writer::write_header`].
    #[inline]
    pub(crate) fn fill_header(
        &mut self,
        hash: KeyHash,
        space: Space<'p>,
        draft: &Draft<'_>,
    ) -> (Slot, &'p mut [u8]) {
        let (location, total) = (space.location, space.len);
        *self.appended += total;
        self.local.counters().bytes_appended.add(total as u64);
        let log = &self.local.shared.log;
        let entry = log.entry_of(location);
        let expiry = draft.expiry.unwrap_or(Expiry::NEVER);
        entry.note_expiry_second(match draft.fine {
            true => expiry.second_up(),
            false => expiry.coarse(),
        });
        if !draft.tags.is_empty() {
            self.local.shared.tags.note_in(&entry);
        }
        let slot = Slot::item(hash.tag(), location, total);
        (slot, space.into_item(draft))
    }

    /// Writes a head, and its value in pieces.
    #[cold]
    fn write_large(
        &mut self,
        hash: KeyHash,
        queue: Queue,
        draft: &Draft<'_>,
        parts: &[Body<'_>],
        cas_above: u64,
    ) -> Result<Slot, Refused> {
        self.expect_room(draft.value_len)?;
        let mut pieces = Pieces {
            locations: Vec::new(),
            left: draft.value_len,
        };
        let result = self
            .fill_pieces(hash, queue, parts, &mut pieces)
            .and_then(|()| self.write_head(hash, queue, draft, &pieces.locations, cas_above));
        if result.is_err() {
            self.local.abandon_pieces(pieces.locations.into_iter());
        }
        result
    }

    /// Refuses a value of `value_len` that cannot be written completely, if nothing is evicted:
    /// otherwise its abandoned pieces would be cleaned to make room for the next attempt, over and
    /// over. With evictions the cleaner learns from such pieces how much room is wanted.
    fn expect_room(&mut self, value_len: usize) -> Result<(), Refused> {
        let store = self.local.shared;
        if store.evict {
            return Ok(());
        }
        // Less than an eighth of each segment stays empty after its last piece; one more segment
        // for the head.
        let len = value_len + value_len / 6 + store.log.segment_len();
        let pages = store.log.pages();
        let free = pages.free_count().saturating_sub(pages.reserve());
        if len <= free * store.log.segment_len() {
            Ok(())
        } else {
            Err(self.refused(len))
        }
    }

    fn fill_pieces(
        &mut self,
        hash: KeyHash,
        queue: Queue,
        parts: &[Body<'_>],
        pieces: &mut Pieces,
    ) -> Result<(), Refused> {
        let local = self.local;
        let mut target: &mut [u8] = &mut [];
        let mut result = Ok(());
        for part in parts {
            part.for_each(local, |mut bytes| {
                while !bytes.is_empty() && result.is_ok() {
                    if target.is_empty() {
                        let index = pieces.locations.len();
                        match self.new_piece(hash, queue, index, pieces.left) {
                            Ok((location, data)) => {
                                pieces.locations.push(location);
                                pieces.left -= data.len();
                                target = data;
                            }
                            Err(refused) => {
                                result = Err(refused);
                                return;
                            }
                        }
                    }
                    let n = bytes.len().min(target.len());
                    let (head, tail) = std::mem::take(&mut target).split_at_mut(n);
                    head.copy_from_slice(&bytes[..n]);
                    target = tail;
                    bytes = &bytes[n..];
                }
            });
        }
        result
    }

    /// Room for a piece of a value, of which `left` bytes have no room yet.
    pub(crate) fn new_piece(
        &mut self,
        hash: KeyHash,
        queue: Queue,
        index: usize,
        left: usize,
    ) -> Result<(Location, &'p mut [u8]), Refused> {
        let store = self.local.shared;
        let log = &store.log;
        let open = &mut self.open[queue as usize];
        let most = store.whole_max - PIECE_HEADER_LEN;
        let room = log.room(open).saturating_sub(PIECE_HEADER_LEN);
        // The rest of the segment, unless that is so little that the head would become long.
        let data_len = if room >= most / 2 {
            most.min(room)
        } else {
            most
        }
        .min(left);
        let total = piece_len(data_len);
        let Some(space) = log.append(open, total, Purpose::Items) else {
            return Err(self.refused(left));
        };
        *self.appended += total;
        self.local.counters().bytes_appended.add(total as u64);
        let location = space.location;
        log.entry_of(location).set_has_pieces();
        // The segment may fill up and be cleaned before a head points to the piece.
        self.unlinked.push(log.hold(self.local.guard(), location));
        #[expect(
            clippy::cast_possible_truncation,
            reason = "a value has a few thousand pieces"
        )]
        let data = space.into_piece(hash.0, index as u32, data_len);
        Ok((location, data))
    }

    /// Writes the head of a value whose pieces are written.
    pub(crate) fn write_head(
        &mut self,
        hash: KeyHash,
        queue: Queue,
        draft: &Draft<'_>,
        pieces: &[Location],
        cas_above: u64,
    ) -> Result<Slot, Refused> {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "a value has a few thousand pieces"
        )]
        let draft = Draft {
            chunks: Some(pieces.len() as u32),
            ..*draft
        };
        let (slot, _) = self.write_header(hash, queue, &draft, cas_above)?;
        let table = self.local.item_of(slot).chunks();
        for (entry, location) in table.iter().zip(pieces) {
            entry.store(location.raw(), Ordering::Relaxed);
        }
        Ok(slot)
    }

    /// Why there is no memory for `len` more bytes, and whether there will be.
    #[cold]
    pub(crate) fn refused(&mut self, len: usize) -> Refused {
        if self.counts_waits {
            self.local.counters().waits.add(1);
        }
        if self.local.shared.evict {
            return Refused::Wait;
        }
        if !self.local.shared.will_have_room(len) {
            return Refused::OutOfMemory;
        }
        // The cleaner makes as much room as if the bytes had been stored.
        *self.appended = len.max(*self.appended);
        Refused::Wait
    }
}

/// The pieces of a value as it is written.
struct Pieces {
    locations: Vec<Location>,
    left: usize,
}
