//! Memory for bytes that wait: to be acknowledged, or to be read.
//!
//! A [`Buffer`] describes a piece of a connection's byte stream, at most one segment's payload, and
//! is stored before its bytes. Buffers have a few fixed sizes and are linked into lists by their
//! ids. Memory is taken from the system in chunks, up to a budget, and never given back: a buffer
//! that is freed is the next to be reused.

mod buffer;
mod class;

use coua_cpu::copy_short;

use crate::seq::SeqNumber;

pub(crate) use buffer::{Buffer, BufferId, Marks};
use class::{Class, nodes};

/// The most bytes of a chunk. A chunk of pieces takes exactly this many.
const CHUNK_LEN: usize = 64 << 10;

/// Bytes of payload in a buffer of each size. With the [`Buffer`] itself they take 128, 512, 2048
/// and 9216 bytes.
const LENS: [usize; 4] = [104, 488, 2024, 9192];

/// The class of a piece's size.
const PIECE: usize = 2;

type Tiny = Class<{ LENS[0] }, { nodes(LENS[0]) }>;
type Small = Class<{ LENS[1] }, { nodes(LENS[1]) }>;
type Large = Class<{ LENS[2] }, { nodes(LENS[2]) }>;
type Jumbo = Class<{ LENS[3] }, { nodes(LENS[3]) }>;

/// All buffers of one stack.
pub(crate) struct Buffers {
    tiny: Tiny,
    small: Small,
    large: Large,
    jumbo: Jumbo,
    /// Bytes that may still be taken from the system.
    budget: usize,
    /// Chunks that are kept for pieces: a chunk that has been divided into buffers of one size
    /// cannot be used for another.
    piece_chunks_min: usize,
    /// Pieces that are kept for receiving: a connection that cannot receive gets no
    /// acknowledgments, so it could never free what it has sent.
    receive_min: usize,
    /// Pieces that are reserved at the moment: see [`Buffers::reserve`].
    reserved: usize,
    /// Buffers in use.
    in_use: usize,
}

