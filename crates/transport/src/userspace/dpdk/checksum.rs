//! How checksums are divided between card and driver.

use coua_dpdk_sys::{received, sent};
use coua_tcp::nic::{Layout, Offload};

const ETHERNET_LEN: usize = 14;
const TYPE_IPV4: [u8; 2] = [0x08, 0x00];
const TYPE_IPV6: [u8; 2] = [0x86, 0xdd];
const TYPE_VLAN: [u8; 2] = [0x81, 0x00];
const IPV4_CHECKSUM_AT: usize = 10;

/// What an mbuf asks of the card: flags, and lengths of headers and segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) flags: u64,
    pub(super) lengths: u64,
}

/// Translates what is asked of the card into its flags. If the card does not fill in IPv4's
/// checksum, this does.
pub(super) fn request(frame: &mut [u8], offload: Offload, fills_ipv4: bool) -> Request {
    let (layout, segment_len) = match offload {
        Offload::None => {
            return Request {
                flags: 0,
                lengths: 0,
            };
        }
        Offload::Checksum(layout) => (layout, 0),
        Offload::Segment(layout, len) => (layout, len),
    };
    let mut flags = if layout.is_udp {
        sent::UDP_CHECKSUM
    } else {
        sent::TCP_CHECKSUM
    };
    if segment_len > 0 {
        flags |= sent::TCP_SEGMENTS;
    }
    if layout.is_ipv6 {
        flags |= sent::IPV6;
    } else {
        flags |= sent::IPV4;
        if fills_ipv4 {
            flags |= sent::IP_CHECKSUM;
        } else {
            fill_ipv4(frame, layout);
        }
    }
    let network_len = layout.transport - layout.network;
    let transport_len = layout.payload - layout.transport;
    let lengths = u64::from(layout.network)
        | u64::from(network_len) << 7
        | u64::from(transport_len) << 16
        | u64::from(segment_len) << 24;
    Request { flags, lengths }
}

/// Whether the card has verified the checksums of a frame.
///
/// Devices that carry frames between processes on one machine vouch for TCP and UDP but not for the
/// IPv4 header. Then the 20 bytes of the header are summed here.
#[inline]
pub(super) fn is_verified(flags: u64, frame: &[u8]) -> bool {
    const L4: u64 = received::L4_GOOD | received::L4_BAD;
    const IP: u64 = received::IP_GOOD | received::IP_BAD;
    // Both flags together mean that the data is right although the frame has no checksum.
    if flags & L4 != received::L4_GOOD && flags & L4 != L4 {
        return false;
    }
    match flags & IP {
        received::IP_BAD => false,
        0 => has_sound_ip_header(frame),
        _ => true,
    }
}

fn has_sound_ip_header(frame: &[u8]) -> bool {
    let mut rest = &frame[ETHERNET_LEN.min(frame.len())..];
    let mut kind = frame.get(12..ETHERNET_LEN);
    if kind == Some(&TYPE_VLAN) {
        kind = rest.get(2..4);
        rest = rest.get(4..).unwrap_or_default();
    }
    if kind == Some(&TYPE_IPV6) {
        return true;
    }
    let header_len = rest.first().map_or(0, |first| usize::from(first & 0xf) * 4);
    kind == Some(&TYPE_IPV4)
        && header_len >= 20
        && rest
            .get(..header_len)
            .is_some_and(|header| sum(header) == 0xffff)
}

fn fill_ipv4(frame: &mut [u8], layout: Layout) {
    let header = &mut frame[usize::from(layout.network)..usize::from(layout.transport)];
    header[IPV4_CHECKSUM_AT..IPV4_CHECKSUM_AT + 2].fill(0);
    let checksum = !sum(header);
    header[IPV4_CHECKSUM_AT..IPV4_CHECKSUM_AT + 2].copy_from_slice(&checksum.to_be_bytes());
}

