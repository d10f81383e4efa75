//! Putting frames into a ring.

use super::frames::Frames;
use super::receive::IndexOutOfRange;
use super::region::Span;
use super::ring::Ring;

/// Bytes of each frame's room that are prefetched before it is written: headers and a short reply.
const AHEAD_LEN: usize = 128;

/// A ring for frames to the peer.
///
/// A frame is written to private memory, and copied at the end of the turn: the peer may write to
/// the shared memory at any time, so nobody gets a view of it. The copy costs little, because all
/// its lines have been prefetched while the frames were made.
pub(super) struct Producer {
    ring: Ring,
    /// The next entry to fill.
    next: u16,
    /// The first entry that was not free when the peer's index was last read.
    limit: u16,
    /// The end of the entries whose lines have been prefetched.
    ahead: u16,
    /// Where the buffers are, if they belong to this side.
    buffers: Option<Buffers>,
}

/// Buffers of this side, one for each entry of a ring.
#[derive(Clone, Copy, Debug)]
pub(super) struct Buffers {
    /// Where the first begins in region 0.
    pub(super) start: u32,
    /// Bytes from the start of one buffer to the start of the next.
    pub(super) stride: u32,
    /// Bytes of each buffer.
    pub(super) len: u32,
}

/// What became of frames that were to be sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Given {
    /// Frames that the peer has been given.
    pub(super) sent: u64,
    /// Frames that did not fit at the place that the peer had named.
    pub(super) unfit: u64,
}

impl Producer {
    /// The ring, beginning where it stands.
    pub(super) fn new(ring: Ring, buffers: Option<Buffers>) -> Producer {
        let next = ring.own_index();
        Producer {
            ring,
            next,
            limit: next,
            ahead: next,
            buffers,
        }
    }

    /// Whether there is an entry for one frame more than `pending`.
    ///
    /// # Errors
    /// If the peer's index is out of range.
    #[inline]
    pub(super) fn has_room(&mut self, pending: usize) -> Result<bool, IndexOutOfRange> {
        if usize::from(self.limit.wrapping_sub(self.next)) > pending {
            return Ok(true);
        }
        self.limit = self.ring.others_index().wrapping_add(self.ring.lead());
        let free = self.limit.wrapping_sub(self.next);
        match free <= self.ring.len() {
            true => Ok(usize::from(free) > pending),
            false => Err(IndexOutOfRange),
        }
    }

    /// Prefetches the lines of the next `count` entries. [`Producer::look_ahead`] prefetches those
    /// of their buffers.
    #[inline]
    pub(super) fn ask_ahead(&mut self, count: usize) {
        #[expect(clippy::cast_possible_truncation, reason = "at most a burst")]
        let count = (count as u16).min(self.limit.wrapping_sub(self.next));
        self.ring.prefetch(self.next, count, true);
        self.ahead = self.next.wrapping_add(count);
    }

    /// Prefetches the first lines of the buffers of the entries that [`Producer::ask_ahead`] was
    /// about, and what [`Producer::send`] needs of the ring.
    #[inline]
    pub(super) fn look_ahead(&self) {
        self.ring.prefetch_own_index();
        let mut number = self.next;
        while number != self.ahead {
            if let Some((_, room)) = self.room(number) {
                room.prefetch_for_write(AHEAD_LEN);
            }
            number = number.wrapping_add(1);
        }
    }

    /// Announces that frame number `pending`, counted from the next entry on, will have `len`
    /// bytes. Prefetches the parts of its entry and buffer that have not been prefetched.
    #[inline]
    pub(super) fn expect(&self, pending: usize, len: usize) {
        #[expect(clippy::cast_possible_truncation, reason = "at most a burst")]
        let number = self.next.wrapping_add(pending as u16);
        let is_ahead = self.ahead.wrapping_sub(number).cast_signed() > 0;
        if is_ahead && len <= AHEAD_LEN {
            return;
        }
        if !is_ahead {
            self.ring.prefetch(number, 1, true);
        }
        // If the buffers belong to the peer, their place is in an entry that has only just been
        // prefetched.
        let is_known = is_ahead || self.buffers.is_some();
        let room = is_known.then(|| self.room(number)).flatten();
        if let Some((_, room)) = room {
            room.prefetch_for_write(len);
        }
    }

    /// Copies frames to where the peer expects them, and publishes them with one store.
    #[inline]
    pub(super) fn send(&mut self, frames: &Frames) -> Given {
        let mut given = Given::default();
        let mut number = self.next;
        for frame in frames.iter() {
            match self.put(number, frame) {
                Some(end) => {
                    number = end;
                    given.sent += 1;
                }
                None => given.unfit += 1,
            }
        }
        if number != self.next {
            self.next = number;
            self.ring.publish(number);
        }
        given
    }

    /// Whether the peer wants an event for what it has been given.
    #[inline]
    pub(super) fn wants_event(&self) -> bool {
        self.ring.wants_event()
    }

    /// Copies a frame into the entries from `number` on, as many as it takes. Returns the next
    /// entry; `None` if there is no room.
    #[inline]
    fn put(&self, number: u16, frame: &[u8]) -> Option<u16> {
        if number == self.limit {
            return None;
        }
        let (region, room) = self.room(number)?;
        if frame.len() <= room.len() {
            room.copy_from(frame);
            self.write(number, false, region, frame.len());
            return Some(number.wrapping_add(1));
        }
        self.put_in_pieces(number, frame)
    }

    /// Like [`Producer::put`], into buffers that are shorter than the frame.
    #[cold]
    fn put_in_pieces(&self, mut number: u16, mut rest: &[u8]) -> Option<u16> {
        loop {
            if number == self.limit {
                return None;
            }
            let (region, room) = self.room(number)?;
            let (piece, others) = rest.split_at(rest.len().min(room.len()));
            if piece.is_empty() {
                return None;
            }
            room.copy_from(piece);
            self.write(number, !others.is_empty(), region, piece.len());
            number = number.wrapping_add(1);
            rest = others;
            if rest.is_empty() {
                return Some(number);
            }
        }
    }

    #[inline]
    fn write(&self, number: u16, goes_on: bool, region: u16, len: usize) {
        #[expect(clippy::cast_possible_truncation, reason = "no longer than its buffer")]
        let len = len as u32;
        self.ring.write(number, goes_on, region, len);
    }

    /// An entry's buffer and its region; `None` if the peer has named a place that does not exist.
    #[inline]
    fn room(&self, number: u16) -> Option<(u16, Span<'_>)> {
        let memory = self.ring.memory();
        if let Some(buffers) = self.buffers {
            let place = u32::from(number & (self.ring.len() - 1));
            let offset = buffers.start + place * buffers.stride;
            return Some((0, memory.span(0, offset, buffers.len)?));
        }
        let entry = self.ring.read(number);
        let room = memory.span(entry.region, entry.offset, entry.len)?;
        Some((entry.region, room))
    }
}
