//! A range of memory, or of a file, and typed views of it.
#![allow(unsafe_code, reason = "maps memory and hands out views of it")]

use super::file::{ArenaFile, FileKind};
use crate::sync::{AtomicU32, AtomicU64};
use std::ops::Index;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
#[cfg(not(any(miri, loom)))]
use std::sync::{Mutex, PoisonError};

/// A huge page, and the alignment of every range.
const HUGE: usize = if cfg!(loom) { 4096 } else { 2 << 20 };

/// Which pages the kernel provides for the range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HugePages {
    /// Transparent 2 MiB pages, where the kernel finds them.
    Transparent,
    /// 2 MiB pages that were reserved for it: a file on hugetlbfs.
    Reserved,
    /// Pages of the system's normal size.
    None,
}

/// A zeroed range of memory, or of a file. It is unmapped when dropped.
pub(crate) struct Mapping {
    base: NonNull<u8>,
    len: usize,
    huge: HugePages,
    /// The file that it is a view of, locked for this process.
    file: Option<ArenaFile>,
    /// Whether ranges of it have been locked into memory.
    is_locked: AtomicBool,
    /// Parts whose pages are replaced when the machine loses them.
    #[cfg(not(any(miri, loom)))]
    pub(super) watched: Mutex<Vec<coua_memory_errors::Registration>>,
    #[cfg(loom)]
    tracked: super::tracked::Tracked,
}

