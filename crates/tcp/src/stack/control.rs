//! ARP, ICMP and ICMPv6: neighbours, echo requests, and reports of packets that did not arrive.

use super::frames::Packet;
use super::link::LinkAddress;
use super::outgoing::{Control, ECHO_LEN_MAX, ECHOES_MAX, Echo};
use super::{Failure, Notice, Stack};
use crate::connection::State;
use crate::limits::Answer;
use crate::neighbours::Overrides;
use crate::nic::Mac;
use crate::seq::SeqNumber;
use crate::wire::four_tuple::FourTuple;
use crate::wire::icmp::{Message, Quoted, Reason};
use crate::wire::ip::Protocol;
use crate::wire::{Address, Malformed, arp};

/// The smallest MTU that is believed: with a smaller one, headers would take most of each packet.
/// For IPv6 it is the minimum of RFC 8200; for IPv4 it is the smallest that common stacks accept.
const MTU_MIN_V4: u16 = 552;
const MTU_MIN_V6: u16 = 1280;

/// MTUs to try if a router does not report one (RFC 1191, section 7).
const PLATEAUS: [u16; 7] = [8166, 4352, 2002, 1492, 1006, 576, 552];

impl Stack {
    pub(super) fn take_arp(&mut self, link: LinkAddress, bytes: &[u8]) -> Result<(), Malformed> {
        let packet = arp::Packet::read(bytes)?;
        let config = &self.shared.config;
        if packet.sender_mac.is_group() || config.is_own(packet.sender) {
            return Err(Malformed::Field);
        }
        if packet.sender.is_station() {
            self.learn_neighbour(packet.sender, packet.sender_mac, Overrides(true));
        }
        if packet.is_reply || !self.shared.config.is_own(packet.target) {
            return Ok(());
        }
        let answer = arp::Packet {
            is_reply: true,
            sender_mac: self.shared.features.mac,
            sender: packet.target,
            target_mac: packet.sender_mac,
            target: packet.sender,
        };
        self.control(Control::Arp(link, answer));
        Ok(())
    }

    /// Notes a neighbour's MAC address here and tells the other workers.
    pub(super) fn learn_neighbour(&mut self, address: Address, mac: Mac, overrides: Overrides) {
        if mac.is_group() {
            return;
        }
        // Another worker may have asked for it, even if it is already known here.
        self.notify(Notice::Neighbour(address, mac, overrides));
        self.note_neighbour(address, mac, overrides);
    }

    /// Notes a MAC address that a neighbour has announced, here or to another worker, and resumes
    /// the connections that waited for it.
    pub(super) fn note_neighbour(&mut self, address: Address, mac: Mac, overrides: Overrides) {
        let now = self.shared.now;
        if self.neighbours.learn(address, mac, overrides, now) {
            self.retry_mac();
        }
    }

    /// Asks for a neighbour's MAC address.
    pub(super) fn ask_for(&mut self, address: Address) {
        let Some(from) = self.shared.config.source_for(address) else {
            return;
        };
        if !address.is_v4() {
            self.control(Control::Solicit(from, address));
            return;
        }
        let question = arp::Packet {
            is_reply: false,
            sender_mac: self.shared.features.mac,
            sender: from,
            target_mac: Mac::default(),
            target: address,
        };
        let link = LinkAddress {
            mac: Mac::BROADCAST,
            vlan: self.shared.config.vlan,
        };
        self.control(Control::Arp(link, question));
    }

