//! The kernel at the other end of the cable.

use std::collections::BTreeSet;
use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::thread;
use std::time::{Duration, Instant};

use coua_tcp::nic::Nic;

use crate::frames::{answer, filler, udp_checksum};
use crate::netns::{DEVICE, Namespace, Pair};
use crate::{LIMIT, open, wait};

/// The kernel sends so many datagrams to 10.0.0.1, at most `ahead` and one before it has their
/// answers, and all must come back once. Several processors may change their order.
pub(crate) fn echo(namespace: &Namespace, count: u32, ahead: u32, len_max: usize) {
    namespace.enter(|| {
        let socket = UdpSocket::bind("10.0.0.2:0").expect("the address is the kernel's");
        socket.connect("10.0.0.1:9").expect("there is a route");
        socket.set_read_timeout(Some(LIMIT)).expect("a time limit");
        let datagram = |at: u32| {
            let mut bytes = at.to_be_bytes().to_vec();
            bytes.extend(filler(at, at as usize * 7919 % (len_max - 3)));
            bytes
        };
        let mut buffer = vec![0; 65536];
        let mut missing: BTreeSet<u32> = (0..count).collect();
        for at in 0..count + ahead {
            if at < count {
                socket.send(&datagram(at)).expect("the cable takes it");
            }
            if at >= ahead {
                let len = socket.recv(&mut buffer).expect("an answer in time");
                let number = buffer[..4].try_into().map(u32::from_be_bytes);
                let number = number.expect("four bytes");
                assert!(missing.remove(&number), "{number} twice");
                assert!(buffer[..len] == datagram(number), "datagram {number}");
            }
        }
        assert!(missing.is_empty(), "{missing:?}");
    });
}

/// Answers as 10.0.0.1 until `work` has ended, and passes its panic on.
pub(crate) fn answer_until_done(nic: &mut (impl Nic + AsFd), work: impl FnOnce() + Send) {
    let result = thread::scope(|scope| {
        let working = scope.spawn(work);
        while !working.is_finished() {
            if answer(nic, [10, 0, 0, 1]) == 0 {
                wait(nic, Duration::from_millis(50));
            }
        }
        working.join()
    });
    result.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
}

#[test]
fn forty_thousand_datagrams_come_back_whole() {
    let pair = Pair::new();
    pair.peers.fill_checksums();
    pair.peers.ip(&format!("addr add 10.0.0.2/24 dev {DEVICE}"));
    let mut nic = open(&pair.ours);
    answer_until_done(&mut nic, || echo(&pair.peers, 40_000, 32, 1472));
    let counters = nic.counters();
    assert!(counters.received >= 40_000, "{counters:?}");
    assert_eq!(counters.sent, counters.received, "{counters:?}");
    assert_eq!(counters.received_without_room, 0, "{counters:?}");
}

#[test]
fn ping_is_answered() {
    let pair = Pair::new();
    pair.peers.ip(&format!("addr add 10.0.0.2/24 dev {DEVICE}"));
    let mut nic = open(&pair.ours);
    answer_until_done(&mut nic, || {
        // It fails unless three answers come within ten seconds.
        pair.peers.run("ping", "-c 3 -w 10 -i 0.05 10.0.0.1");
    });
}

/// The first datagram that comes: whether it is verified, and whether its checksum is right.
fn first_datagram(nic: &mut (impl Nic + AsFd), sender: &Namespace) -> (bool, bool) {
    let own = nic.features().mac;
    sender.ip(&format!(
        "neigh replace 10.0.0.1 lladdr {own} dev {DEVICE} nud permanent"
    ));
    sender.enter(|| {
        let socket = UdpSocket::bind("10.0.0.2:0").expect("the address is the kernel's");
        let sent = socket.send_to(&[7; 333], "10.0.0.1:9");
        sent.expect("the cable takes it");
    });
    let deadline = Instant::now() + LIMIT;
    loop {
        assert!(Instant::now() < deadline, "no datagram came");
        wait(nic, Duration::from_millis(50));
        for at in 0..nic.receive() {
            let frame = nic.frame(at);
            if frame.bytes.len() == 14 + 28 + 333 {
                return (frame.is_verified, udp_checksum(&frame.bytes[14..]) == 0);
            }
        }
    }
}

#[test]
fn frames_of_this_machine_are_verified_where_their_checksums_are_not_filled_in() {
    let pair = Pair::new();
    pair.peers.ip(&format!("addr add 10.0.0.2/24 dev {DEVICE}"));
    let mut nic = open(&pair.ours);
    assert_eq!(first_datagram(&mut nic, &pair.peers), (true, false));
    nic.release();
    pair.peers.fill_checksums();
    assert_eq!(first_datagram(&mut nic, &pair.peers), (false, true));
}
