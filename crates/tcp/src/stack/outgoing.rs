//! Sending: segments and packets that belong to no connection first, then all connections with
//! something to send.

use super::Stack;
use super::link::LinkAddress;
use crate::connection::{ConnectionFlags, State, answer_to, seal};
use crate::nic::{Layout, Nic, Offload};
use crate::seq::SeqNumber;
use crate::wire::ethernet::{self, EtherType};
use crate::wire::four_tuple::FourTuple;
use crate::wire::icmp::{self, Solicited};
use crate::wire::ip::{self, Protocol};
use crate::wire::mld::{Record, Report};
use crate::wire::tcp::{Flags, Header};
use crate::wire::{Address, arp, udp};

/// The most replies that belong to no connection in one turn, of each kind.
pub(super) const REPLIES_MAX: usize = 128;

/// The most echo requests that a turn answers, and the most bytes of each.
pub(super) const ECHOES_MAX: usize = 8;
pub(super) const ECHO_LEN_MAX: usize = 9216;

/// A segment that belongs to no connection.
pub(super) struct Reply {
    pub(super) link: LinkAddress,
    pub(super) local: Address,
    pub(super) remote: Address,
    pub(super) header: Header,
}

/// A packet of neighbour discovery or of MLD.
pub(super) enum Control {
    /// An ARP packet.
    Arp(LinkAddress, arp::Packet),
    /// A neighbour advertisement of one of our addresses, to the address that solicited it; to all
    /// nodes if there is none.
    Advertise(LinkAddress, Address, Option<Address>),
    /// A neighbour solicitation.
    Solicit(Address, Address),
    /// Reports of the groups that are listened to: of MLDv2 with a record type, else of MLDv1.
    Report(Option<Record>),
}

/// An echo request whose payload lies in a frame of the burst.
pub(super) struct Echo {
    pub(super) link: LinkAddress,
    pub(super) local: Address,
    pub(super) remote: Address,
    pub(super) frame: usize,
    pub(super) start: usize,
    pub(super) len: usize,
}

impl Stack {
    /// Queues a segment that belongs to no connection.
    pub(super) fn reply(&mut self, reply: Reply) {
        if self.replies.len() < REPLIES_MAX {
            self.replies.push(reply);
        } else {
            self.shared.counters.dropped_no_slot += 1;
        }
    }

    /// Queues a packet of neighbour discovery or of MLD.
    pub(super) fn control(&mut self, control: Control) {
        if self.controls.len() < REPLIES_MAX {
            self.controls.push(control);
        } else {
            self.shared.counters.dropped_no_slot += 1;
        }
    }

    pub(super) fn reply_with_reset(
        &mut self,
        tuple: &FourTuple,
        link: LinkAddress,
        header: &Header,
        len: usize,
    ) {
        let (seq, ack) = answer_to(header, len);
        self.reply(Reply {
            link,
            local: tuple.local,
            remote: tuple.remote,
            header: Header {
                source: tuple.local_port,
                destination: tuple.remote_port,
                seq,
                ack: ack.unwrap_or(SeqNumber(0)),
                flags: match ack {
                    Some(_) => Flags::RST.and(Flags::ACK),
                    None => Flags::RST,
                },
                ..Header::default()
            },
        });
    }

    /// Sends what belongs to no connection. What the card has no room for is dropped, as a network
    /// may drop it.
    pub(super) fn emit_replies(&mut self, nic: &mut impl Nic) {
        while let Some(control) = self.controls.pop() {
            self.emit_control(nic, &control);
        }
        while let Some(reply) = self.replies.pop() {
            let packet = ip::Header::new(
                reply.local,
                reply.remote,
                Protocol::TCP,
                reply.header.size(),
            );
            let size = reply.header.size();
            self.emit_packet(nic, reply.link, &packet, size, |bytes| {
                reply.header.write(bytes);
            });
        }
        while let Some(echo) = self.echoes.pop() {
            let bytes = &nic.frame(echo.frame).bytes[echo.start..][..echo.len];
            self.scratch[..echo.len].copy_from_slice(bytes);
            let protocol = if echo.local.is_v4() {
                Protocol::ICMP
            } else {
                Protocol::ICMPV6
            };
            let packet = ip::Header::new(echo.local, echo.remote, protocol, 4 + echo.len);
            let scratch = std::mem::take(&mut self.scratch);
            self.emit_packet(nic, echo.link, &packet, 0, |bytes| {
                icmp::write_echo_reply(&packet, &scratch[..echo.len], bytes);
            });
            self.scratch = scratch;
        }
    }

