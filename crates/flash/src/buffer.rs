//! Memory that devices read and write, lent by value.
//!
//! A [`Region`] is memory that stays where it is: the store's arena, or memory of its own. Drivers map or register
//! it once, when a device is opened. A [`Buffer`] is the exclusive right to a piece of a region. A request takes it
//! along, its completion brings it back, and in between nobody has it: so no safe code can read what a device is
//! writing, lend it twice, or give it back to the arena.
//!
//! # Invariants
//! - No two buffers overlap.
//! - A region, and the ticket that a piece was lent with, live at least as long as each buffer made of them.
//!
//! # Memory that fails
//! The machine may lose a page of a region while the process has it, or a device. A region that is
//! [watched](Region::watched) has zeros there then, and its buffers say so ([`Buffer::is_lost_since`]). A device
//! that had the page pinned goes on with the lost one, so drivers ask [`Buffer::has_replaced_pages`] before they name
//! memory to a device as they did when it was mapped.
//!
//! # Not here
//! What a queue does with the buffers that a device still has when the queue is dropped: see [`crate::Queue`].
#![expect(unsafe_code, reason = "a buffer is a byte slice of lent memory")]

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::any::Any;
use std::ops::{Deref, DerefMut, Range};
use std::ptr::NonNull;
use std::sync::Arc;

use coua_memory_errors::{LossMark, WatchedMemory, check};

/// What memory of a region's own is aligned to: the page of every processor and device that matters here.
const ALIGNMENT: usize = 4096;

/// Memory that stays where it is, from which buffers are lent and which drivers map for devices once.
pub struct Region {
    base: NonNull<u8>,
    len: usize,
    /// Where lost pages are replaced and known.
    watched: Option<Arc<WatchedMemory>>,
    _keeper: Box<dyn Any + Send + Sync>,
}

// SAFETY: a region hands out addresses only; whoever has a `Buffer` has the bytes for itself.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    /// Zeroed memory of its own, as one buffer: at least `len` bytes, rounded up to whole pages.
    ///
    /// # Panics
    /// Where `len` is 0. Ends the process where there is no memory, as every allocation does.
    pub fn allocate(len: usize) -> Buffer {
        let len = len.next_multiple_of(ALIGNMENT);
        let layout = Layout::from_size_align(len, ALIGNMENT).expect("a length of memory");
        assert!(len > 0, "a buffer has bytes");
        // SAFETY: the layout has a size.
        let base = unsafe { alloc_zeroed(layout) };
        let Some(base) = NonNull::new(base) else {
            std::alloc::handle_alloc_error(layout);
        };
        let region = Region {
            base,
            len,
            watched: None,
            _keeper: Box::new(Allocation { base, layout }),
        };
        // SAFETY: the memory is the region's own, and this is its only buffer.
        unsafe { Arc::new(region).lend(0..len, Box::new(())) }
    }

    /// As [`Region::allocate`], for who minds that pages of it are lost: the process survives that.
    ///
    /// # Panics
    /// Where `len` is 0. Ends the process where there is no memory, as every allocation does.
    pub fn watched(len: usize) -> Buffer {
        assert!(len > 0, "a buffer has bytes");
        let Ok(memory) = WatchedMemory::map(len) else {
            return Region::allocate(len);
        };
        let memory = Arc::new(memory);
        let (base, len) = (memory.start(), memory.len());
        let region = Region {
            base,
            len,
            _keeper: Box::new(Arc::clone(&memory)),
            watched: Some(memory),
        };
        // SAFETY: the memory is the region's own, zeroed, and this is its only buffer.
        unsafe { Arc::new(region).lend(0..len, Box::new(())) }
    }

    /// Memory that somebody else has, and that `keeper` keeps.
    ///
    /// # Safety
    /// The `len` bytes at `base` can be read and written, and stay mapped where they are, until `keeper` is dropped.
    pub unsafe fn over(
        base: NonNull<u8>,
        len: usize,
        keeper: Box<dyn Any + Send + Sync>,
    ) -> Arc<Region> {
        Arc::new(Region {
            base,
            len,
            watched: None,
            _keeper: keeper,
        })
    }

    /// A piece of it. `ticket` is dropped when the last part of the piece is.
    ///
    /// # Panics
    /// Where the range is not inside.
    ///
    /// # Safety
    /// The range is initialized, and until `ticket` is dropped nobody else reads or writes it.
    pub unsafe fn lend(
        self: &Arc<Region>,
        range: Range<usize>,
        ticket: Box<dyn Any + Send + Sync>,
    ) -> Buffer {
        assert!(
            range.start <= range.end && range.end <= self.len,
            "outside of a region"
        );
        // SAFETY: the offset is inside the region.
        let base = unsafe { self.base.add(range.start) };
        let lender = Arc::new(Lender {
            region: Arc::clone(self),
            _ticket: ticket,
        });
        Buffer {
            base,
            len: range.len(),
            lender,
        }
    }

    /// What knows which of its pages were lost, where it is watched.
    pub fn watch(&self) -> Option<&Arc<WatchedMemory>> {
        self.watched.as_ref()
    }

    /// Where it begins.
    pub fn address(&self) -> usize {
        self.base.as_ptr().addr()
    }

    /// Where it begins, for devices of tests.
    #[cfg(any(test, feature = "simulated"))]
    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Its bytes.
    #[expect(clippy::len_without_is_empty, reason = "no region is empty")]
    pub fn len(&self) -> usize {
        self.len
    }
}

