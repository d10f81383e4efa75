//! Demultiplexing: which protocol and connection a received frame is for.

use super::link::LinkAddress;
use super::opening::Incoming;
use super::user::Datagram;
use super::{Failure, Stack};
use crate::connection::{Arrived, Connection, ConnectionFlags, Payload, Shared, State};
use crate::limits::Answer;
use crate::nic::{Frame, Nic};
use crate::wire::checksum::Sum;
use crate::wire::ethernet::{self, EtherType};
use crate::wire::four_tuple::FourTuple;
use crate::wire::ip::{self, Protocol};
use crate::wire::tcp::{Flags, Header};
use crate::wire::{Address, Malformed, udp};

/// A packet within its frame.
#[derive(Clone, Copy)]
pub(super) struct Packet<'f> {
    pub(super) link: LinkAddress,
    pub(super) header: ip::Header,
    /// What follows the IP headers.
    pub(super) payload: &'f [u8],
    /// Where in the frame the payload begins.
    pub(super) start: usize,
    /// The frame's number in its burst.
    pub(super) frame: usize,
    /// Whether its checksums are known to be right.
    pub(super) is_verified: bool,
}

/// The state of a connection before a segment: what a segment may change and the stack or its user
/// must learn of.
pub(super) struct Before {
    has_fresh: bool,
    unread: u32,
    has_ended: bool,
    state: State,
    /// Room to send; `None` if the user does not wait for it.
    room: Option<u32>,
}

impl Before {
    /// Notes the present state.
    #[inline]
    pub(super) fn of(connection: &Connection, shared: &Shared) -> Before {
        let wants_room = connection.flags.has(ConnectionFlags::WANTS_ROOM);
        Before {
            has_fresh: connection.has_fresh(),
            unread: connection.receive.unread,
            has_ended: connection.flags.has(ConnectionFlags::PEER_ENDED),
            state: connection.state,
            room: wants_room.then(|| connection.send_room(shared)),
        }
    }
}

impl Stack {
    /// Delivers a frame of the burst, or counts why it is dropped.
    pub(super) fn take_frame(&mut self, nic: &impl Nic, number: usize) {
        self.shared.counters.frames_received += 1;
        let Frame { bytes, is_verified } = nic.frame(number);
        let is_verified = is_verified || self.shared.config.trusts_link;
        if self.take_usual_datagram(bytes, number, is_verified) {
            return;
        }
        if let Err(malformed) = self.try_frame(nic, bytes, number, is_verified) {
            let counters = &mut self.shared.counters;
            match malformed {
                Malformed::Length => counters.dropped_length += 1,
                Malformed::Checksum => counters.dropped_checksum += 1,
                Malformed::Fragment => counters.dropped_fragment += 1,
                Malformed::Field => counters.dropped_field += 1,
            }
        }
    }

    pub(super) fn try_frame(
        &mut self,
        nic: &impl Nic,
        bytes: &[u8],
        frame: usize,
        is_verified: bool,
    ) -> Result<(), Malformed> {
        let (link, at) = ethernet::Header::read(bytes)?;
        if link.source.is_group() {
            return Err(Malformed::Field);
        }
        let is_group = link.destination.is_group();
        if !is_group && link.destination != self.shared.features.mac {
            self.shared.counters.dropped_not_ours += 1;
            return Ok(());
        }
        let from = LinkAddress {
            mac: link.source,
            vlan: link.vlan,
        };
        let rest = &bytes[at..];
        let (header, header_len) = match link.ether_type {
            EtherType::IPV4 => ip::Header::read_v4(rest, is_verified)?,
            EtherType::IPV6 => ip::Header::read_v6(rest)?,
            EtherType::ARP => return self.take_arp(from, rest),
            _ => {
                self.shared.counters.dropped_protocol += 1;
                return Ok(());
            }
        };
        let packet = Packet {
            link: from,
            header,
            payload: &rest[header_len..header_len + header.payload_len],
            start: at + header_len,
            frame,
            is_verified,
        };
        // Broadcast and multicast segments are ignored (RFC 1122, section 4.2.3.10).
        if header.protocol == Protocol::TCP && !is_group {
            return self.take_segment(nic, &packet);
        }
        if !self.is_for_us(&packet, is_group) {
            return Ok(());
        }
        match header.protocol {
            Protocol::UDP if !is_group => self.take_datagram(&packet),
            Protocol::ICMP if header.source.is_v4() && !is_group => self.take_icmp(&packet),
            Protocol::ICMPV6 if !header.source.is_v4() => self.take_icmp(&packet),
            _ => {
                self.shared.counters.dropped_protocol += 1;
                Ok(())
            }
        }
    }

