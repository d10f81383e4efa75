//! Memory for what waits: bytes sent and not acknowledged, bytes received and not read.
//!
//! A [`Buffer`] holds a piece of a connection's stream of bytes, at most one segment's payload, with
//! what must be known of it. Buffers are of a few sizes, and chained into lists by their number.
//! Memory is taken from the system in chunks, up to a budget, and never given back: a buffer that
//! is freed is the next to be used.

use crate::seq::SeqNumber;
use crate::time::Instant;

/// Bytes of a chunk, about.
const CHUNK_LEN: usize = 64 << 10;

/// Bytes of the buffers' payloads. With what is known of them they take 128, 512, 2048 and 9216.
const LENS: [usize; 4] = [104, 488, 2024, 9192];

/// Bits of a number that tell the place among buffers of one size.
const PLACE_BITS: u32 = 28;

/// The number of a buffer, or of none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct BufferId(u32);

impl BufferId {
    /// No buffer.
    pub(crate) const NONE: BufferId = BufferId(u32::MAX);

    /// Whether it is that of no buffer.
    #[inline]
    pub(crate) const fn is_none(self) -> bool {
        self.0 == u32::MAX
    }

    #[inline]
    const fn class(self) -> u32 {
        self.0 >> PLACE_BITS
    }

    #[inline]
    const fn place(self) -> usize {
        (self.0 & ((1 << PLACE_BITS) - 1)) as usize
    }
}

/// What is marked on a buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Marks(u8);

impl Marks {
    /// It has been sent.
    pub(crate) const SENT: Marks = Marks(1);
    /// The peer has said that it has it, out of order.
    pub(crate) const SACKED: Marks = Marks(2);
    /// It is thought lost and has not been sent again since.
    pub(crate) const LOST: Marks = Marks(4);
    /// It has been sent more than once.
    pub(crate) const RETRANSMITTED: Marks = Marks(8);
    /// A SYN stands before its first byte.
    pub(crate) const SYN: Marks = Marks(16);
    /// A FIN stands behind its last byte.
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

    /// Takes these back.
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
    /// The number of its first byte.
    pub(crate) seq: SeqNumber,
    /// When it was sent last.
    pub(crate) sent_at: Instant,
    /// Where its bytes begin.
    start: u16,
    /// How many there are.
    len: u16,
    pub(crate) marks: Marks,
}

impl Buffer {
    const EMPTY: Buffer = Buffer {
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

    /// Numbers of the sequence that it takes: its bytes, and one each for SYN and FIN.
    #[inline]
    pub(crate) fn seq_len(&self) -> u32 {
        self.len() + u32::from(self.marks.has(Marks::SYN)) + u32::from(self.marks.has(Marks::FIN))
    }

    /// The number behind its last.
    #[inline]
    pub(crate) fn end(&self) -> SeqNumber {
        self.seq + self.seq_len()
    }

    /// Whether it is on its way, as far as is known (RFC 6675, section 2, "pipe").
    #[inline]
    pub(crate) fn is_in_flight(&self) -> bool {
        self.marks.has(Marks::SENT)
            && !self.marks.has(Marks::SACKED)
            && !self.marks.has(Marks::LOST)
    }

    /// Takes bytes away from its front.
    pub(crate) fn trim_front(&mut self, count: u32) {
        let count = u16::try_from(count).map_or(self.len, |count| count.min(self.len));
        self.seq += u32::from(count);
        self.start += count;
        self.len -= count;
    }

    /// Takes bytes away from its end.
    fn truncate(&mut self, len: u32) {
        self.len = u16::try_from(len).map_or(self.len, |len| len.min(self.len));
    }
}

/// Begins with a line of the cache, in which lie what is known and the first bytes.
#[derive(Clone)]
#[repr(C, align(64))]
struct Node<const LEN: usize> {
    buffer: Buffer,
    bytes: [u8; LEN],
}

/// All buffers of one size.
struct Class<const LEN: usize> {
    chunks: Vec<Box<[Node<LEN>]>>,
    free: BufferId,
    free_count: usize,
}

impl<const LEN: usize> Class<LEN> {
    const FILLS_ITS_LINES: () = assert!(size_of::<Node<LEN>>() == size_of::<Buffer>() + LEN);

    /// A power of two, so that finding a node takes no division.
    const NODES: usize = (CHUNK_LEN / size_of::<Node<LEN>>()).next_power_of_two();
    const CHUNK_LEN: usize = Class::<LEN>::NODES * size_of::<Node<LEN>>();

