//! Packet sockets, TAP devices and traces on real interfaces, in network namespaces that the tests make.

mod errors;
mod fanout;
mod frames;
mod kernel;
#[path = "../support/netns.rs"]
mod netns;
mod rings;
mod tap;
mod trace;
mod vlan;

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use coua_tcp::nic::{Nic, Offload};
use coua_transport::userspace::packet::PacketSocket;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use netns::{DEVICE, Namespace};

/// What a test waits at most for anything.
const LIMIT: Duration = Duration::from_secs(20);

/// The only queue of a packet socket on the namespace's end of the cable.
fn open(namespace: &Namespace) -> PacketSocket {
    let mut queues = open_queues(namespace, 1);
    queues.pop().expect("one queue")
}

fn open_queues(namespace: &Namespace, queues: usize) -> Vec<PacketSocket> {
    namespace
        .enter(|| PacketSocket::open(DEVICE, None, queues))
        .expect("packet sockets need root")
}

/// Waits until the card is readable, or `at_most` has passed.
fn wait(nic: &impl AsFd, at_most: Duration) -> bool {
    let timeout = Timespec {
        tv_sec: 0,
        tv_nsec: at_most.subsec_nanos().into(),
    };
    let mut entries = [PollFd::new(nic, PollFlags::IN)];
    poll(&mut entries, Some(&timeout)).expect("it can be polled") > 0
}

/// Sends a frame, as soon as there is room.
fn send(nic: &mut impl Nic, frame: &[u8]) {
    let deadline = Instant::now() + LIMIT;
    while !try_send(nic, frame) {
        assert!(Instant::now() < deadline, "no room to send");
        nic.flush();
    }
}

fn try_send(nic: &mut impl Nic, frame: &[u8]) -> bool {
    let Some(slot) = nic.slot() else {
        return false;
    };
    slot[..frame.len()].copy_from_slice(frame);
    nic.commit(frame.len(), Offload::None);
    true
}

/// The next frames, `count` at least.
fn receive(nic: &mut (impl Nic + AsFd), count: usize) -> Vec<Vec<u8>> {
    let deadline = Instant::now() + LIMIT;
    let mut frames = Vec::new();
    while frames.len() < count {
        assert!(
            Instant::now() < deadline,
            "{} of {count} frames",
            frames.len()
        );
        let came = nic.receive();
        frames.extend((0..came).map(|at| nic.frame(at).bytes.to_vec()));
        nic.release();
        if came == 0 {
            wait(nic, Duration::from_millis(100));
        }
    }
    frames
}
