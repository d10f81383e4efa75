//! The frames of a burst in private memory, close together. If they were as far apart as their
//! buffers, they would compete for a few sets of the cache.

use coua_tcp::nic::BURST_LEN;

use super::region::LINE_LEN;

/// At most [`BURST_LEN`] frames, one after another, each at the start of a cache line.
pub(super) struct Frames {
    bytes: Box<[u8]>,
    /// Where the first line begins.
    start: usize,
    /// Where the room for frames ends.
    end: usize,
    len_max: usize,
    places: [(u32, u32); BURST_LEN],
    count: usize,
}

impl Frames {
    /// Room for frames of at most `len_max` bytes.
    pub(super) fn new(len_max: usize) -> Frames {
        let each = len_max.next_multiple_of(LINE_LEN);
        let bytes = vec![0; each * BURST_LEN + LINE_LEN].into_boxed_slice();
        let start = bytes.as_ptr().align_offset(LINE_LEN).min(LINE_LEN);
        Frames {
            bytes,
            start,
            end: start,
            len_max,
            places: [(0, 0); BURST_LEN],
            count: 0,
        }
    }

    /// The number of frames.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.count
    }

    /// Whether there is no room for another frame.
    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.count == BURST_LEN
    }

    /// Room for the next frame.
    ///
    /// # Panics
    /// If there is none.
    #[inline]
    pub(super) fn room(&mut self) -> &mut [u8] {
        assert!(self.count < BURST_LEN, "room for a frame");
        &mut self.bytes[self.end..][..self.len_max]
    }

    /// Adds the first `len` bytes of the room as a frame.
    ///
    /// # Panics
    /// If there is no room, or it is shorter than `len`.
    #[inline]
    pub(super) fn push(&mut self, len: usize) {
        assert!(len <= self.len_max, "no longer than its room");
        #[expect(clippy::cast_possible_truncation, reason = "64 frames of 16 bits each")]
        let place = (self.end as u32, len as u32);
        self.places[self.count] = place;
        self.count += 1;
        self.end += len.next_multiple_of(LINE_LEN);
    }

    /// A frame.
    ///
    /// # Panics
    /// If there is no frame with this number.
    #[inline]
    pub(super) fn get(&self, at: usize) -> &[u8] {
        let (start, len) = self.places[..self.count][at];
        &self.bytes[start as usize..][..len as usize]
    }

    /// All frames.
    #[inline]
    pub(super) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.count).map(|at| self.get(at))
    }

    /// Removes all frames.
    #[inline]
    pub(super) fn clear(&mut self) {
        self.count = 0;
        self.end = self.start;
    }
}
