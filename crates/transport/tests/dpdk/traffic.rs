//! Frames whose every byte follows from a number.

use coua_tcp::nic::{Nic, Offload};

/// Ethernet's header, the queue and the number.
const HEADER_LEN: usize = 14 + 1 + 8;

/// Local experiments (IEEE 802).
const TYPE: [u8; 2] = [0x88, 0xb5];

const SENDER: [u8; 6] = [2, 0, 0, 0, 0, 1];
const RECEIVER: [u8; 6] = [2, 0, 0, 0, 0, 2];

/// The frame with this number on this queue, of 60 to 1514 bytes.
pub(crate) fn frame(queue: u8, number: u64) -> Vec<u8> {
    let mut random = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random
    };
    let len = 60 + usize::try_from(next() % 1455).expect("it is small");
    let mut frame = Vec::with_capacity(len);
    frame.extend_from_slice(&RECEIVER);
    frame.extend_from_slice(&SENDER);
    frame.extend_from_slice(&TYPE);
    frame.push(queue);
    frame.extend_from_slice(&number.to_be_bytes());
    while frame.len() < len {
        frame.extend_from_slice(&next().to_le_bytes());
    }
    frame.truncate(len);
    frame
}

/// Whether it is one of ours and no other protocol's.
pub(crate) fn is_ours(frame: &[u8]) -> bool {
    frame.len() >= HEADER_LEN && frame[12..14] == TYPE
}

/// The queue and the number in a frame.
pub(crate) fn name(frame: &[u8]) -> (u8, u64) {
    let number = frame[15..HEADER_LEN].try_into().expect("eight bytes");
    (frame[14], u64::from_be_bytes(number))
}

/// Turns the addresses round.
pub(crate) fn turn(frame: &mut [u8]) {
    let (to, rest) = frame.split_at_mut(6);
    to.swap_with_slice(&mut rest[..6]);
}

/// Sends a frame; false where there is no slot.
pub(crate) fn send(nic: &mut impl Nic, frame: &[u8]) -> bool {
    let Some(slot) = nic.slot() else {
        return false;
    };
    slot[..frame.len()].copy_from_slice(frame);
    nic.commit(frame.len(), Offload::None);
    true
}
