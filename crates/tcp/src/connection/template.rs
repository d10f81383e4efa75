//! The headers of a segment on the fast path: a skeleton that all connections of a stack share,
//! filled in with what differs.
//!
//! This is for segments with timestamps and no other option, in the stack's own VLAN. A connection
//! keeps nothing but the sums of what stays the same in its segments.

use crate::nic::{Layout, Mac, Offload};
use crate::seq::SeqNumber;
use crate::wire::checksum::Sum;
use crate::wire::ethernet::{self, EtherType};
use crate::wire::four_tuple::FourTuple;
use crate::wire::ip::{self, Protocol};
use crate::wire::tcp::{self, Flags, Header, Options, Timestamps};
use crate::wire::{Address, put};

/// Bytes of the headers: Ethernet with and without a VLAN tag, IP, and TCP with timestamps.
const LINK_LEN: usize = 14;
const TAGGED_LEN: usize = 18;
const V4_LEN: usize = 20;
const V6_LEN: usize = 40;
const TCP_LEN: usize = tcp::HEADER_LEN + tcp::TIMESTAMPS_LEN;

/// Bytes of the longest.
const LEN_MAX: usize = TAGGED_LEN + V6_LEN + TCP_LEN;

/// Where the checksums of a frame are computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Checks {
    /// The link is trusted: the TCP checksum is left out.
    Nobody,
    /// Here, by the stack.
    Here,
    /// On the card, which is given the sum of the pseudo header.
    Card,
    /// On the card, for each of the segments that it cuts, whose lengths it adds.
    Segments,
}

impl Checks {
    /// What the card is asked for.
    pub(super) fn of(offload: Offload) -> Checks {
        match offload {
            Offload::None => Checks::Here,
            Offload::Checksum(_) => Checks::Card,
            Offload::Segment(..) => Checks::Segments,
        }
    }

    /// The sum of a payload, if it is computed here; else zero.
    #[inline]
    pub(super) fn sum_of(self, payload: &[u8]) -> Sum {
        match self {
            Checks::Here => Sum::of(payload),
            Checks::Nobody | Checks::Card | Checks::Segments => Sum::ZERO,
        }
    }
}

/// What differs from one such segment to the next.
#[derive(Clone, Copy, Default)]
pub(super) struct Numbers {
    pub(super) seq: SeqNumber,
    pub(super) ack: SeqNumber,
    pub(super) flags: Flags,
    pub(super) window: u16,
    pub(super) timestamps: Timestamps,
    /// Whether queues may mark it: `ECT_0`, or 0.
    pub(super) ect: u8,
}

impl Numbers {
    /// The sum of these fields.
    #[inline]
    fn sum(&self) -> Sum {
        Sum::ZERO
            .with_u32(self.seq.0)
            .with_u32(self.ack.0)
            .with_u16(u16::from(self.flags.0))
            .with_u16(self.window)
            .with_u32(self.timestamps.value)
            .with_u32(self.timestamps.echo)
    }
}

/// The headers that all connections of a stack have in common, with zeros where they differ.
pub(crate) struct Skeletons {
    v4: [u8; LEN_MAX],
    v6: [u8; LEN_MAX],
    /// The VLAN in the skeletons.
    vlan: u16,
}

impl Skeletons {
    /// The skeletons for a card's address and a VLAN.
    pub(crate) fn new(own: Mac, vlan: u16) -> Skeletons {
        let make = |any: Address| {
            let mut bytes = [0; LEN_MAX];
            let link = ethernet::Header {
                destination: Mac([0; 6]),
                source: own,
                vlan,
                ether_type: EtherType::of(any),
            };
            let packet = ip::Header::new(any, any, Protocol::TCP, 0);
            let header = Header {
                options: Options {
                    timestamps: Some(Timestamps { value: 0, echo: 0 }),
                    ..Options::default()
                },
                ..Header::default()
            };
            link.write(&mut bytes);
            packet.write(&mut bytes[link.size()..], true);
            header.write(&mut bytes[link.size() + packet.size()..]);
            if any.is_v4() {
                // The length.
                put(&mut bytes, link.size() + 2, &[0; 2]);
            }
            bytes
        };
        Skeletons {
            v4: make(Address::v4([0; 4])),
            v6: make(Address::UNSPECIFIED),
            vlan,
        }
    }

    /// The VLAN of the segments that they are for.
    #[inline]
    pub(super) fn vlan(&self) -> u16 {
        self.vlan
    }

    /// Where the IP header begins.
    #[inline]
    fn network_at(&self) -> usize {
        match self.vlan {
            0 => LINK_LEN,
            _ => TAGGED_LEN,
        }
    }

    /// Where the payload of a connection's segments begins.
    #[inline]
    pub(super) fn payload_at(&self, is_v4: bool) -> usize {
        self.network_at() + TCP_LEN + if is_v4 { V4_LEN } else { V6_LEN }
    }

