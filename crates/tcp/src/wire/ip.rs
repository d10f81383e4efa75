//! Packets of IPv4 (RFC 791) and IPv6 (RFC 8200).
//!
//! IPv4 options and IPv6 extension headers are skipped. Fragments are refused: TCP segments fit the
//! path, and a packet reassembled from fragments may contain some that an attacker has sent.

use super::checksum::Sum;
use super::{Address, Malformed, put, u16_at};

/// What a packet carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Protocol(pub u8);

impl Protocol {
    /// ICMP.
    pub const ICMP: Protocol = Protocol(1);
    /// TCP.
    pub const TCP: Protocol = Protocol(6);
    /// UDP.
    pub const UDP: Protocol = Protocol(17);
    /// ICMPv6.
    pub const ICMPV6: Protocol = Protocol(58);
    /// IPv6 hop-by-hop options, which another protocol follows.
    pub(crate) const HOP_BY_HOP: Protocol = Protocol(0);
}

/// Bytes of an IPv4 header without options.
pub const V4_HEADER_LEN: usize = 20;

/// Bytes of an IPv6 header.
pub const V6_HEADER_LEN: usize = 40;

/// The most extension headers that a packet may have; honest ones have one or two.
const EXTENSIONS_MAX: usize = 8;

/// Hops that a packet may take.
const HOP_LIMIT: u8 = 64;

/// The fields of a packet's header that are needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The source address.
    pub source: Address,
    /// The destination address.
    pub destination: Address,
    /// What follows.
    pub protocol: Protocol,
    /// The hop limit, or time to live. Neighbour discovery requires 255.
    pub hop_limit: u8,
    /// Bytes of payload.
    pub payload_len: usize,
    /// The ECN codepoint (RFC 3168, section 5): the last two bits of the traffic class.
    pub ecn: u8,
}

/// The codepoint ECT(0): queues may mark the packet instead of dropping it (RFC 3168, section 5).
pub const ECT_0: u8 = 2;
/// The codepoint CE: a queue has marked the packet.
pub const CE: u8 = 3;

impl Header {
    /// The header of a packet to send.
    pub fn new(source: Address, destination: Address, protocol: Protocol, len: usize) -> Header {
        Header {
            source,
            destination,
            protocol,
            hop_limit: HOP_LIMIT,
            payload_len: len,
            ecn: 0,
        }
    }

    /// Reads the header of an IPv4 packet, and returns where the payload begins. Bytes after the
    /// packet's own length are padding.
    ///
    /// # Errors
    /// [`Malformed`]: its lengths or its checksum are wrong, or it is a fragment.
    #[inline]
    pub fn read_v4(packet: &[u8], is_verified: bool) -> Result<(Header, usize), Malformed> {
        let head = packet
            .first_chunk::<V4_HEADER_LEN>()
            .ok_or(Malformed::Length)?;
        let header_len = usize::from(head[0] & 0xf) * 4;
        let total_len = usize::from(u16_at(head, 2));
        if head[0] >> 4 != 4 {
            return Err(Malformed::Field);
        }
        if header_len < V4_HEADER_LEN || total_len < header_len || packet.len() < total_len {
            return Err(Malformed::Length);
        }
        if !is_verified && !Sum::of(&packet[..header_len]).is_right() {
            return Err(Malformed::Checksum);
        }
        // More fragments, or not the first.
        if u16_at(head, 6) & 0x3fff != 0 {
            return Err(Malformed::Fragment);
        }
        let header = Header {
            source: Address::v4([head[12], head[13], head[14], head[15]]),
            destination: Address::v4([head[16], head[17], head[18], head[19]]),
            protocol: Protocol(head[9]),
            hop_limit: head[8],
            payload_len: total_len - header_len,
            ecn: head[1] & 3,
        };
        Ok((header, header_len))
    }

    /// Reads the headers of an IPv6 packet, and returns where the payload begins.
    ///
    /// # Errors
    /// [`Malformed`]: its lengths are wrong, or it is a fragment.
    #[inline]
    pub fn read_v6(packet: &[u8]) -> Result<(Header, usize), Malformed> {
        let head = packet
            .first_chunk::<V6_HEADER_LEN>()
            .ok_or(Malformed::Length)?;
        if head[0] >> 4 != 6 {
            return Err(Malformed::Field);
        }
        let total_len = V6_HEADER_LEN + usize::from(u16_at(head, 4));
        if packet.len() < total_len {
            return Err(Malformed::Length);
        }
        let address = |at: usize| Address::v6(std::array::from_fn(|index| head[at + index]));
        let (source, destination) = (address(8), address(24));
        if source.is_v4() || destination.is_v4() {
            // An IPv4-mapped address on the wire would be taken for the IPv4 host.
            return Err(Malformed::Field);
        }
        let (protocol, at) = extensions(&packet[..total_len], head[6])?;
        let header = Header {
            source,
            destination,
            protocol,
            hop_limit: head[7],
            payload_len: total_len - at,
            ecn: head[1] >> 4 & 3,
        };
        Ok((header, at))
    }