    /// Whether source and destination are such that the packet is processed.
    fn is_for_us(&mut self, packet: &Packet<'_>, is_group: bool) -> bool {
        let ip::Header {
            source,
            destination,
            protocol,
            ..
        } = packet.header;
        let config = &self.shared.config;
        let is_near = protocol == Protocol::ICMPV6;
        let is_solicited = is_group
            && is_near
            && config
                .addresses
                .iter()
                .any(|own| own.address().solicited_node() == destination);
        let kind = packet.payload.first();
        // A router's MLD query (RFC 3810) counts even if the router may not connect.
        let is_query = is_group
            && is_near
            && packet.header.hop_limit == 1
            && source.is_link_local()
            && kind == Some(&130);
        if is_query {
            return true;
        }
        if !config.is_own(destination) && !is_solicited {
            self.shared.counters.dropped_not_ours += 1;
            return false;
        }
        // Duplicate address detection comes from the unspecified address (RFC 4862, section 5.4.2).
        // A host that may not connect, such as the gateway, is a neighbour all the same.
        let is_neighbours = is_near
            && packet.header.hop_limit == 255
            && matches!(kind, Some(135 | 136))
            && source.is_station()
            && !config.is_own(source);
        let takes =
            config.takes_from(source) || is_neighbours || is_near && source == Address::UNSPECIFIED;
        if !takes {
            self.shared.counters.dropped_source += 1;
        }
        takes
    }

    fn take_segment(&mut self, nic: &impl Nic, packet: &Packet<'_>) -> Result<(), Malformed> {
        let (header, header_len) = Header::read(packet.payload)?;
        if !packet.is_verified && !has_right_sum(packet) {
            return Err(Malformed::Checksum);
        }
        self.shared.counters.segments_received += 1;
        let tuple = FourTuple {
            local: packet.header.destination,
            remote: packet.header.source,
            local_port: header.destination,
            remote_port: header.source,
        };
        let payload = Payload {
            bytes: &packet.payload[header_len..],
            frame: u16::try_from(packet.frame).expect("within a burst"),
            start: u16::try_from(packet.start + header_len).map_err(|_| Malformed::Length)?,
            is_marked: packet.header.ecn == ip::CE,
        };
        let hash = self.table.hash(&tuple);
        match self.find(&tuple, hash) {
            // Its addresses were checked when the connection began.
            Some(index) if self.is_misdirected(index, &header) => {
                self.reset(&tuple, packet.link, &header, payload.bytes.len());
            }
            Some(index) => self.deliver(nic, index, packet, &header, payload),
            None if !self.is_for_us(packet, false) => {}
            None => self.take_incoming(
                nic,
                &Incoming {
                    tuple,
                    hash,
                    link: packet.link,
                    header,
                    payload,
                    frame: nic.frame(packet.frame).bytes,
                },
            ),
        }
        Ok(())
    }

    /// Notes what a segment has changed. True if the user is to be told.
    #[inline(always)]
    pub(super) fn note_news(&mut self, index: u32, before: &Before) -> bool {
        let connection = &mut self.connections[index as usize];
        let has_more = connection.receive.unread > before.unread
            || connection.flags.has(ConnectionFlags::PEER_ENDED) != before.has_ended;
        let has_room = before
            .room
            .is_some_and(|room| connection.send_room(&self.shared) > room);
        if has_room {
            connection.flags.clear(ConnectionFlags::WANTS_ROOM);
        }
        if connection.has_fresh() && !before.has_fresh {
            self.fresh.push(index);
        }
        has_more || has_room
    }

