//! One receive queue and one transmit queue, for one worker.

use std::os::fd::BorrowedFd;

use coua_dpdk_sys as sys;
use coua_tcp::nic::{Features, Frame, Nic, Offload};

use super::burst::MbufBurst;
use super::checksum::{is_verified, request};
use super::device::Pair;
use super::identity;
use super::interrupt::Interrupt;

/// How many mbufs are taken from the pool at a time.
const STOCK_LEN: u16 = 32;

/// While the card takes nothing, the link is checked once in so many flushes: checking costs a read
/// of the card's registers.
const STALLS_PER_LOOK: u32 = 64;

/// A queue pair of a port.
///
/// Frames that the card does not take stay in a burst of 64, and are offered again with each flush
/// and receive. While that burst is full there are no slots. Without a link its frames are dropped
/// and counted.
pub struct Queue {
    /// Received frames that have not been released.
    received: MbufBurst,
    /// Room for frames to be sent. The last one is that of the open slot.
    stock: MbufBurst,
    /// Frames that the card has not taken yet.
    pending: MbufBurst,
    is_open: bool,
    /// Whether some of `pending` ask the card for something.
    asks: bool,
    /// Whether the card did not take all of `pending` when it was last offered.
    is_left_over: bool,
    has_identity: bool,
    manner: Manner,
    stalls: u32,
    counters: QueueCounters,
    interrupt: Option<Interrupt>,
    /// Dropped after the bursts and the interrupt, because the port may end with it.
    pair: Pair,
}

/// How the queues of a port work.
#[derive(Clone, Copy)]
pub(super) struct Manner {
    pub(super) features: Features,
    /// Bytes of a slot.
    pub(super) slot_len: u16,
    /// Whether the card fills in the checksum of IPv4 if it fills in those of TCP and UDP.
    pub(super) fills_ipv4: bool,
    /// Whether the card was asked to verify what it receives.
    pub(super) verifies: bool,
    pub(super) interrupts: bool,
}

/// What has passed through a queue since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueCounters {
    /// Frames received.
    pub received: u64,
    /// Calls of `receive` that brought at least one frame.
    pub bursts: u64,
    /// Received frames that were dropped because they are longer than an mbuf.
    pub oversized: u64,
    /// Frames that the card has taken to send.
    pub sent: u64,
    /// Frames dropped because there was no link.
    pub without_link: u64,
    /// Frames dropped because the card cannot do what they ask for.
    pub refused: u64,
    /// How often there was no slot.
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

    /// Becomes readable when a frame arrives while the queue is armed. `None` if the device cannot
    /// do this (memif, packet sockets, TAP) or interrupts were not asked for.
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.interrupt.as_ref().map(Interrupt::descriptor)
    }

    /// Makes the descriptor report the next frame. Returns true if there is one: it may miss a
    /// frame that has already arrived, so the caller must receive once more before it sleeps.
    #[must_use]
    pub fn arm(&mut self) -> bool {
        if let Some(interrupt) = &self.interrupt {
            interrupt.arm();
        }
        self.interrupt.is_some()
    }

    /// Stops reporting frames, so that they cost no interrupts while the worker is awake.
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

    /// The card takes nothing. If there is no link, the frames are dropped: keeping them would only
    /// deliver stale frames once there is a link again.
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
        // A worker with nothing new to send does not flush, so what is left over is sent here.
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
