//! Path MTU discovery: shorter packets if the path drops long ones, and probes for longer ones.
//!
//! Nothing reports that a path carries long packets again, or that long packets were lost in an
//! outage and not because of their length. So a longer packet is sent now and then as a probe (RFC
//! 4821, section 7): with bytes that are due anyway, and only while nothing else is missing. If it
//! arrives, all later packets may be as long. If it is lost, its bytes are retransmitted in shorter
//! segments, and the loss does not count as congestion.

use super::segment::NoSlot;
use super::{Connection, ConnectionFlags, Phase, Shared, headers_len};
use crate::buffers::{BufferId, Marks};
use crate::nic::Nic;
use crate::seq::SeqNumber;
use crate::time::Instant;

/// Microseconds of a tick of the search's clock: 65,536 of them are six days.
const TICK_US: u64 = 8_000_000;

/// Ticks after which longer packets are tried again: ten minutes (RFC 1191, section 6.3).
const SEARCH_INTERVAL: u16 = 75;

/// Common path MTUs: that of Ethernet, and that of a tunnel.
const COMMON: [u16; 2] = [1500, 1400];

/// Packet lengths that nearly all paths carry, over IPv4 and over IPv6.
const LEAST_V4: u16 = 576;
const LEAST_V6: u16 = 1280;

/// The search for the longest packet that a path carries. It is used only once the path MTU is
/// below the card's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MtuSearch {
    /// The tick of the stack's clock before which nothing is tried.
    next: u16,
    /// The first of [`lengths`] that was not lost in this search (RFC 4821, `search_high`).
    from: u8,
    /// One more than the index in [`lengths`] of the probe in flight; 0 if there is none.
    probe: u8,
    /// The first sequence number of the probe's segment.
    first: SeqNumber,
}

impl MtuSearch {
    /// No search.
    pub(super) const NONE: MtuSearch = MtuSearch {
        next: 0,
        from: 0,
        probe: 0,
        first: SeqNumber(0),
    };

