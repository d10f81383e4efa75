//! Frames written by hand, and a host that answers with them.

use coua_tcp::nic::{Mac, Nic, Offload};

const ARP: u16 = 0x0806;
const IPV4: u16 = 0x0800;
const ICMP: u8 = 1;
const UDP: u8 = 17;

/// Bytes that depend on `seed` alone.
pub(crate) fn filler(seed: u32, len: usize) -> Vec<u8> {
    let mut state = u64::from(seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_be_bytes()[3]
    };
    std::iter::repeat_with(next).take(len).collect()
}

/// The sum that IPv4, ICMP and UDP use, over `bytes` from a given beginning.
pub(crate) fn checksum(start: u32, bytes: &[u8]) -> u16 {
    let mut sum = start;
    for pair in bytes.chunks(2) {
        let low = pair.get(1).copied().unwrap_or(0);
        sum += u32::from(u16::from_be_bytes([pair[0], low]));
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !u16::try_from(sum).expect("carries are folded")
}

/// What the checksum of a UDP datagram in IPv4 should be, over the packet from its IP header on; 0
/// where it is right.
pub(crate) fn udp_checksum(packet: &[u8]) -> u16 {
    let len = u16::from_be_bytes([packet[24], packet[25]]);
    let pseudo = u32::from(UDP) + u32::from(len);
    checksum(pseudo, &packet[12..20 + usize::from(len)])
}

/// A UDP datagram in IPv4, from `from` to `to`: the last byte of 10.0.0.0/24 and the port.
pub(crate) fn datagram(macs: [Mac; 2], from: (u8, u16), to: (u8, u16), payload: &[u8]) -> Vec<u8> {
    let [source, destination] = macs;
    let udp_len = u16::try_from(8 + payload.len()).expect("it fits a frame");
    let mut frame = Vec::new();
    frame.extend_from_slice(&destination.0);
    frame.extend_from_slice(&source.0);
    frame.extend_from_slice(&IPV4.to_be_bytes());
    frame.extend_from_slice(&[0x45, 0]);
    frame.extend_from_slice(&(20 + udp_len).to_be_bytes());
    frame.extend_from_slice(&[0, 0, 0, 0, 64, UDP, 0, 0, 10, 0, 0, from.0, 10, 0, 0, to.0]);
    let sum = checksum(0, &frame[14..]);
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    frame.extend_from_slice(&from.1.to_be_bytes());
    frame.extend_from_slice(&to.1.to_be_bytes());
    frame.extend_from_slice(&udp_len.to_be_bytes());
    frame.extend_from_slice(&[0, 0]);
    frame.extend_from_slice(payload);
    let sum = udp_checksum(&frame[14..]);
    frame[40..42].copy_from_slice(&sum.to_be_bytes());
    frame
}

/// Answers what has come, as a host of that address does whose UDP ports all echo. How many frames
/// came.
pub(crate) fn answer(nic: &mut impl Nic, address: [u8; 4]) -> usize {
    let own = nic.features().mac;
    let came = nic.receive();
    for at in 0..came {
        let frame = nic.frame(at);
        let is_verified = frame.is_verified;
        let request = frame.bytes.to_vec();
        let reply = match u16::from_be_bytes([request[12], request[13]]) {
            ARP => arp_reply(own, address, &request),
            IPV4 if request[30..34] == address => ip_reply(own, &request, is_verified),
            _ => None,
        };
        if let Some(reply) = reply {
            let slot = nic.slot().expect("room for a reply to each frame");
            slot[..reply.len()].copy_from_slice(&reply);
            nic.commit(reply.len(), Offload::None);
        }
    }
    nic.release();
    nic.flush();
    came
}

fn arp_reply(own: Mac, address: [u8; 4], request: &[u8]) -> Option<Vec<u8>> {
    if request[20..22] != [0, 1] || request[38..42] != address {
        return None;
    }
    let mut reply = request[..42].to_vec();
    reply[..6].copy_from_slice(&request[6..12]);
    reply[6..12].copy_from_slice(&own.0);
    reply[20..22].copy_from_slice(&[0, 2]);
    reply[22..28].copy_from_slice(&own.0);
    reply[28..32].copy_from_slice(&address);
    reply[32..42].copy_from_slice(&request[22..32]);
    Some(reply)
}

/// Addresses and ports change places, which leaves checksums as they are.
fn ip_reply(own: Mac, request: &[u8], has_no_checksum: bool) -> Option<Vec<u8>> {
    let mut reply = request.to_vec();
    reply[..6].copy_from_slice(&request[6..12]);
    reply[6..12].copy_from_slice(&own.0);
    reply[26..30].copy_from_slice(&request[30..34]);
    reply[30..34].copy_from_slice(&request[26..30]);
    match (request[23], request[34]) {
        (ICMP, 8) => {
            reply[34] = 0;
            reply[36..38].fill(0);
            let sum = checksum(0, &reply[34..]);
            reply[36..38].copy_from_slice(&sum.to_be_bytes());
        }
        (UDP, _) => {
            reply[34..36].copy_from_slice(&request[36..38]);
            reply[36..38].copy_from_slice(&request[34..36]);
            if has_no_checksum {
                reply[40..42].fill(0);
            }
        }
        _ => return None,
    }
    Some(reply)
}
