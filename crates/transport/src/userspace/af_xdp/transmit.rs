//! How one socket sends.
#![expect(unsafe_code, reason = "takes back chunks that the kernel has sent")]

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::io::Errno;
use rustix::net::xdp::{XDP_PGOFF_TX_RING, XDP_UMEM_PGOFF_COMPLETION_RING, XdpMmapOffsets};
use rustix::net::{SendFlags, send};

use super::ring::{Consumer, Descriptor, Producer};
use super::umem::{Chunk, Umem};

/// Frames shorter than this are padded with zeros: not every card does that.
const FRAME_LEN_MIN: usize = 60;

/// How many frames one call sends in copy mode unless the kernel was told another number.
const FRAMES_PER_CALL: u32 = 32;

/// The transmit ring and the completion ring.
///
/// # Invariants
/// Each chunk for sending is in `free`, is open, or belongs to the kernel. The transmit ring has
/// two entries for each chunk, so it is never full, although the kernel moves its index late.
pub(super) struct Transmit {
    ring: Producer<Descriptor>,
    completion: Consumer<u64>,
    free: Vec<Chunk>,
    open: Option<Chunk>,
    /// System calls so far.
    wakeups: u64,
}

impl Transmit {
    /// Maps the rings of a socket that sends from `chunks`.
    pub(super) fn map(
        socket: BorrowedFd<'_>,
        offsets: &XdpMmapOffsets,
        len: u32,
        chunks: Vec<Chunk>,
    ) -> io::Result<Transmit> {
        assert!(chunks.len() <= len as usize, "the ring has room for all");
        Ok(Transmit {
            ring: Producer::map(socket, XDP_PGOFF_TX_RING, &offsets.tx, 2 * len)?,
            completion: Consumer::map(socket, XDP_UMEM_PGOFF_COMPLETION_RING, &offsets.cr, len)?,
            free: chunks,
            open: None,
            wakeups: 0,
        })
    }

    /// The open chunk, or a free one.
    pub(super) fn slot<'m>(&mut self, umem: &'m mut Umem) -> Option<&'m mut [u8]> {
        if self.open.is_none() {
            if self.free.is_empty() {
                self.take_back(umem);
            }
            self.open = self.free.pop();
        }
        self.open.as_ref().map(|chunk| umem.bytes_mut(chunk))
    }

    /// Marks the first `len` bytes of the open chunk to be sent by the next flush.
    pub(super) fn commit(&mut self, len: usize, umem: &mut Umem) {
        let chunk = self.open.take().expect("a slot is open");
        let bytes = umem.bytes_mut(&chunk);
        assert!(len <= bytes.len(), "a frame is no longer than its slot");
        if len < FRAME_LEN_MIN {
            bytes[len..FRAME_LEN_MIN].fill(0);
        }
        self.ring.push(Descriptor {
            address: umem.address(&chunk),
            len: u32::try_from(len.max(FRAME_LEN_MIN)).expect("a frame is short"),
            options: 0,
        });
    }

    /// Gives the kernel what was committed, and calls it if it asks to be called.
    ///
    /// In copy mode a call sends a limited number of frames and returns EAGAIN if there are more.
    /// It also returns EAGAIN if the card takes no more. The kernel's index does not tell these
    /// apart, because it moves late. What is left goes with the next flush or receive.
    pub(super) fn flush(&mut self, socket: impl AsFd, umem: &Umem, always_calls: bool) {
        self.ring.publish();
        let waiting = self.ring.waiting();
        if waiting > 0 && (always_calls || self.ring.needs_wakeup()) {
            for _ in 0..waiting.div_ceil(FRAMES_PER_CALL) {
                self.wakeups += 1;
                let result = send(socket.as_fd(), &[], SendFlags::DONTWAIT);
                if !matches!(result, Err(Errno::AGAIN | Errno::INTR)) {
                    break;
                }
            }
        }
        // At once, so that the next frames are written to chunks that are still in the cache.
        self.take_back(umem);
    }

    /// Whether frames are waiting because the kernel has not been called.
    pub(super) fn is_stuck(&mut self) -> bool {
        self.ring.waiting() > 0 && self.ring.needs_wakeup()
    }

    /// System calls so far.
    pub(super) fn wakeups(&self) -> u64 {
        self.wakeups
    }

    fn take_back(&mut self, umem: &Umem) {
        while let Some(address) = self.completion.pop() {
            // SAFETY: the kernel has just given it back in the completion ring.
            let (chunk, _) = unsafe { umem.claim(address) };
            self.free.push(chunk);
        }
        self.completion.give_back();
    }
}