    fn new() -> Class<LEN> {
        Class {
            chunks: Vec::new(),
            free: BufferId::NONE,
            free_count: 0,
        }
    }

    #[inline(always)]
    fn node(&self, place: usize) -> &Node<LEN> {
        &self.chunks[place / Self::NODES][place % Self::NODES]
    }

    #[inline(always)]
    fn node_mut(&mut self, place: usize) -> &mut Node<LEN> {
        &mut self.chunks[place / Self::NODES][place % Self::NODES]
    }

    /// Adds a chunk, if the budget has it.
    #[cold]
    fn grow(&mut self, class: u32, budget: &mut usize) -> bool {
        let () = Self::FILLS_ITS_LINES;
        let first = self.chunks.len() * Self::NODES;
        if *budget < Self::CHUNK_LEN || first + Self::NODES >= 1 << PLACE_BITS {
            return false;
        }
        *budget -= Self::CHUNK_LEN;
        let node = Node {
            buffer: Buffer::EMPTY,
            bytes: [0; LEN],
        };
        self.chunks.push(vec![node; Self::NODES].into_boxed_slice());
        for place in (first..first + Self::NODES).rev() {
            let place = u32::try_from(place).expect("below 2^28");
            self.give(BufferId(class << PLACE_BITS | place));
        }
        true
    }

    #[inline]
    fn take(&mut self, class: u32, budget: &mut usize) -> Option<BufferId> {
        if self.free.is_none() && !self.grow(class, budget) {
            return None;
        }
        let id = self.free;
        let node = self.node_mut(id.place());
        let next = node.buffer.next;
        node.buffer = Buffer::EMPTY;
        self.free = next;
        self.free_count -= 1;
        Some(id)
    }

    #[inline]
    fn give(&mut self, id: BufferId) {
        let free = self.free;
        self.node_mut(id.place()).buffer.next = free;
        self.free = id;
        self.free_count += 1;
    }
}

/// All buffers of one stack.
pub(crate) struct Buffers {
    tiny: Class<{ LENS[0] }>,
    small: Class<{ LENS[1] }>,
    large: Class<{ LENS[2] }>,
    jumbo: Class<{ LENS[3] }>,
    /// Bytes that may still be taken from the system.
    budget: usize,
    /// Chunks that are kept for buffers of a piece's size: those that have become buffers of one
    /// size are not of use for another.
    piece_chunks_min: usize,
    /// Pieces that only what is received may use: who cannot receive does not hear that what it
    /// sent has arrived, and would never be able to again.
    receive_min: usize,
    /// Pieces for which memory is kept.
    reserved: usize,
    /// Buffers in use.
    in_use: usize,
}

/// Does the same with the class that a number belongs to.
macro_rules! of_class {
    ($self:ident, $id:expr, $class:ident => $does:expr) => {
        match $id.class() {
            0 => {
                let $class = &$self.tiny;
                $does
            }
            1 => {
                let $class = &$self.small;
                $does
            }
            2 => {
                let $class = &$self.large;
                $does
            }
            _ => {
                let $class = &$self.jumbo;
                $does
            }
        }
    };
    (mut $self:ident, $id:expr, $class:ident => $does:expr) => {
        match $id.class() {
            0 => {
                let $class = &mut $self.tiny;
                $does
            }
            1 => {
                let $class = &mut $self.small;
                $does
            }
            2 => {
                let $class = &mut $self.large;
                $does
            }
            _ => {
                let $class = &mut $self.jumbo;
                $does
            }
        }
    };
}

impl Buffers {
    /// Buffers of `budget` bytes in all at most, and of [`Buffers::BUDGET_MIN`] at least.
    pub(crate) fn new(budget: usize) -> Buffers {
        let budget = budget.max(Self::BUDGET_MIN);
        let chunks = budget / CHUNK_LEN;
        Buffers {
            tiny: Class::new(),
            small: Class::new(),
            large: Class::new(),
            jumbo: Class::new(),
            budget,
            piece_chunks_min: chunks / 2,
            receive_min: chunks * Class::<{ LENS[2] }>::NODES / 4,
            reserved: 0,
            in_use: 0,
        }
    }

    /// Buffers in use.
    pub(crate) fn in_use(&self) -> usize {
        self.in_use
    }

    /// With less there is not one chunk for each size.
    pub(crate) const BUDGET_MIN: usize = 8 * CHUNK_LEN;

    /// Bytes of a piece, of which [`Buffers::has_pieces`] tells how many can be stored.
    pub(crate) const PIECE_LEN: usize = LENS[2];

