//! Who writes frames by hand, in anybody's name, and hears what the attacked host sends its way.

use coua_tcp::nic::{Mac, Nic, Offload};
use coua_tcp::seq::SeqNumber;
use coua_tcp::simulated::End;
use coua_tcp::wire::arp;
use coua_tcp::wire::checksum::Sum;
use coua_tcp::wire::ethernet::{self, EtherType};
use coua_tcp::wire::ip::{self, Protocol};
use coua_tcp::wire::tcp::{Flags, Header};

use crate::service::PORT;
use crate::world::{CLIENT_MAC, SERVER_MAC, address};

/// A segment that has come from the attacked host.
#[derive(Clone, Debug)]
pub(crate) struct Heard {
    /// The address that it was sent to: the last byte.
    pub(crate) host: u8,
    pub(crate) header: Header,
    pub(crate) len: u32,
}

/// The forger's end of the switch.
pub(crate) struct Forger {
    pub(crate) card: End,
    mac: Mac,
    /// It is the router through which all comes: what is for the honest client, or of its, is passed on.
    pub(crate) is_router: bool,
    /// Segments that it has sent, and that have come.
    pub(crate) sent: u64,
    pub(crate) heard: u64,
}

impl Forger {
    pub(crate) fn new(card: End) -> Forger {
        let mac = card.features().mac;
        Forger {
            card,
            mac,
            is_router: false,
            sent: 0,
            heard: 0,
        }
    }

    /// Sends a segment to the attacked host in the name of 192.0.2.`host`.
    pub(crate) fn send(&mut self, host: u8, header: &Header, payload: &[u8]) {
        let (from, to) = (address(host), address(1));
        let link = ethernet::Header {
            destination: SERVER_MAC,
            source: self.mac,
            vlan: 0,
            ether_type: EtherType::IPV4,
        };
        let mut segment = vec![0; header.size()];
        header.write(&mut segment);
        segment.extend(payload);
        let packet = ip::Header::new(from, to, Protocol::TCP, segment.len());
        let sum = Sum::pseudo_header(from, to, Protocol::TCP.0, segment.len());
        let checksum = sum.with(&segment).checksum();
        segment[16..18].copy_from_slice(&checksum.to_be_bytes());
        let at = link.size() + packet.size();
        self.frame(at + segment.len(), |frame| {
            link.write(frame);
            packet.write(&mut frame[link.size()..], false);
            frame[at..].copy_from_slice(&segment);
        });
        self.sent += 1;
    }

    fn frame(&mut self, len: usize, write: impl FnOnce(&mut [u8])) {
        if self.card.slot().is_none() {
            self.card.flush();
        }
        let frame = self.card.slot().expect("it was flushed");
        write(&mut frame[..len]);
        self.card.commit(len, Offload::None);
    }

    /// All that has come since the last time. Who asks for any address but the others' is told that
    /// it is here.
    pub(crate) fn hear(&mut self) -> Vec<Heard> {
        let mut all = Vec::new();
        while self.card.arrived() > 0 {
            for at in 0..self.card.receive() {
                let bytes = self.card.frame(at).bytes.to_vec();
                all.extend(self.read(&bytes));
            }
            self.card.release();
        }
        self.heard += all.len() as u64;
        all
    }

    fn read(&mut self, bytes: &[u8]) -> Option<Heard> {
        let (link, at) = ethernet::Header::read(bytes).ok()?;
        if link.ether_type == EtherType::ARP {
            self.answer(link, &arp::Packet::read(&bytes[at..]).ok()?);
            return None;
        }
        if link.ether_type != EtherType::IPV4 || link.destination != self.mac {
            return None;
        }
        let (packet, header_len) = ip::Header::read_v4(&bytes[at..], false).ok()?;
        if self.is_router {
            let onward = [(address(1), SERVER_MAC), (address(2), CLIENT_MAC)];
            let to = onward.iter().find(|(to, _)| *to == packet.destination);
            let link = ethernet::Header {
                destination: to?.1,
                source: self.mac,
                ..link
            };
            self.frame(bytes.len(), |frame| {
                frame.copy_from_slice(bytes);
                link.write(frame);
            });
        }
        let segment = &bytes[at + header_len..][..packet.payload_len];
        let (header, header_len) = Header::read(segment).ok()?;
        Some(Heard {
            host: packet.destination.v4_octets()[3],
            header,
            len: u32::try_from(segment.len() - header_len).expect("short"),
        })
    }

    fn answer(&mut self, link: ethernet::Header, asked: &arp::Packet) {
        let is_other = [address(1), address(2)].contains(&asked.target);
        if asked.is_reply || is_other {
            return;
        }
        let answer = arp::Packet {
            is_reply: true,
            sender_mac: self.mac,
            sender: asked.target,
            target_mac: asked.sender_mac,
            target: asked.sender,
        };
        let link = ethernet::Header {
            destination: link.source,
            source: self.mac,
            ..link
        };
        self.frame(link.size() + arp::LEN, |frame| {
            link.write(frame);
            answer.write(&mut frame[link.size()..]);
        });
    }
}

/// A header to the service from a port.
pub(crate) fn header(port: u16, flags: Flags, seq: u32, ack: u32, window: u16) -> Header {
    Header {
        source: port,
        destination: PORT,
        seq: SeqNumber(seq),
        ack: SeqNumber(ack),
        flags,
        window,
        ..Header::default()
    }
}