/// What a pointer into the mapping borrows. It has no size, except under loom, where the mapping
/// provides the atomics that stand for an item's words.
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
        let (base, len) = reserve_range(len)?;
        let huge = match advise_huge(base, len) && transparent_enabled("enabled") {
            true => HugePages::Transparent,
            false => HugePages::None,
        };
        Ok(Arc::new(Mapping {
            base,
            len,
            huge,
            file: None,
            is_locked: AtomicBool::new(false),
            watched: Mutex::default(),
        }))
    }

    /// Maps all of a file, whose length is a multiple of 2 MiB.
    #[cfg(not(any(miri, loom)))]
    pub(crate) fn of_file(file: ArenaFile) -> std::io::Result<Arc<Mapping>> {
        use rustix::mm::{MapFlags, ProtFlags, mmap};

        let len = usize::try_from(file.len()?).map_err(std::io::Error::other)?;
        assert!(len > 0 && len.is_multiple_of(HUGE));
        let (base, len) = reserve_range(len)?;
        let mut mapping = Mapping {
            base,
            len,
            huge: HugePages::None,
            file: None,
            is_locked: AtomicBool::new(false),
            watched: Mutex::default(),
        };
        // SAFETY: the range is this mapping's own, and nothing points into it yet.
        unsafe {
            mmap(
                base.as_ptr().cast(),
                len,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED | MapFlags::FIXED,
                file.descriptor(),
                0,
            )
        }?;
        mapping.huge = match file.kind() {
            FileKind::Hugetlb => HugePages::Reserved,
            FileKind::Tmpfs if advise_huge(base, len) && transparent_enabled("shmem_enabled") => {
                HugePages::Transparent
            }
            FileKind::Tmpfs | FileKind::Other => HugePages::None,
        };
        mapping.file = Some(file);
        Ok(Arc::new(mapping))
    }

    #[cfg(any(miri, loom))]
    pub(crate) fn of_file(_: ArenaFile) -> std::io::Result<Arc<Mapping>> {
        Err(std::io::ErrorKind::Unsupported.into())
    }

    /// The file that this is a view of.
    pub(crate) fn file(&self) -> Option<&ArenaFile> {
        self.file.as_ref()
    }

    /// Whether it is a view of a file that survives a reboot.
    fn is_on_disk(&self) -> bool {
        let file = self.file.as_ref();
        file.is_some_and(|file| file.kind() == FileKind::Other)
    }

    /// Writes all that was stored so far, or only the first `len` bytes of the range, to the disk
    /// that holds the file, if there is one.
    pub(crate) fn sync(&self, len: usize) -> std::io::Result<()> {
        assert!(len <= self.len);
        if self.is_on_disk() {
            #[cfg(not(any(miri, loom)))]
            // SAFETY: the range is inside the mapping; writing it out changes no byte.
            unsafe {
                rustix::mm::msync(self.base.as_ptr().cast(), len, rustix::mm::MsyncFlags::SYNC)
            }?;
        }
        Ok(())
    }

    /// Copies the bytes from `offset` on.
    ///
    /// # Safety
    /// No thread writes to them meanwhile.
    pub(crate) unsafe fn copy_to(&self, offset: usize, bytes: &mut [u8]) {
        assert!(
            offset
                .checked_add(bytes.len())
                .is_some_and(|end| end <= self.len)
        );
        let from = self.at(offset).as_ptr();
        // SAFETY: inside the range, all of whose bytes are initialized; the caller says that no
        // other thread writes to them.
        unsafe { std::ptr::copy_nonoverlapping(from, bytes.as_mut_ptr(), bytes.len()) }
    }

    /// As the other function; Miri supports no advice on memory.
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
            file: None,
            is_locked: AtomicBool::new(false),
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

    /// How far from the beginning a value lies that is in the range.
    #[cfg(not(loom))]
    pub(crate) fn offset_of<T: Shared>(&self, value: &T) -> usize {
        std::ptr::from_ref(value).addr() - self.base.as_ptr().addr()
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

    /// Makes the kernel supply memory for a range now, so that no thread waits for it later.
    pub(crate) fn populate(&self, offset: usize, len: usize) -> std::io::Result<()> {
        assert!(offset.checked_add(len).is_some_and(|end| end <= self.len));
        #[cfg(not(any(miri, loom)))]
        {
            use rustix::mm::{Advice, madvise};

            // What is populated for writing counts as written, and goes to the disk.
            let advice = match self.is_on_disk() {
                true => Advice::LinuxPopulateRead,
                false => Advice::LinuxPopulateWrite,
            };
            // SAFETY: the range is inside the mapping; populating it changes no byte.
            unsafe { madvise(self.at(offset).as_ptr().cast(), len, advice) }?;
        }
        Ok(())
    }

    /// Whether the first touch of a page can kill the process, because the file system that holds the
    /// file is full. Huge pages are reserved when they are mapped.
    pub(crate) fn may_be_refused(&self) -> bool {
        let kind = self.file.as_ref().map(ArenaFile::kind);
        matches!(kind, Some(FileKind::Tmpfs | FileKind::Other))
    }

    /// Has the file system that holds the file supply a range, so that touching it is safe.
    ///
    /// # Errors
    /// Where it has no room. A file system that cannot reserve room is none.
    pub(crate) fn supply(&self, offset: usize, len: usize) -> std::io::Result<()> {
        #[cfg(not(any(miri, loom)))]
        if let Some(file) = &self.file {
            use rustix::fs::{FallocateFlags, fallocate};
            use rustix::io::Errno;

            // Populating supplies huge pages too, but not before Linux 5.14.
            if file.kind() == FileKind::Tmpfs {
                match self.populate(offset, len) {
                    Err(error) if Errno::from_io_error(&error) == Some(Errno::INVAL) => {}
                    supplied => return supplied,
                }
            }
            let flags = FallocateFlags::KEEP_SIZE;
            return match fallocate(file.descriptor(), flags, offset as u64, len as u64) {
                Err(Errno::OPNOTSUPP | Errno::NOSYS) | Ok(()) => Ok(()),
                Err(errno) => Err(errno.into()),
            };
        }
        self.populate(offset, len)
    }

    /// Gives the memory of a range back to the system, and to the file system that holds the file.
    /// Nobody uses the range: what it holds is lost. Nothing happens where the system refuses.
    ///
    /// Huge pages that were reserved stay: the kernel would give them to others, and without one a
    /// later touch would kill the process.
    pub(crate) fn give_back(&self, offset: usize, len: usize) {
        assert!(offset.checked_add(len).is_some_and(|end| end <= self.len));
        #[cfg(not(any(miri, loom)))]
        if self.huge != HugePages::Reserved {
            use rustix::mm::{Advice, madvise, munlock};

            if self.is_locked.load(Ordering::Relaxed) {
                // SAFETY: the range is inside the mapping; unlocking it changes no byte.
                let _ = unsafe { munlock(self.at(offset).as_ptr().cast(), len) };
            }
            let advice = match self.file {
                Some(_) => Advice::LinuxRemove,
                None => Advice::LinuxDontNeed,
            };
            // SAFETY: the range is inside the mapping, and the caller says that nobody uses it.
            let _ = unsafe { madvise(self.at(offset).as_ptr().cast(), len, advice) };
        }
    }

    /// Locks a range into memory, so that it is never paged out.
    pub(crate) fn lock(&self, offset: usize, len: usize) -> std::io::Result<()> {
        assert!(offset.checked_add(len).is_some_and(|end| end <= self.len));
        self.is_locked.store(true, Ordering::Relaxed);
        #[cfg(not(any(miri, loom)))]
        // SAFETY: the range is inside the mapping; locking it changes no byte.
        unsafe { rustix::mm::mlock(self.at(offset).as_ptr().cast(), len) }?;
        Ok(())
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        #[cfg(not(any(miri, loom)))]
        self.watched
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner)
            .clear();
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

/// Reserves an aligned range of anonymous memory of at least `len` bytes.
#[cfg(not(any(miri, loom)))]
fn reserve_range(len: usize) -> std::io::Result<(NonNull<u8>, usize)> {
    use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

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
    let base = NonNull::new(base).ok_or(std::io::ErrorKind::OutOfMemory)?;
    Ok((base, len))
}

/// Asks the kernel for huge pages. True if the kernel accepted the advice.
#[cfg(not(any(miri, loom)))]
fn advise_huge(base: NonNull<u8>, len: usize) -> bool {
    let advice = rustix::mm::Advice::LinuxHugepage;
    // SAFETY: advice on our own range changes nothing that is seen.
    unsafe { rustix::mm::madvise(base.as_ptr().cast(), len, advice) }.is_ok()
}

/// Whether a setting of the kernel permits transparent huge pages for processes that ask.
#[cfg(not(any(miri, loom)))]
fn transparent_enabled(setting: &str) -> bool {
    let path = format!("/sys/kernel/mm/transparent_hugepage/{setting}");
    std::fs::read_to_string(path)
        .is_ok_and(|modes| !modes.contains("[never]") && !modes.contains("[deny]"))
}

/// Types that a view of the range may have.
///
/// # Safety
/// All bits of the type are atomics, so any bytes are a valid value, and other threads may change
/// it through shared references.
pub(crate) unsafe trait Shared: Sync {}

// SAFETY: an atomic.
unsafe impl Shared for AtomicU32 {}
// SAFETY: an atomic.
unsafe impl Shared for AtomicU64 {}
// SAFETY: as its elements, which follow one another.
unsafe impl<T: Shared, const N: usize> Shared for [T; N] {}

/// Declares a type that may be in the arena: all its fields may.
macro_rules! shared {
    (
        $(#[$attribute:meta])*
        $visibility:vis struct $name:ident {
            $($(#[$field_attribute:meta])* $field_visibility:vis $field:ident: $type:ty,)*
        }
    ) => {
        $(#[$attribute])*
        $visibility struct $name {
            $($(#[$field_attribute])* $field_visibility $field: $type,)*
        }

        #[allow(unsafe_code, reason = "says that a type is made of atomics, which is checked")]
        // SAFETY: the bounds hold only if all fields are atomics, or made of such. Padding is never
        // read.
        unsafe impl $crate::memory::Shared for $name where $($type: $crate::memory::Shared,)* {}
    };
}
pub(crate) use shared;

/// A view of a part of the range as values. It keeps the range mapped.
#[cfg(not(loom))]
pub(crate) struct Slice<T: Shared> {
    first: NonNull<T>,
    len: usize,
    mapping: Arc<Mapping>,
}

#[cfg(not(loom))]
impl<T: Shared> Clone for Slice<T> {
    fn clone(&self) -> Slice<T> {
        Slice {
            mapping: Arc::clone(&self.mapping),
            ..*self
        }
    }
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

/// Gives access to one value at a time, and never a reference to all: other bytes of the range may
/// be an item that is being written, or a page that is lent.
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
    values: Arc<[T]>,
    mapping: Arc<Mapping>,
}

#[cfg(loom)]
impl<T> Clone for Slice<T> {
    fn clone(&self) -> Slice<T> {
        Slice {
            values: Arc::clone(&self.values),
            mapping: Arc::clone(&self.mapping),
        }
    }
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
