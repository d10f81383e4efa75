//! Whatever is due is written into frames.

use super::template::{Checks, Numbers, Template};
use super::{Connection, Phase, Shared, Signs, State, Waiting, headers_len};
use crate::buffers::{BufferId, Buffers, Marks};
use crate::nic::{Layout, Nic, Offload};
use crate::seq::SeqNumber;
use crate::time::Instant;
use crate::wire::checksum::Sum;
use crate::wire::ethernet::{self, EtherType};
use crate::wire::ip::{self, Protocol};
use crate::wire::tcp::{Flags, Header, Options, Timestamps};

/// The card takes no more frames at the moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NoSlot;

/// What a segment is made of.
pub(super) struct Parts {
    pub(super) flags: Flags,
    pub(super) seq: SeqNumber,
    /// The first buffer of the payload, and how many bytes.
    pub(super) first: BufferId,
    pub(super) len: u32,
}

impl Connection {
    /// Sends what is due, as far as windows and the card allow. The path's next station must be
    /// known.
    pub(crate) fn emit(&mut self, shared: &mut Shared, nic: &mut impl Nic) -> Result<(), NoSlot> {
        if self.emit_ordinary(shared, nic)? {
            return Ok(());
        }
        if self.state == State::Closed {
            return self.emit_reset(shared, nic);
        }
        if self.has_nothing_due() {
            return Ok(());
        }
        self.stir();
        self.rest_if_idle(shared);
        while self.recovery.lost > 0 && self.may_send_more() {
            let Some(id) = self.first_lost(shared) else {
                break;
            };
            if !self.send_from(shared, nic, id)? {
                return Ok(());
            }
            shared.counters.segments_retransmitted += 1;
        }
        while let Some(id) = self.next_unsent(shared) {
            if !self.send_from(shared, nic, id)? {
                return Ok(());
            }
        }
        self.signs.clear(Signs::MUST_SEND);
        if self.signs.has(Signs::PROBE) {
            self.send_segment(shared, nic, self.bare(self.send.una - 1))?;
            self.signs.clear(Signs::PROBE);
        }
        if self.signs.has(Signs::ACK_NOW) {
            self.send_segment(shared, nic, self.bare(self.acceptable()))?;
        } else if self.signs.has(Signs::ACK_LATER) && self.timers.ack_at == Instant::NEVER {
            self.timers.ack_at = shared.now + shared.config.ack_delay;
        }
        if self.timers.waiting == Waiting::None {
            // Whatever has not arrived has a timer, also where one fired and nothing could be sent.
            if self.send.nxt != self.send.una {
                self.set_send_timer(shared);
            } else if !self.send.unsent.is_none() {
                // Nothing is on its way whose acknowledgment could bring a window.
                self.wait_for_window(shared);
            }
        }
        Ok(())
    }

    /// A reset, where one is due.
    fn emit_reset(&mut self, shared: &mut Shared, nic: &mut impl Nic) -> Result<(), NoSlot> {
        if self.signs.has(Signs::RESET_DUE) {
            let parts = Parts {
                flags: Flags::RST.and(Flags::ACK),
                ..self.bare(self.send.nxt)
            };
            self.send_segment(shared, nic, parts)?;
            shared.counters.resets_sent += 1;
            self.signs.clear(Signs::RESET_DUE);
        }
        Ok(())
    }

    fn rest_if_idle(&mut self, shared: &Shared) {
        if self.recovery.pipe == 0 && !self.send.unsent.is_none() && self.recovery.lost == 0 {
            let idle = shared.now.micros_since(self.send.last_at);
            if idle > self.rtt.timeout(shared.rto_min_us) {
                self.congestion.rested(u32::from(self.mss()));
            }
        }
    }

    fn may_send_more(&self) -> bool {
        self.signs.has(Signs::MUST_SEND)
            || self.on_its_way() + u32::from(self.mss()) <= self.congestion.window()
    }

    /// Bytes on their way. Where the peer does not say what it has, each duplicate acknowledgment
    /// stands for a segment that has arrived (RFC 3042; RFC 5681, section 3.2, steps 1, 4 and 5).
    fn on_its_way(&self) -> u32 {
        let left = match self.signs.has(Signs::SACK) || self.recovery.phase == Phase::Loss {
            true => 0,
            false => u32::from(self.recovery.duplicates) * u32::from(self.mss()),
        };
        self.recovery.pipe.saturating_sub(left)
    }

    fn first_lost(&self, shared: &Shared) -> Option<BufferId> {
        let mut id = self.send.head;
        while !id.is_none() {
            if shared.buffers[id].marks.has(Marks::LOST) {
                return Some(id);
            }
            id = shared.buffers[id].next;
        }
        None
    }