    /// Whether a probe is in flight.
    pub(super) fn is_probing(&self) -> bool {
        self.probe > 0
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the clock wraps around")]
fn tick(now: Instant) -> u16 {
    (now.micros() / TICK_US) as u16
}

/// The packet lengths to try, the card's MTU first. Of the others, those between it and the path
/// MTU are tried.
const fn lengths(shared: &Shared) -> [u16; 3] {
    [shared.features.mtu, COMMON[0], COMMON[1]]
}

impl Connection {
    /// A router reports that the packet with the segment at `seq` exceeds an MTU of `mtu`. True if
    /// that is new: the data in flight is retransmitted.
    pub(crate) fn narrow(&mut self, shared: &mut Shared, mtu: u16, seq: SeqNumber) -> bool {
        let search = &self.mtu_search;
        let is_about_probe = search.is_probing()
            && self.mtu_search.first <= seq
            && seq < self.probe_end(shared)
            && mtu < self.probe_mtu(shared)
            && mtu >= self.path.mtu;
        if is_about_probe {
            self.leave_fast_path();
            self.lose_mtu_probe(shared);
            self.flags.set(ConnectionFlags::MUST_SEND);
            return true;
        }
        if mtu >= self.path.mtu {
            return false;
        }
        self.leave_fast_path();
        shared.counters.mtu_lowered += 1;
        self.path.mtu = mtu;
        self.settle_mss();
        self.mark_all_lost(shared);
        self.search_longer_after(shared.now, SEARCH_INTERVAL);
        self.flags.set(ConnectionFlags::MUST_SEND);
        true
    }

    /// Long packets get no answer (RFC 4821, section 7.7): falls back to lengths that nearly all
    /// paths carry. Longer packets are probed as soon as anything arrives again.
    pub(super) fn suspect_mtu(&mut self, shared: &mut Shared) {
        let is_v4 = self.tuple.remote.is_v4();
        let steps = [COMMON[1], if is_v4 { LEAST_V4 } else { LEAST_V6 }];
        let longest = self
            .send
            .nxt
            .since(self.send.una)
            .min(u32::from(self.mss()));
        let len = u16::try_from(longest).unwrap_or(u16::MAX);
        let headers = headers_len(is_v4) + 12;
        let is_step = |step: &u16| *step < self.path.mtu && len.saturating_add(headers) > *step;
        if let Some(mtu) = steps.into_iter().find(is_step) {
            shared.counters.mtu_lowered += 1;
            self.path.mtu = mtu;
            self.settle_mss();
            self.search_longer_after(shared.now, 0);
        }
    }

    /// Sends a longer packet as a probe, if one is due and possible (RFC 4821, section 7.4):
    /// nothing is missing, enough data waits to fill it, and both windows have room.
    pub(super) fn try_longer_packet(
        &mut self,
        shared: &mut Shared,
        nic: &mut impl Nic,
    ) -> Result<(), NoSlot> {
        let first = self.send.unsent;
        let is_early = tick(shared.now).wrapping_sub(self.mtu_search.next) > u16::MAX / 2;
        let recovery = &self.recovery;
        let is_well = self.is_open()
            && recovery.phase == Phase::Open
            && (recovery.lost, recovery.sacked) == (0, 0)
            && recovery.probe.is_none()
            && !self.mtu_search.is_probing();
        if first.is_none() || !is_well || is_early {
            return Ok(());
        }
        let Some((number, mss)) = self.next_length(shared) else {
            return Ok(());
        };
        let seq = shared.buffers[first].seq;
        let limit = self.send.una + self.send.window;
        let fits = seq + u32::from(mss) <= limit
            && recovery.pipe + u32::from(mss) <= self.congestion.window();
        if !fits || !self.gather(shared, first, u32::from(mss)) {
            return Ok(());
        }
        self.mtu_search.probe = number + 1;
        self.mtu_search.first = seq;
        let usual = std::mem::replace(&mut self.send.mss, mss);
        let sent = self.send_from(shared, nic, first, u32::from(mss));
        self.send.mss = usual;
        if sent.is_err() {
            self.mtu_search.probe = 0;
        }
        sent.map(drop)
    }

    /// The index of the packet length to try next, and the payload of a segment in such a packet;
    /// `None` if no longer one is left, or if the peer takes no longer segments anyway.
    fn next_length(&self, shared: &Shared) -> Option<(u8, u16)> {
        let lengths = (0..).zip(lengths(shared));
        let mut lengths = lengths.filter(|&(number, mtu)| {
            let is_possible = self.path.mtu < mtu && (number == 0 || mtu < shared.features.mtu);
            is_possible && number >= self.mtu_search.from
        });
        let (number, mtu) = lengths.next()?;
        let mss = self.mss_within(mtu);
        (mss > self.mss()).then_some((number, mss))
    }

    /// The length of the packet in flight as a probe.
    fn probe_mtu(&self, shared: &Shared) -> u16 {
        lengths(shared)[usize::from(self.mtu_search.probe) - 1]
    }

    /// The sequence number after the probe's segment.
    fn probe_end(&self, shared: &Shared) -> SeqNumber {
        self.mtu_search.first + u32::from(self.mss_within(self.probe_mtu(shared)))
    }

    /// Cuts a buffer if necessary, so that some buffers from `first` on together hold exactly `len`
    /// bytes. False if there are too few bytes, or no memory to cut a buffer.
    fn gather(&mut self, shared: &mut Shared, first: BufferId, len: u32) -> bool {
        let buffers = &mut shared.buffers;
        let (mut id, mut left) = (first, len);
        while !id.is_none() && buffers[id].len() < left {
            left -= buffers[id].len();
            id = buffers[id].next;
        }
        if id.is_none() {
            return false;
        }
        buffers[id].len() == left || self.send.cut(buffers, id, left)
    }

    /// Evaluates the probe. True if it is lost and nothing else is.
    pub(super) fn settle_mtu_probe(&mut self, shared: &mut Shared) -> bool {
        if !self.mtu_search.is_probing() {
            return false;
        }
        let end = self.probe_end(shared);
        if self.send.una >= end {
            shared.counters.mtu_raised += 1;
            self.path.mtu = self.probe_mtu(shared);
            self.settle_mss();
            self.mtu_search.probe = 0;
            self.plan_next_length(shared);
            return false;
        }
        let mut lost_of_it = 0;
        let mut id = self.send.head;
        while !id.is_none() && shared.buffers[id].seq < end {
            let buffer = &shared.buffers[id];
            if buffer.end() > self.mtu_search.first && buffer.marks.has(Marks::LOST) {
                lost_of_it += buffer.seq_len();
            }
            id = buffer.next;
        }
        let is_all = lost_of_it == self.recovery.lost;
        if lost_of_it > 0 {
            self.lose_mtu_probe(shared);
        }
        lost_of_it > 0 && is_all
    }

    /// The probe is lost: all of it is retransmitted in segments of the present MSS.
    pub(super) fn lose_mtu_probe(&mut self, shared: &mut Shared) {
        let end = self.probe_end(shared);
        let mut id = self.send.head;
        while !id.is_none() && shared.buffers[id].seq < end {
            let buffer = shared.buffers[id];
            if buffer.end() > self.mtu_search.first && buffer.is_in_flight() {
                self.mark_lost(shared, id);
            }
            id = buffer.next;
        }
        self.mtu_search.from = self.mtu_search.probe;
        self.mtu_search.probe = 0;
        self.plan_next_length(shared);
    }

    /// Restarts the search with all lengths, after `ticks`.
    fn search_longer_after(&mut self, now: Instant, ticks: u16) {
        self.mtu_search = MtuSearch {
            next: tick(now).wrapping_add(ticks),
            ..MtuSearch::NONE
        };
    }

    /// If no length is left to try, schedules a new search.
    fn plan_next_length(&mut self, shared: &Shared) {
        if self.next_length(shared).is_none() {
            self.search_longer_after(shared.now, SEARCH_INTERVAL);
        }
    }
}
