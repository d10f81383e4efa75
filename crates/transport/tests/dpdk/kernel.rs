//! The kernel as a peer: a packet socket on one end of a veth pair, and a TAP device.

use std::net::UdpSocket;
use std::thread;
use std::time::{Duration, Instant};

use coua_tcp::nic::{Nic, Offload};
use coua_transport::userspace::dpdk::Queue;
use coua_transport::userspace::packet::PacketSocket;

use super::child::Child;
use super::huge_pages::HugePages;
use super::links::COMMON;
use super::netns::{DEVICE, Namespace, Pair};
use super::roles::{Workers, listen, number, open_port, say};

const TYPE_ARP: [u8; 2] = [8, 6];
const TYPE_IPV4: [u8; 2] = [8, 0];
const TYPE_VLAN: [u8; 2] = [0x81, 0];

/// Answers ARP for every address that is asked for, and sends UDP back to where it came from.
pub(crate) fn answer() {
    let (port, queues) = open_port();
    let mac = port.features().mac.0;
    let wakes = queues[0].descriptor().is_some();
    say(&format!("ready wakes={}", u64::from(wakes)));
    let workers = Workers::start(
        queues,
        if number("tagged", 0) == 1 {
            |queue: &mut Queue| answer_turn(queue, 18)
        } else {
            |queue: &mut Queue| answer_turn(queue, 14)
        },
    );
    assert_ne!(mac, [0; 6]);
    while listen() == "counters" {
        let (counters, sleeps) = workers.counters.lock().expect("no panic")[0];
        say(&format!(
            "counters received={} sent={} sleeps={sleeps}",
            counters.received, counters.sent
        ));
    }
    workers.end();
}

/// Answers those frames that have a header of so many bytes before the packet.
fn answer_turn(queue: &mut Queue, header_len: usize) -> bool {
    let mac = queue.features().mac.0;
    let count = queue.receive();
    for at in 0..count {
        let mut frame = queue.frame(at).bytes.to_vec();
        if frame.len() < header_len + 28 {
            continue;
        }
        let (header, packet) = frame.split_at_mut(header_len);
        let is_tagged = header[12..14] == TYPE_VLAN;
        if is_tagged != (header_len == 18) {
            continue;
        }
        let kind: [u8; 2] = header[header_len - 2..].try_into().expect("two bytes");
        match kind {
            // Who has? I have: the asked address is ours, whatever it is.
            TYPE_ARP if packet[7] == 1 => {
                packet[7] = 2;
                let (sender, target) = packet[8..28].split_at_mut(10);
                sender.swap_with_slice(target);
                sender[..6].copy_from_slice(&mac);
            }
            // The sums are the same with both ends turned round.
            TYPE_IPV4 if packet[9] == 17 => {
                let (from, to) = packet[12..20].split_at_mut(4);
                from.swap_with_slice(to);
                let (from, to) = packet[20..24].split_at_mut(2);
                from.swap_with_slice(to);
            }
            _ => continue,
        }
        header.copy_within(6..12, 0);
        header[6..12].copy_from_slice(&mac);
        if let Some(slot) = queue.slot() {
            slot[..frame.len()].copy_from_slice(&frame);
            queue.commit(frame.len(), Offload::None);
        }
    }
    queue.release();
    queue.flush();
    count > 0
}

/// Sends datagrams from the kernel's side and checks what comes back.
fn ask(namespace: &Namespace, address: &str, count: usize) {
    namespace.enter(|| {
        let socket = UdpSocket::bind("0.0.0.0:0").expect("a socket");
        let limit = Some(Duration::from_secs(5));
        socket.set_read_timeout(limit).expect("a limit");
        socket.connect((address, 11_211)).expect("a route");
        for number in 0..count {
            let len = 1 + number * 97 % 1400;
            let question: Vec<u8> = (0..len)
                .map(|at| u8::try_from((at * 7 + number) % 256).expect("a byte"))
                .collect();
            socket.send(&question).expect("it is sent");
            let mut reply = [0; 2048];
            let reply_len = socket
                .recv(&mut reply)
                .expect("a reply within five seconds");
            assert_eq!(reply[..reply_len], question, "datagram {number}");
        }
    });
}

#[test]
fn a_packet_socket_talks_to_the_kernel() {
    let _pages = HugePages::for_two();
    let pair = Pair::new();
    pair.peers.fill_checksums();
    pair.peers
        .ip(&format!("addr add 10.77.0.1/24 dev {DEVICE}"));
    let eal = format!("{COMMON} --vdev=net_af_packet0,iface={DEVICE}");
    let mut driver = Child::start_in(&pair.ours, "answer", &eal, &[("interrupts", "1")]);
    // DPDK has no interrupt for this one.
    assert_eq!(driver.hear("ready"), "wakes=0");
    ask(&pair.peers, "10.77.0.2", 500);
    // ARP's frames too.
    driver.ask_until("counters", |of| of["received"] > 500 && of["sent"] > 500);
    driver.end();
}

/// The kernel takes the tag out of frames for packet sockets; it must be back in.
#[test]
fn a_tag_stays_in_the_frame() {
    let _pages = HugePages::for_two();
    let pair = Pair::new();
    let eal = format!("{COMMON} --vdev=net_af_packet0,iface={DEVICE}");
    let mut driver = Child::start_in(&pair.ours, "answer", &eal, &[("tagged", "1")]);
    driver.hear("ready");
    let (ours, peers) = (pair.ours.mac(), pair.peers.mac());
    let tag = [0x81, 0, 0x60, 7];
    let mut question = [ours, peers].concat();
    question.extend(tag);
    question.extend(TYPE_IPV4);
    // IPv4 and UDP, from port 1 of 10.0.0.1 to port 2 of 10.0.0.2, and 20 bytes.
    question.extend([
        0x45, 0, 0, 48, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2,
    ]);
    question.extend([0, 1, 0, 2, 0, 28, 0, 0]);
    question.extend(0..20);
    let expected = turned(&question);
    pair.peers.enter(|| {
        let mut sockets = PacketSocket::open(DEVICE, None, 1).expect("a packet socket");
        let socket = &mut sockets[0];
        let deadline = Instant::now() + Duration::from_secs(5);
        socket.slot().expect("it is empty")[..question.len()].copy_from_slice(&question);
        socket.commit(question.len(), Offload::None);
        socket.flush();
        loop {
            let count = socket.receive();
            if (0..count).any(|at| socket.frame(at).bytes == expected) {
                break;
            }
            assert!(Instant::now() < deadline, "no reply with its tag comes");
            thread::yield_now();
        }
    });
    driver.end();
}

/// The reply to a tagged datagram.
fn turned(question: &[u8]) -> Vec<u8> {
    let mut reply = question.to_vec();
    for (from, to, len) in [(0, 6, 6), (30, 34, 4), (38, 40, 2)] {
        reply[to..to + len].copy_from_slice(&question[from..from + len]);
        reply[from..from + len].copy_from_slice(&question[to..to + len]);
    }
    reply
}

#[test]
fn a_tap_device_talks_to_the_kernel() {
    let _pages = HugePages::for_two();
    let namespace = Namespace::new();
    let eal = format!("{COMMON} --vdev=net_tap0,iface=tap0");
    let mut driver = Child::start_in(&namespace, "answer", &eal, &[]);
    driver.hear("ready");
    namespace.ip("addr add 10.79.0.1/24 dev tap0");
    namespace.ip("link set tap0 up");
    ask(&namespace, "10.79.0.2", 200);
    driver.end();
}
