//! The clients' segments: written by filling numbers into a template, read with checksums verified.

use coua_tcp::nic::{Frame, Mac, Nic, Offload};
use coua_tcp::seq::SeqNumber;
use coua_tcp::wire::checksum::Sum;
use coua_tcp::wire::ethernet::{self, EtherType};
use coua_tcp::wire::ip::{self, Protocol};
use coua_tcp::wire::tcp::{self, Flags, Options, Timestamps};
use coua_tcp::wire::{Address, arp};

use crate::segments::{address_of, number_of};

const LINK_LEN: usize = 14;
const NETWORK_LEN: usize = 20;
const NETWORK_LEN_U16: u16 = 20;
const TRANSPORT_AT: usize = LINK_LEN + NETWORK_LEN;
const TRANSPORT_LEN: usize = tcp::HEADER_LEN + tcp::TIMESTAMPS_LEN;
const TRANSPORT_LEN_U16: u16 = 32;

/// Bytes of a packet before its payload.
pub(super) const HEADERS_LEN: u32 = 20 + TRANSPORT_LEN_U16 as u32;

/// Where the payload of a plain segment begins.
const PAYLOAD_AT: usize = TRANSPORT_AT + TRANSPORT_LEN;

/// The first 16 bits of a TCP header's fourth word, but for the flags: its length in words.
const OFFSET: u16 = (TRANSPORT_LEN_U16 / 4) << 12;

/// The bits of the length, among the flags.
const OFFSET_MASK: u16 = 0xf000;

/// The first byte of an IPv4 header without options.
const PLAIN_PACKET: u8 = 0x45;

/// The bits of an IPv4 header that a fragment has.
const FRAGMENT: u16 = 0x3fff;

/// What the options begin with where timestamps are the only one (RFC 7323, appendix A).
const PLAIN_OPTIONS: u32 = 0x0101_080a;

/// The window that clients offer, shifted by [`WINDOW_SCALE`]: no less than they can be sent.
const WINDOW: u16 = u16::MAX;
const WINDOW_SCALE: u8 = 7;

/// Bytes that this window lets a server send at once.
pub(super) const RECEIVABLE: usize = (WINDOW as usize) << WINDOW_SCALE;

/// The numbers of one segment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Numbers {
    /// The client's number.
    pub(super) client: usize,
    /// The sequence number of its first byte.
    pub(super) seq: SeqNumber,
    /// The acknowledgment number.
    pub(super) ack: SeqNumber,
    /// The timestamps option: the client's clock, and the server's as seen last.
    pub(super) timestamps: Timestamps,
}

/// What has come for one client.
#[derive(Clone, Copy, Debug)]
pub(super) struct Incoming<'f> {
    /// The client that it is for.
    pub(super) client: usize,
    /// The sequence number of its first byte.
    pub(super) seq: SeqNumber,
    /// Its acknowledgment number.
    pub(super) ack: SeqNumber,
    /// Flags.
    pub(super) flags: Flags,
    /// The window, not scaled.
    pub(super) window: u16,
    /// The server's clock, of the timestamps option.
    pub(super) clock: Option<u32>,
    /// The window scale option, where it has one.
    pub(super) window_scale: Option<u8>,
    /// Its payload.
    pub(super) payload: &'f [u8],
}

/// What a frame is.
pub(super) enum Arrival<'f> {
    /// A segment for a client.
    Segment(Incoming<'f>),
    /// ARP.
    Arp(arp::Packet),
    /// Damaged, or nothing that clients understand.
    Other,
}

/// Writes segments to one server.
#[derive(Debug)]
pub(super) struct Wire {
    own_mac: Mac,
    server_mac: Mac,
    server: Address,
    server_port: u16,
    /// A plain segment's headers, the numbers zero.
    headers: [u8; PAYLOAD_AT],
    /// The sum of what never changes in the IP header, and in the pseudo header and TCP's.
    network_sum: Sum,
    transport_sum: Sum,
    /// What the headers are those of, where they have been sent; and the sum of the pseudo header and
    /// TCP's, the numbers zero.
    shape: Option<Shape>,
    shape_sum: Sum,
}

