//! VLAN tags: the kernel takes them out of frames that come, and they are to be there all the same.

use crate::frames::filler;
use crate::netns::Pair;
use crate::{open, receive, send};

const FRAMES: u32 = 20_000;

/// Frames without a tag, with one, of either kind, and with two; of all lengths.
fn frame(to: [u8; 6], from: [u8; 6], at: u32) -> Vec<u8> {
    let tags: &[&[u8]] = match at % 4 {
        0 => &[],
        1 => &[&[0x81, 0x00, 0x60, 0x07]],
        2 => &[&[0x88, 0xa8, 0x0f, 0xff]],
        _ => &[&[0x88, 0xa8, 0x00, 0x05], &[0x81, 0x00, 0xe0, 0x09]],
    };
    // The kernel sends a tag beyond the MTU only where it is the only one and of the common kind.
    let payload_max = 1500 - if at % 4 < 2 { 0 } else { 4 * tags.len() };
    let mut frame = [to, from].concat();
    frame.extend(tags.concat());
    frame.extend_from_slice(&[0x88, 0xb5]);
    frame.extend_from_slice(&at.to_be_bytes());
    frame.extend(filler(at, (at as usize * 31) % (payload_max - 4) + 1));
    frame
}

#[test]
fn tags_are_in_the_frames_that_come() {
    let pair = Pair::new();
    let (mut ours, mut peers) = (open(&pair.ours), open(&pair.peers));
    let (our_mac, peer_mac) = (pair.ours.mac(), pair.peers.mac());
    let mut next = 0;
    for from in (0..FRAMES).step_by(50) {
        for at in from..from + 50 {
            send(&mut peers, &frame(our_mac, peer_mac, at));
        }
        coua_tcp::nic::Nic::flush(&mut peers);
        for came in receive(&mut ours, 50) {
            let expected = frame(our_mac, peer_mac, next);
            assert!(came == expected, "frame {next}: {came:02x?}");
            next += 1;
        }
    }
    assert_eq!(next, FRAMES);
}

#[test]
fn frames_of_full_length_fit_with_a_tag() {
    let pair = Pair::new();
    let (mut ours, mut peers) = (open(&pair.ours), open(&pair.peers));
    let mut frame = [pair.ours.mac(), pair.peers.mac()].concat();
    frame.extend_from_slice(&[0x81, 0, 0, 1, 0x88, 0xb5]);
    frame.resize(1518, 0x5a);
    send(&mut peers, &frame);
    coua_tcp::nic::Nic::flush(&mut peers);
    assert_eq!(receive(&mut ours, 1), [frame]);
}
