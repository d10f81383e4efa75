//! Memory that two processes share: mapped in pieces called regions, and copied from and to.
//!
//! # Concurrency
//! The peer may write anywhere at any time, whatever the rings say. So there is no Rust reference
//! to the bytes. They are copied to and from private memory through raw pointers, and only the copy
//! is examined. If the peer writes during a copy, the copy has some old and some new bytes, which a
//! peer could also send on purpose. The fence after each copy keeps the compiler from reading the
//! shared bytes again instead of the copy. Numbers that both sides change in turn are atomics: see
//! [`super::ring`].
#![expect(
    unsafe_code,
    reason = "maps memory that another process has too, and copies from and to it"
)]

use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{Ordering, compiler_fence};

use coua_cpu::{prefetch_at, prefetch_write_at};
use rustix::fs::{
    MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate, memfd_create,
};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// Bytes of a cache line.
pub(super) const LINE_LEN: usize = 64;

/// The most regions of a connection.
pub(super) const REGIONS_MAX: usize = 16;

/// The most bytes of all regions of a connection.
pub(super) const MEMORY_MAX: u64 = 1 << 30;

/// The most lines of one frame that are prefetched; the processor's own prefetching fetches the
/// rest.
const LINES_AHEAD_MAX: usize = 8;

/// Up to this many bytes are copied line by line; more by the platform's copy.
const SHORT_LEN: usize = 1024;

/// Why a peer's memory is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RegionError {
    /// Its file could be shortened, and an access beyond the new end would kill this process.
    CanShrink,
    /// The file is shorter than the peer says.
    TooShort,
    /// It is more than a connection may have.
    TooMuch,
    /// The kernel does not map it.
    CannotMap,
}

impl RegionError {
    /// The reason, for a message to the peer.
    pub(super) fn reason(self) -> &'static str {
        match self {
            RegionError::CanShrink => {
                "memory of a region that can shrink: no F_SEAL_SHRINK on its memfd"
            }
            RegionError::TooShort => "memory that is shorter than its region",
            RegionError::TooMuch => "too much memory",
            RegionError::CannotMap => "memory of a region that cannot be mapped",
        }
    }
}

/// Memory of one file that both processes have mapped and that cannot shrink.
pub(super) struct Region {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: the range belongs to the region until it is dropped; its bytes are copied or are atomics.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    /// Zeroed memory of this side, with the descriptor for the peer.
    ///
    /// # Errors
    /// If the system has no memory or no descriptor left.
    pub(super) fn create(len: usize) -> io::Result<(Region, OwnedFd)> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = memfd_create("coua-memif", flags)?;
        ftruncate(&file, len as u64)?;
        fcntl_add_seals(&file, SealFlags::SHRINK)?;
        // All pages exist before the first frame.
        let region = Region::map(&file, len, MapFlags::SHARED | MapFlags::POPULATE)?;
        Ok((region, file))
    }

    /// Memory of the peer.
    ///
    /// # Errors
    /// If it is not safe to map it, or if it is longer than `len_max`.
    pub(super) fn of_peer(file: impl AsFd, len: u64, len_max: u64) -> Result<Region, RegionError> {
        if len == 0 || len > len_max {
            return Err(RegionError::TooMuch);
        }
        let seals = fcntl_get_seals(&file).unwrap_or(SealFlags::empty());
        if !seals.contains(SealFlags::SHRINK) {
            return Err(RegionError::CanShrink);
        }
        // After the seal has been checked, so the length cannot change.
        let file_len = fstat(&file).map_or(0, |status| status.st_size);
        if u64::try_from(file_len).unwrap_or(0) < len {
            return Err(RegionError::TooShort);
        }
        let len = usize::try_from(len).map_err(|_| RegionError::TooMuch)?;
        Region::map(file, len, MapFlags::SHARED).map_err(|_| RegionError::CannotMap)
    }

    fn map(file: impl AsFd, len: usize, flags: MapFlags) -> io::Result<Region> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a mapping where the kernel finds room affects nothing that exists.
        let base = unsafe { mmap(std::ptr::null_mut(), len, protection, flags, file, 0) }?;
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Region { base, len })
    }

    /// A pointer to `count` values of `T`, `offset` bytes from the beginning; `None` if they are
    /// not inside or not aligned.
    pub(super) fn at<T>(&self, offset: usize, count: usize) -> Option<NonNull<T>> {
        let end = size_of::<T>().checked_mul(count)?.checked_add(offset)?;
        if end > self.len {
            return None;
        }
        // SAFETY: `offset` is inside the mapping.
        let at = unsafe { self.base.add(offset) }.cast::<T>();
        at.is_aligned().then_some(at)
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: whatever points into the range keeps the region alive.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.len) };
    }
}

