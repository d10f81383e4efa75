//! Frames that are ours, in mbufs: how they come, what is in them, how they leave.
#![expect(unsafe_code, reason = "owns mbufs and looks into them")]

use std::slice;

use coua_dpdk_sys::{self as sys, Mbuf, received};
use coua_tcp::nic::BURST_LEN;

use super::checksum::Request;
use super::device::Pair;
use super::pool::Pool;

/// Up to [`BURST_LEN`] mbufs.
///
/// # Invariants
/// The first `len` pointers are mbufs that nobody else has, each with a whole frame, or with room
/// for one, in one piece.
pub(super) struct MbufBurst {
    mbufs: [*mut Mbuf; BURST_LEN],
    len: usize,
    /// So many at the front have been made ready for the card.
    prepared: usize,
}

// SAFETY: it owns its mbufs, and any thread may give an mbuf back.
unsafe impl Send for MbufBurst {}

/// What came of handing frames to the card.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Handed {
    /// The card has them.
    pub(super) sent: usize,
    /// The card cannot do to them what it was asked; they are gone.
    pub(super) refused: usize,
}

impl MbufBurst {
    pub(super) fn new() -> MbufBurst {
        MbufBurst {
            mbufs: [std::ptr::null_mut(); BURST_LEN],
            len: 0,
            prepared: 0,
        }
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.len
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.len == BURST_LEN
    }

    /// Takes over what has come; nothing where events are being served. It must be empty. How many
    /// had to be dropped because they do not fit one mbuf.
    #[inline]
    pub(super) fn receive(&mut self, pair: &Pair) -> usize {
        assert!(self.is_empty(), "frames are released before others come");
        let Some(_inside) = pair.enter() else {
            return 0;
        };
        let mbufs = self.mbufs.as_mut_ptr();
        // SAFETY: there is room for BURST_LEN pointers. The pair is the only right to its queue and
        // keeps the port started, and `&mut` of the burst's owner keeps it to one thread.
        let count = unsafe { sys::coua_rx_burst(pair.port(), pair.index(), mbufs, BURST) };
        self.len = usize::from(count);
        self.straighten()
    }

    /// Makes each frame whole and of one piece, dropping those that cannot be.
    #[inline]
    fn straighten(&mut self) -> usize {
        let mut is_odd = false;
        for at in 0..self.len {
            let mbuf = self.mbuf(at);
            is_odd |= mbuf.nb_segs != 1 || mbuf.ol_flags & received::VLAN_STRIPPED != 0;
        }
        if is_odd {
            return self.straighten_odd();
        }
        0
    }

    #[cold]
    fn straighten_odd(&mut self) -> usize {
        let mut dropped = 0;
        let mut at = 0;
        while at < self.len {
            let (segments, flags) = (self.mbuf(at).nb_segs, self.mbuf(at).ol_flags);
            let mbuf = self.mbufs[at];
            // SAFETY: the mbuf is ours and heads its frame.
            let is_whole = segments == 1 || unsafe { sys::coua_gather(mbuf) } == 0;
            let is_tagged = flags & received::VLAN_STRIPPED == 0
                // SAFETY: the mbuf is ours and heads its frame.
                || unsafe { sys::coua_vlan_restore(mbuf) } == 0;
            if is_whole && is_tagged {
                at += 1;
            } else {
                self.discard(at);
                dropped += 1;
            }
        }
        dropped
    }

    /// The bytes of a frame and what the card says of it.
    ///
    /// # Panics
    /// Where there are not so many.
    #[inline]
    pub(super) fn frame(&self, at: usize) -> (&[u8], u64) {
        let mbuf = self.mbuf(at);
        // SAFETY: DPDK keeps `data_off` within the buffer.
        let data = unsafe { mbuf.buf_addr.add(usize::from(mbuf.data_off)) };
        // SAFETY: so many bytes of the buffer are the frame, which nobody changes while the mbuf is
        // ours.
        let bytes = unsafe { slice::from_raw_parts(data, usize::from(mbuf.data_len)) };
        (bytes, mbuf.ol_flags)
    }

    /// Fills it up from a pool; nothing where that has too few. It must be empty.
    pub(super) fn refill(&mut self, pool: &Pool, count: u16) {
        assert!(self.is_empty() && usize::from(count) <= BURST_LEN);
        let mbufs = self.mbufs.as_mut_ptr();
        // SAFETY: there is room for `count` pointers, and the pool is alive.
        let result = unsafe { sys::coua_alloc_bulk(pool.as_ptr(), mbufs, u32::from(count)) };
        if result == 0 {
            self.len = usize::from(count);
        }
    }

