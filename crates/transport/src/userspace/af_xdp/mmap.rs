//! Memory that is mapped: frames, and the rings that the kernel shares.
#![expect(unsafe_code, reason = "maps memory")]

use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};

/// A range of memory, given back when dropped.
pub(super) struct Mapping {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: the range belongs to the mapping; whoever reads or writes it states how races are avoided.
unsafe impl Send for Mapping {}
// SAFETY: as above; it hands out addresses only.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Zeroed memory of `len` bytes, in pages of 2 MiB that the system keeps for
    /// this where `reserved_pages`, else in such as it finds. The kernel supplies it when it is
    /// registered with a socket.
    ///
    /// # Errors
    /// Where there is not enough memory, or not enough of those pages.
    pub(super) fn of_frames(len: usize, reserved_pages: bool) -> io::Result<Mapping> {
        let (len, flags) = if reserved_pages {
            let len = len.next_multiple_of(2 << 20);
            (len, MapFlags::HUGETLB | MapFlags::HUGE_2MB)
        } else {
            (len, MapFlags::empty())
        };
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: an anonymous mapping at an address of the kernel's choice disturbs nothing.
        let base = unsafe {
            mmap_anonymous(
                std::ptr::null_mut(),
                len,
                protection,
                MapFlags::PRIVATE | flags,
            )
        }?;
        let mapping = Mapping::new(base, len)?;
        // Miri has no advice on memory.
        if !reserved_pages && !cfg!(miri) {
            // SAFETY: advice on our own range changes nothing that is seen.
            let _ = unsafe { madvise(base, len, Advice::LinuxHugepage) };
        }
        Ok(mapping)
    }

    /// A ring of a socket: `len` bytes from `offset` of what the socket has to share.
    pub(super) fn of_ring(socket: BorrowedFd<'_>, offset: u64, len: usize) -> io::Result<Mapping> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        // SAFETY: a mapping at an address of the kernel's choice disturbs nothing.
        let base = unsafe { mmap(std::ptr::null_mut(), len, protection, flags, socket, offset) }?;
        Mapping::new(base, len)
    }

    fn new(base: *mut std::ffi::c_void, len: usize) -> io::Result<Mapping> {
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Mapping { base, len })
    }

    /// Where it begins.
    pub(super) fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Its bytes.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Where `count` values of `T` are, `offset` bytes from the beginning.
    ///
    /// # Panics
    /// Where they are not inside or not aligned.
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
        // SAFETY: what points into the range is held beside the mapping and goes with it.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.len) };
    }
}
