//! Writes a segment into a frame.

use super::template::{Checks, Numbers, Template};
use super::{Connection, ConnectionFlags, Shared, State, headers_len};
use crate::buffers::{BufferId, Buffers};
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
    /// Whether queues may mark it: `ECT_0`, or 0.
    pub(super) ect: u8,
}

impl Connection {
    /// Whether its segments have timestamps and no other option, and the stack's own VLAN.
    #[inline]
    pub(super) fn has_template(&self, shared: &Shared) -> bool {
        self.flags.has(ConnectionFlags::TIMESTAMPS)
            && self.out_of_order.is_nothing()
            && self.path.vlan == shared.skeletons.vlan()
    }

    /// Writes a segment into a frame. It acknowledges all that was received.
    pub(super) fn send_segment(
        &mut self,
        shared: &mut Shared,
        nic: &mut impl Nic,
        mut parts: Parts,
    ) -> Result<(), NoSlot> {
        let told = match parts.flags.has(Flags::SYN) {
            true => Flags::default(),
            false => self.ecn_of(&parts),
        };
        parts.flags = parts.flags.and(told);
        if self.has_template(shared) && !parts.flags.has(Flags::SYN) {
            self.send_by_template(shared, nic, &parts, |room, buffers, checks| {
                write_payload(room, buffers, &parts);
                checks.sum_of(room)
            })?;
        } else {
            self.send_with_options(shared, nic, &parts)?;
        }
        if told.has(Flags::CWR) {
            self.flags.clear(ConnectionFlags::CWR_DUE);
        }
        Ok(())
    }

    /// As [`Connection::send_segment`], for segments with any options.
    fn send_with_options(
        &mut self,
        shared: &mut Shared,
        nic: &mut impl Nic,
        parts: &Parts,
    ) -> Result<(), NoSlot> {
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
            // The window in a SYN is never scaled.
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
        write_payload(&mut frame[payload_at..end], &shared.buffers, parts);
        let len = end - transport_at;
        let packet = ip::Header {
            ecn: parts.ect,
            ..ip::Header::new(self.tuple.local, self.tuple.remote, Protocol::TCP, len)
        };
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

    /// Like [`Connection::send_segment`], for segments that have timestamps and no other option.
    /// `write_payload` writes the payload and returns its sum if that is wanted, preferably
    /// computed from the source: reading what was only just written is slow.
    #[inline]
    pub(super) fn send_by_template(
        &mut self,
        shared: &mut Shared,
        nic: &mut impl Nic,
        parts: &Parts,
        write_payload: impl FnOnce(&mut [u8], &Buffers, Checks) -> Sum,
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
            ect: parts.ect,
        };
        let is_v4 = self.tuple.remote.is_v4();
        let payload_at = shared.skeletons.payload_at(is_v4);
        let end = payload_at + parts.len as usize;
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
        let payload = write_payload(&mut frame[payload_at..end], &shared.buffers, checks);
        let whose = (&self.tuple, mac);
        self.template.write(
            &shared.skeletons,
            whose,
            (frame, end),
            payload,
            &numbers,
            checks,
        );
        nic.commit(end, offload);
        if is_cut {
            let more = parts.len.div_ceil(u32::from(mss)) - 1;
            shared.counters.segments_sent += u64::from(more);
        }
        self.note_segment(shared);
        Ok(())
    }

    /// Notes that a segment has been written, which acknowledges all that was received.
    #[inline]
    fn note_segment(&mut self, shared: &mut Shared) {
        shared.counters.segments_sent += 1;
        shared.counters.frames_sent += 1;
        self.flags.clear(ConnectionFlags::ACK_NOW);
        self.flags.clear(ConnectionFlags::ACK_LATER);
        self.timers.ack_at = Instant::NEVER;
        self.receive.acked = self.receive.nxt;
        self.receive.unacknowledged = 0;
    }

    fn options(&mut self, shared: &Shared, is_syn: bool, len: u32) -> Options {
        let timestamps = self
            .flags
            .has(ConnectionFlags::TIMESTAMPS)
            .then(|| Timestamps {
                value: self.clock(shared.now),
                echo: match self.state {
                    State::SynSent => 0,
                    _ => self.receive.ts_recent,
                },
            });
        if !is_syn {
            // A full segment has no room for SACK blocks.
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
            sack_permitted: self.flags.has(ConnectionFlags::SACK),
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

/// Fills in the checksum of a TCP segment, or lets the card do it.
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
