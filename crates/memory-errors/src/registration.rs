//! Which memory may turn to zeros.
#![allow(
    unsafe_code,
    reason = "who registers memory agrees that it changes by itself"
)]

use std::ptr::NonNull;
use std::sync::Arc;

use crate::STATE;
use crate::keeper::{Keeper, KeeperPointer};
use crate::state::{Backing, Region, RegisterError};

/// Memory whose errors the handler repairs, until it is dropped.
#[must_use = "the region is forgotten when it is dropped"]
pub struct Registration {
    place: usize,
    /// Whom the table points to.
    _keeper: Option<Arc<dyn Keeper>>,
}

impl std::fmt::Debug for Registration {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Registration").field(&self.place).finish()
    }
}

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
    // SAFETY: as the caller says.
    unsafe { register_with(start, length, page_size, backing, None) }
}

/// As [`register`], for memory whose `keeper` decides what becomes of each range that is lost.
///
/// # Errors
/// As of [`register`].
///
/// # Safety
/// As of [`register`], but only for what the keeper lets turn to zeros. What it restores, it restores to
/// what may be read there at that moment; a file that it names is the one that is mapped.
pub unsafe fn register_kept(
    start: NonNull<u8>,
    length: usize,
    page_size: usize,
    backing: Backing,
    keeper: Arc<dyn Keeper>,
) -> Result<Registration, RegisterError> {
    // SAFETY: as the caller says.
    unsafe { register_with(start, length, page_size, backing, Some(keeper)) }
}

/// # Safety
/// As of [`register_kept`].
unsafe fn register_with(
    start: NonNull<u8>,
    length: usize,
    page_size: usize,
    backing: Backing,
    keeper: Option<Arc<dyn Keeper>>,
) -> Result<Registration, RegisterError> {
    let region = Region {
        start: start.as_ptr().expose_provenance(),
        length,
        page_size,
        backing,
        keeper: keeper
            .as_ref()
            .map(|keeper| KeeperPointer(Arc::as_ptr(keeper))),
    };
    let place = STATE.lock().register(region)?;
    Ok(Registration {
        place,
        _keeper: keeper,
    })
}

impl Drop for Registration {
    /// A handler that repairs the region on another thread ends first.
    fn drop(&mut self) {
        STATE.lock().forget(self.place);
    }
}
