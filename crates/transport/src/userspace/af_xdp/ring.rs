//! The rings of a socket: arrays of entries that one side writes and the other reads.
//!
//! ```text
//!        consumer                producer
//!           ↓                       ↓
//! ┌ free ┬ full ┬ full ┬ … ┬ full ┬ free ┬ … ┐     entry = index & (len − 1), indices run over
//! ```
//! The length is a power of two. Each side moves one index, and keeps a copy of the other side's.
//! It reads the shared index again only when the ring seems full (or empty).
//!
//! # Concurrency
//! The other side is the kernel.
//! - A side stores its own index with Release. Otherwise the kernel could see the index before the
//!   entry, and take an old descriptor, or overwrite an entry that is still being read.
//! - A side loads the other's index with Acquire. Otherwise it could read an entry before the index
//!   says that it is full, or write one before the index says that it is free.
#![expect(
    unsafe_code,
    reason = "entries and indices lie in memory that the kernel shares"
)]

use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering, fence};

use rustix::net::xdp::XdpRingOffset;

use super::mmap::Mapping;

/// The flag that says that the kernel does not look at the ring until it is called.
const NEED_WAKEUP: u32 = 1;

/// A frame in a receive or transmit ring: `struct xdp_desc`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Descriptor {
    /// Where it begins, in bytes from the start of the socket's memory.
    pub(super) address: u64,
    /// Its bytes.
    pub(super) len: u32,
    /// Always 0 for a frame in one piece.
    pub(super) options: u32,
}

/// What all rings have in common.
///
/// # Invariants
/// The pointers point into `_mapping`; `entries` has `mask + 1` entries.
struct Ring<T> {
    _mapping: Arc<Mapping>,
    producer: NonNull<AtomicU32>,
    consumer: NonNull<AtomicU32>,
    flags: NonNull<AtomicU32>,
    entries: NonNull<T>,
    mask: u32,
}

// SAFETY: it owns its mapping, and the only other side is the kernel.
unsafe impl<T: Send> Send for Ring<T> {}

impl<T: Copy> Ring<T> {
    fn map(
        socket: BorrowedFd<'_>,
        from: u64,
        offsets: &XdpRingOffset,
        len: u32,
    ) -> io::Result<Ring<T>> {
        assert!(
            len.is_power_of_two(),
            "a ring has a power of two of entries"
        );
        let entries_len = size_of::<T>() * len as usize;
        let whole = usize::try_from(offsets.desc)
            .ok()
            .and_then(|before| before.checked_add(entries_len))
            .ok_or(io::ErrorKind::InvalidData)?;
        Ring::over(
            Arc::new(Mapping::of_ring(socket, from, whole)?),
            offsets,
            len,
        )
    }

    /// The ring of `len` entries in memory that is shared with the other side.
    fn over(mapping: Arc<Mapping>, offsets: &XdpRingOffset, len: u32) -> io::Result<Ring<T>> {
        // Kernels before 5.4 have no flags; `open` refuses those.
        let flags = offsets.flags.ok_or(io::ErrorKind::Unsupported)?;
        Ok(Ring {
            producer: mapping.at(offsets.producer, 1),
            consumer: mapping.at(offsets.consumer, 1),
            flags: mapping.at(flags, 1),
            entries: mapping.at(offsets.desc, len as usize),
            mask: len - 1,
            _mapping: mapping,
        })
    }

    fn producer(&self) -> &AtomicU32 {
        // SAFETY: it lies in the mapping and is aligned; both sides access it only by atomic
        // operations.
        unsafe { self.producer.as_ref() }
    }

    fn consumer(&self) -> &AtomicU32 {
        // SAFETY: as above.
        unsafe { self.consumer.as_ref() }
    }

    fn needs_wakeup(&self) -> bool {
        // SAFETY: as above.
        let flags = unsafe { self.flags.as_ref() };
        flags.load(Ordering::Relaxed) & NEED_WAKEUP != 0
    }

    fn entry(&self, index: u32) -> NonNull<T> {
        // SAFETY: the masked index is below the number of entries.
        unsafe { self.entries.add((index & self.mask) as usize) }
    }
}

/// A ring that this side writes: the fill ring or the transmit ring.
pub(super) struct Producer<T> {
    ring: Ring<T>,
    /// The next entry to write.
    next: u32,
    /// The value of `next` that the kernel sees.
    published: u32,
    /// The kernel's index when it was last read.
    consumer: u32,
}

impl<T: Copy> Producer<T> {
    /// Maps the ring of `len` entries at `from` of what `socket` shares.
    pub(super) fn map(
        socket: BorrowedFd<'_>,
        from: u64,
        offsets: &XdpRingOffset,
        len: u32,
    ) -> io::Result<Producer<T>> {
        Ok(Producer::of(Ring::map(socket, from, offsets, len)?))
    }

    fn of(ring: Ring<T>) -> Producer<T> {
        let next = ring.producer().load(Ordering::Relaxed);
        let consumer = ring.consumer().load(Ordering::Acquire);
        Producer {
            ring,
            next,
            published: next,
            consumer,
        }
    }

