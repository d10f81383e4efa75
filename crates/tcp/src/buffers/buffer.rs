//! What is known of one buffer, and its id.

use crate::seq::SeqNumber;
use crate::time::Instant;

/// Bits of an id that give the place among buffers of one size.
pub(super) const PLACE_BITS: u32 = 28;

/// The id of a buffer, or [`BufferId::NONE`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct BufferId(pub(super) u32);

impl BufferId {
    /// No buffer.
    pub(crate) const NONE: BufferId = BufferId(u32::MAX);

    /// Whether it is [`BufferId::NONE`].
    #[inline]
    pub(crate) const fn is_none(self) -> bool {
        self.0 == u32::MAX
    }

    #[inline]
    pub(super) const fn class(self) -> u32 {
        self.0 >> PLACE_BITS
    }

    #[inline]
    pub(super) const fn place(self) -> usize {
        (self.0 & ((1 << PLACE_BITS) - 1)) as usize
    }
}

/// What is marked on a buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Marks(u8);

impl Marks {
    /// It has been sent.
    pub(crate) const SENT: Marks = Marks(1);
    /// The peer has acknowledged it by SACK.
    pub(crate) const SACKED: Marks = Marks(2);
    /// It is thought lost and has not been sent again since.
    pub(crate) const LOST: Marks = Marks(4);
    /// It has been sent more than once.
    pub(crate) const RETRANSMITTED: Marks = Marks(8);
    /// A SYN comes before its first byte.
    pub(crate) const SYN: Marks = Marks(16);
    /// A FIN comes after its last byte.
    pub(crate) const FIN: Marks = Marks(32);

    /// Whether any of these is set.
    #[inline]
    pub(crate) const fn has(self, marks: Marks) -> bool {
        self.0 & marks.0 != 0
    }

    /// Sets these.
    #[inline]
    pub(crate) fn set(&mut self, marks: Marks) {
        self.0 |= marks.0;
    }

    /// Clears these.
    #[inline]
    pub(crate) fn clear(&mut self, marks: Marks) {
        self.0 &= !marks.0;
    }
}

/// What is known of a buffer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Buffer {
    /// The next in its list.
    pub(crate) next: BufferId,
    /// The sequence number of its first byte.
    pub(crate) seq: SeqNumber,
    /// When it was last sent.
    pub(crate) sent_at: Instant,
    /// Where its bytes begin in its memory.
    pub(super) start: u16,
    /// How many there are.
    pub(super) len: u16,
    pub(crate) marks: Marks,
}

impl Buffer {
    pub(super) const EMPTY: Buffer = Buffer {
        next: BufferId::NONE,
        seq: SeqNumber(0),
        sent_at: Instant::from_micros(0),
        start: 0,
        len: 0,
        marks: Marks(0),
    };

    /// Bytes that it holds.
    #[inline]
    pub(crate) fn len(&self) -> u32 {
        u32::from(self.len)
    }

    /// Sequence numbers that it takes: one for each byte, and one each for SYN and FIN.
    #[inline]
    pub(crate) fn seq_len(&self) -> u32 {
        self.len() + u32::from(self.marks.has(Marks::SYN)) + u32::from(self.marks.has(Marks::FIN))
    }

    /// The sequence number after its last.
    #[inline]
    pub(crate) fn end(&self) -> SeqNumber {
        self.seq + self.seq_len()
    }

    /// Whether it is in flight, as far as is known (RFC 6675, section 2, "pipe").
    #[inline]
    pub(crate) fn is_in_flight(&self) -> bool {
        self.marks.has(Marks::SENT)
            && !self.marks.has(Marks::SACKED)
            && !self.marks.has(Marks::LOST)
    }

    /// Removes bytes from its front.
    pub(crate) fn trim_front(&mut self, count: u32) {
        let count = u16::try_from(count).map_or(self.len, |count| count.min(self.len));
        self.seq += u32::from(count);
        self.start += count;
        self.len -= count;
    }

    /// Removes all but the first `len` bytes.
    pub(super) fn truncate(&mut self, len: u32) {
        self.len = u16::try_from(len).map_or(self.len, |len| len.min(self.len));
    }
}