/// Evaluates an expression with the class that an id belongs to.
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
    /// Buffers of at most `budget` bytes in all, or [`Buffers::BUDGET_MIN`] if that is more.
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
            receive_min: chunks * Large::NODES / 4,
            reserved: 0,
            in_use: 0,
        }
    }

    /// Buffers in use.
    pub(crate) fn in_use(&self) -> usize {
        self.in_use
    }

    /// Bytes of memory of the buffers in use.
    pub(crate) fn memory_in_use(&self) -> usize {
        self.tiny.memory_in_use()
            + self.small.memory_in_use()
            + self.large.memory_in_use()
            + self.jumbo.memory_in_use()
    }

    /// The smallest budget: with less there might not be a chunk for each size.
    pub(crate) const BUDGET_MIN: usize = 8 * CHUNK_LEN;

    /// Bytes of payload in a piece, the unit of [`Buffers::has_pieces`].
    pub(crate) const PIECE_LEN: usize = LENS[PIECE];

    /// Roughly how many bytes can be stored.
    pub(crate) fn room(&self) -> usize {
        self.pieces().saturating_sub(self.reserved) * (Self::PIECE_LEN / 2)
    }

    /// Like [`Buffers::room`], for what is sent.
    pub(crate) fn room_to_send(&self) -> usize {
        let kept = self.reserved + self.receive_min;
        self.pieces().saturating_sub(kept) * (Self::PIECE_LEN / 2)
    }

    /// [`Buffers::room_to_send`] while nothing is stored.
    pub(crate) fn room_to_send_max(&self) -> usize {
        // A quarter is kept for receiving.
        3 * self.receive_min * (Self::PIECE_LEN / 2)
    }

    /// A quarter: with less [`Buffers::room_to_send`] than this, memory may soon be short.
    pub(crate) fn tight_room(&self) -> usize {
        self.room_to_send_max() / 4
    }

    /// An eighth: with less [`Buffers::room_to_send`] than this, only connections that hold nothing
    /// get some.
    pub(crate) fn room_for_first(&self) -> usize {
        self.room_to_send_max() / 8
    }

    /// Bytes of memory that a buffer takes, however many it holds.
    pub(crate) fn size_of(id: BufferId) -> usize {
        LENS[id.class() as usize] + size_of::<Buffer>()
    }

    /// Whether `count` pieces can be stored in addition to the reserved ones.
    pub(crate) fn has_pieces(&self, count: usize) -> bool {
        self.pieces() >= self.reserved + count
    }

    /// Reserves memory for `count` pieces, until [`Buffers::end_reserve`].
    pub(crate) fn reserve(&mut self, count: usize) {
        self.reserved += count;
    }

    /// Ends all reservations: what was to be stored from them has been stored.
    pub(crate) fn end_reserve(&mut self) {
        self.reserved = 0;
    }

    /// Free pieces, including those for which the budget still has chunks.
    fn pieces(&self) -> usize {
        self.large.free_count() + self.budget / CHUNK_LEN * Large::NODES
    }

    /// A buffer with the first of `bytes` to be sent, as many as fit and at most `max`; `None` if
    /// there is no memory beyond what is kept for receiving.
    #[inline]
    pub(crate) fn store(&mut self, seq: SeqNumber, bytes: &[u8], max: usize) -> Option<BufferId> {
        let len = bytes.len().min(max);
        let id = self.take(len, self.reserved + self.receive_min)?;
        self.fill(id, seq, &bytes[..len]);
        Some(id)
    }

    /// Like [`Buffers::store`], but only if all bytes fit into a buffer of the smallest size and
    /// one is free.
    #[inline]
    pub(crate) fn store_tiny(
        &mut self,
        seq: SeqNumber,
        bytes: &[u8],
    ) -> Option<(BufferId, &mut Buffer)> {
        if bytes.len() > LENS[0] {
            return None;
        }
        let id = self.tiny.take(0, &mut 0)?;
        self.in_use += 1;
        let node = self.tiny.node_mut(id.place());
        node.buffer.seq = seq;
        node.buffer.len = u16::try_from(bytes.len()).expect("below 104");
        copy_short(&mut node.bytes[..bytes.len()], bytes);
        Some((id, &mut node.buffer))
    }

    /// Like [`Buffers::store`], but it may also use what is kept for receiving, except the reserve.
    pub(crate) fn store_received(&mut self, seq: SeqNumber, bytes: &[u8]) -> Option<BufferId> {
        let id = self.take(bytes.len(), self.reserved)?;
        self.fill(id, seq, bytes);
        Some(id)
    }

    /// Like [`Buffers::store`], but it may use half of what is kept for receiving: bytes beyond
    /// gaps must leave room for the bytes that close the gaps.
    pub(crate) fn store_beyond_gap(&mut self, seq: SeqNumber, bytes: &[u8]) -> Option<BufferId> {
        let id = self.take(bytes.len(), self.reserved + self.receive_min / 2)?;
        self.fill(id, seq, bytes);
        Some(id)
    }

    /// Like [`Buffers::store`], from the reserve.
    ///
    /// # Panics
    /// If nothing was reserved and there is no memory.
    pub(crate) fn store_reserved(&mut self, seq: SeqNumber, bytes: &[u8]) -> BufferId {
        // A buffer of another size may take a whole chunk, which may be reserved for others; a
        // piece is part of the reserve.
        let taken = self.take(bytes.len(), self.reserved);
        let id = taken.or_else(|| self.take_of(PIECE, 0));
        let id = id.expect("what was reserved");
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

    /// A buffer for `len` bytes, or a shorter one if there is none that long. At least `leaves`
    /// pieces remain.
    #[inline]
    fn take(&mut self, len: usize, leaves: usize) -> Option<BufferId> {
        let fitting = LENS.iter().position(|&size| len <= size).unwrap_or(3);
        let taken = self.take_of(fitting, leaves);
        taken.or_else(|| self.take_other(fitting, leaves))
    }

    #[inline]
    fn take_of(&mut self, class: usize, leaves: usize) -> Option<BufferId> {
        let pieces = self.pieces();
        let chunks = self.large.chunks() + self.budget / CHUNK_LEN;
        // What is kept for receiving stays in pieces: buffers of other sizes may be used for
        // anything.
        let kept = leaves.max(self.reserved + self.receive_min);
        let may_grow =
            class == PIECE || chunks > self.piece_chunks_min && pieces >= kept + Large::NODES;
        // Without a budget, only a free buffer is taken and no chunk is added.
        let budget = match may_grow {
            true => &mut self.budget,
            false => &mut 0,
        };
        let taken = match class {
            0 => self.tiny.take(0, budget),
            1 => self.small.take(1, budget),
            PIECE if pieces <= leaves => None,
            PIECE => self.large.take(2, budget),
            _ => self.jumbo.take(3, budget),
        };
        self.in_use += usize::from(taken.is_some());
        taken
    }

    /// A buffer of another size, preferably a larger one.
    #[cold]
    fn take_other(&mut self, fitting: usize, leaves: usize) -> Option<BufferId> {
        let larger = fitting + 1..LENS.len();
        let smaller = (0..fitting).rev();
        larger
            .chain(smaller)
            .find_map(|class| self.take_of(class, leaves))
    }

    /// Appends the first of `bytes` to a buffer, as many as fit while it holds no more than `max`
    /// in all, and returns how many.
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

    /// Appends the bytes of a buffer to another, if they are few and the other has room for all of
    /// them. False if not; nothing has changed then.
    pub(crate) fn merge(&mut self, into: BufferId, from: BufferId) -> bool {
        let bytes = self.bytes(from);
        let (mut copy, len) = ([0; LENS[1]], bytes.len());
        if len > copy.len() {
            return false;
        }
        copy[..len].copy_from_slice(bytes);
        let (buffer, room) = self.parts_mut(into);
        let end = usize::from(buffer.start) + usize::from(buffer.len);
        let fits = len <= room.len() - end;
        fits && self.append(into, &copy[..len], usize::MAX) == len
    }

    /// Cuts a buffer after `len` bytes. The rest goes into one new buffer, or into several if there
    /// is none large enough; the last of them is returned. `None` if there is no memory; nothing
    /// has changed then.
    pub(crate) fn split(&mut self, id: BufferId, len: u32) -> Option<BufferId> {
        let mut bytes = [0; LENS[3]];
        let rest = &self.bytes(id)[len as usize..];
        let mut left = rest.len();
        bytes[..left].copy_from_slice(rest);
        let whole = self[id];
        // This may use part of what is kept for receiving, which sending new bytes may not.
        let leaves = self.reserved + self.receive_min / 2;
        // From the end backwards, so that each buffer can refer to the next.
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

    /// Frees a list up to the buffer `stop`, which stays.
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

    /// Frees a buffer and returns the next in its list.
    #[inline]
    pub(crate) fn free(&mut self, id: BufferId) -> BufferId {
        self.in_use -= 1;
        of_class!(mut self, id, class => class.give(id))
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