    /// The next buffer that has not been sent, if it may be now: the peer's window and the
    /// congestion window have room for it, and it is worth a segment (RFC 9293, section 3.8.6.2.1,
    /// without Nagle's delay).
    fn next_unsent(&mut self, shared: &mut Shared) -> Option<BufferId> {
        let id = self.send.unsent;
        if id.is_none() || self.state == State::SynReceived && shared.buffers[id].len() > 0 {
            return None;
        }
        let buffer = shared.buffers[id];
        if !self.may_send_more() && self.recovery.pipe > 0 {
            let fits = self.on_its_way() + buffer.seq_len() <= self.congestion.window();
            if !fits {
                return None;
            }
        }
        if buffer.marks.has(Marks::SYN) {
            return Some(id);
        }
        let limit = self.send.una + self.send.window;
        let room = limit.since(buffer.seq);
        if buffer.len() == 0 || buffer.len() <= room {
            // A FIN alone needs no window.
            return Some(id);
        }
        // Part of it, where that is half of what the peer ever took, or where the timer says that
        // there has been no more room for long enough.
        let is_overdue = self.signs.has(Signs::MUST_SEND) && self.recovery.pipe == 0;
        let is_much = room >= self.send.window_max / 2 || room >= u32::from(self.mss());
        let is_worth = room > 0 && (is_much || is_overdue);
        if !is_worth {
            return None;
        }
        let last = shared.buffers.split(id, room)?;
        if self.send.tail == id {
            self.send.tail = last;
        }
        Some(id)
    }

    /// Sends a segment with the buffer `first` and those behind it that fit in. False where there is
    /// no memory to cut one that is too long.
    fn send_from(
        &mut self,
        shared: &mut Shared,
        nic: &mut impl Nic,
        first: BufferId,
    ) -> Result<bool, NoSlot> {
        let mss = u32::from(self.mss());
        let limit = self.send.una + self.send.window;
        let buffers = &mut shared.buffers;
        if buffers[first].len() > mss {
            // The path has become narrower.
            let Some(last) = buffers.split(first, mss) else {
                // Whatever gives memory back brings about another attempt.
                self.wait_for_window(shared);
                return Ok(false);
            };
            if self.send.tail == first {
                self.send.tail = last;
            }
        }
        let front = buffers[first];
        let is_new = !front.marks.has(Marks::SENT);
        let longest = match is_new {
            true => self.longest(shared),
            false => mss,
        };
        let buffers = &mut shared.buffers;
        let (mut len, mut flags, mut last) = (0, Flags::ACK, first);
        let mut id = first;
        while !id.is_none() {
            let buffer = &buffers[id];
            // What the card cuts is cut where buffers end: each but the last is a full segment.
            let most = if len % mss == 0 { longest } else { mss };
            let fits = len + buffer.len() <= most
                && buffer.marks.has(Marks::SENT) != is_new
                && (is_new || buffer.marks.has(Marks::LOST))
                && (!is_new || buffer.seq + buffer.len() <= limit)
                && !buffer.marks.has(Marks::SYN);
            if id != first && !fits {
                break;
            }
            len += buffer.len();
            last = id;
            if buffer.marks.has(Marks::FIN) {
                flags = flags.and(Flags::FIN);
            }
            if buffer.marks.has(Marks::SYN) {
                flags = match self.state {
                    State::SynSent => Flags::SYN,
                    _ => Flags::SYN.and(Flags::ACK),
                };
                break;
            }
            id = buffer.next;
        }
        if len > 0 && buffers[last].next.is_none() {
            flags = flags.and(Flags::PSH);
        }
        let parts = Parts {
            flags,
            seq: front.seq,
            first,
            len,
        };
        self.send_segment(shared, nic, parts)?;
        self.note_sent(shared, first, last);
        Ok(true)
    }

    /// Bytes that one frame may carry of what is sent for the first time: a segment's, or as many
    /// segments' as the card cuts itself and the congestion window lets go.
    fn longest(&self, shared: &Shared) -> u32 {
        let mss = u32::from(self.mss());
        let most = shared.features.segmentation_len_max;
        if most < 2 * mss || shared.config.trusts_link || !self.is_ordinary(shared) {
            return mss;
        }
        let room = self.congestion.window().saturating_sub(self.on_its_way());
        (most.min(room) / mss).max(1) * mss
    }

    /// Whether its segments have timestamps and no other option, and the stack's own VLAN.
    #[inline]
    pub(super) fn is_ordinary(&self, shared: &Shared) -> bool {
        self.signs.has(Signs::TIMESTAMPS)
            && self.beyond.is_nothing()
            && self.path.vlan == shared.skeletons.vlan()
    }

