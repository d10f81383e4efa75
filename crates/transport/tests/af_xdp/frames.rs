//! Frames by hand.

use std::net::Ipv4Addr;

/// An IPv4 header and what goes before it.
#[derive(Clone, Default)]
pub(crate) struct Headers {
    pub(crate) to: [u8; 6],
    pub(crate) from: [u8; 6],
    /// Kind and number of each VLAN tag.
    pub(crate) tags: Vec<(u16, u16)>,
    /// Words of IPv4 options.
    pub(crate) options: usize,
}

/// A UDP datagram over IPv4 from port 7 to `port`.
pub(crate) fn udp(
    headers: &Headers,
    source: &str,
    destination: &str,
    port: u16,
    payload: &[u8],
) -> Vec<u8> {
    let mut frame = [headers.to, headers.from].concat();
    for (kind, number) in &headers.tags {
        frame.extend_from_slice(&kind.to_be_bytes());
        frame.extend_from_slice(&number.to_be_bytes());
    }
    frame.extend_from_slice(&[0x08, 0x00]);
    let start = frame.len();
    let words = 5 + headers.options;
    let len = 4 * words + 8 + payload.len();
    frame.push(0x40 | u8::try_from(words).expect("a few words"));
    frame.push(0);
    frame.extend_from_slice(&u16::try_from(len).expect("short").to_be_bytes());
    frame.extend_from_slice(&[0, 0, 0x40, 0, 64, 17, 0, 0]);
    for address in [source, destination] {
        let address: Ipv4Addr = address.parse().expect("an address");
        frame.extend_from_slice(&address.octets());
    }
    frame.resize(start + 4 * words, 1);
    let sum = checksum(&frame[start..]);
    frame[start + 10..start + 12].copy_from_slice(&sum.to_be_bytes());
    frame.extend_from_slice(&7u16.to_be_bytes());
    frame.extend_from_slice(&port.to_be_bytes());
    let len = u16::try_from(8 + payload.len()).expect("short");
    frame.extend_from_slice(&len.to_be_bytes());
    // Over IPv4 none is needed.
    frame.extend_from_slice(&[0, 0]);
    frame.extend_from_slice(payload);
    frame
}

/// Bytes that differ from place to place and from frame to frame.
pub(crate) fn filler(seed: u32, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state.to_be_bytes()[0]
    };
    (0..len).map(|_| next()).collect()
}

fn checksum(bytes: &[u8]) -> u16 {
    let sum: u32 = bytes
        .chunks(2)
        .map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1]))
        .sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    !u16::try_from((folded & 0xffff) + (folded >> 16)).expect("16 bits")
}
