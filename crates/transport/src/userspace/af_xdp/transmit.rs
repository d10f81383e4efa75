//! The way out of one socket.
#![expect(unsafe_code, reason = "takes back chunks that the kernel has sent")]

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::io::Errno;
use rustix::net::xdp::{XDP_PGOFF_TX_RING, XDP_UMEM_PGOFF_COMPLETION_RING, XdpMmapOffsets};
use rustix::net::{SendFlags, send};

use super::ring::{Consumer, Descriptor, Producer};
use super::umem::{Chunk, Umem};

/// Frames shorter than this are filled up with zeros: not every card does it.
const FRAME_LEN_MIN: usize = 60;

/// Frames that one call sends in copy mode, where the kernel was not told of another number.
const FRAMES_PER_CALL: u32 = 32;

/// The transmit and the completion ring.
///
/// # Invariants
/// Each chunk of it is in `free`, or open, or the kernel's. The transmit ring has two entries a
/// chunk, so that it is never full, although the kernel moves its index late.
pub(super) struct Transmit {
    ring: Producer<Descriptor>,
    completion: Consumer<u64>,
    free: Vec<Chunk>,
    open: Option<Chunk>,
    /// Calls of the kernel so far.
    wakeups: u64,
}

impl Transmit {
    /// Maps the rings of a socket, which sends out of `chunks`.
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

    /// The open chunk, or one that is free.
    pub(super) fn slot<'m>(&mut self, umem: &'m mut Umem) -> Option<&'m mut [u8]> {
        if self.open.is_none() {
            if self.free.is_empty() {
                self.take_back(umem);
            }
            self.open = self.free.pop();
        }
        self.open.as_ref().map(|chunk| umem.bytes_mut(chunk))
    }

    /// Has the first `len` bytes of the open chunk sent at the next flush.
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

    /// Gives the kernel what was committed, and calls it where it wants to be called.
    ///
    /// In copy mode a call sends at most so many frames, and answers EAGAIN while there are more; it
    /// answers the same where the card takes no more. What then is left goes with the next flush or
    /// receive. How far the kernel has come cannot tell the two apart: it moves its index late.
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
        // At once, so that the next frames are written where the last ones are in the cache.
        self.take_back(umem);
    }

    /// Whether frames wait that a call would have sent.
    pub(super) fn is_stuck(&mut self) -> bool {
        self.ring.waiting() > 0 && self.ring.needs_wakeup()
    }

    /// Calls of the kernel so far.
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
