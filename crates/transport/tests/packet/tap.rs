//! A TAP device, with the kernel at its other end.

use std::thread;
use std::time::{Duration, Instant};

use coua_tcp::nic::{Mac, Nic};
use coua_transport::userspace::packet::Tap;

use crate::frames::{answer, datagram};
use crate::kernel::{answer_until_done, echo};
use crate::netns::Namespace;
use crate::{LIMIT, send};

const MAC: Mac = Mac([2, 0, 0, 0, 0, 1]);

fn open(namespace: &Namespace, queues: usize) -> Vec<Tap> {
    let taps = namespace.enter(|| Tap::open("tap0", MAC, queues));
    let taps = taps.expect("TAP devices need root and /dev/net/tun");
    namespace.ip("addr add 10.0.0.2/24 dev tap0");
    namespace.ip("link set tap0 up");
    taps
}

#[test]
fn ten_thousand_datagrams_come_back_whole() {
    let namespace = Namespace::new();
    let mut tap = open(&namespace, 1).pop().expect("one queue");
    assert_eq!(tap.features().mac, MAC);
    answer_until_done(&mut tap, || echo(&namespace, 10_000, 32, 1472));
    let counters = tap.counters();
    assert!(counters.received >= 10_000, "{counters:?}");
    assert_eq!((counters.refused, counters.received_unfit), (0, 0));
}

#[test]
fn flows_come_to_the_queues_that_they_are_answered_from() {
    let namespace = Namespace::new();
    let mut taps = open(&namespace, 2);
    let kernels = Mac(namespace.mac_of("tap0"));
    thread::scope(|scope| {
        // The kernel hears of a flow from a queue, and then sends there.
        let working = scope.spawn(|| echo(&namespace, 2000, 8, 100));
        let mut came = [0; 2];
        while !working.is_finished() {
            for (tap, came) in taps.iter_mut().zip(&mut came) {
                *came += answer(tap, [10, 0, 0, 1]);
            }
        }
        working.join().expect("all came back");
        assert!(came[0] + came[1] >= 2000);
    });
    // Each queue sends.
    for tap in &mut taps {
        let sent = tap.counters().sent;
        send(tap, &datagram([MAC, kernels], (1, 1), (2, 9), b"hello"));
        assert_eq!(tap.counters().sent, sent + 1);
    }
}

#[test]
fn an_interface_that_is_down_refuses() {
    let namespace = Namespace::new();
    let mut tap = open(&namespace, 1).pop().expect("one queue");
    namespace.ip("link set tap0 down");
    send(&mut tap, &datagram([MAC, MAC], (1, 1), (2, 9), b"hello"));
    assert_eq!(tap.counters().refused, 1);
    let deadline = Instant::now() + LIMIT;
    while tap.receive() > 0 {
        assert!(Instant::now() < deadline);
        thread::sleep(Duration::from_millis(1));
    }
    namespace.ip("link set tap0 up");
    answer_until_done(&mut tap, || echo(&namespace, 100, 8, 100));
}