    /// Queues a report of the groups that are listened to, if one is due.
    #[inline]
    pub(super) fn report_groups(&mut self) {
        let shared = &self.shared;
        if let Some(record) = self.listener.due(&shared.secrets, shared.now) {
            self.control(Control::Report(record));
        }
    }

    /// Asks for the MAC addresses that turned out to be missing.
    pub(super) fn emit_questions(&mut self, nic: &mut impl Nic) {
        while let Some(address) = self.neighbours.next_question() {
            self.ask_for(address);
        }
        while let Some(control) = self.controls.pop() {
            self.emit_control(nic, &control);
        }
    }

    /// Writes a packet into a frame. `header_len` is the length of the TCP header, whose checksum
    /// is filled in; 0 if the packet is not TCP.
    pub(super) fn emit_packet(
        &mut self,
        nic: &mut impl Nic,
        link: LinkAddress,
        packet: &ip::Header,
        header_len: usize,
        write: impl FnOnce(&mut [u8]),
    ) -> bool {
        let is_v4 = packet.source.is_v4();
        let ethernet = ethernet::Header {
            destination: link.mac,
            source: self.shared.features.mac,
            vlan: link.vlan,
            ether_type: EtherType::of(packet.source),
        };
        let network_at = ethernet.size();
        let transport_at = network_at + packet.size();
        let end = transport_at + packet.payload_len;
        let Some(frame) = nic.slot().filter(|frame| frame.len() >= end) else {
            self.shared.counters.dropped_no_slot += 1;
            return false;
        };
        ethernet.write(frame);
        // The card fills in no checksum of a packet that is not TCP.
        let fills = self.shared.features.fills_checksums && header_len > 0;
        packet.write(&mut frame[network_at..], fills);
        write(&mut frame[transport_at..end]);
        let mut offload = Offload::None;
        if header_len > 0 {
            let layout = Layout {
                network: u8::try_from(network_at).expect("18 at most"),
                transport: u8::try_from(transport_at).expect("58 at most"),
                payload: u8::try_from(transport_at + header_len).expect("118 at most"),
                is_ipv6: !is_v4,
                is_udp: false,
            };
            offload = seal(packet, &mut frame[transport_at..end], &self.shared, layout);
        }
        nic.commit(end, offload);
        let counters = &mut self.shared.counters;
        counters.frames_sent += 1;
        counters.segments_sent += u64::from(packet.protocol == Protocol::TCP);
        true
    }

    /// Writes a datagram into a frame. Its payload is `pieces`, one after another.
    #[inline]
    pub(super) fn emit_datagram(
        &mut self,
        nic: &mut impl Nic,
        link: LinkAddress,
        tuple: &FourTuple,
        pieces: &[&[u8]],
    ) -> bool {
        let features = &self.shared.features;
        let envelope = udp::Envelope {
            source: features.mac,
            destination: link.mac,
            vlan: link.vlan,
            tuple,
            fills_checksums: features.fills_checksums,
            trusts_link: self.shared.config.trusts_link,
        };
        let (network_at, mut at) = envelope.places();
        let end = at + pieces.iter().map(|piece| piece.len()).sum::<usize>();
        if end - network_at > usize::from(features.mtu) {
            return false;
        }
        let Some(frame) = nic.slot().and_then(|slot| slot.get_mut(..end)) else {
            self.shared.counters.dropped_no_slot += 1;
            return false;
        };
        for piece in pieces {
            frame[at..at + piece.len()].copy_from_slice(piece);
            at += piece.len();
        }
        let offload = envelope.write(frame);
        nic.commit(end, offload);
        self.shared.counters.frames_sent += 1;
        self.shared.counters.datagrams_sent += 1;
        true
    }

