//! ICMP (RFC 792), ICMPv6 (RFC 4443) and neighbour discovery (RFC 4861): the messages that a host
//! with no router of its own needs.

use super::checksum::Sum;
use super::ip::{self, Protocol};
use super::mld::Query;
use super::{Address, Malformed, put, u16_at, u32_at};
use crate::nic::Mac;

/// Bytes of a neighbour solicitation or advertisement with its one option.
pub const NEIGHBOUR_LEN: usize = 32;

/// Bytes of an echo message before its payload.
pub const ECHO_LEN: usize = 8;

/// A message, as far as it is understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message<'p> {
    /// An echo request; the bytes after type, code and checksum are to be returned.
    EchoRequest(&'p [u8]),
    /// An echo reply.
    EchoReply(&'p [u8]),
    /// A packet of ours did not arrive.
    Unreachable(Reason, Quoted),
    /// A neighbour solicitation asks for the MAC address of an IPv6 address.
    Solicitation {
        /// The address that is asked for.
        target: Address,
        /// The MAC address of the sender, if given.
        source_mac: Option<Mac>,
    },
    /// A neighbour advertisement announces a MAC address.
    Advertisement {
        /// Its address.
        target: Address,
        /// Its MAC address, if given.
        target_mac: Option<Mac>,
        /// It answers a solicitation.
        is_solicited: bool,
        /// It replaces what was known.
        overrides: bool,
    },
    /// A router asks who listens to which group.
    Query(Query),
    /// Anything else.
    Other,
}

/// Why a packet did not arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// It is too long; packets of this many bytes would pass. 0 if the router does not say.
    TooBig(u32),
    /// The port or protocol is unreachable. An active open fails by it.
    Refused,
    /// The network or host cannot be reached at the moment, which may pass.
    Elsewhere,
}

/// What an error message quotes of the packet that it reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quoted {
    /// Our address.
    pub source: Address,
    /// To which.
    pub destination: Address,
    /// Our port.
    pub source_port: u16,
    /// To which.
    pub destination_port: u16,
    /// The segment's sequence number.
    pub seq: u32,
}

impl<'p> Message<'p> {
    /// Reads an ICMP message.
    ///
    /// # Errors
    /// Where it is too short, or its checksum is wrong.
    pub fn read_v4(bytes: &'p [u8]) -> Result<Message<'p>, Malformed> {
        if !Sum::of(bytes).is_right() {
            return Err(Malformed::Checksum);
        }
        let head = bytes.first_chunk::<8>().ok_or(Malformed::Length)?;
        let reason = match (head[0], head[1]) {
            (0, 0) => return Ok(Message::EchoReply(&bytes[4..])),
            (8, 0) => return Ok(Message::EchoRequest(&bytes[4..])),
            // RFC 1191, section 4.
            (3, 4) => Reason::TooBig(u32::from(u16_at(head, 6))),
            (3, 2 | 3) => Reason::Refused,
            (3, _) => Reason::Elsewhere,
            _ => return Ok(Message::Other),
        };
        match quoted_v4(&bytes[8..]) {
            Some(quoted) => Ok(Message::Unreachable(reason, quoted)),
            None => Ok(Message::Other),
        }
    }

    /// Reads an ICMPv6 message of a packet with this header.
    ///
    /// # Errors
    /// Where it is too short, or its checksum is wrong.
    pub fn read_v6(header: &ip::Header, bytes: &'p [u8]) -> Result<Message<'p>, Malformed> {
        let sum = Sum::pseudo_header(
            header.source,
            header.destination,
            Protocol::ICMPV6.0,
            bytes.len(),
        );
        if !sum.with(bytes).is_right() {
            return Err(Malformed::Checksum);
        }
        let head = bytes.first_chunk::<8>().ok_or(Malformed::Length)?;
        // What comes from beyond a router is no neighbour's (RFC 4861, section 7.1).
        let is_near = header.hop_limit == 255 && head[1] == 0;
        let reason = match (head[0], head[1]) {
            (128, 0) => return Ok(Message::EchoRequest(&bytes[4..])),
            (129, 0) => return Ok(Message::EchoReply(&bytes[4..])),
            (135, _) if is_near => return solicitation(header, bytes),
            (136, _) if is_near => return advertisement(head[4], header, bytes),
            (130, 0) => {
                let query = Query::read(header, bytes)?;
                return Ok(query.map_or(Message::Other, Message::Query));
            }
            (2, _) => Reason::TooBig(u32_at(head, 4)),
            (1, 4) => Reason::Refused,
            (4, 1) => Reason::Refused,
            (1, _) => Reason::Elsewhere,
            _ => return Ok(Message::Other),
        };
        match quoted_v6(&bytes[8..]) {
            Some(quoted) => Ok(Message::Unreachable(reason, quoted)),
            None => Ok(Message::Other),
        }
    }
}

fn solicitation<'p>(header: &ip::Header, bytes: &[u8]) -> Result<Message<'p>, Malformed> {
    let target = target(bytes)?;
    let source_mac = link_address(&bytes[24..], 1)?;
    if header.source == Address::UNSPECIFIED && source_mac.is_some() {
        return Err(Malformed::Field);
    }
    Ok(Message::Solicitation { target, source_mac })
}

fn advertisement<'p>(
    flags: u8,
    header: &ip::Header,
    bytes: &[u8],
) -> Result<Message<'p>, Malformed> {
    let (is_solicited, overrides) = (flags & 0x40 != 0, flags & 0x20 != 0);
    let to_all = header.destination.octets()[0] == 0xff;
    if is_solicited && to_all {
        return Err(Malformed::Field);
    }
    Ok(Message::Advertisement {
        target: target(bytes)?,
        target_mac: link_address(&bytes[24..], 2)?,
        is_solicited,
        overrides,
    })
}

