//! Finds out whether a range can be read, and puts fresh pages in the place of lost ones.
//!
//! All of it happens in a signal handler: system calls, and nothing else.
#![allow(unsafe_code, reason = "madvise and mmap take addresses")]

use std::ops::Range;
use std::os::fd::RawFd;

use crate::keeper::{FreshPage, PAGE_BYTES};
use crate::state::Backing;
use crate::sys;

/// How often a hole is asked for. Linux 6.1 refuses the first time with EIO where the lost page was
/// not written to its disk: it tells the loss of the file's bytes once.
const PUNCHES_MAX: u32 = 3;

/// What reading a range would come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Probe {
    /// Nothing is lost, or a fresh page is there already.
    Readable,
    /// A page of it is lost.
    Poisoned,
    /// The kernel has no page for another reason: the file is too short, or there is no memory.
    Inaccessible,
    /// A kernel before 5.14 does not say.
    Unknown,
}

/// A page that cannot be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Irreplaceable;

/// How a range was replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fresh {
    /// By pages of what is behind the region.
    SameBacking,
    /// By private memory, in the place of a file's.
    Detached,
    /// By what had been there.
    Restored,
}

/// Asks the kernel without touching the range, which would be one more fault.
pub(crate) fn probe(range: &Range<usize>) -> Probe {
    match advise(range, libc::MADV_POPULATE_READ) {
        Ok(()) => Probe::Readable,
        Err(libc::EHWPOISON) => Probe::Poisoned,
        Err(libc::EINVAL) => Probe::Unknown,
        Err(_) => Probe::Inaccessible,
    }
}

/// Puts fresh zeros in the place of the range, so that what faulted on it can go on.
///
/// # Errors
/// When nothing can be had: the mapping is as poisoned as before.
///
/// # Safety
/// The range lies in one mapping, which is of `backing`, and whoever it belongs to expects its bytes
/// to turn to zeros.
pub(crate) unsafe fn replace(
    range: &Range<usize>,
    backing: Backing,
) -> Result<Fresh, Irreplaceable> {
    let is_file = backing != Backing::Anonymous;
    // Without a hole the page would be read anew from the disk, as it was before it was last
    // written: neither what was lost nor zeros.
    let is_empty = !is_file || punch(range);
    // Drops the page tables' entries, which the error has marked: a hole does not. The mapping stays
    // as it is, with its advice, its locks and its neighbours, and the next touch finds a new page.
    if is_empty
        && advise(range, libc::MADV_DONTNEED_LOCKED).is_ok()
        && probe(range) == Probe::Readable
    {
        return Ok(Fresh::SameBacking);
    }
    // The advice is younger than Linux 5.18, there is no huge page left for hugetlb, the file's disk
    // is full, or its file system knows no holes.
    map_private(range)?;
    if matches!(probe(range), Probe::Readable | Probe::Unknown) {
        Ok(if is_file {
            Fresh::Detached
        } else {
            Fresh::SameBacking
        })
    } else {
        Err(Irreplaceable)
    }
}

/// Puts pages that `fill` writes in the place of the range. Nobody sees one that is not whole.
///
/// # Errors
/// When nothing can be had, or the file refuses.
///
/// # Safety
/// The range lies in one mapping of private memory, or of the file, from that place on.
pub(crate) unsafe fn restore(
    range: &Range<usize>,
    file: Option<(RawFd, u64)>,
    fill: impl Fn(usize, &mut FreshPage),
) -> Result<Fresh, Irreplaceable> {
    if file.is_some() && !punch(range) {
        return Err(Irreplaceable);
    }
    let mut page = FreshPage([0; PAGE_BYTES]);
    for address in range.clone().step_by(PAGE_BYTES) {
        fill(address, &mut page);
        match file {
            // The page tables' entry is still marked, so nobody reads the hole.
            Some((file, offset)) => {
                write_at(file, &page.0, offset + (address - range.start) as u64)?
            }
            None => move_over(address, &page.0)?,
        }
    }
    if let Some((file, offset)) = file
        && advise(range, libc::MADV_DONTNEED_LOCKED).is_err()
    {
        // Before Linux 5.18.
        map_shared(range, file, offset)?;
    }
    match probe(range) {
        Probe::Readable | Probe::Unknown => Ok(Fresh::Restored),
        Probe::Poisoned | Probe::Inaccessible => Err(Irreplaceable),
    }
}

