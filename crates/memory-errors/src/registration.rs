//! Which memory may turn to zeros.
#![allow(
    unsafe_code,
    reason = "who registers memory agrees that it changes by itself"
)]

use std::ptr::NonNull;

use crate::STATE;
use crate::state::{Backing, Region, RegisterError};

/// Memory whose errors the handler repairs, until it is dropped.
#[derive(Debug)]
#[must_use = "the region is forgotten when it is dropped"]
pub struct Registration(usize);

/// Has the handler replace pages of this memory when they are lost.
///
/// `page_size` is what is lost with one page, in bytes: 4096 for ordinary memory, transparent huge
/// pages included, since the kernel splits them; the size of the huge page for hugetlb.
///
/// # Errors
/// When it is not of whole pages, registered already, or one region too many.
///
/// # Safety
/// As long as it is registered, the range is mapped, in one mapping of `backing` that can be written
/// to, and nothing else lies in it. Its bytes may turn to zeros at any moment, on any thread: so
/// what reads them takes zeros in the place of any bytes, keeps no references to types that have no
/// value of zeros, and looks at what it concluded again when [`events_seen`](crate::events_seen) has
/// moved.
///
/// A file's page may not be mapped at a second address too, in this process or another, unless that
/// is registered as well: the page is taken out of the file for all of them.
pub unsafe fn register(
    start: NonNull<u8>,
    length: usize,
    page_size: usize,
    backing: Backing,
) -> Result<Registration, RegisterError> {
    let region = Region {
        start: start.as_ptr().expose_provenance(),
        length,
        page_size,
        backing,
    };
    STATE.lock().register(region).map(Registration)
}

impl Drop for Registration {
    /// A handler that repairs the region on another thread ends first.
    fn drop(&mut self) {
        STATE.lock().forget(self.0);
    }
}
