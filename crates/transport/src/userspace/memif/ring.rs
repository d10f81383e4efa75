//! A ring of descriptors in shared memory.
//!
//! ```text
//! bytes 0        4       6      8        64     66      128        144        160
//!       │ cookie │ flags │ head │ …      │ tail │ …      │ entry 0  │ entry 1  │ …
//!
//! entry │ flags 2 │ region 2 │ length 4 │ offset 4 │ metadata 4 │
//! ```
//! Head and tail count entries without end, in 16 bits; the place of an entry is its number modulo
//! the ring's length. For both directions the client moves the head and the server the tail:
//!
//! ```text
//! to the server     tail ├─── frames ───┤ head ├─── free ─────┤ tail + length
//! to the client     tail ├─── empty ────┤ head ├─── frames ───┤ tail + length
//! ```
//! To the server: the client fills entries from the head on, and the server hands them back behind
//! the tail. To the client: the server fills empty entries from the tail on, and the client hands
//! entries back at the head. There, the head is a ring's length ahead of the next entry that the
//! client reads.
//!
//! # Concurrency
//! The other side is another process.
//! - A side stores its own index with Release. Otherwise the peer could see the index before the
//!   entry and its bytes, or overwrite what is still being copied.
//! - A side loads the other's index with Acquire. Otherwise it could read something before the
//!   index says that it is there, or write something before the index says that it is free.
//! - An entry is read once, into a [`Descriptor`], which is then checked: the peer may change the
//!   entry meanwhile.
#![expect(
    unsafe_code,
    reason = "entries and indices lie in memory that another process has too"
)]

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering, fence};

use coua_cpu::{prefetch, prefetch_for_write};

use super::Role;
use super::region::Memory;

/// The number that each ring begins with.
const COOKIE: u32 = 0x03e3_1f20;

/// The flag of a ring whose consumer wants no events.
const MASK_EVENTS: u16 = 1;

/// The flag of an entry whose frame continues in the next entry.
const GOES_ON: u16 = 1;

/// The binary logarithm of the entries of the longest ring.
pub(super) const LOG2_LEN_MAX: u8 = 14;

/// Entries in a line.
const ENTRIES_PER_LINE: u16 = 4;

#[repr(C, align(8))]
struct Words {
    cookie: AtomicU32,
    flags: AtomicU16,
    head: AtomicU16,
    _to_next_line: [u8; 56],
    tail: AtomicU16,
    _to_entries: [u8; 62],
}

#[repr(C)]
struct Entry {
    /// Flags, region and length.
    first: AtomicU64,
    /// Offset and metadata.
    second: AtomicU64,
}

/// An entry as it was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Descriptor {
    /// The frame continues in the next entry.
    pub(super) goes_on: bool,
    /// The region that the bytes are in.
    pub(super) region: u16,
    /// How many bytes there are, or there is room for.
    pub(super) len: u32,
    /// Where they begin.
    pub(super) offset: u32,
}

/// Bytes that a ring with so many entries takes.
pub(super) const fn bytes(len: usize) -> usize {
    size_of::<Words>() + len * size_of::<Entry>()
}

/// A ring, from the side of one role.
///
/// # Invariants
/// The pointers point into the memory; there are `mask + 1` entries.
pub(super) struct Ring {
    memory: Arc<Memory>,
    words: NonNull<Words>,
    entries: NonNull<Entry>,
    mask: u16,
    role: Role,
}

// SAFETY: it keeps its memory alive, and accesses it only by atomic operations.
unsafe impl Send for Ring {}

impl Ring {
    /// The ring at an offset in a region; `None` if it does not fit there or is too long.
    pub(super) fn new(
        memory: &Arc<Memory>,
        region: u16,
        offset: u32,
        log2_len: u8,
        role: Role,
    ) -> Option<Ring> {
        if log2_len > LOG2_LEN_MAX {
            return None;
        }
        let len = 1_u16 << log2_len;
        let region = memory.region(region)?;
        let offset = offset as usize;
        Some(Ring {
            words: region.at(offset, 1)?,
            entries: region.at(offset.checked_add(size_of::<Words>())?, usize::from(len))?,
            memory: Arc::clone(memory),
            mask: len - 1,
            role,
        })
    }

    /// Writes the beginning of a ring, without events.
    pub(super) fn initialise(&self) {
        let words = self.words();
        words.head.store(0, Ordering::Relaxed);
        words.tail.store(0, Ordering::Relaxed);
        words.flags.store(MASK_EVENTS, Ordering::Relaxed);
        words.cookie.store(COOKIE, Ordering::Release);
    }

    /// Whether it begins as a ring does.
    pub(super) fn is_one(&self) -> bool {
        self.words().cookie.load(Ordering::Acquire) == COOKIE
    }

    /// The memory of the ring and its frames.
    #[inline]
    pub(super) fn memory(&self) -> &Memory {
        &self.memory
    }

    /// The number of entries.
    #[inline]
    pub(super) fn len(&self) -> u16 {
        self.mask + 1
    }

