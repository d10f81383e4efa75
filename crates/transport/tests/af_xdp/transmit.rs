//! What goes out.

use std::net::UdpSocket;

use coua_tcp::nic::Nic;
use coua_transport::userspace::af_xdp::Options;

use crate::frames::{Headers, filler, udp};
use crate::{
    LIMIT, OURS, PEERS, PORT, addressed_pair, commit, open_for, open_one, options, receive, send,
};

/// One queue a side that is short, so that its rings wrap often.
fn short() -> Options {
    Options {
        receive_len: 128,
        transmit_len: 64,
        ..options()
    }
}

#[test]
fn frames_reach_the_peers_kernel() {
    let pair = addressed_pair();
    let socket = pair
        .peers
        .enter(|| UdpSocket::bind((PEERS, 9000)))
        .expect("a socket");
    socket.set_read_timeout(Some(LIMIT)).expect("a timeout");
    let mut nic = open_one(&pair.ours, &options());
    let headers = Headers {
        to: pair.peers.mac(),
        from: pair.ours.mac(),
        ..Headers::default()
    };
    // From less than a frame's least length to a full one.
    for len in [0, 1, 17, 18, 100, 1472] {
        let payload = filler(7, len);
        send(&mut nic, &udp(&headers, OURS, PEERS, 9000, &payload));
        let mut came = [0; 2000];
        let (count, from) = socket.recv_from(&mut came).expect("it came");
        assert_eq!(came[..count], payload);
        assert_eq!(from.to_string(), format!("{OURS}:7"));
    }
    assert_eq!(nic.counters().expect("counted").invalid_sent, 0);
}

#[test]
fn every_frame_is_right_while_the_rings_wrap_many_times() {
    const FRAMES: usize = 60_000;
    const BURST: usize = 48;
    let pair = addressed_pair();
    let mut ours = open_one(&pair.ours, &short());
    let mut peers = open_one(&pair.peers, &short());
    let headers = Headers {
        to: pair.ours.mac(),
        from: pair.peers.mac(),
        ..Headers::default()
    };
    let frame = |at: usize| {
        let seed = u32::try_from(at).expect("short");
        let payload = filler(seed, 18 + at * 37 % 1454);
        udp(&headers, PEERS, OURS, PORT, &payload)
    };
    for from in (0..FRAMES).step_by(BURST) {
        for at in from..from + BURST {
            commit(&mut peers, &frame(at));
        }
        peers.flush();
        let came = receive(&mut ours, BURST);
        assert_eq!(came.len(), BURST);
        for (at, came) in (from..).zip(came) {
            assert!(came == frame(at), "frame {at}: {came:02x?}");
        }
    }
    let counters = ours.counters().expect("counted");
    assert_eq!((counters.dropped, counters.receive_ring_full), (0, 0));
}

#[test]
fn a_burst_costs_one_system_call_and_an_empty_flush_none() {
    let pair = addressed_pair();
    let mut ours = open_one(&pair.ours, &options());
    let mut peers = open_for(&pair.peers, PEERS);
    let headers = Headers {
        to: pair.peers.mac(),
        from: pair.ours.mac(),
        ..Headers::default()
    };
    let wakeups =
        |nic: &coua_transport::userspace::af_xdp::XdpNic| nic.counters().expect("counted").wakeups;
    assert_eq!(ours.receive(), 0);
    ours.flush();
    assert_eq!(wakeups(&ours), 0);
    for round in 1..=10 {
        for at in 0..32 {
            commit(&mut ours, &udp(&headers, OURS, PEERS, PORT, &[at; 20]));
        }
        ours.flush();
        assert_eq!(wakeups(&ours), round);
        assert_eq!(receive(&mut peers, 32).len(), 32);
    }
    assert_eq!(wakeups(&peers), 0, "receiving costs none");
    // More than the kernel sends a call, unless it can be told otherwise.
    for at in 0..200 {
        commit(&mut ours, &udp(&headers, OURS, PEERS, PORT, &[at; 20]));
    }
    ours.flush();
    assert!(wakeups(&ours) <= 10 + 7, "{} calls", wakeups(&ours));
    assert_eq!(receive(&mut peers, 200).len(), 200);
}

#[test]
fn room_runs_out_and_comes_back_with_a_flush() {
    let pair = addressed_pair();
    let mut nic = open_one(&pair.ours, &short());
    let headers = Headers {
        to: pair.peers.mac(),
        from: pair.ours.mac(),
        ..Headers::default()
    };
    let frame = udp(&headers, OURS, PEERS, PORT, &[1; 20]);
    for _ in 0..3 {
        for _ in 0..64 {
            let (slot, again) = {
                let slot = nic.slot().expect("room").as_ptr();
                (slot, nic.slot().expect("room").as_ptr())
            };
            assert_eq!(slot, again, "one slot is open at most");
            commit(&mut nic, &frame);
        }
        assert!(nic.slot().is_none());
        nic.flush();
    }
    assert!(nic.slot().is_some_and(|slot| slot.len() >= 1518));
}

#[test]
fn frames_that_a_link_does_not_take_do_not_block() {
    let pair = addressed_pair();
    let mut nic = open_one(&pair.ours, &short());
    let headers = Headers {
        to: pair.peers.mac(),
        from: pair.ours.mac(),
        ..Headers::default()
    };
    let frame = udp(&headers, OURS, PEERS, 9000, &[1; 20]);
    pair.ours.ip("link set eth0 down");
    for _ in 0..1000 {
        if nic.slot().is_some() {
            commit(&mut nic, &frame);
        }
        nic.flush();
        nic.receive();
    }
    pair.ours.ip("link set eth0 up");
    let socket = pair
        .peers
        .enter(|| UdpSocket::bind((PEERS, 9000)))
        .expect("a socket");
    socket.set_nonblocking(true).expect("it can be");
    let comes = crate::eventually(|| {
        if nic.slot().is_some() {
            commit(&mut nic, &frame);
        }
        nic.flush();
        nic.receive();
        socket.recv(&mut [0; 64]).is_ok()
    });
    assert!(comes, "frames go out again");
}