    /// Where everything is.
    pub(super) fn layout(&self, is_v4: bool) -> Layout {
        let payload_at = self.payload_at(is_v4);
        let short = |at: usize| u8::try_from(at).expect("90 at most");
        Layout {
            network: short(self.network_at()),
            transport: short(payload_at - TCP_LEN),
            payload: short(payload_at),
            is_ipv6: !is_v4,
            is_udp: false,
        }
    }

    /// The skeleton for IPv4 or IPv6.
    #[inline]
    fn of(&self, is_v4: bool) -> &[u8; LEN_MAX] {
        match is_v4 {
            true => &self.v4,
            false => &self.v6,
        }
    }
}

/// Precomputed sums of the header fields that are the same in all segments of a connection.
#[derive(Clone, Copy)]
pub(super) struct Template {
    /// Of the IPv4 header, without length and checksum.
    network_sum: u16,
    /// Of the pseudo header without length, and of the TCP header, of which the card takes only the
    /// first.
    pseudo_sum: u16,
    header_sum: u16,
}

impl Template {
    /// No template.
    pub(super) const NONE: Template = Template {
        network_sum: 0,
        pseudo_sum: 0,
        header_sum: 0,
    };

    /// The template of a connection.
    pub(super) fn new(skeletons: &Skeletons, tuple: &FourTuple) -> Template {
        let mut bytes = *skeletons.of(tuple.remote.is_v4());
        let network_at = skeletons.network_at();
        let payload_at = skeletons.payload_at(tuple.remote.is_v4());
        let transport_at = payload_at - TCP_LEN;
        put_tuple(&mut bytes, network_at, transport_at, tuple);
        let (network, header) = bytes[network_at..payload_at].split_at(transport_at - network_at);
        Template {
            network_sum: Sum::of(network).folded(),
            pseudo_sum: Sum::pseudo_header(tuple.local, tuple.remote, Protocol::TCP.0, 0).folded(),
            header_sum: Sum::of(header).folded(),
        }
    }

    /// Whether it is none: a sum of what is not all zeros is never zero.
    #[inline]
    pub(super) fn is_none(&self) -> bool {
        self.header_sum == 0
    }

    /// Writes the headers of a frame that ends at `end`, with the checksums that the card does not fill
    /// in: `payload` is what [`Checks::sum_of`] the payload gave. All must lie in the frame.
    #[inline]
    pub(super) fn write(
        &self,
        skeletons: &Skeletons,
        whose: (&FourTuple, Mac),
        (frame, end): (&mut [u8], usize),
        payload: Sum,
        numbers: &Numbers,
        checks: Checks,
    ) {
        const V4: [usize; 3] = places(LINK_LEN, V4_LEN);
        const V6: [usize; 3] = places(LINK_LEN, V6_LEN);
        const TAGGED_V4: [usize; 3] = places(TAGGED_LEN, V4_LEN);
        const TAGGED_V6: [usize; 3] = places(TAGGED_LEN, V6_LEN);
        let is_v4 = whose.0.remote.is_v4();
        let (skeleton, frame) = (skeletons.of(is_v4), &mut frame[..end]);
        // Each case has offsets that the compiler knows, so no bounds check remains.
        match (is_v4, skeletons.vlan) {
            (true, 0) => {
                self.write_at::<{ V4[0] }, { V4[1] }, { V4[2] }>(
                    frame, skeleton, whose, payload, numbers, checks,
                );
            }
            (false, 0) => {
                self.write_at::<{ V6[0] }, { V6[1] }, { V6[2] }>(
                    frame, skeleton, whose, payload, numbers, checks,
                );
            }
            (true, _) => {
                self.write_at::<{ TAGGED_V4[0] }, { TAGGED_V4[1] }, { TAGGED_V4[2] }>(
                    frame, skeleton, whose, payload, numbers, checks,
                );
            }
            (false, _) => {
                self.write_at::<{ TAGGED_V6[0] }, { TAGGED_V6[1] }, { TAGGED_V6[2] }>(
                    frame, skeleton, whose, payload, numbers, checks,
                );
            }
        }
    }