    /// Bytes that it takes.
    #[inline]
    pub const fn size(&self) -> usize {
        match self.source.is_v4() {
            true => V4_HEADER_LEN,
            false => V6_HEADER_LEN,
        }
    }

    /// Writes it to the beginning of a packet. `fills_checksum` says that the card fills in that of
    /// IPv4.
    #[inline]
    pub fn write(&self, packet: &mut [u8], fills_checksum: bool) {
        if self.source.is_v4() {
            self.write_v4(packet, fills_checksum);
        } else {
            self.write_v6(packet);
        }
    }

    #[inline]
    fn write_v4(&self, packet: &mut [u8], fills_checksum: bool) {
        let total_len = u16::try_from(V4_HEADER_LEN + self.payload_len).unwrap_or(u16::MAX);
        let head = &mut packet[..V4_HEADER_LEN];
        put(head, 0, &[0x45, self.ecn]);
        put(head, 2, &total_len.to_be_bytes());
        // With DF set it is never fragmented, so it needs no identification (RFC 6864).
        put(
            head,
            4,
            &[0, 0, 0x40, 0, self.hop_limit, self.protocol.0, 0, 0],
        );
        put(head, 12, &self.source.v4_octets());
        put(head, 16, &self.destination.v4_octets());
        if !fills_checksum {
            let checksum = Sum::of(head).checksum();
            put(head, 10, &checksum.to_be_bytes());
        }
    }

    #[inline]
    fn write_v6(&self, packet: &mut [u8]) {
        let payload_len = u16::try_from(self.payload_len).unwrap_or(u16::MAX);
        put(packet, 0, &[0x60, self.ecn << 4, 0, 0]);
        put(packet, 4, &payload_len.to_be_bytes());
        put(packet, 6, &[self.protocol.0, self.hop_limit]);
        put(packet, 8, &self.source.octets());
        put(packet, 24, &self.destination.octets());
    }

    /// Fills in the checksum of the ICMP or ICMPv6 message that this packet carries.
    pub(super) fn seal_icmp(&self, message: &mut [u8]) {
        let sum = match self.source.is_v4() {
            true => Sum::ZERO,
            false => Sum::pseudo_header(
                self.source,
                self.destination,
                Protocol::ICMPV6.0,
                message.len(),
            ),
        };
        put(message, 2, &[0, 0]);
        let checksum = sum.with(message).checksum();
        put(message, 2, &checksum.to_be_bytes());
    }
}

/// Skips the extension headers after an IPv6 header. Returns the protocol that follows, and where
/// it begins.
fn extensions(packet: &[u8], first: u8) -> Result<(Protocol, usize), Malformed> {
    const HOP_BY_HOP: u8 = 0;
    const ROUTING: u8 = 43;
    const FRAGMENT: u8 = 44;
    const DESTINATION: u8 = 60;
    let (mut next, mut at) = (first, V6_HEADER_LEN);
    for _ in 0..EXTENSIONS_MAX {
        match next {
            HOP_BY_HOP | ROUTING | DESTINATION => {
                let head = packet.get(at..at + 4).ok_or(Malformed::Length)?;
                let len = (usize::from(head[1]) + 1) * 8;
                if next == ROUTING && head[3] != 0 {
                    // It has to visit other nodes before its destination (RFC 8200, section 4.4).
                    return Err(Malformed::Field);
                }
                if next != ROUTING {
                    let options = packet.get(at + 2..at + len);
                    skip_options(options.ok_or(Malformed::Length)?)?;
                }
                next = head[0];
                at += len;
            }
            FRAGMENT => return Err(Malformed::Fragment),
            _ if at > packet.len() => return Err(Malformed::Length),
            _ => return Ok((Protocol(next), at)),
        }
    }
    Err(Malformed::Field)
}

