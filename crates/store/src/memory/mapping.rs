//! A range of anonymous memory and typed views of it.
#![allow(unsafe_code, reason = "maps memory and hands out views of it")]

use crate::sync::{AtomicU32, AtomicU64};
use std::ops::Index;
use std::ptr::NonNull;
use std::sync::Arc;

/// A huge page, and the alignment of every range.
const HUGE: usize = if cfg!(loom) { 4096 } else { 2 << 20 };

/// What pages the kernel gives for the range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HugePages {
    /// Transparent 2 MiB pages, where the kernel finds them.
    Transparent,
    /// Pages of the system's ordinary size.
    None,
}

/// A private, zeroed range of memory, given back when dropped.
pub(crate) struct Mapping {
    base: NonNull<u8>,
    len: usize,
    huge: HugePages,
    #[cfg(loom)]
    tracked: super::tracked::Tracked,
}

/// What a pointer into the mapping borrows. It takes no room, but under loom, where the mapping is asked
/// for the atomics that stand for an item's words.
#[cfg(not(loom))]
pub(crate) type Borrowed<'m> = std::marker::PhantomData<&'m Mapping>;
#[cfg(loom)]
pub(crate) type Borrowed<'m> = &'m Mapping;

// SAFETY: the range belongs to the mapping, and all access to it goes through atomics or through
// pointers whose users state how they avoid races.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Reserves `len` bytes, rounded up to 2 MiB. No memory is used before it is touched.
    #[cfg(not(any(miri, loom)))]
    pub(crate) fn reserve(len: usize) -> std::io::Result<Arc<Mapping>> {
        use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

        let len = len.next_multiple_of(HUGE);
        let reserved = len
            .checked_add(HUGE)
            .ok_or_else(|| std::io::Error::from(std::io::ErrorKind::OutOfMemory))?;
        // SAFETY: an anonymous mapping at an address of the kernel's choice disturbs nothing.
        let whole = unsafe {
            mmap_anonymous(
                std::ptr::null_mut(),
                reserved,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )
        }?
        .cast::<u8>();
        let before = whole.align_offset(HUGE);
        // SAFETY: `before` is below HUGE, so the result lies in the mapping.
        let base = unsafe { whole.add(before) };
        if before > 0 {
            // SAFETY: the bytes before `base` are ours and nobody's else.
            unsafe { munmap(whole.cast(), before) }?;
        }
        // SAFETY: `base + len` is inside the mapping, which is HUGE longer than `len`.
        let after = unsafe { base.add(len) };
        if before < HUGE {
            // SAFETY: the bytes behind `base + len` are ours and nobody's else.
            unsafe { munmap(after.cast(), HUGE - before) }?;
        }
        // SAFETY: advice on our own range changes nothing that is seen.
        let advised = unsafe { madvise(base.cast(), len, Advice::LinuxHugepage) };
        let huge = if advised.is_ok() && transparent_enabled() {
            HugePages::Transparent
        } else {
            HugePages::None
        };
        let base = NonNull::new(base).ok_or(std::io::ErrorKind::OutOfMemory)?;
        Ok(Arc::new(Mapping { base, len, huge }))
    }

    /// As the other; Miri has no advice on memory.
    #[cfg(any(miri, loom))]
    pub(crate) fn reserve(len: usize) -> std::io::Result<Arc<Mapping>> {
        let len = len.next_multiple_of(HUGE);
        let layout = std::alloc::Layout::from_size_align(len, HUGE)
            .map_err(|_| std::io::ErrorKind::OutOfMemory)?;
        // SAFETY: the layout is not empty.
        let base = NonNull::new(unsafe { std::alloc::alloc_zeroed(layout) })
            .ok_or(std::io::ErrorKind::OutOfMemory)?;
        Ok(Arc::new(Mapping {
            base,
            len,
            huge: HugePages::None,
            #[cfg(loom)]
            tracked: Default::default(),
        }))
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn huge_pages(&self) -> HugePages {
        self.huge
    }

    /// The address of byte `offset`, below the mapping's length.
    #[inline]
    pub(crate) fn at(&self, offset: usize) -> NonNull<u8> {
        debug_assert!(offset < self.len);
        // SAFETY: `offset` is inside the mapping.
        unsafe { self.base.add(offset) }
    }

    #[cfg(not(loom))]
    #[inline]
    pub(crate) fn borrowed(&self) -> Borrowed<'_> {
        std::marker::PhantomData
    }

    #[cfg(loom)]
    pub(crate) fn borrowed(&self) -> Borrowed<'_> {
        self
    }

    /// The items that loom has seen written.
    #[cfg(loom)]
    pub(crate) fn tracked(&self) -> &super::tracked::Tracked {
        &self.tracked
    }

    /// Has the kernel supply memory for a range now, so that nobody waits for it later.
    pub(crate) fn populate(&self, offset: usize, len: usize) -> std::io::Result<()> {
        assert!(offset.checked_add(len).is_some_and(|end| end <= self.len));
        #[cfg(not(any(miri, loom)))]
        // SAFETY: the range is inside the mapping; populating it changes no byte.
        unsafe {
            rustix::mm::madvise(
                self.at(offset).as_ptr().cast(),
                len,
                rustix::mm::Advice::LinuxPopulateWrite,
            )
        }?;
        Ok(())
    }

    /// Locks a range into memory, so that it is never paged out.
    pub(crate) fn lock(&self, offset: usize, len: usize) -> std::io::Result<()> {
        assert!(offset.checked_add(len).is_some_and(|end| end <= self.len));
        #[cfg(not(any(miri, loom)))]
        // SAFETY: the range is inside the mapping; locking it changes no byte.
        unsafe { rustix::mm::mlock(self.at(offset).as_ptr().cast(), len) }?;
        Ok(())
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        #[cfg(not(any(miri, loom)))]
        // SAFETY: every view holds the mapping by an Arc, so nothing points into it any more.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.len) };
        #[cfg(any(miri, loom))]
        // SAFETY: allocated with this layout, and nothing points into it any more.
        unsafe {
            std::alloc::dealloc(
                self.base.as_ptr(),
                std::alloc::Layout::from_size_align_unchecked(self.len, HUGE),
            );
        }
    }
}

