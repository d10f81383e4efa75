//! The headers of an ordinary segment, as they stand in most frames: a skeleton that all connections
//! of a stack have in common, filled in with what differs.
//!
//! Ordinary is a segment with timestamps and no other option, in the stack's own VLAN. A connection
//! keeps nothing but the sums of what stays the same in its segments.

use crate::nic::{Layout, Mac, Offload};
use crate::seq::SeqNumber;
use crate::table::FourTuple;
use crate::wire::checksum::Sum;
use crate::wire::ethernet::{self, EtherType};
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

/// Who sees to the checksums of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Checks {
    /// The link is trusted: TCP's is left out.
    Nobody,
    /// They are computed here.
    Here,
    /// The card, which is given the sum of the pseudo header.
    Card,
    /// The card, for each of the segments that it cuts, whose lengths it adds.
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
}

/// What differs from one ordinary segment to the next.
#[derive(Clone, Copy, Default)]
pub(super) struct Numbers {
    pub(super) seq: SeqNumber,
    pub(super) ack: SeqNumber,
    pub(super) flags: Flags,
    pub(super) window: u16,
    pub(super) timestamps: Timestamps,
}

impl Numbers {
    /// The sum of all that stands in the header.
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
    /// The VLAN that stands in them.
    vlan: u16,
}

impl Skeletons {
    /// For a card with such an address, and a VLAN.
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

    /// Writes one to the beginning of a frame, which has room, and fills in whose it is and the numbers
    /// of the segment. The packet ends at `end`.
    #[inline]
    fn write(&self, frame: &mut [u8], end: usize, whose: (&FourTuple, Mac), numbers: &Numbers) {
        // Each with lengths that the compiler knows: no place is checked, nothing is called.
        match (whose.0.remote.is_v4(), self.vlan) {
            (true, 0) => {
                write_headers::<LINK_LEN, { LINK_LEN + V4_LEN }, { LINK_LEN + V4_LEN + TCP_LEN }>(
                    frame, &self.v4, end, whose, numbers,
                );
            }
            (true, _) => {
                write_headers::<
                    TAGGED_LEN,
                    { TAGGED_LEN + V4_LEN },
                    { TAGGED_LEN + V4_LEN + TCP_LEN },
                >(frame, &self.v4, end, whose, numbers);
            }
            (false, 0) => {
                write_headers::<LINK_LEN, { LINK_LEN + V6_LEN }, { LINK_LEN + V6_LEN + TCP_LEN }>(
                    frame, &self.v6, end, whose, numbers,
                );
            }
            (false, _) => {
                write_headers::<TAGGED_LEN, { TAGGED_LEN + V6_LEN }, LEN_MAX>(
                    frame, &self.v6, end, whose, numbers,
                );
            }
        }
    }
}

#[inline]
fn write_headers<const NETWORK_AT: usize, const TRANSPORT_AT: usize, const LEN: usize>(
    frame: &mut [u8],
    skeleton: &[u8; LEN_MAX],
    end: usize,
    (tuple, mac): (&FourTuple, Mac),
    numbers: &Numbers,
) {
    let headers: &mut [u8; LEN] = frame.first_chunk_mut().expect("room for any frame");
    headers.copy_from_slice(&skeleton[..LEN]);
    put(headers, 0, &mac.0);
    let len = |from: usize| u16::try_from(end.saturating_sub(from)).unwrap_or(u16::MAX);
    if TRANSPORT_AT - NETWORK_AT == V4_LEN {
        put(headers, NETWORK_AT + 2, &len(NETWORK_AT).to_be_bytes());
        put(headers, NETWORK_AT + 12, &tuple.local.v4_octets());
        put(headers, NETWORK_AT + 16, &tuple.remote.v4_octets());
    } else {
        put(headers, NETWORK_AT + 4, &len(TRANSPORT_AT).to_be_bytes());
        put(headers, NETWORK_AT + 8, &tuple.local.octets());
        put(headers, NETWORK_AT + 24, &tuple.remote.octets());
    }
    let Numbers {
        seq,
        ack,
        flags,
        window,
        timestamps,
    } = *numbers;
    put(headers, TRANSPORT_AT, &tuple.local_port.to_be_bytes());
    put(headers, TRANSPORT_AT + 2, &tuple.remote_port.to_be_bytes());
    put(headers, TRANSPORT_AT + 4, &seq.0.to_be_bytes());
    put(headers, TRANSPORT_AT + 8, &ack.0.to_be_bytes());
    headers[TRANSPORT_AT + 13] = flags.0;
    put(headers, TRANSPORT_AT + 14, &window.to_be_bytes());
    put(headers, TRANSPORT_AT + 24, &timestamps.value.to_be_bytes());
    put(headers, TRANSPORT_AT + 28, &timestamps.echo.to_be_bytes());
}

