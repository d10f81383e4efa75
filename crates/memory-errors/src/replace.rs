//! Finds out whether a range can be read, and puts fresh pages in the place of lost ones.
//!
//! All of it happens in a signal handler: system calls, and nothing else.
#![allow(unsafe_code, reason = "madvise and mmap take addresses")]

use std::ops::Range;

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