#[cfg(not(any(miri, loom)))]
fn transparent_enabled() -> bool {
    std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled")
        .is_ok_and(|modes| !modes.contains("[never]"))
}

/// Types that a view of the range may have.
///
/// # Safety
/// All bits of the type are atomics, so any bytes are a value of it and shared references do not
/// forbid others to change it.
pub(crate) unsafe trait Shared: Sync {}

// SAFETY: an atomic.
unsafe impl Shared for AtomicU32 {}
// SAFETY: an atomic.
unsafe impl Shared for AtomicU64 {}
// SAFETY: atomics only, without padding.
unsafe impl Shared for crate::index::Bucket {}
// SAFETY: atomics only; its padding is never read.
unsafe impl Shared for crate::segment::SegmentEntry {}

/// A view of a part of the range as values. It keeps the range mapped.
#[cfg(not(loom))]
pub(crate) struct Slice<T: Shared> {
    first: NonNull<T>,
    len: usize,
    mapping: Arc<Mapping>,
}

#[cfg(not(loom))]
// SAFETY: a slice of Sync values in memory that the Arc keeps.
unsafe impl<T: Shared> Send for Slice<T> {}
#[cfg(not(loom))]
// SAFETY: as above.
unsafe impl<T: Shared> Sync for Slice<T> {}

#[cfg(not(loom))]
impl<T: Shared> Slice<T> {
    /// `len` values from byte `offset` on.
    pub(crate) fn new(mapping: &Arc<Mapping>, offset: usize, len: usize) -> Slice<T> {
        assert!(offset.is_multiple_of(align_of::<T>()));
        let end = len
            .checked_mul(size_of::<T>())
            .and_then(|bytes| bytes.checked_add(offset));
        assert!(
            end.is_some_and(|end| end <= mapping.len()),
            "a view past the end of memory"
        );
        Slice {
            first: mapping.at(offset).cast(),
            len,
            mapping: Arc::clone(mapping),
        }
    }

    pub(crate) fn mapping(&self) -> &Arc<Mapping> {
        &self.mapping
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }
}

/// One value at a time, and never a reference to all: other bytes of the range may at that moment be
/// an item that is being written, or a page that is lent.
#[cfg(not(loom))]
impl<T: Shared> Index<usize> for Slice<T> {
    type Output = T;

    #[inline]
    fn index(&self, at: usize) -> &T {
        assert!(at < self.len, "{at} of {} values", self.len);
        // SAFETY: all `len` values were checked at construction to lie inside the mapping.
        let value = unsafe { self.first.add(at) };
        // SAFETY: as above, and aligned; `Shared` makes any bytes valid and lets others store to
        // them.
        unsafe { value.as_ref() }
    }
}

/// Under loom the values are on the heap, since loom's atomics are not plain bytes.
#[cfg(loom)]
pub(crate) struct Slice<T> {
    values: Box<[T]>,
    mapping: Arc<Mapping>,
}

#[cfg(loom)]
impl<T: Shared + Default> Slice<T> {
    /// `len` values.
    pub(crate) fn new(mapping: &Arc<Mapping>, _: usize, len: usize) -> Slice<T> {
        Slice {
            values: (0..len).map(|_| T::default()).collect(),
            mapping: Arc::clone(mapping),
        }
    }
}

#[cfg(loom)]
impl<T> Slice<T> {
    pub(crate) fn mapping(&self) -> &Arc<Mapping> {
        &self.mapping
    }

    pub(crate) fn len(&self) -> usize {
        self.values.len()
    }
}

#[cfg(loom)]
impl<T> Index<usize> for Slice<T> {
    type Output = T;

    fn index(&self, at: usize) -> &T {
        &self.values[at]
    }
}
