//! An item in segment memory.
//!
//! [`layout`](super::layout) says where its parts are, [`space`](super::space) writes them.
//!
//! # Concurrency
//! A published item does not change, except for its access word, its expiry, if it has room for
//! one, and a head's chunk locations. These are atomics. They change under the lock bit of the
//! bucket that has the item's slot, and are copied under it. The access time and "fetched" are the
//! exception: readers set them by compare-and-swap, and may lose the race with a copy.
#![allow(unsafe_code, reason = "reads items in segment memory")]

use super::layout::{
    ACCESS_AT, CAS, CLIENT_FLAGS, Draft, EXPIRY, EXPIRY_AT, FINE, HEAD, KEY_IS_BINARY, LONG,
    Layout, PIECE_HEADER_LEN, TAGS, field_at, is_piece, is_record, key_at, mark, piece_len,
};
use super::space::Space;
use crate::index::slot::{GRANULE, Location};
use crate::key::is_same;
use crate::memory::{Borrowed, Mapping};
use crate::sync::{AtomicU32, AtomicU64, Ordering};
use crate::tags::TagWord;
use crate::time::{Expiry, UnixSeconds, UnixTime};
use coua_flash::log::Fetched;
use std::ops::Range;
use std::ptr::NonNull;

/// An item or piece in segment memory.
#[derive(Clone, Copy)]
pub(crate) struct RawItem<'m> {
    at: NonNull<u8>,
    memory: Borrowed<'m>,
}

mod record;

impl<'m> RawItem<'m> {
    /// The item at `location`.
    ///
    /// # Safety
    /// A whole item or piece was written at `location`, that write happened before this call, and
    /// the memory is not used for anything else while `'m` lasts: the caller is inside the burst in
    /// which it loaded the location from a slot, or it owns or holds the segment.
    #[inline]
    pub(crate) unsafe fn new(memory: &'m Mapping, location: Location) -> RawItem<'m> {
        RawItem {
            at: memory.at(location.offset()),
            memory: memory.borrowed(),
        }
    }

    /// The item that a record on flash holds, in the buffer that it was read into. `None` if those bytes
    /// are not one whole item or a head there, which has words of its own in the place of locations
    /// ([`places_of`](super::layout::places_of)).
    pub(crate) fn fetched(memory: &'m Mapping, record: &'m Fetched) -> Option<RawItem<'m>> {
        let (at, len) = record.item();
        // SAFETY: the record lends the bytes.
        let bytes = unsafe { std::slice::from_raw_parts(at.as_ptr(), len) };
        // Eight bytes are the granule of all items, here and in memory.
        let is_aligned = at.as_ptr().addr().is_multiple_of(GRANULE);
        (is_aligned && is_record(bytes)).then(|| RawItem {
            at,
            memory: memory.borrowed(),
        })
    }

    /// Where it lies in memory: for one that was read from flash, as the arena's are known by their locations.
    pub(crate) fn address(self) -> usize {
        self.at.as_ptr().addr()
    }

    /// Where the key lies in the item.
    pub(crate) fn key_range(self) -> Range<usize> {
        let at = key_at(self.fields());
        at..at + self.key_len()
    }

    /// The address of byte `offset`, inside the item.
    #[inline]
    fn byte(self, offset: usize) -> NonNull<u8> {
        #[cfg(loom)]
        self.memory.tracked().read(self.at.as_ptr().addr());
        // SAFETY: all callers pass offsets that the item's own header says are inside.
        unsafe { self.at.add(offset) }
    }

    /// `N` immutable bytes of the item from `offset` on.
    #[inline]
    fn read<const N: usize>(self, offset: usize) -> [u8; N] {
        // SAFETY: all callers read fields that the item's own header says are there, and that
        // nobody changes.
        unsafe { self.byte(offset).cast::<[u8; N]>().read() }
    }

