//! Several queues, for one worker or several.

use coua_tcp::nic::Nic;
use coua_transport::userspace::af_xdp::{Options, XdpNic};

use crate::frames::{Headers, filler, udp};
use crate::netns::{DEVICE, Pair};
use crate::{LIMIT, OURS, PEERS, PORT, commit, open_all, options, receive, send, wait};

/// A pair of two queues a side, with addresses.
fn pair_of_two() -> Pair {
    let pair = Pair::with_queues(2);
    for (end, address) in [(&pair.ours, OURS), (&pair.peers, PEERS)] {
        end.ip(&format!("addr add {address}/24 dev {DEVICE}"));
    }
    pair
}

fn workers(workers: usize) -> Options {
    Options {
        workers,
        ..options()
    }
}

fn headers(pair: &Pair) -> Headers {
    Headers {
        to: pair.ours.mac(),
        from: pair.peers.mac(),
        ..Headers::default()
    }
}

fn numbers(frames: &[Vec<u8>]) -> Vec<u8> {
    let mut numbers: Vec<u8> = frames.iter().map(|frame| frame[42]).collect();
    numbers.sort_unstable();
    numbers
}

#[test]
fn each_queue_delivers_to_its_worker() {
    let pair = pair_of_two();
    let headers = headers(&pair);
    let mut ours = open_all(&pair.ours, &workers(2));
    let mut peers = open_all(&pair.peers, &workers(2));
    for round in 0..50u8 {
        for (number, peer) in (0..).zip(&mut peers) {
            send(
                peer,
                &udp(&headers, PEERS, OURS, PORT, &[2 * round + number; 30]),
            );
        }
        for (number, nic) in (0..).zip(&mut ours) {
            assert_eq!(numbers(&receive(nic, 1)), [2 * round + number]);
        }
    }
    // The filter stays until the last worker goes.
    let has_program = || {
        pair.ours
            .ip(&format!("link show dev {DEVICE}"))
            .contains("xdp")
    };
    drop(ours.pop());
    assert!(has_program());
    send(&mut peers[0], &udp(&headers, PEERS, OURS, PORT, &[9; 30]));
    assert_eq!(numbers(&receive(&mut ours[0], 1)), [9]);
    drop(ours);
    assert!(!has_program());
}

#[test]
fn one_worker_has_both_queues_and_sleeps_on_both() {
    let pair = pair_of_two();
    let headers = headers(&pair);
    let mut ours = open_all(&pair.ours, &workers(1));
    let mut peers = open_all(&pair.peers, &workers(2));
    let nic: &mut XdpNic = &mut ours[0];
    for (number, peer) in (0..).zip(&mut peers) {
        send(peer, &udp(&headers, PEERS, OURS, PORT, &[number; 30]));
        assert!(wait(nic, LIMIT), "queue {number} wakes it");
        assert_eq!(numbers(&receive(nic, 1)), [number]);
    }
    // Both at once, over and over, and each frame goes back to the ring that it came from.
    for round in 0..1000u32 {
        for (number, peer) in (0..).zip(&mut peers) {
            for at in 0..20 {
                let mut payload = filler(round, 100);
                payload[0] = 20 * number + at;
                commit(peer, &udp(&headers, PEERS, OURS, PORT, &payload));
            }
            peer.flush();
        }
        let frames = receive(nic, 40);
        assert_eq!(numbers(&frames), (0..40).collect::<Vec<u8>>());
        let expected = &filler(round, 100)[1..];
        assert!(frames.iter().all(|frame| &frame[43..] == expected));
    }
    // It sends on one of them.
    let back = Headers {
        to: pair.peers.mac(),
        from: pair.ours.mac(),
        ..Headers::default()
    };
    send(nic, &udp(&back, OURS, PEERS, PORT, &[42; 30]));
    assert_eq!(numbers(&receive(&mut peers[0], 1)), [42]);
}

#[test]
fn a_queue_that_is_not_taken_stays_with_the_kernel() {
    let pair = pair_of_two();
    let headers = headers(&pair);
    let second = Options {
        queues: Some(1..2),
        ..options()
    };
    let mut ours = open_all(&pair.ours, &second);
    let mut peers = open_all(&pair.peers, &workers(2));
    let socket = pair
        .ours
        .enter(|| std::net::UdpSocket::bind((OURS, PORT)))
        .expect("a socket");
    socket.set_read_timeout(Some(LIMIT)).expect("a timeout");
    send(&mut peers[0], &udp(&headers, PEERS, OURS, PORT, &[1; 30]));
    assert_eq!(socket.recv(&mut [0; 64]).expect("it came"), 30);
    send(&mut peers[1], &udp(&headers, PEERS, OURS, PORT, &[2; 30]));
    assert_eq!(numbers(&receive(&mut ours[0], 1)), [2]);
}
