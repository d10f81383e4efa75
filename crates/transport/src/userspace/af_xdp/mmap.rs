//! Mapped memory: for frames, and for the rings that are shared with the kernel.
#![expect(unsafe_code, reason = "maps memory")]

use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};

/// A range of memory that is unmapped when this is dropped.
pub(super) struct Mapping {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping owns the range; whoever reads or writes it explains how races are avoided.
unsafe impl Send for Mapping {}
// SAFETY: as above; only addresses are handed out.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Zeroed memory of `len` bytes. With `reserved_pages` it lies in pages of 2 MiB that the
    /// system has reserved, otherwise in whatever pages there are. The kernel supplies the pages
    /// when the memory is registered with a socket.
    ///
    /// # Errors
    /// If there is not enough memory, or not enough reserved pages.
    pub(super) fn of_frames(len: usize, reserved_pages: bool) -> io::Result<Mapping> {
        let (len, flags) = if reserved_pages {
            let len = len.next_multiple_of(2 << 20);
            (len, MapFlags::HUGETLB | MapFlags::HUGE_2MB)
        } else {
            (len, MapFlags::empty())
        };
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: an anonymous mapping where the kernel finds room affects nothing that exists.
        let base = unsafe {
            mmap_anonymous(
                std::ptr::null_mut(),
                len,
                protection,
                MapFlags::PRIVATE | flags,
            )
        }?;
        let mapping = Mapping::new(base, len)?;
        // Miri has no `madvise`.
        if !reserved_pages && !cfg!(miri) {
            // SAFETY: advice about our own range does not change its contents.
            let _ = unsafe { madvise(base, len, Advice::LinuxHugepage) };
        }
        Ok(mapping)
    }

    /// A ring of a socket: `len` bytes, starting at `offset` of what the socket shares.
    pub(super) fn of_ring(socket: BorrowedFd<'_>, offset: u64, len: usize) -> io::Result<Mapping> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        // SAFETY: a mapping where the kernel finds room affects nothing that exists.
        let base = unsafe { mmap(std::ptr::null_mut(), len, protection, flags, socket, offset) }?;
        Mapping::new(base, len)
    }

    fn new(base: *mut std::ffi::c_void, len: usize) -> io::Result<Mapping> {
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Mapping { base, len })
    }

    /// The first byte.
    pub(super) fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// The length in bytes.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// A pointer to `count` values of `T`, `offset` bytes from the beginning.
    ///
    /// # Panics
    /// If they are not inside the mapping or not aligned.
    pub(super) fn at<T>(&self, offset: u64, count: usize) -> NonNull<T> {
        let offset = usize::try_from(offset).expect("an offset into memory");
        let end = size_of::<T>()
            .checked_mul(count)
            .and_then(|len| offset.checked_add(len));
        assert!(end.is_some_and(|end| end <= self.len), "outside of a ring");
        // SAFETY: `offset` is inside the mapping.
        let at = unsafe { self.base.add(offset) };
        assert!(at.cast::<T>().is_aligned(), "a ring is aligned");
        at.cast()
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: pointers into the range are kept beside the mapping and dropped with it.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.len) };
    }
}