    #[cfg(loom)]
    fn access_cell(self) -> &'m AtomicU32 {
        &self.memory.tracked().read(self.at.as_ptr().addr()).access
    }

    #[cfg(not(loom))]
    #[inline]
    fn access_cell(self) -> &'m AtomicU32 {
        // SAFETY: the item is 8-aligned and the word inside every header; it is only accessed as an
        // atomic once the item is published.
        unsafe { self.byte(ACCESS_AT).cast::<AtomicU32>().as_ref() }
    }

    /// The expiry's four bytes, of an item that has so many.
    #[cfg(not(loom))]
    #[inline]
    fn expiry_cell(self) -> &'m AtomicU32 {
        debug_assert!(self.fields() & (EXPIRY | FINE) == EXPIRY);
        // SAFETY: the item is 8-aligned and has the field; it is only accessed as an atomic once the
        // item is published.
        unsafe { self.byte(EXPIRY_AT).cast::<AtomicU32>().as_ref() }
    }

    /// The expiry's eight bytes, of an item that has so many.
    #[cfg(not(loom))]
    #[inline]
    fn fine_expiry_cell(self) -> &'m AtomicU64 {
        debug_assert!(self.fields() & (EXPIRY | FINE) == EXPIRY | FINE);
        // SAFETY: as above, and the field begins at a multiple of 8.
        unsafe { self.byte(EXPIRY_AT).cast::<AtomicU64>().as_ref() }
    }

    /// Under loom all expiries have eight bytes.
    #[cfg(loom)]
    fn fine_expiry_cell(self) -> &'m AtomicU64 {
        &self.memory.tracked().read(self.at.as_ptr().addr()).expiry
    }

    #[inline]
    fn fields(self) -> u8 {
        self.read::<1>(1)[0]
    }

    #[inline]
    pub(crate) fn key_len(self) -> usize {
        usize::from(self.read::<1>(0)[0])
    }

    /// Whether this is the item of `key`.
    #[inline(always)]
    pub(crate) fn key_is(self, key: &[u8]) -> bool {
        self.key_len() == key.len() && is_same(self.key(), key)
    }

    #[inline]
    pub(crate) fn key(self) -> &'m [u8] {
        let at = key_at(self.fields());
        // SAFETY: the key lies behind the optional fields and does not change.
        unsafe { std::slice::from_raw_parts(self.byte(at).as_ptr(), self.key_len()) }
    }

    #[inline]
    pub(crate) fn value_len(self) -> usize {
        let fields = self.fields();
        if fields & LONG == 0 {
            return usize::from(u16::from_ne_bytes(self.read(2)));
        }
        u32::from_ne_bytes(self.read(field_at(fields, LONG))) as usize
    }

    #[inline]
    fn chunk_count(self) -> usize {
        let fields = self.fields();
        if fields & HEAD == 0 || is_piece(fields) {
            return 0;
        }
        u32::from_ne_bytes(self.read(field_at(fields, HEAD))) as usize
    }

    #[inline]
    fn layout_with(self, tags: usize) -> Layout {
        let fields = self.fields();
        let body_len = if fields & HEAD != 0 {
            self.chunk_count() * 8
        } else {
            self.value_len()
        };
        Layout::of(fields, self.key_len(), body_len, tags)
    }

    /// Whether the item has tags.
    #[inline]
    pub(crate) fn has_tags(self) -> bool {
        self.fields() & TAGS != 0
    }

    /// The item's tags.
    pub(crate) fn tags(self) -> impl Iterator<Item = TagWord> + Clone + 'm {
        // They are behind all else.
        let at = self.layout_with(0).total;
        let count = if self.has_tags() {
            TagWord::count(u32::from_ne_bytes(self.read(at)))
        } else {
            0
        };
        let word = move |tag| self.read(at + tag * size_of::<TagWord>());
        (0..count).map(move |tag| TagWord::from_ne_bytes(word(tag)))
    }

    /// All bytes, a multiple of 8.
    #[inline]
    pub(crate) fn total_len(self) -> usize {
        let fields = self.fields();
        if fields & (LONG | HEAD | TAGS) != 0 {
            return self.total_len_general();
        }
        let value_len = u16::from_ne_bytes(self.read(2));
        Layout::of(fields, self.key_len(), usize::from(value_len), 0).total
    }

    /// As [`RawItem::total_len`], for pieces, heads, long values and items with tags.
    #[cold]
    fn total_len_general(self) -> usize {
        match self.is_piece() {
            true => piece_len(self.piece_data_len()),
            false => self.layout_with(self.tags().count()).total,
        }
    }

    /// Whether the item is one of most, neither large nor with tags, and [ends within](Self::ends_within)
    /// `room` bytes.
    #[inline(always)]
    pub(crate) fn is_plain_within(self, room: usize) -> bool {
        let fields = self.fields();
        let value_len = u16::from_ne_bytes(self.read(2));
        let end = key_at(fields) + self.key_len() + usize::from(value_len);
        fields & (LONG | HEAD | TAGS) == 0 && end <= room
    }

    /// Whether all that the header says of the item or piece lies in its first `room` bytes. A file, or
    /// memory that fails without telling, may say anything: so this is asked of what a slot or a
    /// header before it leads to, before anything but a key is read there.
    pub(crate) fn ends_within(self, room: usize) -> bool {
        if self.is_plain_within(room) {
            return true;
        }
        if self.is_piece() {
            return PIECE_HEADER_LEN <= room && piece_len(self.piece_data_len()) <= room;
        }
        if key_at(self.fields()) > room {
            return false;
        }
        let tags_at = self.layout_with(0).total;
        let tags_len = match self.has_tags() {
            true if tags_at + size_of::<TagWord>() > room => return false,
            true => TagWord::count(u32::from_ne_bytes(self.read(tags_at))) * size_of::<TagWord>(),
            false => 0,
        };
        tags_at + tags_len <= room
    }

    pub(crate) fn client_flags(self) -> u32 {
        let fields = self.fields();
        if fields & CLIENT_FLAGS == 0 {
            0
        } else {
            u32::from_ne_bytes(self.read(field_at(fields, CLIENT_FLAGS)))
        }
    }

    /// The explicit CAS, if there is one.
    #[inline]
    pub(crate) fn explicit_cas(self) -> Option<u64> {
        let fields = self.fields();
        (fields & CAS != 0).then(|| u64::from_ne_bytes(self.read(field_at(fields, CAS))))
    }

    pub(crate) fn key_is_binary(self) -> bool {
        self.fields() & KEY_IS_BINARY != 0
    }

    /// Whether an item, which is no piece, is a head.
    #[inline]
    pub(crate) fn is_head(self) -> bool {
        self.fields() & HEAD != 0
    }

    #[inline]
    pub(crate) fn is_piece(self) -> bool {
        is_piece(self.fields())
    }

    /// The value of an item that is not a head.
    #[inline]
    pub(crate) fn value(self) -> &'m [u8] {
        debug_assert!(!self.is_head());
        let body_at = key_at(self.fields()) + self.key_len();
        // SAFETY: the value of an item that is no head follows its key, and does not change.
        unsafe { std::slice::from_raw_parts(self.byte(body_at).as_ptr(), self.value_len()) }
    }

    /// The locations of a head's pieces, in order; empty for other items.
    #[inline]
    pub(crate) fn chunks(self) -> &'m [AtomicU64] {
        let count = self.chunk_count();
        if count == 0 {
            return &[];
        }
        #[cfg(loom)]
        return &self.memory.tracked().read(self.at.as_ptr().addr()).chunks;
        #[cfg(not(loom))]
        let layout = self.layout_with(0);
        #[cfg(not(loom))]
        // SAFETY: a head's table is 8-aligned, lies where the header says, and is only accessed as
        // atomics once the head is published.
        unsafe {
            std::slice::from_raw_parts(self.byte(layout.body_at).cast().as_ptr(), count)
        }
    }

    /// The locations of a head's pieces, in order. Acquire, so that each piece is seen as it was
    /// written, even if the cleaner has just moved it. Nothing lies at location 0: a part of the head
    /// that is lost names no pieces.
    pub(crate) fn pieces(self) -> impl Iterator<Item = Location> + Clone + 'm {
        let chunks = self.chunks().iter();
        let locations = chunks.map(|chunk| chunk.load(Ordering::Acquire));
        let named = locations.filter(|&location| location != 0);
        named.map(Location::from_raw)
    }

    pub(crate) fn piece_data_len(self) -> usize {
        u32::from_ne_bytes(self.read(4)) as usize
    }

    pub(crate) fn piece_index(self) -> usize {
        u32::from_ne_bytes(self.read(8)) as usize
    }

    pub(crate) fn piece_hash(self) -> u64 {
        u64::from_ne_bytes(self.read(16))
    }

    pub(crate) fn piece_data(self) -> &'m [u8] {
        // SAFETY: a piece's data lies behind its header and does not change.
        unsafe {
            std::slice::from_raw_parts(self.byte(PIECE_HEADER_LEN).as_ptr(), self.piece_data_len())
        }
    }

    /// When the item expires.
    #[inline]
    pub(crate) fn expiry(self) -> Expiry {
        self.expiry_field().unwrap_or(Expiry::NEVER)
    }

    /// The expiry of an item that has room for one.
    #[inline]
    pub(crate) fn expiry_field(self) -> Option<Expiry> {
        let fields = self.fields();
        if fields & EXPIRY == 0 {
            return None;
        }
        #[cfg(not(loom))]
        if fields & FINE == 0 {
            return Some(Expiry::of_coarse(
                self.expiry_cell().load(Ordering::Relaxed),
            ));
        }
        Some(Expiry::of_fine(
            self.fine_expiry_cell().load(Ordering::Relaxed),
        ))
    }

    /// Whether the item can die of itself: it may have an expiry, or tags.
    #[inline]
    pub(crate) fn is_mortal(self) -> bool {
        self.fields() & (EXPIRY | FINE | TAGS) != 0
    }

    /// The expiry of an item that has neither tags nor milliseconds; `None` for the others.
    #[inline]
    pub(crate) fn plain_expiry(self) -> Option<Expiry> {
        if self.fields() & (FINE | TAGS) != 0 {
            return None;
        }
        #[cfg(loom)]
        return Some(self.expiry());
        #[cfg(not(loom))]
        if self.fields() & EXPIRY == 0 {
            return Some(Expiry::NEVER);
        }
        #[cfg(not(loom))]
        Some(Expiry::of_coarse(
            self.expiry_cell().load(Ordering::Relaxed),
        ))
    }

    /// Whether the item has room for an expiry with milliseconds.
    pub(crate) fn has_fine_expiry(self) -> bool {
        self.fields() & FINE != 0
    }

    /// Whether [`RawItem::set_expiry`] can be called with `expiry`.
    pub(crate) fn takes_expiry(self, expiry: Expiry) -> bool {
        let room = self.fields() & (EXPIRY | FINE);
        expiry == Expiry::NEVER || room == EXPIRY | FINE || room == EXPIRY && !expiry.is_fine()
    }

    /// Changes the expiry; under the lock bit of the item's bucket.
    ///
    /// # Panics
    /// If the item has no room for it.
    pub(crate) fn set_expiry(self, expiry: Expiry) {
        assert!(self.takes_expiry(expiry), "no room for an expiry");
        let fields = self.fields();
        if fields & EXPIRY == 0 {
            return;
        }
        #[cfg(not(loom))]
        if fields & FINE == 0 {
            let cell = self.expiry_cell();
            return cell.store(expiry.coarse(), Ordering::Relaxed);
        }
        let cell = self.fine_expiry_cell();
        cell.store(expiry.fine(), Ordering::Relaxed);
    }

    /// The access word: marks and time.
    #[inline]
    pub(crate) fn access(self) -> u32 {
        self.access_cell().load(Ordering::Relaxed)
    }

    /// Sets and clears marks; under the lock bit of the item's bucket.
    pub(crate) fn change_marks(self, set: u32, clear: u32) {
        let cell = self.access_cell();
        let mut word = cell.load(Ordering::Relaxed);
        // Readers set the time without the lock.
        while let Err(now) = cell.compare_exchange_weak(
            word,
            (word | set) & !clear,
            Ordering::Relaxed,
            Ordering::Relaxed,
        ) {
            word = now;
        }
    }

    /// Notes an access at `time`, in the store's seconds. Writes at most once a second.
    #[inline]
    pub(crate) fn note_access(self, time: u32) {
        let cell = self.access_cell();
        let word = cell.load(Ordering::Relaxed);
        let new = (word & !mark::TIME) | mark::FETCHED | (time & mark::TIME);
        if new != word {
            let _ = cell.compare_exchange(word, new, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// What the item is made from, for a copy of it, except its tags.
    pub(crate) fn draft(self) -> Draft<'m> {
        debug_assert!(!self.is_piece());
        #[expect(clippy::cast_possible_truncation, reason = "it came from a u32")]
        let chunks = self.is_head().then_some(self.chunk_count() as u32);
        Draft {
            key: self.key(),
            key_is_binary: self.key_is_binary(),
            client_flags: self.client_flags(),
            cas: self.explicit_cas(),
            expiry: self.expiry_field(),
            fine: self.has_fine_expiry(),
            tags: &[],
            access: self.access(),
            value_len: self.value_len(),
            chunks,
        }
    }

    /// Writes an item of `draft` to `space`, with this item's value. `draft` equals this item's,
    /// except for its CAS, its tags and its room for an expiry. The fields that change are copied later by
    /// [`RawItem::copy_changing`].
    pub(crate) fn copy_to(self, space: &mut Space<'_>, draft: &Draft<'_>) {
        let body = space.write_item(draft);
        if !self.is_head() {
            // It may have become shorter, if its header was lost meanwhile.
            let value = self.value();
            let len = value.len().min(body.len());
            body[..len].copy_from_slice(&value[..len]);
        }
    }

    /// Copies a piece, whose data is `data`, to `space`.
    pub(crate) fn copy_piece_to(self, space: &mut Space<'_>, data: &[u8]) {
        let index = u32::from_ne_bytes(self.read(8));
        space
            .write_piece(self.piece_hash(), index, data.len())
            .copy_from_slice(data);
    }

    /// Copies the fields that change to `copy`, which no other thread can reach yet; under the lock
    /// bit of this item's bucket.
    pub(crate) fn copy_changing(self, copy: RawItem<'_>) {
        copy.set_expiry(self.expiry());
        copy.access_cell().store(self.access(), Ordering::Relaxed);
        for (to, from) in copy.chunks().iter().zip(self.chunks()) {
            to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }

    /// Seconds from the last access to `now`; `made` is when the store was made.
    pub(crate) fn idle_seconds(self, now: UnixTime, made: UnixSeconds) -> u32 {
        let last = made.0.wrapping_add(self.access() & mark::TIME);
        now.second().0.saturating_sub(last)
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