/// What is kept of a connection's headers: sums of what does not differ in its segments.
#[derive(Clone, Copy)]
pub(super) struct Template {
    /// Of the IPv4 header, without length and checksum.
    network_sum: u16,
    /// Of the pseudo header without length, and of the TCP header, of which the card takes only the
    /// first.
    pseudo_sum: u16,
    header_sum: u16,
    is_made: bool,
}

impl Template {
    /// No template.
    pub(super) const NONE: Template = Template {
        network_sum: 0,
        pseudo_sum: 0,
        header_sum: 0,
        is_made: false,
    };

    /// That of a connection.
    pub(super) fn new(skeletons: &Skeletons, tuple: &FourTuple) -> Template {
        let mut bytes = [0; LEN_MAX];
        let network_at = skeletons.network_at();
        let payload_at = skeletons.payload_at(tuple.remote.is_v4());
        // An IPv4 packet of no length.
        skeletons.write(
            &mut bytes,
            network_at,
            (tuple, Mac([0; 6])),
            &Numbers::default(),
        );
        let (network, header) =
            bytes[network_at..payload_at].split_at(payload_at - TCP_LEN - network_at);
        Template {
            network_sum: Sum::of(network).folded(),
            pseudo_sum: Sum::pseudo_header(tuple.local, tuple.remote, Protocol::TCP.0, 0).folded(),
            header_sum: Sum::of(header).folded(),
            is_made: true,
        }
    }

    /// Whether it is one.
    #[inline]
    pub(super) fn is_none(&self) -> bool {
        !self.is_made
    }

    /// Writes the headers before a payload that ends at `end`, with the checksums that the card does
    /// not fill in.
    #[inline]
    pub(super) fn write(
        &self,
        skeletons: &Skeletons,
        whose: (&FourTuple, Mac),
        frame: &mut [u8],
        end: usize,
        numbers: &Numbers,
        checks: Checks,
    ) {
        skeletons.write(frame, end, whose, numbers);
        let is_v4 = whose.0.remote.is_v4();
        let (network_at, payload_at) = (skeletons.network_at(), skeletons.payload_at(is_v4));
        let transport_at = payload_at - TCP_LEN;
        let len = |from: usize| u16::try_from(end - from).unwrap_or(u16::MAX);
        if is_v4 && matches!(checks, Checks::Here | Checks::Nobody) {
            let sum = Sum::ZERO
                .with_u16(self.network_sum)
                .with_u16(len(network_at));
            put(frame, network_at + 10, &sum.checksum().to_be_bytes());
        }
        let pseudo = Sum::ZERO.with_u16(self.pseudo_sum);
        let checksum = match checks {
            Checks::Nobody => return,
            Checks::Segments => pseudo.folded(),
            Checks::Card => pseudo.with_u16(len(transport_at)).folded(),
            Checks::Here => pseudo
                .with_u16(len(transport_at))
                .with_u16(self.header_sum)
                .and(numbers.sum())
                .with(&frame[payload_at..end])
                .checksum(),
        };
        put(frame, transport_at + 16, &checksum.to_be_bytes());
    }
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
            fills in any::<bool>(),
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
            };
            let skeletons = Skeletons::new(own, vlan);
            let template = Template::new(&skeletons, &tuple);
            let mut frame = vec![0xaa; skeletons.payload_at(is_v4)];
            frame.extend(&payload);
            let end = frame.len();
            template.write(&skeletons, (&tuple, mac), &mut frame, end, &numbers, checks);

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
            let packet = ip::Header::new(tuple.local, tuple.remote, Protocol::TCP, len);
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