/// What many segments have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Shape {
    /// The address that they come from.
    source: u32,
    payload_len: u16,
    /// The TCP header's length, and its flags.
    word: u16,
}

impl Wire {
    /// To a server whose MAC address is not known yet.
    pub(super) fn new(own_mac: Mac, server: Address, server_port: u16) -> Wire {
        let mut wire = Wire {
            own_mac,
            server_mac: Mac::BROADCAST,
            server,
            server_port,
            headers: [0; PAYLOAD_AT],
            network_sum: Sum::ZERO,
            transport_sum: Sum::ZERO,
            shape: None,
            shape_sum: Sum::ZERO,
        };
        wire.set_server_mac(Mac::BROADCAST);
        wire
    }

    /// Sets the server's MAC address.
    pub(super) fn set_server_mac(&mut self, mac: Mac) {
        self.server_mac = mac;
        let header = tcp::Header {
            destination: self.server_port,
            window: WINDOW,
            options: Options {
                timestamps: Some(Timestamps { value: 0, echo: 0 }),
                ..Options::default()
            },
            ..tcp::Header::default()
        };
        let mut headers = [0; PAYLOAD_AT];
        self.link_header().write(&mut headers);
        let nobody = Address::v4([0; 4]);
        let packet = ip::Header::new(nobody, self.server, Protocol::TCP, 0);
        packet.write(&mut headers[LINK_LEN..], true);
        headers[LINK_LEN + 2..][..2].fill(0);
        header.write(&mut headers[TRANSPORT_AT..]);
        headers[TRANSPORT_AT + 12..][..2].fill(0);
        self.network_sum = Sum::of(&headers[LINK_LEN..TRANSPORT_AT]);
        self.transport_sum = Sum::pseudo_header(nobody, self.server, Protocol::TCP.0, 0)
            .with(&headers[TRANSPORT_AT..]);
        self.headers = headers;
        self.shape = None;
    }

    /// Writes into the headers what has changed since the last segment.
    #[inline(never)]
    fn set_shape(&mut self, shape: Shape) {
        let Shape {
            source,
            payload_len,
            word,
        } = shape;
        let segment_len = TRANSPORT_LEN_U16 + payload_len;
        let packet_len = NETWORK_LEN_U16 + segment_len;
        let network = self.network_sum.with_u32(source).with_u16(packet_len);
        let mut put =
            |at: usize, bytes: &[u8]| self.headers[at..at + bytes.len()].copy_from_slice(bytes);
        put(LINK_LEN + 2, &packet_len.to_be_bytes());
        put(LINK_LEN + 10, &network.checksum().to_be_bytes());
        put(LINK_LEN + 12, &source.to_be_bytes());
        put(TRANSPORT_AT + 12, &word.to_be_bytes());
        let sum = self.transport_sum.with_u32(source).with_u16(segment_len);
        self.shape_sum = sum.with_u16(word);
        self.shape = Some(shape);
    }

    /// Sends a segment; false where the card takes no more.
    #[inline]
    pub(super) fn send(
        &mut self,
        nic: &mut impl Nic,
        numbers: &Numbers,
        flags: Flags,
        payload: &[u8],
    ) -> bool {
        let Some(slot) = nic.slot() else {
            return false;
        };
        let len = PAYLOAD_AT + payload.len();
        let frame = &mut slot[..len];
        let (address, port) = address_of(numbers.client);
        let shape = Shape {
            source: u32::from_be_bytes(address.v4_octets()),
            payload_len: u16::try_from(payload.len()).expect("a slot holds a packet"),
            word: OFFSET | u16::from(flags.0),
        };
        if self.shape != Some(shape) {
            self.set_shape(shape);
        }
        let timestamps = numbers.timestamps;
        let transport = self
            .shape_sum
            .with_u16(port)
            .with_u32(numbers.seq.0)
            .with_u32(numbers.ack.0)
            .with_u32(timestamps.value)
            .with_u32(timestamps.echo)
            .with(payload);
        let Some((headers, rest)) = frame.split_first_chunk_mut::<PAYLOAD_AT>() else {
            return false;
        };
        *headers = self.headers;
        let mut put =
            |at: usize, bytes: &[u8]| headers[at..at + bytes.len()].copy_from_slice(bytes);
        put(TRANSPORT_AT, &port.to_be_bytes());
        put(TRANSPORT_AT + 4, &numbers.seq.0.to_be_bytes());
        put(TRANSPORT_AT + 8, &numbers.ack.0.to_be_bytes());
        put(TRANSPORT_AT + 16, &transport.checksum().to_be_bytes());
        put(TRANSPORT_AT + 24, &timestamps.value.to_be_bytes());
        put(TRANSPORT_AT + 28, &timestamps.echo.to_be_bytes());
        rest.copy_from_slice(payload);
        nic.commit(len, Offload::None);
        true
    }