    /// Marks buffers as sent.
    fn note_sent(&mut self, shared: &mut Shared, first: BufferId, last: BufferId) {
        let mut id = first;
        loop {
            let buffer = &mut shared.buffers[id];
            self.recovery.change(buffer, |buffer| {
                match buffer.marks.has(Marks::SENT) {
                    true => buffer.marks.set(Marks::RETRANSMITTED),
                    false => buffer.marks.set(Marks::SENT),
                }
                buffer.marks.clear(Marks::LOST);
                buffer.sent_at = shared.now;
            });
            let (end, next) = (buffer.end(), buffer.next);
            self.send.nxt = self.send.nxt.max(end);
            if self.send.unsent == id {
                self.send.unsent = next;
            }
            if id == last {
                break;
            }
            id = next;
        }
        self.send.last_at = shared.now;
        self.signs.clear(Signs::MUST_SEND);
        // One that runs for what was sent before goes on (RFC 6298, section 5), unless a probe of
        // the tail is due earlier.
        let had = (self.timers.waiting, self.timers.send_at);
        if had.0 != Waiting::Reordered {
            self.set_send_timer(shared);
            if had.0 == Waiting::Acknowledgment && self.timers.send_at > had.1 {
                (self.timers.waiting, self.timers.send_at) = had;
            }
        }
    }

    /// The number of a segment without text that the peer takes for one within its window: the next
    /// to be sent. Where the peer has taken back part of a window that it had offered, and more than
    /// what its scaling may cut off or a FIN takes, that is where the window ends, lest two sides
    /// that have both sent too much refuse all that the other says.
    fn acceptable(&self) -> SeqNumber {
        let (nxt, edge) = (self.send.nxt, self.send.una + self.send.window);
        match self.is_open() && nxt.since(edge) > 1 << self.send.shift {
            true => edge,
            false => nxt,
        }
    }

    /// A segment without payload.
    fn bare(&self, seq: SeqNumber) -> Parts {
        Parts {
            flags: Flags::ACK,
            seq,
            first: BufferId::NONE,
            len: 0,
        }
    }

    /// Writes a segment into a frame. All that it acknowledges is acknowledged by it.
    fn send_segment(
        &mut self,
        shared: &mut Shared,
        nic: &mut impl Nic,
        parts: Parts,
    ) -> Result<(), NoSlot> {
        if self.is_ordinary(shared) && !parts.flags.has(Flags::SYN) {
            return self.send_ordinary(shared, nic, &parts, |room, buffers| {
                write_payload(room, buffers, &parts);
            });
        }
        let is_v4 = self.tuple.remote.is_v4();
        let is_syn = parts.flags.has(Flags::SYN);
        let options = self.options(shared, is_syn, parts.len);
        let Some(mac) = self.path.mac else {
            return Ok(());
        };
        let Some(frame) = nic.slot() else {
            return Err(NoSlot);
        };
        let window = match is_syn {
            // Never shifted in a SYN.
            true => {
                let shift = std::mem::take(&mut self.receive.shift);
                let window = self.offer_window(shared);
                self.receive.shift = shift;
                window
            }
            false => self.offer_window(shared),
        };
        let header = Header {
            source: self.tuple.local_port,
            destination: self.tuple.remote_port,
            seq: parts.seq,
            ack: match parts.flags.has(Flags::ACK) {
                true => self.receive.nxt,
                false => SeqNumber(0),
            },
            flags: parts.flags,
            window,
            options,
        };
        let link = ethernet::Header {
            destination: mac,
            source: shared.features.mac,
            vlan: self.path.vlan,
            ether_type: EtherType::of(self.tuple.remote),
        };
        let network_at = link.size();
        let transport_at = network_at + usize::from(headers_len(is_v4)) - 20;
        let payload_at = transport_at + header.size();
        let end = payload_at + parts.len as usize;
        write_payload(&mut frame[payload_at..end], &shared.buffers, &parts);
        let len = end - transport_at;
        let packet = ip::Header::new(self.tuple.local, self.tuple.remote, Protocol::TCP, len);
        link.write(frame);
        let fills = shared.features.fills_checksums;
        packet.write(&mut frame[network_at..], fills);
        header.write(&mut frame[transport_at..]);
        let layout = Layout {
            network: u8::try_from(network_at).expect("18 at most"),
            transport: u8::try_from(transport_at).expect("58 at most"),
            payload: u8::try_from(payload_at).expect("118 at most"),
            is_ipv6: !is_v4,
            is_udp: false,
        };
        let offload = seal(&packet, &mut frame[transport_at..end], shared, layout);
        nic.commit(end, offload);
        self.note_segment(shared);
        Ok(())
    }

