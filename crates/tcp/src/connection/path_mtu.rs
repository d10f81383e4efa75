//! How long packets may be: shorter ones where a path swallows long ones, and longer ones again.
//!
//! Nobody says when a path takes long packets again, or that it was an outage and not their length
//! that swallowed them. So a segment of a longer packet is sent now and then as a probe (RFC 4821,
//! section 7): with bytes that are due anyway, and only while nothing else is missing. Where it
//! arrives, all later packets may be as long. Where it is lost, its bytes go again in shorter
//! segments, and that says nothing about congestion.

use super::segment::NoSlot;
use super::{Connection, ConnectionFlags, Phase, Shared, headers_len};
use crate::buffers::{BufferId, Marks};
use crate::nic::Nic;
use crate::seq::SeqNumber;
use crate::time::Instant;

/// Microseconds of a tick by which the search goes: 65,536 of them are six days.
const TICK_US: u64 = 8_000_000;

/// Ticks after which longer packets are tried again: ten minutes (RFC 1191, section 6.3).
const SEARCH_INTERVAL: u16 = 75;

/// Bytes of packets that many paths take which take no longer ones: Ethernet's, and a tunnel's.
const COMMON: [u16; 2] = [1500, 1400];

/// Bytes of the packets that nearly all paths take, over IPv4 and over IPv6.
const LEAST_V4: u16 = 576;
const LEAST_V6: u16 = 1280;

/// The search for the longest packet that a path takes, once shorter ones than the card's were
/// needed. Nothing of it is looked at before.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MtuSearch {
    /// The tick of the stack's clock before which nothing is tried.
    next: u16,
    /// The first of [`lengths`] that was not lost in this search (RFC 4821, `search_high`).
    from: u8,
    /// Behind that of the packet that is on its way as a probe; 0 where none is.
    probe: u8,
    /// The first number of the probe's segment.
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

    /// Whether a probe is on its way.
    pub(super) fn is_probing(&self) -> bool {
        self.probe > 0
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the clock wraps around")]
fn tick(now: Instant) -> u16 {
    (now.micros() / TICK_US) as u16
}

/// The lengths of packets that are tried, the card's first: of the others those between that and
/// what passes.
const fn lengths(shared: &Shared) -> [u16; 3] {
    [shared.features.mtu, COMMON[0], COMMON[1]]
}

impl Connection {
    /// Packets of more than `mtu` bytes do not arrive, says a router about the segment at `seq`.
    /// True where that is new: what is on its way goes again.
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

    /// No answer comes to long packets (RFC 4821, section 7.7): lengths are used that nearly all
    /// paths take. Whether it is the length is tried as soon as anything arrives again.
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

    /// Sends a segment of a longer packet as a probe, where one is due and all allows it (RFC 4821,
    /// section 7.4): nothing is missing, enough waits to fill it, and both windows have room.
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

    /// The number of the length of packet to try next, and the payload of a segment in it; none where nothing
    /// longer is left, or where the peer takes no longer segments anyway.
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

    /// The length of the packet that is on its way as a probe.
    fn probe_mtu(&self, shared: &Shared) -> u16 {
        lengths(shared)[usize::from(self.mtu_search.probe) - 1]
    }

    /// The number behind the last of the probe's segment.
    fn probe_end(&self, shared: &Shared) -> SeqNumber {
        self.mtu_search.first + u32::from(self.mss_within(self.probe_mtu(shared)))
    }

    /// Sees to it that buffers from `first` on hold just so many bytes together, none of which was
    /// sent. False where they are too few, or there is no memory to cut one.
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

    /// What has become of the probe. True where it is lost, and nothing beside it.
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

    /// The probe is lost: all of it goes again, in segments of the usual length.
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

    /// All lengths are tried anew, after a wait.
    fn search_longer_after(&mut self, now: Instant, ticks: u16) {
        self.mtu_search = MtuSearch {
            next: tick(now).wrapping_add(ticks),
            ..MtuSearch::NONE
        };
    }

    /// Where no length is left to try, all are tried after a while.
    fn plan_next_length(&mut self, shared: &Shared) {
        if self.next_length(shared).is_none() {
            self.search_longer_after(shared.now, SEARCH_INTERVAL);
        }
    }
}
