//! Private memory whose lost pages turn to zeros, and that knows which were lost.
#![allow(
    unsafe_code,
    reason = "maps memory, and agrees that it changes by itself"
)]

use std::io;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering, fence};

use crate::keeper::{Keeper, PAGE_BYTES, Remedy};
use crate::registration::{Registration, register_kept};
use crate::state::Backing;

/// A mapping of its own. For memory that devices read and write: a device that had a lost page pinned goes
/// on with that one, so its owner has to know for ever which pages were lost, not only until somebody has
/// seen to it.
#[derive(Debug)]
pub struct WatchedMemory {
    start: NonNull<u8>,
    len: usize,
    lost: Arc<LostPages>,
    /// Dropped before the mapping is. `None` where it was refused: then an error ends the process.
    registration: Option<Registration>,
}

// SAFETY: it hands out an address, and all else is atomics.
unsafe impl Send for WatchedMemory {}
// SAFETY: as above.
unsafe impl Sync for WatchedMemory {}

/// Which pages were lost.
///
/// # Concurrency
/// As of the count of all losses: who has read zeros of a fresh page finds it among the lost ones. A handler
/// writes the page's number before it puts the page there; two fences keep both orders.
#[derive(Debug)]
struct LostPages {
    start: usize,
    /// How many losses there were.
    count: AtomicU32,
    /// The number of the latest loss of each page, from 1 on; 0 for none.
    latest: Box<[AtomicU32]>,
}

/// A moment in the life of a [`WatchedMemory`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LossMark(u32);

impl LossMark {
    /// Before anything was lost.
    pub const BEGINNING: LossMark = LossMark(0);
}

impl WatchedMemory {
    /// Maps zeroed memory: at least `len` bytes, rounded up to whole pages.
    ///
    /// # Errors
    /// When there is no memory, or `len` is 0.
    pub fn map(len: usize) -> io::Result<WatchedMemory> {
        let len = len
            .checked_next_multiple_of(PAGE_BYTES)
            .ok_or(io::ErrorKind::OutOfMemory)?;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a mapping at an address of the kernel's choice disturbs nothing.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), len, access, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
        let pages = 0..len / PAGE_BYTES;
        let lost = Arc::new(LostPages {
            start: start.as_ptr().addr(),
            count: AtomicU32::new(0),
            latest: pages.map(|_| AtomicU32::new(0)).collect(),
        });
        let keeper: Arc<dyn Keeper> = Arc::clone(&lost) as _;
        // SAFETY: one private mapping, and nothing else lies in it. That its bytes may turn to zeros is said
        // to whoever uses it; the keeper restores nothing.
        let registration =
            unsafe { register_kept(start, len, PAGE_BYTES, Backing::Anonymous, keeper) };
        Ok(WatchedMemory {
            start,
            len,
            lost,
            registration: registration.ok(),
        })
    }

    /// Where it begins: at a page. Its bytes can be read and written, and may turn to zeros.
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Its bytes.
    #[expect(clippy::len_without_is_empty, reason = "none is empty")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether an error leaves the process alive.
    pub fn is_watched(&self) -> bool {
        self.registration.is_some()
    }

    /// Now: to be asked for before bytes are written or read that [`WatchedMemory::is_lost_since`] is asked
    /// about later.
    pub fn mark(&self) -> LossMark {
        LossMark(self.lost.count.load(Ordering::Acquire))
    }

    /// Whether a page of these bytes was lost since then. To be asked after the bytes were read. A load and a
    /// comparison, as long as nothing is lost.
    #[inline]
    pub fn is_lost_since(&self, bytes: Range<usize>, mark: LossMark) -> bool {
        fence(Ordering::Acquire);
        self.lost.count.load(Ordering::Relaxed) != mark.0 && self.lost.is_lost_since(bytes, mark.0)
    }
}

#[cfg(feature = "poison")]
impl WatchedMemory {
    /// Loses the page of a byte, for tests: by `MADV_HWPOISON`, or by `UFFDIO_POISON`. The byte's address.
    ///
    /// # Errors
    /// As of [`by_userfaultfd`](crate::poison::by_userfaultfd).
    pub fn lose(&self, offset: usize, by_hwpoison: bool) -> io::Result<usize> {
        let offset = offset.min(self.len - 1) / PAGE_BYTES * PAGE_BYTES;
        // SAFETY: inside of the mapping.
        let page = unsafe { self.start.add(offset) };
        match by_hwpoison {
            // SAFETY: the page is watched.
            true => unsafe { crate::poison::by_madvise(page, PAGE_BYTES) }?,
            // SAFETY: as above.
            false => unsafe { crate::poison::by_userfaultfd(page, PAGE_BYTES) }?,
        }
        Ok(page.as_ptr().addr())
    }
}

impl Drop for WatchedMemory {
    fn drop(&mut self) {
        self.registration = None;
        // SAFETY: the mapping is this one's own, and whoever has its address keeps it.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
    }
}

impl LostPages {
    fn pages(&self, bytes: &Range<usize>) -> &[AtomicU32] {
        let end = bytes.end.div_ceil(PAGE_BYTES).min(self.latest.len());
        &self.latest[(bytes.start / PAGE_BYTES).min(end)..end]
    }

    #[cold]
    fn is_lost_since(&self, bytes: Range<usize>, mark: u32) -> bool {
        let mut pages = self.pages(&bytes).iter();
        pages.any(|latest| latest.load(Ordering::Acquire) > mark)
    }
}

// SAFETY: the methods load and store atomics of the heap.
unsafe impl Keeper for LostPages {
    fn remedy(&self, _: &Range<usize>) -> Remedy {
        Remedy::Zeros
    }

    fn note_loss(&self, lost: &Range<usize>) {
        let bytes = lost.start - self.start..lost.end - self.start;
        let number = self.count.load(Ordering::Relaxed).saturating_add(1);
        for latest in self.pages(&bytes) {
            latest.store(number, Ordering::Relaxed);
        }
        self.count.store(number, Ordering::Release);
        fence(Ordering::Release);
    }

    fn restore(&self, _: usize, _: &mut crate::FreshPage) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_loss_is_known_by_its_pages_and_its_time() {
        let lost = LostPages {
            start: 0x10_0000,
            count: AtomicU32::new(0),
            latest: (0..8).map(|_| AtomicU32::new(0)).collect(),
        };
        assert!(!lost.is_lost_since(0..8 * 4096, 0));
        lost.note_loss(&(0x10_2000..0x10_3000));
        assert!(lost.is_lost_since(0x2fff..0x3000, 0) && lost.is_lost_since(0..0x8000, 0));
        assert!(!lost.is_lost_since(0..0x2000, 0) && !lost.is_lost_since(0x3000..0x8000, 0));
        assert!(!lost.is_lost_since(0..0x8000, 1));
        // What the kernel loses at once may be more than a page.
        lost.note_loss(&(0x10_4000..0x10_8000));
        assert!(lost.is_lost_since(0x7000..0x7001, 1) && !lost.is_lost_since(0..0x4000, 1));
        lost.note_loss(&(0x10_2000..0x10_3000));
        assert!(lost.is_lost_since(0x2000..0x2001, 2));
    }
}