    /// The room for a frame of the last mbuf, which was taken from a pool.
    ///
    /// # Panics
    /// Where it is empty.
    #[inline]
    pub(super) fn last_room(&mut self) -> &mut [u8] {
        let mbuf = self.mbuf(self.len - 1);
        let (address, offset) = (mbuf.buf_addr, usize::from(mbuf.data_off));
        let room_len = usize::from(mbuf.buf_len).saturating_sub(offset);
        // SAFETY: DPDK keeps `data_off` within the buffer.
        let data = unsafe { address.add(offset) };
        // SAFETY: the buffer ends there. It is memory of huge pages, which come zeroed, and nobody
        // else has it while the mbuf is ours and `self` is borrowed.
        unsafe { slice::from_raw_parts_mut(data, room_len) }
    }

    /// Says how long the frame in the last mbuf is and what the card is to do to it, and moves it to
    /// the end of `to`.
    ///
    /// # Panics
    /// Where it is empty, `to` is full, or the frame is longer than the room.
    #[inline]
    pub(super) fn commit_last(&mut self, len: u16, request: Request, to: &mut MbufBurst) {
        assert!(!to.is_full() && usize::from(len) <= self.last_room().len());
        let pointer = self.mbufs[self.len - 1];
        // SAFETY: the mbuf is ours alone.
        let mbuf = unsafe { &mut *pointer };
        mbuf.data_len = len;
        mbuf.pkt_len = u32::from(len);
        // The pool hands mbufs out without flags, and lengths matter only with them.
        if request.flags != 0 {
            mbuf.ol_flags |= request.flags;
            mbuf.tx_offload = request.lengths;
        }
        self.len -= 1;
        to.mbufs[to.len] = pointer;
        to.len += 1;
    }

    /// Hands frames to the card, from the front on; those that it does not take stay.
    ///
    /// `asks` says that some ask the card for something.
    #[inline]
    pub(super) fn send(&mut self, pair: &Pair, asks: bool) -> Handed {
        let mut handed = Handed::default();
        if self.is_empty() {
            return handed;
        }
        let Some(_inside) = pair.enter() else {
            return handed;
        };
        if asks {
            handed.refused = self.prepare(pair);
        }
        let mbufs = self.mbufs.as_mut_ptr();
        // SAFETY: the first `len` are ours; of those that it takes the card is the owner from here
        // on, and `forget` leaves them out. The queue is used as in `receive`.
        let sent = unsafe { sys::coua_tx_burst(pair.port(), pair.index(), mbufs, count(self.len)) };
        handed.sent = usize::from(sent);
        self.forget(handed.sent);
        handed
    }

    /// Has the driver make the frames ready that are not. It may only be done once to each.
    fn prepare(&mut self, pair: &Pair) -> usize {
        let mut refused = 0;
        while self.prepared < self.len {
            let rest = &mut self.mbufs[self.prepared..self.len];
            let len = count(rest.len());
            // SAFETY: the mbufs are ours; the queue is used as in `receive`.
            let ready =
                unsafe { sys::coua_tx_prepare(pair.port(), pair.index(), rest.as_mut_ptr(), len) };
            self.prepared += usize::from(ready);
            if self.prepared < self.len {
                self.discard(self.prepared);
                refused += 1;
            }
        }
        refused
    }

    /// Gives all back to their pools.
    #[inline]
    pub(super) fn free(&mut self) {
        if self.len == 0 {
            return;
        }
        let count = u32::from(count(self.len));
        // Before they are gone, so that a panic cannot free them twice.
        self.len = 0;
        self.prepared = 0;
        // SAFETY: the first `count` were ours and are so no more.
        unsafe { sys::coua_free_bulk(self.mbufs.as_mut_ptr(), count) };
    }

    #[inline]
    fn mbuf(&self, at: usize) -> &Mbuf {
        let pointer = self.mbufs[..self.len][at];
        // SAFETY: the mbuf is ours, so it is there and nobody writes to it.
        unsafe { &*pointer }
    }

    /// Gives one back and closes the gap.
    fn discard(&mut self, at: usize) {
        assert!(at < self.len);
        let mut mbuf = self.mbufs[at];
        self.mbufs.copy_within(at + 1..self.len, at);
        self.len -= 1;
        // SAFETY: the mbuf was ours and is in the burst no more.
        unsafe { sys::coua_free_bulk(&mut mbuf, 1) };
    }

    /// Leaves out the first, which are somebody else's now.
    #[inline]
    fn forget(&mut self, count: usize) {
        if count < self.len {
            self.mbufs.copy_within(count..self.len, 0);
        }
        self.len -= count;
        self.prepared = self.prepared.saturating_sub(count);
    }
}

impl Drop for MbufBurst {
    fn drop(&mut self) {
        self.free();
    }
}

#[expect(clippy::cast_possible_truncation, reason = "64 fits")]
const BURST: u16 = BURST_LEN as u16;

/// A number of mbufs, at most [`BURST_LEN`].
#[inline]
fn count(len: usize) -> u16 {
    debug_assert!(len <= BURST_LEN);
    #[expect(clippy::cast_possible_truncation, reason = "at most BURST_LEN")]
    let count = len as u16;
    count
}
