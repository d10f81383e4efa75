//! Full rings, sleeping, and interfaces that come and go.

use std::time::Duration;

use coua_tcp::nic::{Mac, Nic};
use coua_transport::userspace::packet::PacketSocket;

use rustix::io::Errno;

use crate::frames::{datagram, filler};
use crate::netns::{DEVICE, Pair};
use crate::{open, receive, send, try_send, wait};

#[test]
fn what_has_no_room_is_counted_and_the_rest_is_right() {
    let pair = Pair::new();
    let (mut ours, mut peers) = (open(&pair.ours), open(&pair.peers));
    let macs = [peers.features().mac, ours.features().mac];
    let frame = |at: u16| datagram(macs, (2, at), (1, 9), &filler(at.into(), 700));
    for at in 0..3000 {
        send(&mut peers, &frame(at));
        peers.flush();
    }
    let dropped = ours.counters().received_without_room;
    assert!((1..3000).contains(&dropped), "{dropped} dropped");
    let kept = 3000 - u16::try_from(dropped).expect("fewer than were sent");
    let came = receive(&mut ours, kept.into());
    assert_eq!(came.len(), usize::from(kept));
    for (at, came) in (0..).zip(&came) {
        assert!(*came == frame(at), "frame {at}");
    }
    // It goes on as if nothing had been.
    for at in 0..2000 {
        send(&mut peers, &frame(at));
        peers.flush();
        assert!(receive(&mut ours, 1) == [frame(at)], "frame {at}");
    }
}

#[test]
fn slots_end_and_come_back() {
    let pair = Pair::new();
    let (mut ours, mut peers) = (open(&pair.ours), open(&pair.peers));
    let macs = [peers.features().mac, ours.features().mac];
    let frame = |at: u16| datagram(macs, (2, at), (1, 9), &filler(at.into(), 1472));
    let mut sent = 0;
    for _ in 0..20 {
        let begun = sent;
        while try_send(&mut peers, &frame(sent)) {
            sent += 1;
            assert!(sent < 60_000, "the ring has an end");
        }
        assert!(sent > begun, "a flush makes room");
        peers.flush();
        let came = receive(&mut ours, usize::from(sent - begun));
        for (at, came) in (begun..).zip(&came) {
            assert!(*came == frame(at), "frame {at}");
        }
    }
}

#[test]
fn an_open_slot_is_given_again() {
    let pair = Pair::new();
    let (mut ours, mut peers) = (open(&pair.ours), open(&pair.peers));
    let macs = [peers.features().mac, ours.features().mac];
    let frame = datagram(macs, (2, 1), (1, 9), b"written to the first");
    peers.slot().expect("room")[..frame.len()].copy_from_slice(&frame);
    assert_eq!(peers.slot().expect("room")[..frame.len()], frame);
    send(&mut peers, &frame);
    peers.flush();
    assert_eq!(receive(&mut ours, 1), [frame]);
    assert_eq!(ours.receive(), 0);
}

#[test]
fn it_is_readable_while_frames_are_there() {
    let pair = Pair::new();
    let (mut ours, mut peers) = (open(&pair.ours), open(&pair.peers));
    let macs = [peers.features().mac, ours.features().mac];
    let frame = datagram(macs, (2, 1), (1, 9), b"wake up");
    for _ in 0..100 {
        assert!(!wait(&ours, Duration::ZERO));
        send(&mut peers, &frame);
        peers.flush();
        assert!(wait(&ours, Duration::from_millis(900)));
        assert_eq!(receive(&mut ours, 1).len(), 1);
    }
}

#[test]
fn it_outlives_its_interface_being_switched_off() {
    let pair = Pair::new();
    let (mut ours, mut peers) = (open(&pair.ours), open(&pair.peers));
    let macs = [peers.features().mac, ours.features().mac];
    let frame = datagram(macs, (2, 1), (1, 9), b"after all");
    assert!(ours.take_error().is_none());
    pair.ours.ip(&format!("link set {DEVICE} down"));
    assert!(wait(&ours, Duration::ZERO), "polling reports it");
    let error = ours.take_error().expect("it is down");
    assert_eq!(error.raw_os_error(), Some(Errno::NETDOWN.raw_os_error()));
    assert!(!wait(&ours, Duration::ZERO), "once");
    assert_eq!(ours.receive(), 0);
    // What is sent now is lost, or leaves later; nothing fails.
    let reply = datagram([macs[1], macs[0]], (1, 9), (2, 1), b"into the void");
    send(&mut ours, &reply);
    ours.flush();
    pair.ours.ip(&format!("link set {DEVICE} up"));
    send(&mut peers, &frame);
    peers.flush();
    assert!(receive(&mut ours, 1).contains(&frame));
}

#[test]
fn an_interface_that_goes_is_no_harm() {
    let pair = Pair::new();
    let mut ours = open(&pair.ours);
    let macs = [ours.features().mac, Mac(pair.peers.mac())];
    pair.ours.ip(&format!("link del {DEVICE}"));
    assert!(ours.take_error().is_some());
    assert_eq!(ours.receive(), 0);
    for at in 0..10 {
        try_send(&mut ours, &datagram(macs, (1, at), (2, 9), b"nobody"));
        ours.flush();
    }
    assert_eq!(ours.receive(), 0);
}

#[test]
fn the_mac_address_is_the_interfaces_or_the_one_given() {
    let pair = Pair::new();
    assert_eq!(open(&pair.ours).features().mac, Mac(pair.ours.mac()));
    let given = Mac([2, 0, 0, 0, 0, 9]);
    let mut sockets = pair
        .ours
        .enter(|| PacketSocket::open(DEVICE, Some(given), 1))
        .expect("it opens");
    assert_eq!(sockets[0].features().mac, given);
    let mut peers = open(&pair.peers);
    let frame = datagram([peers.features().mac, given], (2, 1), (1, 9), b"to it");
    send(&mut peers, &frame);
    peers.flush();
    assert_eq!(receive(&mut sockets[0], 1), [frame]);
}

#[test]
fn jumbo_frames_pass() {
    let pair = Pair::new();
    for end in [&pair.ours, &pair.peers] {
        end.ip(&format!("link set {DEVICE} mtu 9000"));
    }
    let (mut ours, mut peers) = (open(&pair.ours), open(&pair.peers));
    assert_eq!(ours.features().mtu, 9000);
    let macs = [peers.features().mac, ours.features().mac];
    for at in 0..2000 {
        let frame = datagram(macs, (2, at), (1, 9), &filler(at.into(), 8972));
        send(&mut peers, &frame);
        peers.flush();
        assert!(receive(&mut ours, 1) == [frame], "frame {at}");
    }
}
