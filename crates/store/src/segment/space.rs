//! Bytes in segment memory that still belong to their writer alone, and how items and pieces are
//! written into them.
#![allow(unsafe_code, reason = "writes items into segment memory")]

use super::layout::{
    ACCESS_AT, CLIENT_FLAGS, Draft, EXPIRY, FINE, HEADER_LEN, LONG, PIECE, PIECE_HEADER_LEN,
};
use crate::index::slot::Location;
use crate::memory::{Borrowed, Mapping};
use crate::sync::step;
use crate::tags::TagWord;
use crate::time::Expiry;
use coua_cpu::copy_short;
use std::ptr::NonNull;

/// Bytes in segment memory that belong to the holder alone, until it publishes what it wrote there
/// or gives them up. It must not outlive the burst in which it was taken, unless the segment is
/// held.
pub(crate) struct Space<'m> {
    at: NonNull<u8>,
    pub(crate) location: Location,
    pub(crate) len: usize,
    memory: Borrowed<'m>,
}

impl<'m> Space<'m> {
    /// `len` bytes at `location`.
    ///
    /// # Safety
    /// Nobody else reads or writes the bytes while the value lives.
    #[inline]
    pub(crate) unsafe fn new(memory: &'m Mapping, location: Location, len: usize) -> Space<'m> {
        assert!(location.offset() + len <= memory.len());
        Space {
            at: memory.at(location.offset()),
            location,
            len,
            memory: memory.borrowed(),
        }
    }

    #[inline]
    fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: `len` bytes that are ours alone.
        unsafe { std::slice::from_raw_parts_mut(self.at.as_ptr(), self.len) }
    }

    /// Writes an item's header and key. Returns the body: the value's bytes, to be filled.
    #[inline]
    pub(crate) fn write_item(&mut self, draft: &Draft<'_>) -> &mut [u8] {
        let layout = draft.layout();
        assert!(layout.total <= self.len, "an item larger than its space");
        #[expect(
            clippy::cast_possible_truncation,
            reason = "the parser bounds keys, Layout values"
        )]
        let (key_len, short_len) = (draft.key.len() as u8, draft.value_len as u16);
        let short = if layout.fields & LONG != 0 {
            0
        } else {
            short_len
        };
        step();
        let bytes = self.bytes();
        let mut header = [0; HEADER_LEN];
        header[0] = key_len;
        header[1] = layout.fields;
        header[2..4].copy_from_slice(&short.to_ne_bytes());
        header[ACCESS_AT..].copy_from_slice(&draft.access.to_ne_bytes());
        bytes[..HEADER_LEN].copy_from_slice(&header);
        let mut at = HEADER_LEN;
        let mut put = |field: &[u8]| {
            step();
            bytes[at..at + field.len()].copy_from_slice(field);
            at += field.len();
        };
        if layout.fields & EXPIRY != 0 {
            let expiry = draft.expiry.unwrap_or(Expiry::NEVER);
            if layout.fields & FINE == 0 {
                put(&expiry.coarse().to_ne_bytes());
            } else {
                put(&expiry.fine().to_ne_bytes());
            }
        }
        if layout.fields & CLIENT_FLAGS != 0 {
            put(&draft.client_flags.to_ne_bytes());
        }
        if layout.fields & LONG != 0 {
            #[expect(clippy::cast_possible_truncation, reason = "values are at most 1 GiB")]
            put(&(draft.value_len as u32).to_ne_bytes());
        }
        if let Some(chunks) = draft.chunks {
            put(&chunks.to_ne_bytes());
        }
        if let Some(cas) = draft.cas {
            put(&cas.to_ne_bytes());
        }
        let key_end = at + draft.key.len();
        copy_short(&mut bytes[at..key_end], draft.key);
        if !draft.tags.is_empty() {
            write_tags(&mut bytes[..layout.total], draft.tags);
        }
        #[cfg(loom)]
        {
            let expiry = draft.expiry.unwrap_or(Expiry::NEVER).fine();
            let chunks = draft.chunks.unwrap_or(0) as usize;
            self.track(layout.total, (draft.access, expiry), chunks);
        }
        let bytes = self.bytes();
        &mut bytes[layout.body_at..layout.body_at + draft.body_len()]
    }

    /// Writes a piece's header. Returns its data, to be filled.
    pub(crate) fn write_piece(&mut self, hash: u64, index: u32, data_len: usize) -> &mut [u8] {
        let bytes = self.bytes();
        #[expect(
            clippy::cast_possible_truncation,
            reason = "a piece is smaller than a segment"
        )]
        let len = data_len as u32;
        step();
        bytes[..PIECE_HEADER_LEN].fill(0);
        step();
        bytes[1] = PIECE;
        step();
        bytes[4..8].copy_from_slice(&len.to_ne_bytes());
        bytes[8..12].copy_from_slice(&index.to_ne_bytes());
        bytes[16..24].copy_from_slice(&hash.to_ne_bytes());
        #[cfg(loom)]
        self.track(PIECE_HEADER_LEN + data_len, (0, 0), 0);
        &mut self.bytes()[PIECE_HEADER_LEN..PIECE_HEADER_LEN + data_len]
    }

    /// Tells loom that an item or piece was written.
    #[cfg(loom)]
    fn track(&self, len: usize, words: (u32, u64), chunks: usize) {
        let at = self.at.as_ptr().addr();
        self.memory.tracked().write(at, len, words, chunks);
    }

    /// As [`Space::write_item`]; the body outlives this value.
    #[inline]
    pub(crate) fn into_item(mut self, draft: &Draft<'_>) -> &'m mut [u8] {
        let body = self.write_item(draft);
        step();
        let (start, len) = (body.as_ptr(), body.len());
        // SAFETY: `start` points into this space.
        let offset = unsafe { start.offset_from_unsigned(self.at.as_ptr()) };
        self.detach(offset, len)
    }

    /// As [`Space::write_piece`]; the data outlives this value.
    pub(crate) fn into_piece(mut self, hash: u64, index: u32, data_len: usize) -> &'m mut [u8] {
        self.write_piece(hash, index, data_len);
        self.detach(PIECE_HEADER_LEN, data_len)
    }

    /// `len` bytes from `start` on, in exchange for the space.
    #[inline]
    pub(crate) fn detach(self, start: usize, len: usize) -> &'m mut [u8] {
        assert!(start + len <= self.len);
        // SAFETY: inside the space, which is ours alone and is given up here.
        let first = unsafe { self.at.add(start) };
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts_mut(first.as_ptr(), len) }
    }
}

/// Writes the tags to the end of an item.
#[cold]
fn write_tags(item: &mut [u8], tags: &[TagWord]) {
    let places = item.rchunks_exact_mut(size_of::<TagWord>());
    for (place, tag) in places.zip(tags.iter().rev()) {
        step();
        place.copy_from_slice(&tag.to_ne_bytes());
    }
}