/// Memory of a region's own.
struct Allocation {
    base: NonNull<u8>,
    layout: Layout,
}

// SAFETY: it only frees the memory.
unsafe impl Send for Allocation {}
// SAFETY: as above.
unsafe impl Sync for Allocation {}

impl Drop for Allocation {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout, and no buffer is left, since each keeps its region.
        unsafe { dealloc(self.base.as_ptr(), self.layout) };
    }
}

/// What a buffer's memory comes from.
struct Lender {
    region: Arc<Region>,
    _ticket: Box<dyn Any + Send + Sync>,
}

/// The exclusive right to some bytes of a [`Region`].
pub struct Buffer {
    base: NonNull<u8>,
    len: usize,
    lender: Arc<Lender>,
}

// SAFETY: the bytes belong to the buffer alone.
unsafe impl Send for Buffer {}
// SAFETY: a shared buffer only reads.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// The memory that it is a piece of.
    pub fn region(&self) -> &Arc<Region> {
        &self.lender.region
    }

    /// Keeps the first `at` bytes and gives the others.
    ///
    /// # Panics
    /// Where it has fewer.
    pub fn split_off(&mut self, at: usize) -> Buffer {
        assert!(
            at <= self.len,
            "a buffer of {} bytes, cut at {at}",
            self.len
        );
        let rest = Buffer {
            // SAFETY: `at` is inside the buffer or at its end.
            base: unsafe { self.base.add(at) },
            len: self.len - at,
            lender: Arc::clone(&self.lender),
        };
        self.len = at;
        rest
    }

    /// Takes what follows it, once cut off by [`Buffer::split_off`], back.
    ///
    /// # Errors
    /// With `next`, where that is of other memory or does not follow.
    pub fn join(&mut self, next: Buffer) -> Result<(), Buffer> {
        let end = self.base.as_ptr().addr() + self.len;
        if !Arc::ptr_eq(&self.lender, &next.lender) || next.base.as_ptr().addr() != end {
            return Err(next);
        }
        self.len += next.len;
        Ok(())
    }

    /// Now, for [`Buffer::is_lost_since`].
    pub fn loss_mark(&self) -> LossMark {
        let watched = self.lender.region.watched.as_ref();
        watched.map_or(LossMark::BEGINNING, |memory| memory.mark())
    }

    /// Whether the machine has lost a part of it since then: zeros stand there, or did when they were read. To be asked
    /// after the bytes were used.
    #[inline]
    pub fn is_lost_since(&self, mark: LossMark) -> bool {
        let region = &self.lender.region;
        let from = self.base.as_ptr().addr() - region.address();
        let watched = region.watched.as_ref();
        watched.is_some_and(|memory| memory.is_lost_since(from..from + self.len, mark))
    }

    /// Whether a device that had all of it pinned when it was mapped has another page now.
    pub(crate) fn has_replaced_pages(&self) -> bool {
        self.is_lost_since(LossMark::BEGINNING)
    }

    /// Has lost pages replaced that only a device or a system call has met. To be called when one of them failed.
    pub(crate) fn look(&self) {
        if self.lender.region.watched.is_some() {
            let _ = check(self);
        }
    }

    /// The address of one of its bytes.
    pub(crate) fn at(&self, offset: usize) -> NonNull<u8> {
        assert!(offset <= self.len, "inside of a buffer");
        // SAFETY: inside of the buffer or at its end.
        unsafe { self.base.add(offset) }
    }

    /// Where it begins, for drivers, which may let a device write there while they own the buffer.
    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the bytes are inside a region that lives, initialized, and this buffer's alone.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.len) }
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and the buffer is borrowed for writing.
        unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr(), self.len) }
    }
}

