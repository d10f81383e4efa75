//! Several queues on one interface.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use coua_tcp::nic::{Mac, Nic};

use crate::frames::datagram;
use crate::netns::Pair;
use crate::{LIMIT, open, open_queues, send};

const FLOWS: u16 = 64;
const FRAMES_A_FLOW: u16 = 300;

#[test]
fn each_flow_comes_to_one_queue_and_every_frame_once() {
    let pair = Pair::new();
    let mut queues = open_queues(&pair.ours, 2);
    let mut peer = open(&pair.peers);
    let macs = [peer.features().mac, Mac(pair.ours.mac())];
    let mut places: BTreeMap<u16, BTreeSet<usize>> = BTreeMap::new();
    let mut seen = BTreeSet::new();
    for at in 0..FRAMES_A_FLOW {
        for flow in 0..FLOWS {
            // Both directions of a flow come to the same queue.
            let (client, server) = ((2, 1000 + flow), (1, 11211));
            let payload = [flow.to_be_bytes(), at.to_be_bytes()].concat();
            let (from, to) = if at % 2 == 0 {
                (client, server)
            } else {
                (server, client)
            };
            send(&mut peer, &datagram(macs, from, to, &payload));
        }
        peer.flush();
        collect(
            &mut queues,
            (usize::from(at) + 1) * usize::from(FLOWS),
            &mut seen,
            &mut places,
        );
    }
    assert_eq!(places.len(), usize::from(FLOWS));
    assert!(
        places.values().all(|queues| queues.len() == 1),
        "{places:?}"
    );
    let used: BTreeSet<usize> = places.values().flatten().copied().collect();
    assert_eq!(used.len(), 2, "both queues get flows: {places:?}");
}

/// Receives until `count` frames were seen, none of them twice.
fn collect(
    queues: &mut [impl Nic],
    count: usize,
    seen: &mut BTreeSet<(u16, u16)>,
    places: &mut BTreeMap<u16, BTreeSet<usize>>,
) {
    let deadline = Instant::now() + LIMIT;
    while seen.len() < count {
        assert!(Instant::now() < deadline, "{} of {count}", seen.len());
        for (number, queue) in queues.iter_mut().enumerate() {
            for at in 0..queue.receive() {
                let payload = &queue.frame(at).bytes[42..46];
                let flow = u16::from_be_bytes([payload[0], payload[1]]);
                let which = u16::from_be_bytes([payload[2], payload[3]]);
                assert!(seen.insert((flow, which)), "frame {which} of {flow} twice");
                places.entry(flow).or_default().insert(number);
            }
            queue.release();
        }
    }
}

#[test]
fn nothing_that_is_sent_comes_back() {
    let pair = Pair::new();
    let mut queues = open_queues(&pair.ours, 2);
    let macs = [queues[0].features().mac, Mac(pair.peers.mac())];
    for at in 0..100 {
        send(&mut queues[0], &datagram(macs, (1, at), (2, 9), b"out"));
        send(&mut queues[1], &datagram(macs, (1, at), (2, 9), b"out"));
    }
    for queue in &mut queues {
        queue.flush();
    }
    std::thread::sleep(Duration::from_millis(50));
    for queue in &mut queues {
        assert_eq!(queue.receive(), 0);
    }
}