    /// Sends the segment that opens a connection; false where the card takes no more.
    pub(super) fn send_syn(&self, nic: &mut impl Nic, numbers: &Numbers) -> bool {
        let mss = nic.features().mtu - 40;
        let Some(frame) = nic.slot() else {
            return false;
        };
        let (address, port) = address_of(numbers.client);
        let header = tcp::Header {
            source: port,
            destination: self.server_port,
            seq: numbers.seq,
            ack: SeqNumber(0),
            flags: Flags::SYN,
            window: WINDOW,
            options: Options {
                mss: Some(mss),
                window_scale: Some(WINDOW_SCALE),
                sack_permitted: true,
                timestamps: Some(numbers.timestamps),
                ..Options::default()
            },
        };
        self.link_header().write(frame);
        let len = header.size();
        let packet = ip::Header::new(address, self.server, Protocol::TCP, len);
        packet.write(&mut frame[LINK_LEN..], false);
        let segment = &mut frame[TRANSPORT_AT..][..len];
        header.write(segment);
        let sum = Sum::pseudo_header(address, self.server, Protocol::TCP.0, len);
        let checksum = sum.with(segment).checksum();
        segment[16..18].copy_from_slice(&checksum.to_be_bytes());
        nic.commit(TRANSPORT_AT + len, Offload::None);
        true
    }

    fn link_header(&self) -> ethernet::Header {
        ethernet::Header {
            destination: self.server_mac,
            source: self.own_mac,
            vlan: 0,
            ether_type: EtherType::IPV4,
        }
    }

    /// Asks for the server's MAC address.
    pub(super) fn send_question(&self, nic: &mut impl Nic) {
        let (sender, _) = address_of(0);
        let packet = arp::Packet {
            is_reply: false,
            sender_mac: self.own_mac,
            sender,
            target_mac: Mac::default(),
            target: self.server,
        };
        self.send_arp(nic, Mac::BROADCAST, &packet);
    }

    /// Tells that all the clients' addresses are at this MAC address.
    pub(super) fn answer(&self, nic: &mut impl Nic, question: &arp::Packet) {
        let packet = arp::Packet {
            is_reply: true,
            sender_mac: self.own_mac,
            sender: question.target,
            target_mac: question.sender_mac,
            target: question.sender,
        };
        self.send_arp(nic, question.sender_mac, &packet);
    }

    fn send_arp(&self, nic: &mut impl Nic, destination: Mac, packet: &arp::Packet) {
        let Some(frame) = nic.slot() else {
            return;
        };
        let header = ethernet::Header {
            destination,
            source: self.own_mac,
            vlan: 0,
            ether_type: EtherType::ARP,
        };
        header.write(frame);
        packet.write(&mut frame[LINK_LEN..]);
        nic.commit(LINK_LEN + arp::LEN, Offload::None);
    }