/// The one's complement sum of RFC 1071, over an even number of bytes.
fn sum(header: &[u8]) -> u16 {
    let words = header.chunks_exact(2);
    let total: u32 = words
        .map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])))
        .sum();
    let folded = (total & 0xffff) + (total >> 16);
    let folded = (folded & 0xffff) + (folded >> 16);
    u16::try_from(folded).unwrap_or(u16::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The header of the example in the Wikipedia article on IPv4's checksum, behind Ethernet.
    const HEADER: [u8; 20] = [
        0x45, 0, 0, 0x73, 0, 0, 0x40, 0, 0x40, 0x11, 0xb8, 0x61, 0xc0, 0xa8, 0, 1, 0xc0, 0xa8, 0,
        0xc7,
    ];

    fn frame(kind: &[u8]) -> Vec<u8> {
        let mut frame = vec![0; 12];
        frame.extend_from_slice(kind);
        frame.extend_from_slice(&HEADER);
        frame.extend_from_slice(&[0; 30]);
        frame
    }

    const LAYOUT: Layout = Layout {
        network: 14,
        transport: 34,
        payload: 54,
        is_ipv6: false,
        is_udp: false,
    };

    #[test]
    fn ipv4_is_filled_in_only_where_the_card_does_not() {
        let mut bytes = frame(&TYPE_IPV4);
        bytes[24..26].fill(0);
        let asked = request(&mut bytes, Offload::Checksum(LAYOUT), true);
        assert_eq!(
            asked.flags,
            sent::TCP_CHECKSUM | sent::IPV4 | sent::IP_CHECKSUM
        );
        assert_eq!(asked.lengths, 14 | 20 << 7 | 20 << 16);
        assert_eq!(bytes[24..26], [0, 0]);

        let asked = request(&mut bytes, Offload::Segment(LAYOUT, 1448), false);
        assert_eq!(
            asked.flags,
            sent::TCP_CHECKSUM | sent::IPV4 | sent::TCP_SEGMENTS
        );
        assert_eq!(asked.lengths, 14 | 20 << 7 | 20 << 16 | 1448 << 24);
        assert_eq!(bytes[24..26], [0xb8, 0x61]);
    }

    #[test]
    fn udp_over_ipv6_is_named_as_such() {
        let layout = Layout {
            network: 18,
            transport: 58,
            payload: 66,
            is_ipv6: true,
            is_udp: true,
        };
        let asked = request(&mut [0; 100], Offload::Checksum(layout), false);
        assert_eq!(asked.flags, sent::UDP_CHECKSUM | sent::IPV6);
        assert_eq!(asked.lengths, 18 | 40 << 7 | 8 << 16);
    }

    #[test]
    fn a_card_vouches_by_its_flags() {
        let ip4 = frame(&TYPE_IPV4);
        let mut broken = ip4.clone();
        broken[30] ^= 1;
        let tagged = frame(&[0x81, 0, 0, 7, 8, 0]);
        let ip6 = frame(&TYPE_IPV6);
        let l4_none = received::L4_GOOD | received::L4_BAD;
        let cases: [(u64, &[u8], bool); 12] = [
            (0, &ip4, false),
            (received::IP_GOOD, &ip4, false),
            (received::L4_BAD | received::IP_GOOD, &ip4, false),
            (received::L4_GOOD | received::IP_GOOD, &broken, true),
            (received::L4_GOOD | received::IP_BAD, &ip4, false),
            (received::L4_GOOD, &ip4, true),
            (received::L4_GOOD, &broken, false),
            (received::L4_GOOD, &tagged, true),
            (received::L4_GOOD, &ip6, true),
            (l4_none, &ip4, true),
            (received::L4_GOOD, &ip4[..33], false),
            (received::L4_GOOD, &ip4[..13], false),
        ];
        for (flags, bytes, expected) in cases {
            assert_eq!(is_verified(flags, bytes), expected, "{flags:x} {bytes:x?}");
        }
    }
}