    /// Bytes that can be stored, about.
    pub(crate) fn room(&self) -> usize {
        self.pieces().saturating_sub(self.reserved) * (Self::PIECE_LEN / 2)
    }

    /// As [`Buffers::room`], of what is sent.
    pub(crate) fn room_to_send(&self) -> usize {
        let kept = self.reserved + self.receive_min;
        self.pieces().saturating_sub(kept) * (Self::PIECE_LEN / 2)
    }

    /// Whether so many pieces can be stored beside those for which there is a reserve.
    pub(crate) fn has_pieces(&self, count: usize) -> bool {
        self.pieces() >= self.reserved + count
    }

    /// Keeps memory for so many pieces, until [`Buffers::end_reserve`].
    pub(crate) fn reserve(&mut self, count: usize) {
        self.reserved += count;
    }

    /// All that was to be stored out of the reserve has been.
    pub(crate) fn end_reserve(&mut self) {
        self.reserved = 0;
    }

    /// Buffers of a piece's size that there are, or can be.
    fn pieces(&self) -> usize {
        self.large.free_count + self.budget / CHUNK_LEN * Class::<{ LENS[2] }>::NODES
    }

    /// A buffer with the first of `bytes` to be sent, as many as go into one and `max` at most;
    /// `None` where there is no memory beside what is kept for receiving.
    #[inline]
    pub(crate) fn store(&mut self, seq: SeqNumber, bytes: &[u8], max: usize) -> Option<BufferId> {
        let len = bytes.len().min(max);
        let id = self.take(len, self.reserved + self.receive_min)?;
        self.fill(id, seq, &bytes[..len]);
        Some(id)
    }

    /// As [`Buffers::store`], where a buffer of the smallest size lies ready and takes all.
    #[inline]
    pub(crate) fn store_tiny(&mut self, seq: SeqNumber, bytes: &[u8]) -> Option<BufferId> {
        if bytes.len() > LENS[0] {
            return None;
        }
        let id = self.tiny.take(0, &mut 0)?;
        self.in_use += 1;
        let node = self.tiny.node_mut(id.place());
        node.buffer.seq = seq;
        node.buffer.len = u16::try_from(bytes.len()).expect("below 104");
        node.bytes[..bytes.len()].copy_from_slice(bytes);
        Some(id)
    }

    /// As [`Buffers::store`], also of what is kept for receiving, beside the reserve.
    pub(crate) fn store_received(&mut self, seq: SeqNumber, bytes: &[u8]) -> Option<BufferId> {
        let id = self.take(bytes.len(), self.reserved)?;
        self.fill(id, seq, bytes);
        Some(id)
    }

    /// As [`Buffers::store`], out of the reserve.
    ///
    /// # Panics
    /// Where nothing was reserved and there is no memory.
    pub(crate) fn store_reserved(&mut self, seq: SeqNumber, bytes: &[u8]) -> BufferId {
        let id = self.take(bytes.len(), 0).expect("what was reserved");
        self.fill(id, seq, bytes);
        id
    }

    #[inline]
    fn fill(&mut self, id: BufferId, seq: SeqNumber, bytes: &[u8]) {
        let (buffer, room) = self.parts_mut(id);
        let len = bytes.len().min(room.len());
        room[..len].copy_from_slice(&bytes[..len]);
        buffer.seq = seq;
        buffer.len = u16::try_from(len).expect("below 9192");
    }

    /// A buffer for `len` bytes, or for less where there is none so long, that leaves so many
    /// pieces to be stored.
    #[inline]
    fn take(&mut self, len: usize, leaves: usize) -> Option<BufferId> {
        let fitting = LENS.iter().position(|&size| len <= size).unwrap_or(3);
        let taken = self.take_of(fitting, leaves);
        taken.or_else(|| self.take_other(fitting, leaves))
    }

    #[inline]
    fn take_of(&mut self, class: usize, leaves: usize) -> Option<BufferId> {
        let pieces = self.pieces();
        let chunks = self.large.chunks.len() + self.budget / CHUNK_LEN;
        let may_grow = class == 2
            || chunks > self.piece_chunks_min && pieces >= leaves + Class::<{ LENS[2] }>::NODES;
        // What is taken from the system is no room for pieces any more.
        let budget = match may_grow {
            true => &mut self.budget,
            false => &mut 0,
        };
        let taken = match class {
            0 => self.tiny.take(0, budget),
            1 => self.small.take(1, budget),
            2 if pieces <= leaves => None,
            2 => self.large.take(2, budget),
            _ => self.jumbo.take(3, budget),
        };
        self.in_use += usize::from(taken.is_some());
        taken
    }