    /// Tells what a frame is that is not a plain segment.
    #[cold]
    pub(super) fn read<'f>(&self, frame: &Frame<'f>) -> Arrival<'f> {
        match self.read_segment(frame) {
            Some(incoming) => Arrival::Segment(incoming),
            None => read_arp(frame.bytes).map_or(Arrival::Other, Arrival::Arp),
        }
    }

    /// Reads a frame that is plain, as nearly all are: no option but the timestamps.
    #[inline]
    pub(super) fn read_plain<'f>(&self, frame: &Frame<'f>) -> Option<Incoming<'f>> {
        let head = frame.bytes.first_chunk::<PAYLOAD_AT>()?;
        let u16_at = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
        let u32_at =
            |at: usize| u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let is_plain = u16_at(12) == EtherType::IPV4.0
            && head[LINK_LEN] == PLAIN_PACKET
            && u16_at(LINK_LEN + 6) & FRAGMENT == 0
            && head[LINK_LEN + 9] == Protocol::TCP.0
            && head[LINK_LEN + 12..][..4] == self.server.v4_octets()
            && u16_at(TRANSPORT_AT + 12) & OFFSET_MASK == OFFSET
            && u32_at(TRANSPORT_AT + 20) == PLAIN_OPTIONS;
        let packet_len = u16_at(LINK_LEN + 2);
        let segment_len = packet_len.checked_sub(20)?;
        let packet = frame
            .bytes
            .get(LINK_LEN..)?
            .get(..usize::from(packet_len))?;
        if !is_plain || segment_len < TRANSPORT_LEN_U16 {
            return None;
        }
        if !frame.is_verified {
            // The addresses, which are in the pseudo header too, stand before the segment. What comes
            // before the payload has one length, which is no loop.
            let sum = Sum::of(&head[LINK_LEN + 12..])
                .with(&packet[NETWORK_LEN + TRANSPORT_LEN..])
                .with_u16(segment_len);
            let is_right = sum.with_u16(u16::from(Protocol::TCP.0)).is_right()
                && Sum::of(&head[LINK_LEN..TRANSPORT_AT]).is_right();
            if !is_right {
                return None;
            }
        }
        let to = Address::v4([head[30], head[31], head[32], head[33]]);
        Some(Incoming {
            client: number_of(to, u16_at(TRANSPORT_AT + 2))?,
            seq: SeqNumber(u32_at(TRANSPORT_AT + 4)),
            ack: SeqNumber(u32_at(TRANSPORT_AT + 8)),
            flags: Flags(head[TRANSPORT_AT + 13]),
            window: u16_at(TRANSPORT_AT + 14),
            clock: Some(u32_at(TRANSPORT_AT + 24)),
            window_scale: None,
            payload: &packet[NETWORK_LEN + TRANSPORT_LEN..],
        })
    }

    /// Reads any segment.
    fn read_segment<'f>(&self, frame: &Frame<'f>) -> Option<Incoming<'f>> {
        let (link, at) = ethernet::Header::read(frame.bytes).ok()?;
        if link.ether_type != EtherType::IPV4 {
            return None;
        }
        let packet_bytes = &frame.bytes[at..];
        let (packet, at) = ip::Header::read_v4(packet_bytes, frame.is_verified).ok()?;
        if packet.source != self.server || packet.protocol != Protocol::TCP {
            return None;
        }
        let segment = &packet_bytes[at..][..packet.payload_len];
        let (from, to) = (packet.source, packet.destination);
        if !frame.is_verified {
            let sum = Sum::pseudo_header(from, to, Protocol::TCP.0, segment.len());
            if !sum.with(segment).is_right() {
                return None;
            }
        }
        let (header, at) = tcp::Header::read(segment).ok()?;
        Some(Incoming {
            client: number_of(to, header.destination)?,
            seq: header.seq,
            ack: header.ack,
            flags: header.flags,
            window: header.window,
            clock: header.options.timestamps.map(|told| told.value),
            window_scale: header.options.window_scale,
            payload: &segment[at..],
        })
    }
}

/// The client that a frame seems to be for, before it is checked: good enough for a prefetch.
#[inline]
pub(super) fn likely_client(frame: &[u8]) -> Option<usize> {
    let address = frame.get(LINK_LEN + 16..)?.first_chunk::<4>()?;
    let port = frame.get(TRANSPORT_AT + 2..)?.first_chunk::<2>()?;
    number_of(Address::v4(*address), u16::from_be_bytes(*port))
}

fn read_arp(frame: &[u8]) -> Option<arp::Packet> {
    let (header, at) = ethernet::Header::read(frame).ok()?;
    let is_arp = header.ether_type == EtherType::ARP;
    is_arp
        .then(|| arp::Packet::read(&frame[at..]).ok())
        .flatten()
}
