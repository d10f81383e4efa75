//! Header prediction: nearly all frames are segments of an open connection, whose fields are at
//! fixed offsets.
//!
//! Any other frame, or one with an error, is left to the general readers of each header.

use super::checksum::Sum;
use super::ethernet::EtherType;
use super::ip::{CE, Protocol};
use super::tcp::{Flags, HEADER_LEN, TIMESTAMPS_LEN, Timestamps};
use super::{Address, u16_at, u32_at};
use crate::nic::Mac;
use crate::seq::SeqNumber;
use crate::wire::four_tuple::FourTuple;

/// Bytes of the Ethernet header, of the IP headers without options, and of a TCP header whose only
/// option are timestamps.
const LINK_LEN: usize = 14;
const V4_LEN: usize = 20;
const V6_LEN: usize = 40;
const TCP_LEN: usize = HEADER_LEN + TIMESTAMPS_LEN;

/// The first byte of the IPv4 header, and the first four bits of the IPv6 header.
const V4_NO_OPTIONS: u8 = 0x45;
const V6: u8 = 6;

/// The common layout of the options (RFC 7323, appendix A): two NOPs, then timestamps of ten bytes.
const ONLY_TIMESTAMPS: u32 = 0x0101_080a;

/// The headers of a frame before that of TCP or UDP, in the common case: no VLAN tag, no options,
/// no extension headers, no CE mark. Any other frame, or one with an error, is left to the general
/// readers of each header.
pub(super) struct Front {
    /// From where it came.
    pub(super) mac: Mac,
    pub(super) source: Address,
    pub(super) destination: Address,
    /// The sum of both addresses.
    pub(super) sum: Sum,
    /// Where in the frame the packet's payload begins, and where it ends.
    pub(super) start: usize,
    pub(super) end: usize,
}

impl Front {
    /// Looks at a frame. `None` where it is another protocol's, is for somebody else, comes from nobody
    /// in particular, or has a wrong checksum, of which `is_verified` says that it need not be looked
    /// at.
    #[inline(always)]
    pub(super) fn at(
        bytes: &[u8],
        own: Mac,
        protocol: Protocol,
        is_verified: bool,
    ) -> Option<Front> {
        let head: &[u8; LINK_LEN + V4_LEN] = bytes.first_chunk()?;
        let mac = Mac([head[6], head[7], head[8], head[9], head[10], head[11]]);
        if head[..6] != own.0 || mac.is_group() {
            return None;
        }
        match EtherType(u16_at(head, 12)) {
            EtherType::IPV4 => {
                let packet: &[u8; V4_LEN] = head[LINK_LEN..].first_chunk()?;
                let is_whole = u16_at(packet, 6) & 0xbfff == 0;
                let is_predicted = packet[0] == V4_NO_OPTIONS && packet[1] & CE != CE;
                if !is_predicted || !is_whole || packet[9] != protocol.0 {
                    return None;
                }
                if !is_verified && !Sum::ZERO.with_array(packet).is_right() {
                    return None;
                }
                let (source, destination) = (u32_at(packet, 12), u32_at(packet, 16));
                Some(Front {
                    mac,
                    source: Address::v4(source.to_be_bytes()),
                    destination: Address::v4(destination.to_be_bytes()),
                    sum: Sum::ZERO.with_u32(source).with_u32(destination),
                    start: LINK_LEN + V4_LEN,
                    end: LINK_LEN + usize::from(u16_at(packet, 2)),
                })
            }
            EtherType::IPV6 => {
                let packet: &[u8; V6_LEN] = bytes[LINK_LEN..].first_chunk()?;
                let is_predicted = packet[0] >> 4 == V6 && packet[1] >> 4 & CE != CE;
                if !is_predicted || packet[6] != protocol.0 {
                    return None;
                }
                let source = Address::v6(*packet[8..].first_chunk()?);
                let destination = Address::v6(*packet[24..].first_chunk()?);
                // None that are IPv4's may come in an IPv6 packet.
                if source.is_v4() || destination.is_v4() {
                    return None;
                }
                let octets: &[u8; 32] = packet[8..].first_chunk()?;
                Some(Front {
                    mac,
                    source,
                    destination,
                    sum: Sum::ZERO.with_array(octets),
                    start: LINK_LEN + V6_LEN,
                    end: LINK_LEN + V6_LEN + usize::from(u16_at(packet, 4)),
                })
            }
            _ => None,
        }
    }
}