    pub(super) fn take_icmp(&mut self, packet: &Packet<'_>) -> Result<(), Malformed> {
        let is_v4 = packet.header.protocol == Protocol::ICMP;
        let message = match is_v4 {
            true => Message::read_v4(packet.payload)?,
            false => Message::read_v6(&packet.header, packet.payload)?,
        };
        let source = packet.header.source;
        let is_known = source != Address::UNSPECIFIED;
        self.shared.counters.icmp_received += u64::from(message != Message::Other);
        match message {
            Message::EchoRequest(payload) if is_known => self.take_echo(packet, payload.len()),
            Message::Solicitation { target, source_mac } if self.shared.config.is_own(target) => {
                if let Some(mac) = source_mac {
                    self.learn_neighbour(source, mac, Overrides(true));
                }
                let asker = is_known.then_some(source);
                let link = LinkAddress {
                    mac: match is_known {
                        true => source_mac.unwrap_or(packet.link.mac),
                        false => Mac([0x33, 0x33, 0, 0, 0, 1]),
                    },
                    vlan: packet.link.vlan,
                };
                self.control(Control::Advertise(link, target, asker));
            }
            Message::Advertisement {
                target,
                target_mac: Some(mac),
                overrides,
                ..
            } if !self.shared.config.is_own(target) => {
                self.learn_neighbour(target, mac, Overrides(overrides));
            }
            Message::Query(query) => {
                let shared = &self.shared;
                self.listener.asked(&query, &shared.secrets, shared.now);
            }
            // It may concern a connection of another worker.
            Message::Unreachable(reason, quoted) if !self.take_unreachable(reason, &quoted) => {
                self.notify(Notice::Unreachable(reason, quoted));
            }
            _ => {}
        }
        Ok(())
    }

    fn take_echo(&mut self, packet: &Packet<'_>, len: usize) {
        let source = packet.header.source;
        if self.echoes.len() >= ECHOES_MAX
            || len > ECHO_LEN_MAX
            || !self.shared.may_answer(Answer::Echo, source)
        {
            self.shared.counters.dropped_no_slot += 1;
            return;
        }
        let destination = packet.header.destination;
        let local = match self.shared.config.is_own(destination) {
            true => Some(destination),
            false => self.shared.config.source_for(packet.header.source),
        };
        let Some(local) = local else { return };
        self.echoes.push(Echo {
            link: packet.link,
            local,
            remote: packet.header.source,
            frame: packet.frame,
            // After type, code and checksum.
            start: packet.start + 4,
            len,
        });
    }

    /// Handles a report that one of our packets did not arrive. True if the packet belongs to a
    /// connection of this stack. The report counts only if the quoted sequence number is in flight,
    /// since an attacker would have to guess it (RFC 5927).
    pub(super) fn take_unreachable(&mut self, reason: Reason, quoted: &Quoted) -> bool {
        let tuple = FourTuple {
            local: quoted.source,
            remote: quoted.destination,
            local_port: quoted.source_port,
            remote_port: quoted.destination_port,
        };
        let hash = self.table.hash(&tuple);
        let Some(index) = self.find(&tuple, hash) else {
            return false;
        };
        let connection = &mut self.connections[index as usize];
        let seq = SeqNumber(quoted.seq);
        if !(connection.send.una <= seq && seq < connection.send.nxt) {
            return true;
        }
        match reason {
            Reason::TooBig(mtu) => {
                let is_v4 = tuple.remote.is_v4();
                let least = if is_v4 { MTU_MIN_V4 } else { MTU_MIN_V6 };
                let current = connection.path.mtu;
                let told = u16::try_from(mtu).unwrap_or(u16::MAX);
                let mtu = match told {
                    0 => PLATEAUS.into_iter().find(|plateau| *plateau < current),
                    told => Some(told),
                };
                if let Some(mtu) = mtu.map(|mtu| mtu.max(least))
                    && connection.narrow(&mut self.shared, mtu, seq)
                {
                    self.list_to_emit(index);
                }
            }
            Reason::Refused if connection.state == State::SynSent => {
                self.shared.counters.reset_by_peer += 1;
                connection.abort(&mut self.shared, Failure::Reset);
                self.list_to_emit(index);
                self.after_change(index);
            }
            // The condition may be temporary, so the retransmission timer handles it (RFC 1122,
            // section 4.2.3.9).
            Reason::Refused | Reason::Elsewhere => {}
        }
        true
    }
}