/// Skips unknown options, unless one says that the packet must be dropped if it is unknown (RFC
/// 8200, section 4.2).
fn skip_options(mut options: &[u8]) -> Result<(), Malformed> {
    const PAD1: u8 = 0;
    while let [kind, rest @ ..] = options {
        if *kind == PAD1 {
            options = rest;
            continue;
        }
        if kind >> 6 != 0 {
            return Err(Malformed::Field);
        }
        let len = 2 + usize::from(*rest.first().ok_or(Malformed::Length)?);
        options = options.get(len..).ok_or(Malformed::Length)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn v4() -> (Header, [u8; 24]) {
        let source = Address::v4([192, 0, 2, 1]);
        let header = Header::new(source, Address::v4([192, 0, 2, 2]), Protocol::TCP, 4);
        let mut packet = [7; 24];
        header.write(&mut packet, false);
        (header, packet)
    }

    fn v6(payload: &[u8]) -> (Header, Vec<u8>) {
        let address = |last: u128| Address::v6((0x2001_0db8 << 96 | last).to_be_bytes());
        let header = Header::new(address(1), address(2), Protocol::UDP, payload.len());
        let mut packet = vec![0; V6_HEADER_LEN];
        header.write(&mut packet, false);
        packet.extend(payload);
        (header, packet)
    }

    #[test]
    fn headers_are_read_as_they_were_written() {
        let (header, packet) = v4();
        assert_eq!(Header::read_v4(&packet, false), Ok((header, 20)));
        let (header, packet) = v6(&[1, 2, 3]);
        assert_eq!(Header::read_v6(&packet), Ok((header, 40)));
    }

    #[test]
    fn padding_is_not_payload() {
        let (header, packet) = v4();
        let mut padded = packet.to_vec();
        padded.resize(60, 0);
        assert_eq!(Header::read_v4(&padded, false), Ok((header, 20)));
    }

    #[test]
    fn options_are_passed_over() {
        let (_, packet) = v4();
        let mut packet = packet.to_vec();
        packet[0] = 0x46;
        packet[10..12].fill(0);
        let checksum = Sum::of(&packet[..24]).checksum();
        packet[10..12].copy_from_slice(&checksum.to_be_bytes());
        let (header, at) = Header::read_v4(&packet, false).expect("a packet");
        assert_eq!((header.payload_len, at), (0, 24));
    }

    #[test]
    fn what_is_wrong_with_ipv4_is_told() {
        let (_, good) = v4();
        let with = |at: usize, byte: u8| {
            let mut packet = good;
            packet[at] = byte;
            Header::read_v4(&packet, true).map(|_| ())
        };
        assert_eq!(with(0, 0x55), Err(Malformed::Field));
        assert_eq!(with(0, 0x44), Err(Malformed::Length));
        assert_eq!(with(0, 0x4f), Err(Malformed::Length));
        assert_eq!(with(3, 25), Err(Malformed::Length));
        assert_eq!(with(3, 19), Err(Malformed::Length));
        assert_eq!(with(6, 0x20), Err(Malformed::Fragment));
        assert_eq!(with(7, 1), Err(Malformed::Fragment));
        let mut packet = good;
        packet[8] ^= 1;
        assert_eq!(Header::read_v4(&packet, false), Err(Malformed::Checksum));
        for len in 0..24 {
            assert_eq!(Header::read_v4(&good[..len], false), Err(Malformed::Length));
        }
    }

    #[test]
    fn extension_headers_are_passed_over() {
        let mut payload = vec![60, 0, 0, 0, 0, 0, 0, 0];
        payload.extend([17, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        payload.extend([9, 9]);
        let (_, mut packet) = v6(&payload);
        packet[6] = 0;
        let (header, at) = Header::read_v6(&packet).expect("a packet");
        assert_eq!(
            (header.protocol, header.payload_len, at),
            (Protocol::UDP, 2, 64)
        );
    }

    #[test]
    fn what_is_wrong_with_ipv6_is_told() {
        let (_, good) = v6(&[0; 16]);
        for len in 0..good.len() {
            assert_eq!(Header::read_v6(&good[..len]), Err(Malformed::Length));
        }
        let with = |at: usize, byte: u8| {
            let mut packet = good.clone();
            packet[at] = byte;
            Header::read_v6(&packet).map(|_| ())
        };
        assert_eq!(with(0, 0x40), Err(Malformed::Field));
        assert_eq!(with(6, 44), Err(Malformed::Fragment));
        // Headers of length 0 without end.
        assert_eq!(with(6, 0), Err(Malformed::Length));
        let (_, mut long) = v6(&[0; 100]);
        long[6] = 0;
        assert_eq!(Header::read_v6(&long), Err(Malformed::Field));
        let mut mapped = good.clone();
        mapped[8..24].copy_from_slice(&Address::v4([10, 0, 0, 1]).octets());
        assert_eq!(Header::read_v6(&mapped), Err(Malformed::Field));
    }
}
