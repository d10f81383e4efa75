//! Checksums that the card is asked for, and that it vouches for.

use std::thread;
use std::time::{Duration, Instant};

use coua_tcp::nic::{Layout, Nic, Offload};

use super::child::{Child, numbers};
use super::huge_pages::HugePages;
use super::links::Meeting;
use super::roles::{listen, open_port, say, wait_for_link};

/// Bytes of payload that a card is asked to cut.
const LONG_LEN: usize = 10_000;
/// Bytes of each piece.
const PIECE_LEN: u16 = 1400;

/// Sends one frame of each kind, with the checksums left to the card.
pub(crate) fn ask_card() {
    let (port, mut queues) = open_port();
    let queue = &mut queues[0];
    wait_for_link(&port);
    let features = queue.features();
    assert!(features.fills_checksums, "virtio does");
    say(&format!("card segments={}", features.segmentation_len_max));
    for is_ipv6 in [false, true] {
        for is_udp in [false, true] {
            let (frame, layout) = packet(is_ipv6, is_udp, 101);
            send(queue, &frame, Offload::Checksum(layout));
        }
        if features.segmentation_len_max >= 10_000 {
            let (frame, layout) = packet(is_ipv6, false, LONG_LEN);
            send(queue, &frame, Offload::Segment(layout, PIECE_LEN));
        }
    }
    queue.flush();
    say(&format!("sent refused={}", queue.counters().refused));
    listen();
}

fn send(queue: &mut impl Nic, frame: &[u8], offload: Offload) {
    let deadline = Instant::now() + Duration::from_secs(5);
    loop {
        if let Some(slot) = queue.slot() {
            slot[..frame.len()].copy_from_slice(frame);
            queue.commit(frame.len(), offload);
            return;
        }
        assert!(Instant::now() < deadline, "no slot comes");
        queue.flush();
    }
}

/// Receives, and says of each frame what it is and what the card says.
pub(crate) fn check() {
    let (_port, mut queues) = open_port();
    let queue = &mut queues[0];
    say("ready");
    let count: usize = listen().parse().expect("how many frames come");
    let (mut seen, deadline) = (0, Instant::now() + Duration::from_secs(10));
    while seen < count {
        assert!(Instant::now() < deadline, "{seen} of {count} came");
        for at in 0..queue.receive() {
            let frame = queue.frame(at);
            let Some(kind) = kind(frame.bytes) else {
                continue;
            };
            seen += 1;
            say(&format!(
                "frame {kind} len={} verified={} sound={} ip={}",
                frame.bytes.len(),
                u64::from(frame.is_verified),
                u64::from(has_sound_checksum(frame.bytes)),
                u64::from(has_sound_ip(frame.bytes)),
            ));
        }
        thread::yield_now();
    }
    say(&format!("over sized={}", queue.counters().oversized));
    listen();
}

/// A packet of ours with its checksums left out as [`Offload::Checksum`] wants it, or, where it is
/// long, as [`Offload::Segment`] does.
fn packet(is_ipv6: bool, is_udp: bool, payload_len: usize) -> (Vec<u8>, Layout) {
    let header_len = if is_udp { 8 } else { 20 };
    let l4_len = header_len + payload_len;
    let protocol = if is_udp { 17 } else { 6 };
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
    if is_ipv6 {
        frame.extend_from_slice(&[0x86, 0xdd, 0x60, 0, 0, 0]);
        frame.extend_from_slice(&be(l4_len));
        frame.extend_from_slice(&[protocol, 64]);
        frame.extend((0..32).map(|at| if at % 16 == 15 { 1 + at / 16 } else { 0xfd }));
    } else {
        frame.extend_from_slice(&[8, 0, 0x45, 0]);
        frame.extend_from_slice(&be(20 + l4_len));
        frame.extend_from_slice(&[0, 0, 0x40, 0, 64, protocol, 0, 0]);
        frame.extend_from_slice(&[10, 77, 0, 1, 10, 77, 0, 2]);
    }
    let transport = frame.len();
    let payload = transport + header_len;
    frame.extend_from_slice(&[0x12, 0x34, 0x2b, 0xcb]);
    if is_udp {
        frame.extend_from_slice(&be(l4_len));
        frame.extend_from_slice(&[0, 0]);
    } else {
        frame.extend_from_slice(&[0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x10, 1, 0, 0, 0, 0, 0]);
    }
    frame.extend((0..payload_len).map(|at| u8::try_from(at % 251).expect("small")));
    let pseudo_len = if payload_len == LONG_LEN { 0 } else { l4_len };
    let sum = fold(pseudo(&frame, pseudo_len));
    let at = transport + if is_udp { 6 } else { 16 };
    frame[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    let small = |at| u8::try_from(at).expect("small");
    let layout = Layout {
        network: 14,
        transport: small(transport),
        payload: small(payload),
        is_ipv6,
        is_udp,
    };
    (frame, layout)
}

fn be(len: usize) -> [u8; 2] {
    u16::try_from(len).expect("a packet").to_be_bytes()
}

/// What a frame of ours is called; nothing for others.
fn kind(frame: &[u8]) -> Option<&'static str> {
    if frame.get(..6) != Some(&[2, 0, 0, 0, 0, 2]) {
        return None;
    }
    match (&frame[12..14], protocol(frame)) {
        ([8, 0], 6) => Some("tcp4"),
        ([8, 0], 17) => Some("udp4"),
        ([0x86, 0xdd], 6) => Some("tcp6"),
        ([0x86, 0xdd], 17) => Some("udp6"),
        _ => None,
    }
}

