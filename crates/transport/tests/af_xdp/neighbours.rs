//! What the kernel knows of routes and neighbours.

use std::fs;
use std::net::IpAddr;

use coua_transport::userspace::af_xdp::Interface;
use coua_transport::userspace::neighbours::{Answer, Hop, Neighbours};

use crate::netns::{DEVICE, Namespace};
use crate::{OURS, PEERS, add_ipv6, addressed_pair, eventually};

fn open(namespace: &Namespace) -> Neighbours {
    namespace.enter(|| {
        let interface = Interface::read(DEVICE).expect("it is there");
        Neighbours::open(interface.index).expect("netlink")
    })
}

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

/// The first answer that is final.
fn find(neighbours: &mut Neighbours, to: &str) -> Answer {
    let mut answer = Answer::Pending;
    let is_final = eventually(|| {
        answer = neighbours.find(ip(to)).expect("the kernel answers");
        answer != Answer::Pending
    });
    assert!(is_final, "{to} is still pending");
    answer
}

fn hop(answer: Answer) -> Hop {
    match answer {
        Answer::Reachable(hop) => hop,
        other => panic!("not reachable: {other:?}"),
    }
}

#[test]
fn the_next_hop_is_found_and_resolved() {
    let pair = addressed_pair();
    let mut neighbours = open(&pair.ours);
    let first = neighbours.find(ip(PEERS)).expect("the kernel answers");
    assert_eq!(first, Answer::Pending, "nobody has asked before");
    let hop_to_peer = hop(find(&mut neighbours, PEERS));
    assert_eq!(hop_to_peer.mac.0, pair.peers.mac());
    assert_eq!(hop_to_peer.next, ip(PEERS));
    assert_eq!(hop_to_peer.source, Some(ip(OURS)));
    assert_eq!(hop_to_peer.mtu, None);

    // Behind a gateway; with a smaller MTU on the way.
    pair.ours
        .ip(&format!("route add 192.0.2.0/24 via {PEERS} mtu 1400"));
    let behind = hop(find(&mut neighbours, "192.0.2.9"));
    assert_eq!(behind.mac.0, pair.peers.mac());
    assert_eq!((behind.next, behind.mtu), (ip(PEERS), Some(1400)));
}

#[test]
fn an_entry_that_has_gone_stale_serves_and_is_confirmed() {
    let pair = addressed_pair();
    let mut neighbours = open(&pair.ours);
    hop(find(&mut neighbours, PEERS));
    pair.ours
        .ip(&format!("neigh change {PEERS} dev {DEVICE} nud stale"));
    assert_eq!(hop(find(&mut neighbours, PEERS)).mac.0, pair.peers.mac());
    let shown = pair.ours.ip(&format!("neigh show {PEERS} dev {DEVICE}"));
    assert!(
        !shown.contains("STALE"),
        "the kernel is told that it is in use: {shown}"
    );
}

#[test]
fn ipv6_neighbours_are_found_too() {
    let pair = addressed_pair();
    add_ipv6(&pair);
    pair.ours.ip("-6 route add 2001:db8::/32 via fd00::2");
    // An IPv4 network behind an IPv6 gateway.
    pair.ours.ip(&format!(
        "route add 198.51.100.0/24 via inet6 fd00::2 dev {DEVICE}"
    ));
    let mut neighbours = open(&pair.ours);
    for to in ["fd00::2", "2001:db8::7", "198.51.100.7"] {
        let hop = hop(find(&mut neighbours, to));
        assert_eq!(hop.mac.0, pair.peers.mac());
        assert_eq!(hop.next, ip("fd00::2"));
    }
}

#[test]
fn what_cannot_be_reached_is_told_apart() {
    let pair = addressed_pair();
    for (setting, value) in [("mcast_solicit", "1"), ("retrans_time_ms", "50")] {
        pair.ours.enter(|| {
            let path = format!("/proc/sys/net/ipv4/neigh/{DEVICE}/{setting}");
            fs::write(path, value).expect("the kernel takes it");
        });
    }
    let mut neighbours = open(&pair.ours);
    assert_eq!(find(&mut neighbours, "203.0.113.1"), Answer::Unroutable);
    assert_eq!(find(&mut neighbours, "2001:db8::1"), Answer::Unroutable);
    assert_eq!(find(&mut neighbours, "224.0.0.1"), Answer::Unroutable);
    pair.ours.ip("route add prohibit 203.0.113.0/24");
    assert_eq!(find(&mut neighbours, "203.0.113.1"), Answer::Unroutable);
    pair.ours.ip("route add blackhole 198.18.0.0/15");
    assert_eq!(find(&mut neighbours, "198.18.0.1"), Answer::Unroutable);
    assert_eq!(
        find(&mut neighbours, OURS),
        Answer::Elsewhere { interface: 1 }
    );
    // Nobody has this address.
    assert_eq!(find(&mut neighbours, "10.9.0.77"), Answer::Silent);
}