    fn emit_control(&mut self, nic: &mut impl Nic, control: &Control) {
        let own_mac = self.shared.features.mac;
        match *control {
            Control::Arp(link, ref packet) => {
                let ethernet = ethernet::Header {
                    destination: link.mac,
                    source: own_mac,
                    vlan: link.vlan,
                    ether_type: EtherType::ARP,
                };
                let Some(frame) = nic.slot() else {
                    self.shared.counters.dropped_no_slot += 1;
                    return;
                };
                ethernet.write(frame);
                packet.write(&mut frame[ethernet.size()..]);
                self.shared.counters.frames_sent += 1;
                nic.commit(ethernet.size() + arp::LEN, Offload::None);
            }
            Control::Advertise(link, own, to) => {
                let all = Address::v6([0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
                let is_solicited = Solicited(to.is_some());
                self.emit_neighbour(nic, link, (own, to.unwrap_or(all)), own, Some(is_solicited));
            }
            Control::Report(record) => self.emit_reports(nic, record),
            Control::Solicit(from, target) => {
                let group = target.solicited_node();
                let link = self.link_to_group(group);
                self.emit_neighbour(nic, link, (from, group), target, None);
            }
        }
    }

    /// The link address of an IPv6 multicast group (RFC 2464, section 7).
    fn link_to_group(&self, group: Address) -> LinkAddress {
        let [.., a, b, c, d] = group.octets();
        LinkAddress {
            mac: crate::nic::Mac([0x33, 0x33, a, b, c, d]),
            vlan: self.shared.config.vlan,
        }
    }

    /// Reports all groups in one packet (MLDv2), or each in a packet of its own (MLDv1).
    fn emit_reports(&mut self, nic: &mut impl Nic, record: Option<Record>) {
        let groups = self.listener.groups().to_vec();
        let together = if record.is_some() { groups.len() } else { 1 };
        for groups in groups.chunks(together) {
            let report = Report { groups, record };
            let packet = report.header(self.listener.source());
            let link = self.link_to_group(report.destination());
            self.emit_packet(nic, link, &packet, 0, |bytes| report.write(&packet, bytes));
        }
    }

    fn emit_neighbour(
        &mut self,
        nic: &mut impl Nic,
        link: LinkAddress,
        (from, to): (Address, Address),
        target: Address,
        answers: Option<Solicited>,
    ) {
        let own_mac = self.shared.features.mac;
        let packet = ip::Header {
            // The receiver can tell from this that no router has forwarded it.
            hop_limit: 255,
            ..ip::Header::new(from, to, Protocol::ICMPV6, icmp::NEIGHBOUR_LEN)
        };
        self.emit_packet(nic, link, &packet, 0, |bytes| {
            icmp::write_neighbour(&packet, target, own_mac, answers, bytes);
        });
    }

    /// Sends what is due for all connections in `to_emit`. Those for which the card has no room
    /// stay there.
    pub(super) fn emit_connections(&mut self, nic: &mut impl Nic) {
        let mut done = 0;
        while let Some(&index) = self.to_emit.get(done) {
            if !self.emit_connection(nic, index) {
                break;
            }
            done += 1;
        }
        self.to_emit.drain(..done);
    }

    /// False if the card takes no more frames.
    fn emit_connection(&mut self, nic: &mut impl Nic, index: u32) -> bool {
        if !self.connections[index as usize]
            .flags
            .has(ConnectionFlags::LISTED_TO_EMIT)
        {
            // The connection is gone.
            return true;
        }
        let connection = &mut self.connections[index as usize];
        if connection.flags.has(ConnectionFlags::PREDICTED) && connection.has_nothing_due() {
            // Its reply has left already.
            connection.flags.clear(ConnectionFlags::LISTED_TO_EMIT);
            self.set_timer(index);
            return true;
        }
        if connection.path.mac.is_none() && !self.find_mac(index) {
            return true;
        }
        let connection = &mut self.connections[index as usize];
        if connection.emit(&mut self.shared, nic).is_err() {
            self.set_timer(index);
            return false;
        }
        connection.flags.clear(ConnectionFlags::LISTED_TO_EMIT);
        if connection.state == State::Closed && connection.flags.has(ConnectionFlags::ORPHAN) {
            self.remove(index);
        } else {
            self.set_timer(index);
        }
        true
    }

    /// Looks up the MAC address of the next hop. False if it is not known yet; it is asked for
    /// then.
    fn find_mac(&mut self, index: u32) -> bool {
        let connection = &mut self.connections[index as usize];
        let now = self.shared.now;
        let hop = self.shared.config.next_hop(connection.tuple.remote);
        let mac = hop.and_then(|hop| self.neighbours.find(hop, now));
        if let Some(mac) = mac {
            let vlan = connection.path.vlan;
            connection.note_path(mac, vlan);
        } else {
            connection.flags.clear(ConnectionFlags::LISTED_TO_EMIT);
            if connection.state == State::Closed && connection.flags.has(ConnectionFlags::ORPHAN) {
                self.remove(index);
            } else {
                self.waiting_for_mac.push(index);
                self.set_timer(index);
            }
        }
        mac.is_some()
    }
}