    /// As [`Connection::send_segment`], for segments that have timestamps and no other option.
    /// `write_payload` fills the place of the payload.
    #[inline]
    pub(super) fn send_ordinary(
        &mut self,
        shared: &mut Shared,
        nic: &mut impl Nic,
        parts: &Parts,
        write_payload: impl FnOnce(&mut [u8], &Buffers),
    ) -> Result<(), NoSlot> {
        let Some(mac) = self.path.mac else {
            return Ok(());
        };
        if self.template.is_none() {
            self.template = Template::new(&shared.skeletons, &self.tuple);
        }
        let Some(frame) = nic.slot() else {
            return Err(NoSlot);
        };
        let numbers = Numbers {
            seq: parts.seq,
            ack: self.receive.nxt,
            flags: parts.flags,
            window: self.offer_window(shared),
            timestamps: Timestamps {
                value: self.clock(shared.now),
                echo: self.receive.ts_recent,
            },
        };
        let is_v4 = self.tuple.remote.is_v4();
        let payload_at = shared.skeletons.payload_at(is_v4);
        let end = payload_at + parts.len as usize;
        write_payload(&mut frame[payload_at..end], &shared.buffers);
        let mss = self.mss();
        let is_cut = parts.len > u32::from(mss);
        let offload = match (shared.config.trusts_link, shared.features.fills_checksums) {
            (false, true) if is_cut => Offload::Segment(shared.skeletons.layout(is_v4), mss),
            (false, true) => Offload::Checksum(shared.skeletons.layout(is_v4)),
            _ => Offload::None,
        };
        let checks = match shared.config.trusts_link {
            true => Checks::Nobody,
            false => Checks::of(offload),
        };
        let whose = (&self.tuple, mac);
        self.template
            .write(&shared.skeletons, whose, frame, end, &numbers, checks);
        nic.commit(end, offload);
        if is_cut {
            let more = parts.len.div_ceil(u32::from(mss)) - 1;
            shared.counters.segments_sent += u64::from(more);
        }
        self.note_segment(shared);
        Ok(())
    }

    /// A segment has been written, with which all that came is acknowledged.
    #[inline]
    fn note_segment(&mut self, shared: &mut Shared) {
        shared.counters.segments_sent += 1;
        shared.counters.frames_sent += 1;
        self.signs.clear(Signs::ACK_NOW);
        self.signs.clear(Signs::ACK_LATER);
        self.timers.ack_at = Instant::NEVER;
        self.receive.acked = self.receive.nxt;
        self.receive.unacknowledged = 0;
    }

    fn options(&mut self, shared: &Shared, is_syn: bool, len: u32) -> Options {
        let timestamps = self.signs.has(Signs::TIMESTAMPS).then(|| Timestamps {
            value: self.clock(shared.now),
            echo: match self.state {
                State::SynSent => 0,
                _ => self.receive.ts_recent,
            },
        });
        if !is_syn {
            // A segment that is full has no room for them.
            let room = u32::from(self.mss()).saturating_sub(len) as usize;
            let most = if timestamps.is_some() { 3 } else { 4 };
            let max = if len == 0 {
                most
            } else {
                (room / 8).saturating_sub(1).min(3)
            };
            let sack = self.sack(&shared.buffers, max);
            return Options {
                timestamps,
                sack,
                ..Options::default()
            };
        }
        let is_offered =
            self.state == State::SynSent || self.receive.shift > 0 || self.send.shift > 0;
        Options {
            mss: Some(shared.features.mtu - headers_len(self.tuple.remote.is_v4())),
            window_scale: is_offered.then_some(self.receive.shift),
            sack_permitted: self.signs.has(Signs::SACK),
            timestamps,
            ..Options::default()
        }
    }
}

/// Copies the payload of a segment to its place in a frame.
#[inline]
fn write_payload(mut room: &mut [u8], buffers: &Buffers, parts: &Parts) {
    let mut id = parts.first;
    while !room.is_empty() {
        let bytes = buffers.bytes(id);
        let (place, rest) = room.split_at_mut(bytes.len());
        place.copy_from_slice(bytes);
        room = rest;
        id = buffers[id].next;
    }
}

/// Fills the checksum of a TCP segment in, or has the card do so.
pub(crate) fn seal(
    packet: &ip::Header,
    bytes: &mut [u8],
    shared: &Shared,
    layout: Layout,
) -> Offload {
    const AT: usize = 16;
    if shared.config.trusts_link {
        return Offload::None;
    }
    let sum = Sum::pseudo_header(
        packet.source,
        packet.destination,
        packet.protocol.0,
        bytes.len(),
    );
    if shared.features.fills_checksums {
        bytes[AT..AT + 2].copy_from_slice(&sum.folded().to_be_bytes());
        return Offload::Checksum(layout);
    }
    let checksum = sum.with(bytes).checksum();
    bytes[AT..AT + 2].copy_from_slice(&checksum.to_be_bytes());
    Offload::None
}