    /// Writes an entry. The kernel sees it after [`Producer::publish`].
    ///
    /// # Panics
    /// If the ring is full.
    #[inline]
    pub(super) fn push(&mut self, entry: T) {
        if self.next.wrapping_sub(self.consumer) > self.ring.mask {
            self.consumer = self.ring.consumer().load(Ordering::Acquire);
            let len = self.next.wrapping_sub(self.consumer);
            assert!(
                len <= self.ring.mask,
                "a ring has room for what it was made for"
            );
        }
        // SAFETY: the entry is free: the kernel's index, loaded with Acquire, is past its last use,
        // and the kernel does not read it before `publish`.
        unsafe { self.ring.entry(self.next).write(entry) };
        self.next = self.next.wrapping_add(1);
    }

    /// Shows the kernel all entries that were written.
    #[inline]
    pub(super) fn publish(&mut self) {
        if self.published != self.next {
            self.ring.producer().store(self.next, Ordering::Release);
            self.published = self.next;
        }
    }

    /// How many entries the kernel has not taken yet, published or not.
    #[inline]
    pub(super) fn waiting(&mut self) -> u32 {
        self.consumer = self.ring.consumer().load(Ordering::Acquire);
        self.next.wrapping_sub(self.consumer)
    }

    /// Whether the kernel must be called to look at what was published.
    ///
    /// The fence keeps the flag from being read before the index is stored. Otherwise the kernel
    /// could find nothing and set the flag in between; then neither side would go on.
    #[inline]
    pub(super) fn needs_wakeup(&self) -> bool {
        fence(Ordering::SeqCst);
        self.ring.needs_wakeup()
    }
}

/// A ring that this side reads: the receive ring or the completion ring.
pub(super) struct Consumer<T> {
    ring: Ring<T>,
    /// The next entry to read.
    next: u32,
    /// The value of `next` that the kernel sees.
    given_back: u32,
    /// The kernel's index when it was last read.
    producer: u32,
}

impl<T: Copy> Consumer<T> {
    /// Maps the ring of `len` entries at `from` of what `socket` shares.
    pub(super) fn map(
        socket: BorrowedFd<'_>,
        from: u64,
        offsets: &XdpRingOffset,
        len: u32,
    ) -> io::Result<Consumer<T>> {
        Ok(Consumer::of(Ring::map(socket, from, offsets, len)?))
    }

    fn of(ring: Ring<T>) -> Consumer<T> {
        let next = ring.consumer().load(Ordering::Relaxed);
        Consumer {
            ring,
            next,
            given_back: next,
            producer: next,
        }
    }

    /// Reads an entry, if there is one. The kernel may reuse it after [`Consumer::give_back`].
    #[inline]
    pub(super) fn pop(&mut self) -> Option<T> {
        if self.next == self.producer {
            self.producer = self.ring.producer().load(Ordering::Acquire);
            if self.next == self.producer {
                return None;
            }
        }
        // SAFETY: the kernel's index, loaded with Acquire, is past this entry, and the kernel does
        // not write it again before `give_back`. Any bytes are a valid `T`, which holds only
        // numbers.
        let entry = unsafe { self.ring.entry(self.next).read() };
        self.next = self.next.wrapping_add(1);
        Some(entry)
    }

    /// Lets the kernel write to the entries that were read.
    #[inline]
    pub(super) fn give_back(&mut self) {
        if self.given_back != self.next {
            self.ring.consumer().store(self.next, Ordering::Release);
            self.given_back = self.next;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    /// The two sides of one ring: each is the other's kernel.
    fn pair(len: u32) -> (Producer<Descriptor>, Consumer<Descriptor>) {
        let offsets = XdpRingOffset {
            producer: 0,
            consumer: 64,
            desc: 192,
            flags: Some(128),
        };
        let mapping = Arc::new(Mapping::of_frames(4096, false).unwrap());
        let side = || Ring::over(Arc::clone(&mapping), &offsets, len).unwrap();
        (Producer::of(side()), Consumer::of(side()))
    }

    fn descriptor(number: u32) -> Descriptor {
        Descriptor {
            address: u64::from(number) << 32 | u64::from(!number),
            len: number,
            options: 0,
        }
    }

    #[test]
    fn what_goes_in_comes_out_whole_and_in_order() {
        let count = if cfg!(miri) { 200 } else { 10_000 };
        let (mut producer, mut consumer) = pair(8);
        let reader = thread::spawn(move || {
            let mut next = 0;
            while next < count {
                let Some(entry) = consumer.pop() else {
                    thread::yield_now();
                    continue;
                };
                assert_eq!(entry, descriptor(next));
                next += 1;
                // Several at a time, and all before it waits.
                if next % 3 == 0 || next == count || consumer.next == consumer.producer {
                    consumer.give_back();
                }
            }
        });
        for number in 0..count {
            while producer.waiting() == 8 && !reader.is_finished() {
                thread::yield_now();
            }
            producer.push(descriptor(number));
            if number % 4 == 0 || number + 1 == count || producer.waiting() == 8 {
                producer.publish();
            }
        }
        reader.join().unwrap();
        assert_eq!(producer.waiting(), 0);
        assert!(!producer.needs_wakeup());
    }

    #[test]
    #[should_panic(expected = "a ring has room for what it was made for")]
    fn a_full_ring_takes_nothing() {
        let (mut producer, _consumer) = pair(4);
        for number in 0..5 {
            producer.push(descriptor(number));
        }
    }
}
