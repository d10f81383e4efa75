//! Memory that the network reads and writes.

#![allow(unsafe_code, reason = "memory that the network writes")]

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;
use std::rc::Rc;

use crate::fabric::Span;

const PAGE_LEN: usize = 4096;

/// Memory of this side's own, or memory of somebody else that lasts as long as this.
///
/// # Invariants
/// - No reference to a part of it exists while the network may write there, or longer than the call that made it. What is
///   read meanwhile by the network may be read by this side too.
pub struct Memory {
    base: NonNull<u8>,
    len: usize,
    /// Who keeps it, if that is somebody else.
    owner: Option<Box<dyn std::any::Any>>,
}

impl Memory {
    /// Zeroed memory of its own.
    pub(super) fn new(len: usize) -> Rc<Memory> {
        let layout = Memory::layout(len);
        // SAFETY: the layout has a length.
        let base = unsafe { alloc_zeroed(layout) };
        let Some(base) = NonNull::new(base) else {
            handle_alloc_error(layout);
        };
        Rc::new(Memory {
            base,
            len: layout.size(),
            owner: None,
        })
    }

    /// Memory that `owner` keeps where it is.
    ///
    /// # Safety
    /// It stays mapped as long as `owner` is there, and changes only where the network has nothing to do, or where it
    /// does not matter what is read.
    pub unsafe fn of_another(
        base: NonNull<u8>,
        len: usize,
        owner: Box<dyn std::any::Any>,
    ) -> Rc<Memory> {
        let owner = Some(owner);
        Rc::new(Memory { base, len, owner })
    }

    fn layout(len: usize) -> Layout {
        Layout::from_size_align(len.max(1).next_multiple_of(PAGE_LEN), PAGE_LEN).expect("a length")
    }

    pub(super) fn is_own(&self) -> bool {
        self.owner.is_none()
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Where it begins.
    pub(super) fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Where a part of it begins.
    ///
    /// # Panics
    /// If it has no such part.
    pub(super) fn at(&self, offset: usize, len: usize) -> NonNull<u8> {
        let end = offset.checked_add(len);
        assert!(
            end.is_some_and(|end| end <= self.len),
            "{offset} + {len} of {}",
            self.len
        );
        // SAFETY: within the memory.
        unsafe { self.base.add(offset) }
    }

    /// Some of its bytes.
    ///
    /// # Panics
    /// If it is another's, or has no such part.
    pub(super) fn bytes(&self, offset: usize, len: usize) -> &[u8] {
        assert!(self.owner.is_none(), "memory of somebody else");
        // SAFETY: within memory that is initialized; by the invariant nobody writes there meanwhile.
        unsafe { std::slice::from_raw_parts(self.at(offset, len).as_ptr(), len) }
    }

    /// Copies bytes into it.
    ///
    /// # Panics
    /// If it is another's, or has no such part.
    pub(super) fn copy_in(&self, offset: usize, bytes: &[u8]) {
        assert!(self.owner.is_none(), "memory of somebody else");
        let to = self.at(offset, bytes.len());
        // SAFETY: within the memory; by the invariant nobody has a reference there, so `bytes` lie elsewhere.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to.as_ptr(), bytes.len()) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if self.owner.is_none() {
            // SAFETY: allocated in `new` with this layout.
            unsafe { dealloc(self.base.as_ptr(), Memory::layout(self.len)) }
        }
    }
}

/// Bytes of registered memory that the network is done with.
pub struct Bytes {
    memory: Rc<Memory>,
    span: Span,
}

impl Bytes {
    pub(super) fn new(memory: Rc<Memory>, span: Span) -> Bytes {
        Bytes { memory, span }
    }
}

impl AsRef<[u8]> for Bytes {
    fn as_ref(&self) -> &[u8] {
        self.memory.bytes(self.span.offset, self.span.len)
    }
}
