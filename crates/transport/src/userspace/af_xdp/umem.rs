//! The memory that a socket shares with its card's queue, cut into chunks for one frame each.
//!
//! ```text
//! received  ├─ 256 bytes that the driver keeps ─┼─ frame ─────────────┼─ unused ─┤
//! to send   ├─ frame ─────────────────────────────────────────────────┼─ unused ─┤
//!           └──────────────────── 2048 or 4096 bytes ────────────────────────────┘
//! ```
//!
//! # Invariants
//! A [`Chunk`] is the exclusive right to one chunk. There is none while the kernel has the chunk in
//! a ring or in the card. So whoever has a `Chunk` may read and write its bytes.
#![expect(
    unsafe_code,
    reason = "views of memory that the kernel and the card write"
)]

use std::io;
use std::ops::Range;
use std::ptr::NonNull;

use rustix::net::xdp::{XdpUmemReg, XdpUmemRegFlags};

use super::mmap::Mapping;

/// Bytes at the start of each received chunk that the driver keeps for itself: the kernel's
/// `XDP_PACKET_HEADROOM`.
const DRIVER_LEN: usize = 256;

/// The sizes that a chunk may have.
const CHUNK_LENS: [usize; 2] = [2048, 4096];

/// Ethernet header and two VLAN tags.
const LINK_LEN: usize = 22;

/// The longest IP packet that can be received into a chunk of the largest size, in bytes.
pub(super) const MTU_MAX: usize = CHUNK_LENS[1] - DRIVER_LEN - LINK_LEN;

/// The size of the chunks for an interface of this MTU; `None` where it is above [`MTU_MAX`].
pub(super) fn chunk_len(mtu: usize) -> Option<usize> {
    CHUNK_LENS
        .into_iter()
        .find(|len| mtu + LINK_LEN + DRIVER_LEN <= *len)
}

/// Where the memory comes from.
enum Memory {
    Mapped(Mapping),
    /// Lent for good by the caller.
    Lent(NonNull<u8>, usize),
}

// SAFETY: a lent range came as an exclusive borrow for ever; a mapped one is `Send` itself.
unsafe impl Send for Memory {}

/// The exclusive right to one chunk.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Chunk(u32);

/// Memory that is cut into chunks.
pub(super) struct Umem {
    memory: Memory,
    chunk_len: usize,
    chunks: u32,
}

impl Umem {
    /// Maps memory for `chunks` chunks of `chunk_len` bytes, and returns the rights to them.
    pub(super) fn map(
        chunks: u32,
        chunk_len: usize,
        reserved_pages: bool,
    ) -> io::Result<(Umem, impl Iterator<Item = Chunk>)> {
        let mapping = Mapping::of_frames(chunks as usize * chunk_len, reserved_pages)?;
        Ok(Umem::new(Memory::Mapped(mapping), chunks, chunk_len))
    }

    /// Like [`Umem::map`], in memory that the caller supplies. All of it must be backed by pages.
    ///
    /// # Panics
    /// If it is too short or does not begin at a page boundary.
    pub(super) fn lend(
        memory: &'static mut [u8],
        chunks: u32,
        chunk_len: usize,
    ) -> (Umem, impl Iterator<Item = Chunk>) {
        let base = NonNull::from(&mut *memory).cast::<u8>();
        assert!(
            base.addr().get().is_multiple_of(4096),
            "it begins with a page"
        );
        Umem::new(Memory::Lent(base, memory.len()), chunks, chunk_len)
    }

    fn new(
        memory: Memory,
        chunks: u32,
        chunk_len: usize,
    ) -> (Umem, impl Iterator<Item = Chunk> + use<>) {
        let umem = Umem {
            memory,
            chunk_len,
            chunks,
        };
        let (_, len) = umem.range();
        assert!(chunks as usize * chunk_len <= len, "the chunks fit");
        (umem, (0..chunks).map(Chunk))
    }

    fn range(&self) -> (NonNull<u8>, usize) {
        match &self.memory {
            Memory::Mapped(mapping) => (mapping.base(), mapping.len()),
            Memory::Lent(base, len) => (*base, *len),
        }
    }

    /// How the kernel is told about the memory.
    pub(super) fn registration(&self) -> XdpUmemReg {
        let (base, _) = self.range();
        XdpUmemReg {
            addr: base.as_ptr().expose_provenance() as u64,
            len: self.len() as u64,
            chunk_size: u32::try_from(self.chunk_len).expect("a chunk is short"),
            headroom: 0,
            flags: XdpUmemRegFlags::empty(),
            tx_metadata_len: 0,
        }
    }

    /// Bytes of all chunks.
    pub(super) fn len(&self) -> usize {
        self.chunks as usize * self.chunk_len
    }

    /// Where a chunk begins, as the rings say it.
    #[inline]
    pub(super) fn address(&self, chunk: &Chunk) -> u64 {
        u64::from(chunk.0) * self.chunk_len as u64
    }

    /// The right to the chunk that contains `address`, and the offset of `address` in it.
    ///
    /// # Safety
    /// The kernel has just given the chunk back in a ring, so no other right to it exists.
    ///
    /// # Panics
    /// If it is in none of the chunks.
    #[inline]
    pub(super) unsafe fn claim(&self, address: u64) -> (Chunk, usize) {
        let chunk_len = self.chunk_len as u64;
        let chunk = u32::try_from(address / chunk_len).unwrap_or(u32::MAX);
        assert!(
            chunk < self.chunks,
            "the kernel gives back what it was given"
        );
        let offset = usize::try_from(address % chunk_len).expect("a chunk is short");
        (Chunk(chunk), offset)
    }

    /// A range of a chunk's bytes.
    ///
    /// # Panics
    /// If the range is not inside the chunk.
    #[inline]
    pub(super) fn bytes(&self, chunk: &Chunk, range: Range<usize>) -> &[u8] {
        let from = self.start(chunk);
        // SAFETY: the whole chunk is in the memory and is initialised. The caller holds the only
        // right to it, and keeps it for as long as it looks.
        let bytes = unsafe { std::slice::from_raw_parts(from.as_ptr(), self.chunk_len) };
        &bytes[range]
    }

    /// All bytes of a chunk.
    #[inline]
    pub(super) fn bytes_mut(&mut self, chunk: &Chunk) -> &mut [u8] {
        let from = self.start(chunk);
        // SAFETY: as in `bytes`; no other view is alive, since the memory is borrowed as a whole.
        unsafe { std::slice::from_raw_parts_mut(from.as_ptr(), self.chunk_len) }
    }

    #[inline]
    fn start(&self, chunk: &Chunk) -> NonNull<u8> {
        assert!(chunk.0 < self.chunks, "a chunk of this memory");
        let (base, _) = self.range();
        // SAFETY: all chunks are inside the memory.
        unsafe { base.add(chunk.0 as usize * self.chunk_len) }
    }
}
