//! Frames in mbufs that belong to a queue: how they arrive, what they contain, how they leave.
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
/// The first `len` pointers are mbufs that nothing else refers to. Each has a whole frame, or room
/// for one, in one piece.
pub(super) struct MbufBurst {
    mbufs: [*mut Mbuf; BURST_LEN],
    len: usize,
    /// How many at the front have been made ready for the card.
    prepared: usize,
}

// SAFETY: it owns its mbufs, and any thread may return an mbuf to its pool.
unsafe impl Send for MbufBurst {}

/// The result of handing frames to the card.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Handed {
    /// Frames that the card has taken.
    pub(super) sent: usize,
    /// Frames that were dropped because the card cannot do what they ask for.
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

    /// Takes the frames that have arrived; none while events are being served. The burst must be
    /// empty. Returns how many frames were dropped because they do not fit into one mbuf.
    #[inline]
    pub(super) fn receive(&mut self, pair: &Pair) -> usize {
        assert!(self.is_empty(), "frames are released before others come");
        let Some(_inside) = pair.enter() else {
            return 0;
        };
        let mbufs = self.mbufs.as_mut_ptr();
        // SAFETY: there is room for BURST_LEN pointers. The pair is the only right to its queue and
        // keeps the port started, and the exclusive borrow of the burst's owner keeps it to one
        // thread.
        let count = unsafe { sys::coua_rx_burst(pair.port(), pair.index(), mbufs, BURST) };
        self.len = usize::from(count);
        self.straighten()
    }

    /// Makes each frame whole and of one piece. Drops those for which that is impossible.
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
            // SAFETY: the mbuf belongs to this burst and heads its frame.
            let is_whole = segments == 1 || unsafe { sys::coua_gather(mbuf) } == 0;
            let is_tagged = flags & received::VLAN_STRIPPED == 0
                // SAFETY: the mbuf belongs to this burst and heads its frame.
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

    /// The bytes of a frame, and the flags that the card has set for it.
    ///
    /// # Panics
    /// If there is no frame with this number.
    #[inline]
    pub(super) fn frame(&self, at: usize) -> (&[u8], u64) {
        let mbuf = self.mbuf(at);
        // SAFETY: DPDK keeps `data_off` within the buffer.
        let data = unsafe { mbuf.buf_addr.add(usize::from(mbuf.data_off)) };
        // SAFETY: these bytes of the buffer are the frame. Nothing changes it while the mbuf
        // belongs to this burst.
        let bytes = unsafe { slice::from_raw_parts(data, usize::from(mbuf.data_len)) };
        (bytes, mbuf.ol_flags)
    }

    /// Fills the burst with mbufs from a pool, or with none if the pool has too few. The burst must
    /// be empty.
    pub(super) fn refill(&mut self, pool: &Pool, count: u16) {
        assert!(self.is_empty() && usize::from(count) <= BURST_LEN);
        let mbufs = self.mbufs.as_mut_ptr();
        // SAFETY: there is room for `count` pointers, and the pool is alive.
        let result = unsafe { sys::coua_alloc_bulk(pool.as_ptr(), mbufs, u32::from(count)) };
        if result == 0 {
            self.len = usize::from(count);
        }
    }

    /// The room for a frame in the last mbuf, which came from a pool.
    ///
    /// # Panics
    /// If the burst is empty.
    #[inline]
    pub(super) fn last_room(&mut self) -> &mut [u8] {
        let mbuf = self.mbuf(self.len - 1);
        let (address, offset) = (mbuf.buf_addr, usize::from(mbuf.data_off));
        let room_len = usize::from(mbuf.buf_len).saturating_sub(offset);
        // SAFETY: DPDK keeps `data_off` within the buffer.
        let data = unsafe { address.add(offset) };
        // SAFETY: the buffer ends there. Its memory comes from huge pages, which are zeroed.
        // Nothing else refers to it while the mbuf belongs to this burst and `self` is borrowed.
        unsafe { slice::from_raw_parts_mut(data, room_len) }
    }

    /// Sets the length of the frame in the last mbuf and what the card is to do to it, and moves
    /// the mbuf to the end of `to`.
    ///
    /// # Panics
    /// If the burst is empty, if `to` is full, or if the frame is longer than the room.
    #[inline]
    pub(super) fn commit_last(&mut self, len: u16, request: Request, to: &mut MbufBurst) {
        assert!(!to.is_full() && usize::from(len) <= self.last_room().len());
        let pointer = self.mbufs[self.len - 1];
        // SAFETY: the mbuf belongs to this burst alone.
        let mbuf = unsafe { &mut *pointer };
        mbuf.data_len = len;
        mbuf.pkt_len = u32::from(len);
        // Mbufs from the pool have no flags set, and the lengths matter only with flags.
        if request.flags != 0 {
            mbuf.ol_flags |= request.flags;
            mbuf.tx_offload = request.lengths;
        }
        self.len -= 1;
        to.mbufs[to.len] = pointer;
        to.len += 1;
    }

    /// Hands frames to the card, from the first on. Those that it does not take stay.
    ///
    /// `asks` says whether some of them ask the card for something.
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
        // SAFETY: the first `len` belong to this burst. Those that the card takes belong to it from
        // here on, and `forget` removes them. The queue is used as in `receive`.
        let sent = unsafe { sys::coua_tx_burst(pair.port(), pair.index(), mbufs, count(self.len)) };
        handed.sent = usize::from(sent);
        self.forget(handed.sent);
        handed
    }

    /// Lets the driver make frames ready that are not ready yet. This may be done only once to
    /// each.
    fn prepare(&mut self, pair: &Pair) -> usize {
        let mut refused = 0;
        while self.prepared < self.len {
            let rest = &mut self.mbufs[self.prepared..self.len];
            let len = count(rest.len());
            // SAFETY: the mbufs belong to this burst; the queue is used as in `receive`.
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

    /// Returns all mbufs to their pools.
    #[inline]
    pub(super) fn free(&mut self) {
        if self.len == 0 {
            return;
        }
        let count = u32::from(count(self.len));
        // Before they are returned, so that a panic cannot return them twice.
        self.len = 0;
        self.prepared = 0;
        // SAFETY: the first `count` belonged to this burst and no longer do.
        unsafe { sys::coua_free_bulk(self.mbufs.as_mut_ptr(), count) };
    }

    #[inline]
    fn mbuf(&self, at: usize) -> &Mbuf {
        let pointer = self.mbufs[..self.len][at];
        // SAFETY: the mbuf belongs to this burst, so it is alive and nobody writes to it.
        unsafe { &*pointer }
    }

    /// Returns one mbuf to its pool and closes the gap.
    fn discard(&mut self, at: usize) {
        assert!(at < self.len);
        let mut mbuf = self.mbufs[at];
        self.mbufs.copy_within(at + 1..self.len, at);
        self.len -= 1;
        // SAFETY: the mbuf belonged to the burst and is no longer in it.
        unsafe { sys::coua_free_bulk(&mut mbuf, 1) };
    }

    /// Removes the first `count`, which no longer belong to this burst.
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