/// Writes a page to a file.
fn write_at(file: RawFd, page: &[u8; PAGE_BYTES], offset: u64) -> Result<(), Irreplaceable> {
    let offset = libc::off_t::try_from(offset).map_err(|_| Irreplaceable)?;
    // SAFETY: the kernel reads the page.
    let written = unsafe { libc::pwrite(file, page.as_ptr().cast(), page.len(), offset) };
    if usize::try_from(written) == Ok(page.len()) {
        Ok(())
    } else {
        Err(Irreplaceable)
    }
}

/// Puts a private page with these bytes over the one at `address`, in one step for all other threads.
fn move_over(address: usize, page: &[u8; PAGE_BYTES]) -> Result<(), Irreplaceable> {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a mapping at an address of the kernel's choice disturbs nothing.
    let fresh = unsafe { libc::mmap(std::ptr::null_mut(), page.len(), access, flags, -1, 0) };
    if fresh == libc::MAP_FAILED {
        return Err(Irreplaceable);
    }
    // SAFETY: the mapping is new, and as long as the page.
    unsafe { fresh.cast::<[u8; PAGE_BYTES]>().write(*page) };
    let place: *mut libc::c_void = std::ptr::with_exposed_provenance_mut(address);
    let how = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
    // SAFETY: the page at the address belongs to a registered region, whose keeper wants it replaced.
    let moved = unsafe { libc::mremap(fresh, page.len(), page.len(), how, place) };
    if moved == libc::MAP_FAILED {
        Err(Irreplaceable)
    } else {
        Ok(())
    }
}

/// Maps the file over the range once more, in one step for all other threads.
fn map_shared(range: &Range<usize>, file: RawFd, offset: u64) -> Result<(), Irreplaceable> {
    let start = std::ptr::with_exposed_provenance_mut(range.start);
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_FIXED | libc::MAP_SHARED;
    let offset = libc::off_t::try_from(offset).map_err(|_| Irreplaceable)?;
    // SAFETY: the range belongs to a registered region, which is a mapping of this file from there on.
    let mapped = unsafe { libc::mmap(start, range.len(), access, flags, file, offset) };
    if mapped == libc::MAP_FAILED {
        Err(Irreplaceable)
    } else {
        Ok(())
    }
}

/// Takes the range out of its file; whether it is.
fn punch(range: &Range<usize>) -> bool {
    (0..PUNCHES_MAX).any(|_| advise(range, libc::MADV_REMOVE).is_ok())
}

/// Gives advice on whole pages, all of which are in one mapping of ours; else the error's number.
fn advise(range: &Range<usize>, advice: libc::c_int) -> Result<(), i32> {
    let start = std::ptr::with_exposed_provenance_mut(range.start);
    // SAFETY: the callers name a range that belongs to a registered region, whose owner has agreed
    // to what becomes of it. Probing changes no byte.
    if unsafe { libc::madvise(start, range.len(), advice) } == 0 {
        return Ok(());
    }
    Err(sys::errno())
}

/// Maps private memory of small pages over the range, in one step for all other threads.
fn map_private(range: &Range<usize>) -> Result<(), Irreplaceable> {
    let start = std::ptr::with_exposed_provenance_mut(range.start);
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_FIXED | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: the range belongs to a registered region, whose owner has agreed that its bytes turn
    // to zeros.
    let mapped = unsafe { libc::mmap(start, range.len(), access, flags, -1, 0) };
    if mapped == libc::MAP_FAILED {
        return Err(Irreplaceable);
    }
    // Of use for what was a huge page; a refusal changes nothing.
    let _ = advise(range, libc::MADV_HUGEPAGE);
    Ok(())
}