impl std::fmt::Debug for Buffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Buffer({} bytes)", self.len)
    }
}

/// Buffers of one length that wait to be used: one worker's.
pub struct Pool {
    free: Vec<Buffer>,
    buffer_len: usize,
    left: usize,
}

impl Pool {
    /// Cuts `memory` into buffers of `buffer_len` bytes. What is left at the end is not used.
    ///
    /// # Panics
    /// Where `buffer_len` is 0.
    pub fn carve(mut memory: Buffer, buffer_len: usize) -> Pool {
        assert!(buffer_len > 0, "buffers have bytes");
        let mut free = Vec::with_capacity(memory.len() / buffer_len);
        while memory.len() >= buffer_len {
            let rest = memory.split_off(buffer_len);
            free.push(std::mem::replace(&mut memory, rest));
        }
        Pool {
            left: free.len(),
            free,
            buffer_len,
        }
    }

    /// A buffer, where there is one.
    pub fn take(&mut self) -> Option<Buffer> {
        self.free.pop()
    }

    /// Takes a buffer back.
    ///
    /// # Panics
    /// Where it is of another length than the pool's.
    pub fn give_back(&mut self, buffer: Buffer) {
        assert_eq!(buffer.len(), self.buffer_len, "a buffer of another pool");
        self.free.push(buffer);
    }

    /// Takes a buffer that is not to be used again.
    pub fn set_aside(&mut self, buffer: Buffer) {
        assert_eq!(buffer.len(), self.buffer_len, "a buffer of another pool");
        self.left -= 1;
    }

    /// How many buffers there are, lent ones too.
    pub fn left(&self) -> usize {
        self.left
    }

    /// How many buffers wait.
    pub fn available(&self) -> usize {
        self.free.len()
    }

    /// The bytes of each.
    pub fn buffer_len(&self) -> usize {
        self.buffer_len
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    struct Ticket(Arc<AtomicBool>);

    impl Drop for Ticket {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_piece_is_lent_until_its_last_part_is_dropped() {
        let mut arena = vec![7u8; 64].into_boxed_slice();
        let base = NonNull::new(arena.as_mut_ptr()).expect("a box has an address");
        // SAFETY: the box outlives the region, which the end of this function drops first.
        let region = unsafe { Region::over(base, 64, Box::new(())) };
        let is_back = Arc::new(AtomicBool::new(false));
        // SAFETY: nobody else looks at the box meanwhile.
        let mut first = unsafe { region.lend(16..48, Box::new(Ticket(Arc::clone(&is_back)))) };
        let second = first.split_off(8);
        drop(first);
        assert!(!is_back.load(Ordering::Relaxed));
        assert_eq!(&*second, &[7; 24]);
        drop(second);
        assert!(is_back.load(Ordering::Relaxed));
    }

    #[test]
    fn parts_join_in_order_and_only_with_their_own() {
        let mut a = Region::allocate(8192);
        let b = a.split_off(4096);
        let mut c = Region::allocate(4096);
        let b = c.join(b).expect_err("other memory");
        assert!(a.join(b).is_ok());
        assert_eq!(a.len(), 8192);
        a.fill(3);
        assert!(a.iter().all(|&byte| byte == 3));
    }

    #[test]
    fn a_pool_has_each_buffer_once() {
        let mut pool = Pool::carve(Region::allocate(4096), 1000);
        let taken: Vec<Buffer> = std::iter::from_fn(|| pool.take()).collect();
        assert_eq!(taken.len(), 4);
        taken.into_iter().for_each(|buffer| pool.give_back(buffer));
        assert_eq!(pool.available(), 4);
    }
}
