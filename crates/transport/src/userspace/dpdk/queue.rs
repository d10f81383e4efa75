//! One receive queue and one transmit queue, for one worker.

use std::os::fd::BorrowedFd;

use coua_dpdk_sys as sys;
use coua_tcp::nic::{Features, Frame, Nic, Offload};

use super::burst::MbufBurst;
use super::checksum::{is_verified, request};
use super::device::Pair;
use super::identity;
use super::interrupt::Interrupt;

/// Mbufs taken from the pool at a time.
const STOCK_LEN: u16 = 32;

/// Flushes of which the card takes nothing between two looks at the link, which cost a look at the
/// card's registers.
const STALLS_PER_LOOK: u32 = 64;

/// A queue pair of a port.
///
/// Frames that the card does not take stay in a burst of 64 and are offered again at each flush and
/// receive; when that is full there are no more slots. Without a link they are dropped and counted.
pub struct Queue {
    /// Frames in view.
    received: MbufBurst,
    /// Room for frames to send. The last is the open slot's.
    stock: MbufBurst,
    /// Frames that the card has yet to take.
    pending: MbufBurst,
    is_open: bool,
    /// Some of `pending` ask the card for something.
    asks: bool,
    /// The card did not take all of `pending` when it was last offered.
    is_left_over: bool,
    has_identity: bool,
    manner: Manner,
    stalls: u32,
    counters: QueueCounters,
    interrupt: Option<Interrupt>,
    /// After the bursts and the interrupt: the port may end with it.
    pair: Pair,
}

/// How the queues of a port work.
#[derive(Clone, Copy)]
pub(super) struct Manner {
    pub(super) features: Features,
    /// Bytes of a slot.
    pub(super) slot_len: u16,
    /// The card fills in the checksum of IPv4 where it does those of TCP and UDP.
    pub(super) fills_ipv4: bool,
    /// The card was asked to check what comes.
    pub(super) verifies: bool,
    pub(super) interrupts: bool,
}

/// What has passed through a queue since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueCounters {
    /// Frames that came.
    pub received: u64,
    /// Receives that brought at least one.
    pub bursts: u64,
    /// Frames that came longer than an mbuf, and were dropped.
    pub oversized: u64,
    /// Frames that the card took to send.
    pub sent: u64,
    /// Frames dropped because there was no link.
    pub without_link: u64,
    /// Frames dropped because the card cannot do to them what it was asked.
    pub refused: u64,
    /// Times that there was no slot.
    pub without_slot: u64,
}

impl Queue {
    pub(super) fn new(pair: Pair, manner: Manner) -> Queue {
        let wakes = manner.interrupts;
        let interrupt = wakes.then(|| Interrupt::of(pair.port(), pair.index()));
        Queue {
            received: MbufBurst::new(),
            stock: MbufBurst::new(),
            pending: MbufBurst::new(),
            is_open: false,
            asks: false,
            is_left_over: false,
            has_identity: false,
            manner,
            stalls: 0,
            counters: QueueCounters::default(),
            interrupt: interrupt.flatten(),
            pair,
        }
    }

    /// Its number among the port's queues, from 0 on.
    pub fn index(&self) -> u16 {
        self.pair.index()
    }

    /// What has passed.
    pub fn counters(&self) -> QueueCounters {
        self.counters
    }

    /// Becomes readable when a frame comes while the queue is armed; `None` where the device cannot
    /// (memif, packet sockets, TAP) or interrupts were not asked for.
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.interrupt.as_ref().map(Interrupt::descriptor)
    }

    /// Has the descriptor become readable at the next frame. True where there is one: a frame that
    /// has come already may not count, so that the caller must receive once more before it sleeps.
    #[must_use]
    pub fn arm(&mut self) -> bool {
        if let Some(interrupt) = &self.interrupt {
            interrupt.arm();
        }
        self.interrupt.is_some()
    }

    /// Has it not, so that frames cost no interrupts while the worker is awake.
    pub fn disarm(&mut self) {
        if let Some(interrupt) = &self.interrupt {
            interrupt.disarm();
        }
    }

    #[inline]
    fn ensure_identity(&mut self) {
        if !self.has_identity {
            identity::ensure();
            self.has_identity = true;
        }
    }

    fn send_pending(&mut self) {
        let handed = self.pending.send(&self.pair, self.asks);
        self.counters.sent += handed.sent as u64;
        self.counters.refused += handed.refused as u64;
        if handed.sent > 0 || self.pending.is_empty() {
            self.stalls = 0;
        } else {
            self.stall();
        }
        self.is_left_over = !self.pending.is_empty();
        self.asks &= self.is_left_over;
    }

    /// The card takes nothing: where that is because there is no link, waiting would only deliver
    /// stale frames when there is one again.
    #[cold]
    fn stall(&mut self) {
        self.stalls += 1;
        if !self.stalls.is_multiple_of(STALLS_PER_LOOK) {
            return;
        }
        let mut link = sys::LinkState::default();
        let is_known = sys::coua_port_link(self.pair.port(), &mut link) == 0;
        if is_known && link.is_up == 0 {
            self.counters.without_link += self.pending.len() as u64;
            self.pending.free();
        }
    }
}

impl Nic for Queue {
    fn features(&self) -> Features {
        self.manner.features
    }

    #[inline]
    fn receive(&mut self) -> usize {
        self.ensure_identity();
        self.received.free();
        let oversized = self.received.receive(&self.pair);
        let count = self.received.len();
        self.counters.oversized += oversized as u64;
        self.counters.received += count as u64;
        self.counters.bursts += u64::from(count > 0);
        // A worker with nothing new to send does not flush, and has them sent all the same.
        if self.is_left_over {
            self.send_pending();
        }
        count
    }

    #[inline]
    fn frame(&self, at: usize) -> Frame<'_> {
        let (bytes, flags) = self.received.frame(at);
        Frame {
            bytes,
            is_verified: self.manner.verifies && is_verified(flags, bytes),
        }
    }

    #[inline]
    fn release(&mut self) {
        self.received.free();
    }

    #[inline]
    fn slot(&mut self) -> Option<&mut [u8]> {
        if !self.is_open {
            if self.stock.is_empty() {
                self.ensure_identity();
                self.stock.refill(self.pair.tx_pool(), STOCK_LEN);
            }
            if self.pending.is_full() || self.stock.is_empty() {
                self.counters.without_slot += 1;
                return None;
            }
            self.is_open = true;
        }
        Some(&mut self.stock.last_room()[..usize::from(self.manner.slot_len)])
    }

    #[inline]
    fn commit(&mut self, len: usize, offload: Offload) {
        assert!(self.is_open, "a slot is opened before it is committed");
        assert!(
            len <= usize::from(self.manner.slot_len),
            "the frame is longer than its slot"
        );
        assert!(
            offload == Offload::None || self.manner.features.fills_checksums,
            "the card is asked for what it cannot do"
        );
        let request = request(
            &mut self.stock.last_room()[..len],
            offload,
            self.manner.fills_ipv4,
        );
        #[expect(clippy::cast_possible_truncation, reason = "at most slot_len")]
        let len = len as u16;
        self.stock.commit_last(len, request, &mut self.pending);
        self.asks |= request.flags != 0;
        self.is_open = false;
        if self.pending.is_full() {
            self.send_pending();
        }
    }

    #[inline]
    fn flush(&mut self) {
        if !self.pending.is_empty() {
            self.send_pending();
        }
    }
}