/// All regions of a connection.
pub(super) struct Memory {
    regions: Box<[Region]>,
}

impl Memory {
    /// Memory of these regions, which are numbered from 0.
    pub(super) fn new(regions: Vec<Region>) -> Memory {
        Memory {
            regions: regions.into_boxed_slice(),
        }
    }

    /// A region.
    pub(super) fn region(&self, number: u16) -> Option<&Region> {
        self.regions.get(usize::from(number))
    }

    /// A range of a region's bytes; `None` if the region does not have them.
    #[inline]
    pub(super) fn span(&self, region: u16, offset: u32, len: u32) -> Option<Span<'_>> {
        let region = self.region(region)?;
        let (offset, len) = (offset as usize, len as usize);
        if offset.checked_add(len)? > region.len {
            return None;
        }
        // SAFETY: `offset` is inside the mapping, or at its end.
        let from = unsafe { region.base.add(offset) };
        Some(Span {
            from,
            len,
            memory: PhantomData,
        })
    }
}

/// Bytes that the peer may be writing to.
#[derive(Clone, Copy)]
pub(super) struct Span<'m> {
    from: NonNull<u8>,
    len: usize,
    memory: PhantomData<&'m Memory>,
}

impl Span<'_> {
    /// The number of bytes.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Copies all of the bytes to the beginning of `to`.
    ///
    /// # Panics
    /// If `to` is shorter.
    #[inline]
    pub(super) fn copy_to(&self, to: &mut [u8]) {
        let to = &mut to[..self.len];
        // SAFETY: both have so many bytes; one is private memory and the other is not.
        unsafe { copy(self.from.as_ptr(), to.as_mut_ptr(), self.len) };
        compiler_fence(Ordering::SeqCst);
    }

    /// Copies `from` to the beginning of the bytes.
    ///
    /// # Panics
    /// If `from` is longer.
    #[inline]
    pub(super) fn copy_from(&self, from: &[u8]) {
        assert!(from.len() <= self.len, "it fits");
        // SAFETY: as in `copy_to`.
        unsafe { copy(from.as_ptr(), self.from.as_ptr(), from.len()) };
        compiler_fence(Ordering::SeqCst);
    }

    /// Prefetches the first `len` bytes, to be read.
    #[inline]
    pub(super) fn prefetch(&self, len: usize) {
        self.each_line(len, prefetch_at);
    }

    /// Prefetches the first `len` bytes, to be written.
    #[inline]
    pub(super) fn prefetch_for_write(&self, len: usize) {
        self.each_line(len, prefetch_write_at);
    }

    #[inline]
    fn each_line(&self, len: usize, ask: impl Fn(*const u8)) {
        let start = self.from.as_ptr().cast_const();
        let lines = len.min(self.len).div_ceil(LINE_LEN).min(LINES_AHEAD_MAX);
        for line in 0..lines {
            ask(start.wrapping_add(line * LINE_LEN));
        }
    }
}

