//! Memory of the driver's own that a device reads and writes at any time: rings, lists of pages, answers.
//!
//! A device is like another thread that nothing synchronizes with, so every word of it is atomic.
#![expect(unsafe_code, reason = "a device shares the memory")]

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::Buffer;

/// Memory that is shared with a device.
pub(super) struct DmaMemory {
    words: NonNull<AtomicU64>,
    len: usize,
    address: u64,
    /// What the words are in.
    _buffer: Buffer,
}

// SAFETY: it is made of atomic words.
unsafe impl Send for DmaMemory {}
// SAFETY: as above.
unsafe impl Sync for DmaMemory {}

impl DmaMemory {
    /// The words of a buffer that the device knows by `address`.
    pub(super) fn of(buffer: Buffer, address: u64) -> DmaMemory {
        let words = buffer.base().cast::<AtomicU64>();
        assert!(words.is_aligned(), "a buffer of whole words");
        DmaMemory {
            words,
            len: buffer.len() / 8,
            address,
            _buffer: buffer,
        }
    }

    /// Zeros, for tests, known by any address.
    #[cfg(test)]
    pub(super) fn allocate(len: usize, address: u64) -> DmaMemory {
        DmaMemory::of(crate::Region::allocate(len), address)
    }

    /// What the device calls a word.
    pub(super) fn address_of(&self, word: usize) -> u64 {
        assert!(word < self.len, "outside of shared memory");
        self.address + word as u64 * 8
    }

    /// Reads a word. What the device wrote before it is read by later loads.
    #[inline]
    pub(super) fn load(&self, word: usize) -> u64 {
        u64::from_le(self.word(word).load(Ordering::Acquire))
    }

    /// Writes a word. A doorbell that is rung after it tells the device.
    #[inline]
    pub(super) fn store(&self, word: usize, value: u64) {
        self.word(word).store(value.to_le(), Ordering::Release);
    }

    #[inline]
    fn word(&self, word: usize) -> &AtomicU64 {
        assert!(word < self.len, "outside of shared memory");
        // SAFETY: inside the buffer.
        let at = unsafe { self.words.add(word) };
        // SAFETY: aligned and initialized; nobody looks at the buffer but through these words.
        unsafe { at.as_ref() }
    }
}