    /// A buffer of another size, a larger one rather than a smaller.
    #[cold]
    fn take_other(&mut self, fitting: usize, leaves: usize) -> Option<BufferId> {
        let larger = fitting + 1..LENS.len();
        let smaller = (0..fitting).rev();
        larger
            .chain(smaller)
            .find_map(|class| self.take_of(class, leaves))
    }

    /// Appends the first of `bytes` to a buffer, as many as go into it and no more than `max` in
    /// all, and says how many.
    pub(crate) fn append(&mut self, id: BufferId, bytes: &[u8], max: usize) -> usize {
        let (buffer, room) = self.parts_mut(id);
        let len = usize::from(buffer.len);
        let end = usize::from(buffer.start) + len;
        let count = bytes
            .len()
            .min(room.len() - end)
            .min(max.saturating_sub(len));
        room[end..end + count].copy_from_slice(&bytes[..count]);
        buffer.len = u16::try_from(len + count).expect("below 9192");
        count
    }

    /// Cuts a buffer behind `len` bytes, and gives the last of those that follow it now: one, or
    /// several where there is none of the size. `None` where there is no memory; nothing has changed
    /// then.
    pub(crate) fn split(&mut self, id: BufferId, len: u32) -> Option<BufferId> {
        let mut bytes = [0; LENS[3]];
        let rest = &self.bytes(id)[len as usize..];
        let mut left = rest.len();
        bytes[..left].copy_from_slice(rest);
        let whole = self[id];
        // Not what opening connections and receiving needs, but more than sending something new may.
        let leaves = self.reserved + self.receive_min / 2;
        // From the end on, so that each knows the next.
        let (mut next, mut last) = (whole.next, None);
        while left > 0 {
            let Some(piece) = self.take(left, leaves) else {
                self.free_until(next, whole.next);
                return None;
            };
            let (buffer, room) = self.parts_mut(piece);
            let count = left.min(room.len());
            left -= count;
            room[..count].copy_from_slice(&bytes[left..left + count]);
            *buffer = Buffer {
                next,
                seq: whole.seq + len + u32::from(whole.marks.has(Marks::SYN)),
                start: 0,
                len: u16::try_from(count).expect("part of a length"),
                ..whole
            };
            buffer.seq += u32::try_from(left).expect("part of a length");
            buffer.marks.clear(Marks::SYN);
            if last.is_some() {
                buffer.marks.clear(Marks::FIN);
            }
            last.get_or_insert(piece);
            next = piece;
        }
        let front = &mut self[id];
        front.truncate(len);
        front.marks.clear(Marks::FIN);
        front.next = next;
        last
    }

    /// Frees a list up to a buffer that stays.
    fn free_until(&mut self, mut id: BufferId, stop: BufferId) {
        while id != stop {
            id = self.free(id);
        }
    }

    /// The bytes of a buffer.
    #[inline]
    pub(crate) fn bytes(&self, id: BufferId) -> &[u8] {
        of_class!(self, id, class => {
            let node = class.node(id.place());
            &node.bytes[usize::from(node.buffer.start)..][..usize::from(node.buffer.len)]
        })
    }

    /// Frees a buffer and gives the next in its list.
    #[inline]
    pub(crate) fn free(&mut self, id: BufferId) -> BufferId {
        let next = self[id].next;
        self.in_use -= 1;
        of_class!(mut self, id, class => class.give(id));
        next
    }

    /// Frees a whole list.
    pub(crate) fn free_all(&mut self, mut id: BufferId) {
        while !id.is_none() {
            id = self.free(id);
        }
    }

    #[inline]
    fn parts_mut(&mut self, id: BufferId) -> (&mut Buffer, &mut [u8]) {
        of_class!(mut self, id, class => {
            let node = class.node_mut(id.place());
            (&mut node.buffer, &mut node.bytes[..])
        })
    }
}

impl std::ops::Index<BufferId> for Buffers {
    type Output = Buffer;

    #[inline(always)]
    fn index(&self, id: BufferId) -> &Buffer {
        of_class!(self, id, class => &class.node(id.place()).buffer)
    }
}

impl std::ops::IndexMut<BufferId> for Buffers {
    #[inline(always)]
    fn index_mut(&mut self, id: BufferId) -> &mut Buffer {
        of_class!(mut self, id, class => &mut class.node_mut(id.place()).buffer)
    }
}

#[cfg(test)]
mod tests;