fn is_ipv6(frame: &[u8]) -> bool {
    frame[12] == 0x86
}

fn protocol(frame: &[u8]) -> u8 {
    frame[if is_ipv6(frame) { 20 } else { 23 }]
}

fn pseudo(frame: &[u8], len: usize) -> u32 {
    let addresses = if is_ipv6(frame) {
        &frame[22..54]
    } else {
        &frame[26..34]
    };
    let len = u32::try_from(len).expect("a packet");
    words(addresses) + u32::from(protocol(frame)) + len
}

fn words(bytes: &[u8]) -> u32 {
    let pairs = bytes.chunks(2);
    let pairs = pairs.map(|pair| u16::from_be_bytes([pair[0], *pair.get(1).unwrap_or(&0)]));
    pairs.map(u32::from).sum()
}

fn fold(mut sum: u32) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    u16::try_from(sum).expect("it is folded")
}

fn has_sound_checksum(frame: &[u8]) -> bool {
    let l4 = &frame[if is_ipv6(frame) { 54 } else { 34 }..];
    fold(pseudo(frame, l4.len()) + words(l4)) == 0xffff
}

fn has_sound_ip(frame: &[u8]) -> bool {
    is_ipv6(frame) || fold(words(&frame[14..34])) == 0xffff
}

/// A peer on the same machine hands frames on without their checksums, and vouches for them; one
/// that is told not to fills them in.
#[test]
fn checksums_are_left_to_the_card() {
    let _pages = HugePages::for_two();
    for (offloads, verified, sound) in [("0", 0, 1), ("1", 1, 0)] {
        let meeting = Meeting::new();
        let offloads = ("offloads", offloads);
        let mut server = Child::start("check", &meeting.vhost(1), &[offloads]);
        server.hear("ready");
        let mut client = Child::start("ask-card", &meeting.virtio(1), &[("offloads", "1")]);
        assert_eq!(numbers(&client.hear("card"))["segments"], 0);
        server.tell("4");
        for (kind, len) in [("tcp4", 155), ("udp4", 143), ("tcp6", 175), ("udp6", 163)] {
            let said = server.hear("frame");
            assert!(said.starts_with(kind), "{said}");
            let of = numbers(&said);
            assert_eq!((of["len"], of["ip"]), (len, 1), "{said}");
            assert_eq!((of["verified"], of["sound"]), (verified, sound), "{said}");
        }
        assert_eq!(numbers(&client.hear("sent"))["refused"], 0);
        client.end();
        server.end();
    }
}

/// Between processes of one machine nobody cuts: the frame comes as it was sent, where it fits, and
/// is counted where it does not.
#[test]
fn long_frames_are_left_to_the_card() {
    let _pages = HugePages::for_two();
    for (mtu, count, oversized) in [("12000", "6", 0), ("1500", "4", 2)] {
        let meeting = Meeting::new();
        let settings = [("offloads", "1"), ("mtu", mtu)];
        let mut server = Child::start("check", &(meeting.vhost(1) + ",tso=1"), &settings);
        server.hear("ready");
        let mut client = Child::start("ask-card", &meeting.virtio(1), &[("offloads", "1")]);
        assert_eq!(numbers(&client.hear("card"))["segments"], 16 << 10);
        client.hear("sent");
        server.tell(count);
        let count: u64 = count.parse().expect("a number");
        let said: Vec<String> = (0..count).map(|_| server.hear("frame")).collect();
        let long = said.iter().map(|said| numbers(said));
        let long: Vec<u64> = long.map(|of| of["len"]).filter(|len| *len > 9000).collect();
        let expected: &[u64] = if oversized == 0 {
            &[10_054, 10_074]
        } else {
            &[]
        };
        assert_eq!(long, expected, "{said:?}");
        assert_eq!(numbers(&server.hear("over"))["sized"], oversized);
        client.end();
        server.end();
    }
}
