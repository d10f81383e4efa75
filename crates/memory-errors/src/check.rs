//! Finds lost pages that a system call has met.
#![allow(unsafe_code, reason = "reads bytes although nobody uses them")]

use crate::events_seen;

/// No page of any supported processor is smaller.
const PAGE_SIZE_MIN: usize = 4096;

/// Reads a byte of each page, so that the handler replaces what is lost; whether anything was, in
/// these bytes or meanwhile elsewhere.
///
/// For what a system call answered `EFAULT`, `EHWPOISON` or `EIO` for, or did less of than it was
/// asked to: the kernel does not signal a lost page that it meets itself.
#[must_use]
pub fn check(bytes: &[u8]) -> bool {
    let before = events_seen();
    let first_of_pages = bytes.iter().step_by(PAGE_SIZE_MIN);
    for byte in first_of_pages.chain(bytes.last()) {
        // SAFETY: the pointer comes from a reference. A volatile read is not left out.
        let _ = unsafe { std::ptr::from_ref(byte).read_volatile() };
    }
    events_seen() != before
}