    /// Hands a segment to its connection.
    pub(super) fn deliver(
        &mut self,
        nic: &impl Nic,
        index: u32,
        packet: &Packet<'_>,
        header: &Header,
        payload: Payload<'_>,
    ) {
        let connection = &mut self.connections[index as usize];
        let before = Before::of(connection, &self.shared);
        let arrived = connection.arrives(&mut self.shared, nic, header, payload);
        // The sender of a segment that fits into the window is the peer, so its link address is the
        // peer's.
        if connection.receive.is_vouched {
            connection.note_path(packet.link.mac, packet.link.vlan);
        }
        let has_news = self.note_news(index, &before);
        match arrived {
            Arrived::Settled => {}
            Arrived::Opened => self.opened(index),
            Arrived::Refused => {
                let tuple = self.connections[index as usize].tuple;
                // A retransmitted SYN may have arrived on another queue than the first, and the
                // peer may have accepted the other queue's SYN-ACK.
                if !self.pass_on(nic.frame(packet.frame).bytes, tuple.remote) {
                    self.reset(&tuple, packet.link, header, payload.bytes.len());
                }
            }
            Arrived::Superseded => {
                self.shared.predecessor = Some(self.connections[index as usize].send.nxt);
                let (tuple, hash) = {
                    let connection = &mut self.connections[index as usize];
                    connection.failure.get_or_insert(Failure::Aborted);
                    (connection.tuple, connection.hash)
                };
                self.supersede(index);
                self.take_incoming(
                    nic,
                    &Incoming {
                        tuple,
                        hash,
                        link: packet.link,
                        header: *header,
                        payload,
                        frame: nic.frame(packet.frame).bytes,
                    },
                );
                self.shared.predecessor = None;
                return;
            }
        }
        if has_news {
            self.list_ready(index);
        }
        self.after_change(index);
        self.list_to_emit(index);
        let connection = &self.connections[index as usize];
        if connection.state == State::TimeWait
            && before.state != State::TimeWait
            && connection.flags.has(ConnectionFlags::ORPHAN)
        {
            self.note_orphan(index);
        }
    }

    /// Takes a datagram whose fields are at the predicted offsets. False if the frame is something
    /// else, or no datagrams are received on its port; nothing has changed then.
    #[inline]
    fn take_usual_datagram(&mut self, bytes: &[u8], number: usize, is_verified: bool) -> bool {
        let (own, config) = (self.shared.features.mac, &self.shared.config);
        let Some(predicted) = udp::PredictedDatagram::at(bytes, own, is_verified) else {
            return false;
        };
        let udp::PredictedDatagram {
            mac,
            tuple,
            start,
            len,
        } = predicted;
        let is_taken = self.datagrams_at.contains(&tuple.local_port)
            && tuple.remote_port != 0
            && config.is_own(tuple.local)
            && config.takes_from(tuple.remote);
        if is_taken {
            self.shared.counters.datagrams_received += 1;
            self.datagrams.push_back(Datagram {
                tuple,
                link: LinkAddress { mac, vlan: 0 },
                frame: u16::try_from(number).expect("within a burst"),
                start,
                len,
            });
        }
        is_taken
    }

    fn take_datagram(&mut self, packet: &Packet<'_>) -> Result<(), Malformed> {
        let header = udp::Header::read(packet.payload)?;
        let bytes = &packet.payload[..udp::HEADER_LEN + header.payload_len];
        // IPv6 requires a checksum (RFC 8200, section 8.1); with IPv4 it may be left out.
        let is_sealed = header.checksum != 0 || !packet.header.source.is_v4();
        let sum = Sum::pseudo_header(
            packet.header.source,
            packet.header.destination,
            Protocol::UDP.0,
            bytes.len(),
        );
        if is_sealed && !packet.is_verified && !sum.with(bytes).is_right() {
            return Err(Malformed::Checksum);
        }
        if !self.datagrams_at.contains(&header.destination) || header.source == 0 {
            self.shared.counters.dropped_port += 1;
            return Ok(());
        }
        let start = u16::try_from(packet.start + udp::HEADER_LEN).map_err(|_| Malformed::Length)?;
        let len = u16::try_from(header.payload_len).map_err(|_| Malformed::Length)?;
        self.shared.counters.datagrams_received += 1;
        self.datagrams.push_back(Datagram {
            tuple: FourTuple {
                local: packet.header.destination,
                remote: packet.header.source,
                local_port: header.destination,
                remote_port: header.source,
            },
            link: packet.link,
            frame: u16::try_from(packet.frame).expect("within a burst"),
            start,
            len,
        });
        Ok(())
    }

    /// Sends a reset, unless the segment that arrived is one itself (RFC 9293, section 3.10.7.1).
    pub(super) fn reset(
        &mut self,
        tuple: &FourTuple,
        link: LinkAddress,
        header: &Header,
        len: usize,
    ) {
        if header.flags.has(Flags::RST) || !self.shared.may_answer(Answer::Reset, tuple.remote) {
            return;
        }
        self.shared.counters.resets_sent += 1;
        self.reply_with_reset(tuple, link, header, len);
    }
}

fn has_right_sum(packet: &Packet<'_>) -> bool {
    let header = &packet.header;
    let len = packet.payload.len();
    Sum::pseudo_header(header.source, header.destination, Protocol::TCP.0, len)
        .with(packet.payload)
        .is_right()
}
