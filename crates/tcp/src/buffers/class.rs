//! Buffers of one size, in chunks that are never given back.

use super::CHUNK_LEN;
use super::buffer::{Buffer, BufferId, PLACE_BITS};

/// A buffer and its bytes. It begins on a cache line, which holds the [`Buffer`] and the first
/// bytes.
#[derive(Clone)]
#[repr(C, align(64))]
pub(super) struct Node<const LEN: usize> {
    pub(super) buffer: Buffer,
    pub(super) bytes: [u8; LEN],
}

/// How many buffers of `len` bytes a chunk holds: a power of two, so that finding one takes no
/// division, and no more than fit into [`CHUNK_LEN`], so that the budget is kept.
pub(super) const fn nodes(len: usize) -> usize {
    1 << (CHUNK_LEN / (size_of::<Buffer>() + len)).ilog2()
}

/// All buffers of `LEN` bytes, [`nodes`] of them in a chunk.
pub(super) struct Class<const LEN: usize, const NODES: usize> {
    chunks: Vec<Box<[Node<LEN>; NODES]>>,
    free: BufferId,
    free_count: usize,
}

impl<const LEN: usize, const NODES: usize> Class<LEN, NODES> {
    const FILLS_ITS_LINES: () = assert!(size_of::<Node<LEN>>() == size_of::<Buffer>() + LEN);
    const CHUNK_LEN: usize = NODES * size_of::<Node<LEN>>();
    const IS_NO_LONGER: () = assert!(Self::CHUNK_LEN <= CHUNK_LEN);

    /// Buffers in a chunk.
    pub(super) const NODES: usize = NODES;

    /// No buffers yet.
    pub(super) fn new() -> Self {
        let () = Self::FILLS_ITS_LINES;
        let () = Self::IS_NO_LONGER;
        Class {
            chunks: Vec::new(),
            free: BufferId::NONE,
            free_count: 0,
        }
    }

    /// Chunks taken from the system.
    pub(super) fn chunks(&self) -> usize {
        self.chunks.len()
    }

    /// Free buffers.
    pub(super) fn free_count(&self) -> usize {
        self.free_count
    }

    /// Bytes of the buffers in use.
    pub(super) fn memory_in_use(&self) -> usize {
        (self.chunks.len() * NODES - self.free_count) * size_of::<Node<LEN>>()
    }

    /// The node at a place.
    #[inline(always)]
    pub(super) fn node(&self, place: usize) -> &Node<LEN> {
        &self.chunks[place / NODES][place % NODES]
    }

    /// Like [`Class::node`], to change it.
    #[inline(always)]
    pub(super) fn node_mut(&mut self, place: usize) -> &mut Node<LEN> {
        &mut self.chunks[place / NODES][place % NODES]
    }

    /// Adds a chunk, if the budget allows it.
    #[cold]
    fn grow(&mut self, class: u32, budget: &mut usize) -> bool {
        let first = self.chunks.len() * NODES;
        if *budget < Self::CHUNK_LEN || first + NODES >= 1 << PLACE_BITS {
            return false;
        }
        *budget -= Self::CHUNK_LEN;
        let node = Node {
            buffer: Buffer::EMPTY,
            bytes: [0; LEN],
        };
        let chunk = vec![node; NODES].into_boxed_slice();
        self.chunks
            .push(chunk.try_into().unwrap_or_else(|_| unreachable!("as many")));
        for place in (first..first + NODES).rev() {
            let place = u32::try_from(place).expect("below 2^28");
            self.give(BufferId(class << PLACE_BITS | place));
        }
        true
    }

    /// An empty buffer, if one is free or the budget allows another chunk.
    #[inline]
    pub(super) fn take(&mut self, class: u32, budget: &mut usize) -> Option<BufferId> {
        if self.free.is_none() && !self.grow(class, budget) {
            return None;
        }
        let id = self.free;
        let buffer = &mut self.node_mut(id.place()).buffer;
        let next = buffer.next;
        *buffer = Buffer::EMPTY;
        self.free = next;
        self.free_count -= 1;
        Some(id)
    }

    /// Takes a buffer back, and returns the next one in its list.
    #[inline]
    pub(super) fn give(&mut self, id: BufferId) -> BufferId {
        let free = self.free;
        let next = std::mem::replace(&mut self.node_mut(id.place()).buffer.next, free);
        self.free = id;
        self.free_count += 1;
        next
    }
}
