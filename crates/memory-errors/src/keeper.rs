//! Owners of regions who know more of them than that their bytes may turn to zeros.
#![allow(unsafe_code, reason = "calls a region's keeper through the table")]

use std::ops::Range;
use std::os::fd::RawFd;

/// The pages that are restored: the smallest of any supported processor.
pub const PAGE_BYTES: usize = 4096;

/// A page that is written anew.
#[repr(C, align(4096))]
pub struct FreshPage(pub [u8; PAGE_BYTES]);

/// What becomes of a lost range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// It turns to zeros.
    Zeros,
    /// Its pages are written anew by [`Keeper::restore`], before anybody can read them. For shared memory
    /// of a file it says which, and where in the file the range begins.
    Restored(Option<(RawFd, u64)>),
    /// The process cannot do without it, and ends.
    None,
}

/// See the module.
///
/// # Safety
/// The methods are called in a signal handler, on any thread, one at a time: they load and store memory
/// by atomics, and do nothing else. They do not touch the lost range.
pub unsafe trait Keeper: Send + Sync {
    /// What is to become of a range of the region that is lost.
    fn remedy(&self, lost: &Range<usize>) -> Remedy;

    /// A range is about to turn to zeros.
    fn note_loss(&self, lost: &Range<usize>);

    /// Writes what belongs on the page at `address`.
    fn restore(&self, address: usize, page: &mut FreshPage);
}

/// A keeper in the table of regions.
#[derive(Clone, Copy)]
pub(crate) struct KeeperPointer(pub(crate) *const dyn Keeper);

// SAFETY: a keeper may be used by all threads.
unsafe impl Send for KeeperPointer {}

impl KeeperPointer {
    /// The keeper, while the lock on the table is held, in which it is.
    pub(crate) fn get(&self) -> &dyn Keeper {
        // SAFETY: a registration has the keeper as long as it is in the table.
        unsafe { &*self.0 }
    }
}

impl std::fmt::Debug for KeeperPointer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a keeper")
    }
}