/// A segment with an acknowledgment and timestamps and nothing that asks for more than taking in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PredictedHeader {
    /// From where it came.
    pub(crate) mac: Mac,
    pub(crate) tuple: FourTuple,
    pub(crate) seq: SeqNumber,
    pub(crate) ack: SeqNumber,
    pub(crate) window: u16,
    pub(crate) timestamps: Timestamps,
    /// Where in the frame its payload begins, and how many bytes it has.
    pub(crate) start: u16,
    pub(crate) len: u16,
}

impl PredictedHeader {
    /// Looks at a frame. `None` where it is something else, is for somebody else, is broken or has
    /// wrong checksums, of which `is_verified` says that they need not be looked at.
    #[inline]
    pub(crate) fn at(bytes: &[u8], own: Mac, is_verified: bool) -> Option<PredictedHeader> {
        let front = Front::at(bytes, own, Protocol::TCP, is_verified)?;
        let segment = bytes.get(front.start..front.end)?;
        let (header, payload) = segment.split_first_chunk::<TCP_LEN>()?;
        // The length of the header, no reserved bits, and of the flags none but these.
        let is_plain = usize::from(header[12]) == (TCP_LEN / 4) << 4
            && Flags(header[13] & !Flags::PSH.0) == Flags::ACK
            && u32_at(header, 20) == ONLY_TIMESTAMPS;
        if !is_plain {
            return None;
        }
        if !is_verified {
            let len = u16::try_from(segment.len()).ok()?;
            let protocol = u16::from(Protocol::TCP.0);
            let sum = front.sum.with_u16(protocol).with_u16(len);
            if !sum.with_array(header).with(payload).is_right() {
                return None;
            }
        }
        let start = front.start + TCP_LEN;
        Some(PredictedHeader {
            mac: front.mac,
            tuple: FourTuple {
                local: front.destination,
                remote: front.source,
                local_port: u16_at(header, 2),
                remote_port: u16_at(header, 0),
            },
            seq: SeqNumber(u32_at(header, 4)),
            ack: SeqNumber(u32_at(header, 8)),
            window: u16_at(header, 14),
            timestamps: Timestamps {
                value: u32_at(header, 24),
                echo: u32_at(header, 28),
            },
            start: u16::try_from(start).ok()?,
            len: u16::try_from(front.end - start).ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::wire::ethernet;
    use crate::wire::ip;
    use crate::wire::tcp::{Header, Options};

    const OWN: Mac = Mac([2, 0, 0, 0, 0, 1]);
    const PEER: Mac = Mac([2, 0, 0, 0, 0, 2]);

    /// A frame with a segment, and where its IP header begins.
    fn frame(is_v4: bool, header: &Header, payload: &[u8]) -> Vec<u8> {
        let address = |last: u8| match is_v4 {
            true => Address::v4([192, 0, 2, last]),
            false => Address::v6([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last]),
        };
        let (local, remote) = (address(1), address(2));
        let len = header.size() + payload.len();
        let packet = ip::Header::new(remote, local, Protocol::TCP, len);
        let mut frame = vec![0; LINK_LEN + packet.size() + header.size()];
        let link = ethernet::Header {
            destination: OWN,
            source: PEER,
            vlan: 0,
            ether_type: EtherType::of(remote),
        };
        link.write(&mut frame);
        packet.write(&mut frame[LINK_LEN..], false);
        let at = LINK_LEN + packet.size();
        header.write(&mut frame[at..]);
        frame.extend(payload);
        let sum = Sum::pseudo_header(remote, local, Protocol::TCP.0, len).with(&frame[at..]);
        frame[at + 16..at + 18].copy_from_slice(&sum.checksum().to_be_bytes());
        frame
    }

    fn header(flags: Flags, numbers: (u32, u32, u32, u32), window: u16) -> Header {
        let (seq, ack, value, echo) = numbers;
        Header {
            source: 4321,
            destination: 11211,
            seq: SeqNumber(seq),
            ack: SeqNumber(ack),
            flags,
            window,
            options: Options {
                timestamps: Some(Timestamps { value, echo }),
                ..Options::default()
            },
        }
    }

    proptest! {
        /// What the readers of each header read, and only where they find nothing wrong.
        #[test]
        fn it_sees_what_the_headers_say(
            is_v4 in any::<bool>(),
            numbers in any::<(u32, u32, u32, u32)>(),
            window in any::<u16>(),
            pushes in any::<bool>(),
            payload in proptest::collection::vec(any::<u8>(), 0..100),
            padding in 0usize..8,
            flip in proptest::option::of((0usize..200, 0u8..8)),
        ) {
            let flags = if pushes { Flags::ACK.and(Flags::PSH) } else { Flags::ACK };
            let header = header(flags, numbers, window);
            let mut bytes = frame(is_v4, &header, &payload);
            let whole = bytes.len();
            bytes.extend(vec![0xee; padding]);
            if let Some((at, bit)) = flip && at < whole {
                bytes[at] ^= 1 << bit;
            }
            let seen = PredictedHeader::at(&bytes, OWN, false);
            let Some(predicted) = seen else {
                prop_assert!(flip.is_some());
                return Ok(());
            };
            // Of all single bits only those of the sender's MAC address, and of IPv6's traffic
            // class, flow label and hop limit, stand outside the checksums.
            let (link, at) = ethernet::Header::read(&bytes).expect("a frame");
            let rest = &bytes[at..];
            let (packet, len) = match is_v4 {
                true => ip::Header::read_v4(rest, false).expect("a packet"),
                false => ip::Header::read_v6(rest).expect("a packet"),
            };
            let segment = &rest[len..len + packet.payload_len];
            let (read, header_len) = Header::read(segment).expect("a segment");
            prop_assert_eq!(predicted.mac, link.source);
            prop_assert_eq!(predicted.tuple, FourTuple {
                local: packet.destination,
                remote: packet.source,
                local_port: read.destination,
                remote_port: read.source,
            });
            prop_assert_eq!((predicted.seq, predicted.ack, predicted.window), (read.seq, read.ack, read.window));
            prop_assert_eq!(Some(predicted.timestamps), read.options.timestamps);
            let start = usize::from(predicted.start);
            prop_assert_eq!(&bytes[start..start + usize::from(predicted.len)], &segment[header_len..]);
        }

        /// Whatever comes.
        #[test]
        fn it_never_panics(mut bytes in proptest::collection::vec(any::<u8>(), 0..120), kind in 0u8..3) {
            if bytes.len() > 14 {
                bytes[..6].copy_from_slice(&OWN.0);
                bytes[12..15].copy_from_slice([&[8, 0, 0x45], &[0x86, 0xdd, 0x60], &[8, 6, 0]][usize::from(kind)]);
            }
            PredictedHeader::at(&bytes, OWN, true);
        }
    }

    #[test]
    fn what_asks_for_more_is_left_to_others() {
        for is_v4 in [true, false] {
            let plain = header(Flags::ACK, (1, 2, 3, 4), 5);
            assert!(PredictedHeader::at(&frame(is_v4, &plain, b"x"), OWN, false).is_some());
            assert!(PredictedHeader::at(&frame(is_v4, &plain, b"x"), PEER, false).is_none());
            for flags in [Flags::SYN, Flags::FIN, Flags::RST, Flags::URG] {
                let other = header(Flags::ACK.and(flags), (1, 2, 3, 4), 5);
                assert!(PredictedHeader::at(&frame(is_v4, &other, b"x"), OWN, false).is_none());
            }
            let mut other = plain;
            other.options.sack.push((SeqNumber(1), SeqNumber(2)));
            assert!(PredictedHeader::at(&frame(is_v4, &other, b"x"), OWN, false).is_none());
            other.options = Options::default();
            assert!(PredictedHeader::at(&frame(is_v4, &other, b"x"), OWN, false).is_none());
            let mut short = frame(is_v4, &plain, b"x");
            short.pop();
            assert!(PredictedHeader::at(&short, OWN, true).is_none());
        }
        let plain = header(Flags::ACK, (1, 2, 3, 4), 5);
        let mut fragment = frame(true, &plain, b"x");
        fragment[20] = 0x20;
        assert!(PredictedHeader::at(&fragment, OWN, true).is_none());
    }
}