/// Copies exactly `len` bytes. A short frame is copied in whole lines, the last of which overlaps
/// the one before. So loads of several lines are under way at once, and no function is called.
///
/// # Safety
/// Both have so many bytes, and they do not overlap.
#[inline]
unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
    match len {
        // SAFETY: the caller vouches for it, here and below.
        LINE_LEN..=SHORT_LEN => unsafe { copy_by::<[u64; 8]>(from, to, len) },
        // SAFETY: as above.
        16..LINE_LEN => unsafe { copy_by::<[u64; 2]>(from, to, len) },
        // SAFETY: as above.
        _ => unsafe { std::ptr::copy_nonoverlapping(from, to, len) },
    }
}

/// As [`copy`], in pieces of the size of `T`, which is not more than `len`.
#[inline(always)]
#[expect(
    clippy::multiple_unsafe_ops_per_block,
    reason = "a load and its store, both in bounds for the same reason"
)]
unsafe fn copy_by<T: Copy>(from: *const u8, to: *mut u8, len: usize) {
    let last = len - size_of::<T>();
    let mut at = 0;
    while at < last {
        // SAFETY: a `T` from `at` on ends at `len` at the latest.
        unsafe {
            let piece = from.add(at).cast::<T>().read_unaligned();
            to.add(at).cast::<T>().write_unaligned(piece);
        }
        at += size_of::<T>();
    }
    // SAFETY: as above.
    unsafe {
        let piece = from.add(last).cast::<T>().read_unaligned();
        to.add(last).cast::<T>().write_unaligned(piece);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory(len: usize) -> Memory {
        let (region, _) = Region::create(len).expect("memory");
        Memory::new(vec![region])
    }

    #[test]
    fn every_length_is_copied_exactly() {
        let memory = memory(8192);
        let bytes: Vec<u8> = (0..2048_u32).map(|at| (at % 251) as u8 | 1).collect();
        for len in (0..200).chain([255, 256, 257, 1023, 1024, 1025, 1518, 2048]) {
            let span = memory.span(0, 64, 2048).expect("inside");
            span.copy_from(&[0; 2048]);
            span.copy_from(&bytes[..len]);
            let mut whole = [0xff; 2048];
            span.copy_to(&mut whole);
            assert_eq!(whole[..len], bytes[..len], "{len} bytes");
            assert!(whole[len..].iter().all(|&byte| byte == 0), "{len} bytes");
            let mut back = vec![0; 2048];
            let len_u32 = u32::try_from(len).expect("short");
            memory
                .span(0, 64, len_u32)
                .expect("inside")
                .copy_to(&mut back);
            assert_eq!(back[..len], bytes[..len]);
            assert!(back[len..].iter().all(|&byte| byte == 0), "{len} bytes");
        }
    }

    #[test]
    fn nothing_outside_is_reached() {
        let memory = memory(4096);
        assert!(memory.span(0, 4000, 96).is_some());
        assert!(memory.span(0, 4000, 97).is_none());
        assert!(memory.span(0, u32::MAX, u32::MAX).is_none());
        assert!(memory.span(1, 0, 1).is_none());
        let region = memory.region(0).expect("there is one");
        assert!(region.at::<u64>(4088, 1).is_some());
        assert!(region.at::<u64>(4088, 2).is_none());
        assert!(region.at::<u64>(4, 1).is_none());
        assert!(region.at::<u64>(0, usize::MAX / 4).is_none());
    }

    #[test]
    fn only_memory_that_cannot_shrink_is_mapped() {
        let refused = |file: &OwnedFd, len| Region::of_peer(file, len, MEMORY_MAX).err();
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = memfd_create("test", flags).expect("a memfd");
        ftruncate(&file, 4096).expect("it grows");
        assert_eq!(refused(&file, 4096), Some(RegionError::CanShrink));
        fcntl_add_seals(&file, SealFlags::SHRINK).expect("it takes seals");
        assert_eq!(refused(&file, 4096), None);
        assert_eq!(refused(&file, 4097), Some(RegionError::TooShort));
        assert_eq!(refused(&file, MEMORY_MAX + 1), Some(RegionError::TooMuch));
        assert_eq!(refused(&file, 0), Some(RegionError::TooMuch));
    }
}