    /// How many entries the client's index is ahead of the entry that it will read next.
    #[inline]
    pub(super) fn lead(&self) -> u16 {
        match self.role {
            Role::Client => self.len(),
            Role::Server => 0,
        }
    }

    /// The index of the other side.
    #[inline]
    pub(super) fn others_index(&self) -> u16 {
        self.others().load(Ordering::Acquire)
    }

    /// The index of this side, which only this side moves.
    #[inline]
    pub(super) fn own_index(&self) -> u16 {
        self.own().load(Ordering::Relaxed)
    }

    /// Moves this side's index, and so shows the peer what was done to the entries before it.
    #[inline]
    pub(super) fn publish(&self, index: u16) {
        self.own().store(index, Ordering::Release);
    }

    /// Prefetches the line of this side's index, to be written.
    #[inline]
    pub(super) fn prefetch_own_index(&self) {
        prefetch_for_write(self.own());
    }

    /// Prefetches the lines of `count` entries, beginning with number `first`.
    #[inline]
    pub(super) fn prefetch(&self, first: u16, count: u16, for_write: bool) {
        let mut at = first & !(ENTRIES_PER_LINE - 1);
        let end = first.wrapping_add(count);
        while end.wrapping_sub(at).cast_signed() > 0 {
            match for_write {
                true => prefetch_for_write(self.entry(at)),
                false => prefetch(self.entry(at)),
            }
            at = at.wrapping_add(ENTRIES_PER_LINE);
        }
    }

    /// Reads an entry, once.
    #[inline]
    pub(super) fn read(&self, number: u16) -> Descriptor {
        let entry = self.entry(number);
        let first = entry.first.load(Ordering::Relaxed).to_ne_bytes();
        let second = entry.second.load(Ordering::Relaxed).to_ne_bytes();
        let [f0, f1, r0, r1, l0, l1, l2, l3] = first;
        let [o0, o1, o2, o3, ..] = second;
        Descriptor {
            goes_on: u16::from_ne_bytes([f0, f1]) & GOES_ON != 0,
            region: u16::from_ne_bytes([r0, r1]),
            len: u32::from_ne_bytes([l0, l1, l2, l3]),
            offset: u32::from_ne_bytes([o0, o1, o2, o3]),
        }
    }

    /// Writes all of an entry but its offset.
    #[inline]
    pub(super) fn write(&self, number: u16, goes_on: bool, region: u16, len: u32) {
        let [f0, f1] = (u16::from(goes_on) * GOES_ON).to_ne_bytes();
        let [r0, r1] = region.to_ne_bytes();
        let [l0, l1, l2, l3] = len.to_ne_bytes();
        let first = u64::from_ne_bytes([f0, f1, r0, r1, l0, l1, l2, l3]);
        self.entry(number).first.store(first, Ordering::Relaxed);
    }

    /// Writes where an entry's bytes begin.
    pub(super) fn write_offset(&self, number: u16, offset: u32) {
        let [o0, o1, o2, o3] = offset.to_ne_bytes();
        let second = u64::from_ne_bytes([o0, o1, o2, o3, 0, 0, 0, 0]);
        self.entry(number).second.store(second, Ordering::Relaxed);
    }

    /// Whether the consumer wants an event, as far as the producer can see.
    ///
    /// There is no fence between publishing the index and this load: it would wait until all lines
    /// of the burst have come over from the other core. So the flag may be older than the
    /// consumer's last look at the ring; [`super::nic`] says what makes up for that. The flag's
    /// line also holds the index by which the consumer hands entries back, so this load waits for
    /// that line.
    #[inline]
    pub(super) fn wants_event(&self) -> bool {
        std::sync::atomic::compiler_fence(Ordering::SeqCst);
        self.words().flags.load(Ordering::Relaxed) & MASK_EVENTS == 0
    }

    /// For the consumer: asks for events, or for none. Whatever was produced before it asked is
    /// seen by reading the index afterwards.
    pub(super) fn ask_for_events(&self, wanted: bool) {
        let flags = if wanted { 0 } else { MASK_EVENTS };
        self.words().flags.store(flags, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    fn own(&self) -> &AtomicU16 {
        let words = self.words();
        match self.role {
            Role::Client => &words.head,
            Role::Server => &words.tail,
        }
    }

    fn others(&self) -> &AtomicU16 {
        let words = self.words();
        match self.role {
            Role::Client => &words.tail,
            Role::Server => &words.head,
        }
    }

    #[inline]
    fn words(&self) -> &Words {
        // SAFETY: it is in the memory, which is kept alive, and is aligned; it is accessed only by
        // atomic operations.
        unsafe { self.words.as_ref() }
    }

    #[inline]
    fn entry(&self, number: u16) -> &Entry {
        // SAFETY: the masked number is below the number of entries.
        let entry = unsafe { self.entries.add(usize::from(number & self.mask)) };
        // SAFETY: as in `words`.
        unsafe { entry.as_ref() }
    }
}