fn target(bytes: &[u8]) -> Result<Address, Malformed> {
    let octets: [u8; 16] = bytes
        .get(8..24)
        .and_then(|octets| octets.try_into().ok())
        .ok_or(Malformed::Length)?;
    let target = Address::v6(octets);
    match target.is_station() {
        true => Ok(target),
        false => Err(Malformed::Field),
    }
}

/// The link-layer address option of this kind among the options.
fn link_address(mut options: &[u8], kind: u8) -> Result<Option<Mac>, Malformed> {
    let mut found = None;
    while let [this, words, ..] = *options {
        let len = usize::from(words) * 8;
        if len == 0 || options.len() < len {
            return Err(Malformed::Length);
        }
        if this == kind && len == 8 {
            found = Some(Mac(std::array::from_fn(|index| options[2 + index])));
        }
        options = &options[len..];
    }
    match found {
        Some(mac) if mac.is_group() => Err(Malformed::Field),
        found => Ok(found),
    }
}

fn quoted_v4(packet: &[u8]) -> Option<Quoted> {
    let head = packet.first_chunk::<20>()?;
    let header_len = usize::from(head[0] & 0xf) * 4;
    let ports = packet.get(header_len..)?.first_chunk::<8>()?;
    (head[9] == Protocol::TCP.0 && header_len >= 20).then(|| Quoted {
        source: Address::v4([head[12], head[13], head[14], head[15]]),
        destination: Address::v4([head[16], head[17], head[18], head[19]]),
        source_port: u16_at(ports, 0),
        destination_port: u16_at(ports, 2),
        seq: u32_at(ports, 4),
    })
}

fn quoted_v6(packet: &[u8]) -> Option<Quoted> {
    let head = packet.first_chunk::<40>()?;
    let ports = packet.get(40..)?.first_chunk::<8>()?;
    let address = |at: usize| Address::v6(std::array::from_fn(|index| head[at + index]));
    (head[6] == Protocol::TCP.0).then(|| Quoted {
        source: address(8),
        destination: address(24),
        source_port: u16_at(ports, 0),
        destination_port: u16_at(ports, 2),
        seq: u32_at(ports, 4),
    })
}

/// Writes the answer to an echo request, whose payload stands behind type, code and checksum.
pub fn write_echo_reply(header: &ip::Header, payload: &[u8], bytes: &mut [u8]) {
    put(
        bytes,
        0,
        &[if header.source.is_v4() { 0 } else { 129 }, 0, 0, 0],
    );
    put(bytes, 4, payload);
    header.seal_icmp(&mut bytes[..4 + payload.len()]);
}

/// Writes the question for the MAC address of `target`, or the answer with it, of 32 bytes.
pub fn write_neighbour(
    header: &ip::Header,
    target: Address,
    own_mac: Mac,
    is_answer: Option<Solicited>,
    bytes: &mut [u8],
) {
    let (kind, flags, option) = match is_answer {
        None => (135, 0, 1),
        Some(Solicited(true)) => (136, 0x60, 2),
        Some(Solicited(false)) => (136, 0x20, 2),
    };
    put(bytes, 0, &[kind, 0, 0, 0, flags, 0, 0, 0]);
    put(bytes, 8, &target.octets());
    put(bytes, 24, &[option, 1]);
    put(bytes, 26, &own_mac.0);
    header.seal_icmp(&mut bytes[..NEIGHBOUR_LEN]);
}

/// Whether an advertisement answers somebody in particular.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Solicited(pub bool);