    /// Like [`Template::write`], with the offsets of the IP header, the TCP header and the payload.
    #[inline]
    fn write_at<const NETWORK: usize, const TRANSPORT: usize, const PAYLOAD: usize>(
        &self,
        frame: &mut [u8],
        skeleton: &[u8; LEN_MAX],
        (tuple, mac): (&FourTuple, Mac),
        payload: Sum,
        numbers: &Numbers,
        checks: Checks,
    ) {
        let (headers, rest) = frame
            .split_first_chunk_mut::<PAYLOAD>()
            .expect("room for any frame");
        headers.copy_from_slice(&skeleton[..PAYLOAD]);
        put(headers, 0, &mac.0);
        put_tuple(headers, NETWORK, TRANSPORT, tuple);
        let len = |before: usize| u16::try_from(rest.len() + before).unwrap_or(u16::MAX);
        let segment_len = len(TCP_LEN);
        if TRANSPORT - NETWORK == V4_LEN {
            let len = len(V4_LEN + TCP_LEN);
            headers[NETWORK + 1] = numbers.ect;
            put(headers, NETWORK + 2, &len.to_be_bytes());
            if matches!(checks, Checks::Here | Checks::Nobody) {
                let sum = Sum::ZERO.with_u16(self.network_sum).with_u16(len);
                let sum = sum.with_u16(u16::from(numbers.ect));
                put(headers, NETWORK + 10, &sum.checksum().to_be_bytes());
            }
        } else {
            headers[NETWORK + 1] = numbers.ect << 4;
            put(headers, NETWORK + 4, &segment_len.to_be_bytes());
        }
        let segment = &mut headers[TRANSPORT..];
        put(segment, 4, &numbers.seq.0.to_be_bytes());
        put(segment, 8, &numbers.ack.0.to_be_bytes());
        segment[13] = numbers.flags.0;
        put(segment, 14, &numbers.window.to_be_bytes());
        put(segment, 24, &numbers.timestamps.value.to_be_bytes());
        put(segment, 28, &numbers.timestamps.echo.to_be_bytes());
        let pseudo = Sum::ZERO.with_u16(self.pseudo_sum);
        let checksum = match checks {
            Checks::Nobody => return,
            Checks::Segments => pseudo.folded(),
            Checks::Card => pseudo.with_u16(segment_len).folded(),
            Checks::Here => pseudo
                .with_u16(segment_len)
                .with_u16(self.header_sum)
                .and(numbers.sum())
                .and(payload)
                .checksum(),
        };
        put(segment, 16, &checksum.to_be_bytes());
    }
}

/// The offsets of the IP header, the TCP header and the payload.
const fn places(link_len: usize, network_len: usize) -> [usize; 3] {
    let transport_at = link_len + network_len;
    [link_len, transport_at, transport_at + TCP_LEN]
}

/// Fills in the addresses and ports.
#[inline]
fn put_tuple(headers: &mut [u8], network_at: usize, transport_at: usize, tuple: &FourTuple) {
    if transport_at - network_at == V4_LEN {
        put(headers, network_at + 12, &tuple.local.v4_octets());
        put(headers, network_at + 16, &tuple.remote.v4_octets());
    } else {
        put(headers, network_at + 8, &tuple.local.octets());
        put(headers, network_at + 24, &tuple.remote.octets());
    }
    put(headers, transport_at, &tuple.local_port.to_be_bytes());
    put(headers, transport_at + 2, &tuple.remote_port.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// The same bytes as headers that are written one by one.
        #[test]
        fn it_writes_what_the_headers_write(
            (is_v4, vlan, seq, ack) in any::<(bool, bool, u32, u32)>(),
            (flags, window, value, echo) in any::<(u8, u16, u32, u32)>(),
            payload in proptest::collection::vec(any::<u8>(), 0..100),
            (fills, ect) in (any::<bool>(), 0..3u8),
        ) {
            let address = |last: u8| match is_v4 {
                true => Address::v4([192, 0, 2, last]),
                false => Address::v6([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last]),
            };
            let tuple = FourTuple {
                local: address(1),
                remote: address(2),
                local_port: 11211,
                remote_port: 4321,
            };
            let own = Mac([2, 0, 0, 0, 0, 1]);
            let (mac, vlan) = (Mac([2, 0, 0, 0, 0, 2]), u16::from(vlan) * 7);
            let timestamps = Timestamps { value, echo };
            let checks = if fills { Checks::Card } else { Checks::Here };
            let numbers = Numbers {
                seq: SeqNumber(seq),
                ack: SeqNumber(ack),
                flags: Flags(flags),
                window,
                timestamps,
                ect,
            };
            let skeletons = Skeletons::new(own, vlan);
            let template = Template::new(&skeletons, &tuple);
            let mut frame = vec![0xaa; skeletons.payload_at(is_v4)];
            frame.extend(&payload);
            let end = frame.len();
            let sum = checks.sum_of(&payload);
            template.write(&skeletons, (&tuple, mac), (&mut frame, end), sum, &numbers, checks);

            let link = ethernet::Header {
                destination: mac,
                source: own,
                vlan,
                ether_type: if is_v4 { EtherType::IPV4 } else { EtherType::IPV6 },
            };
            let header = Header {
                source: 11211,
                destination: 4321,
                seq: SeqNumber(seq),
                ack: SeqNumber(ack),
                flags: Flags(flags),
                window,
                options: Options { timestamps: Some(timestamps), ..Options::default() },
            };
            let len = header.size() + payload.len();
            let packet = ip::Header {
                ecn: ect,
                ..ip::Header::new(tuple.local, tuple.remote, Protocol::TCP, len)
            };
            let mut right = vec![0; link.size() + packet.size() + header.size()];
            link.write(&mut right);
            packet.write(&mut right[link.size()..], fills);
            let at = link.size() + packet.size();
            header.write(&mut right[at..]);
            right.extend(&payload);
            let sum = Sum::pseudo_header(tuple.local, tuple.remote, 6, len);
            let checksum = match fills {
                true => sum.folded(),
                false => sum.with(&right[at..]).checksum(),
            };
            right[at + 16..at + 18].copy_from_slice(&checksum.to_be_bytes());
            prop_assert_eq!(frame, right);
        }
    }
}
