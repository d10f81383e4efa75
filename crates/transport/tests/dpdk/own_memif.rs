//! coua's own memif driver, here, and DPDK's in another process: in both roles.

use std::thread;
use std::time::{Duration, Instant};

use coua_tcp::nic::Mac;
use coua_transport::userspace::memif::{MemifNic, Options, Role, open};

use super::child::{Child, numbers};
use super::huge_pages::HugePages;
use super::links::Meeting;
use super::roles::{echo_back, load_queue};

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// Frames of a role that loads.
const FRAMES: u64 = 20_000;

fn ours(meeting: &Meeting, role: Role, queues: usize) -> Vec<MemifNic> {
    let options = Options {
        role,
        queues,
        ..Options::new(&meeting.path)
    };
    open(&options, Mac([2, 0, 0, 0, 0, 2]), Box::new(|_| ())).expect("it opens")
}

/// Sends back what comes until something is so.
fn echo_until(nics: &mut [MemifNic], is_so: impl Fn(&[MemifNic]) -> bool) {
    let begun = Instant::now();
    while !is_so(nics) {
        assert!(begun.elapsed() < PATIENCE, "it does not come to that");
        let mut is_busy = false;
        for (index, nic) in (0..).zip(&mut *nics) {
            is_busy |= echo_back(nic, index);
        }
        if !is_busy {
            // As one who has slept, so that what the peer says is heard at once.
            nics[0].disarm();
            thread::yield_now();
        }
    }
}

fn received(nics: &[MemifNic]) -> u64 {
    nics.iter().map(|nic| nic.counters().received).sum()
}

/// What DPDK sends comes back to it, on two queues.
#[test]
fn dpdk_is_the_client() {
    let _pages = HugePages::for_two();
    let meeting = Meeting::new();
    let mut server = ours(&meeting, Role::Server, 2);
    let frames = FRAMES.to_string();
    let settings = [("queues", "2"), ("frames", &*frames)];
    let mut client = Child::start("load", &meeting.memif_client(), &settings);
    echo_until(&mut server, |nics| received(nics) >= 2 * FRAMES);
    for _ in 0..2 {
        assert_eq!(numbers(&client.hear("done"))["received"], FRAMES);
    }
    client.end();
    for nic in &server {
        let counters = nic.counters();
        assert_eq!((counters.received, counters.sent), (FRAMES, FRAMES));
        assert_eq!((counters.received_unfit, counters.sent_unfit), (0, 0));
    }
    echo_until(&mut server, |nics| !nics[0].has_link());
}

/// What DPDK gets comes back from it, on two queues.
#[test]
fn dpdk_is_the_server() {
    let _pages = HugePages::for_two();
    let meeting = Meeting::new();
    let mut server = Child::start("echo", &meeting.memif_server(), &[("queues", "2")]);
    server.hear("ready");
    let mut client = ours(&meeting, Role::Client, 2);
    echo_until(&mut client, |nics| nics.iter().all(MemifNic::has_link));
    for (index, nic) in (0..).zip(&mut client) {
        load_queue(nic, index, FRAMES);
        let counters = nic.counters();
        assert_eq!((counters.received, counters.sent), (FRAMES, FRAMES));
    }
    server.end();
}

/// Clients die in the midst of bursts, and the next has everything as it should be.
#[test]
fn a_client_of_dpdks_may_be_killed_and_come_back() {
    let _pages = HugePages::for_two();
    let meeting = Meeting::new();
    let mut server = ours(&meeting, Role::Server, 1);
    for round in 1..=4 {
        let client = Child::start("load", &meeting.memif_client(), &[]);
        let before = received(&server);
        echo_until(&mut server, |nics| received(nics) > before + 500 * round);
        client.kill();
        echo_until(&mut server, |nics| !nics[0].has_link());
    }
    let before = received(&server);
    let frames = FRAMES.to_string();
    let mut client = Child::start("load", &meeting.memif_client(), &[("frames", &frames)]);
    echo_until(&mut server, |nics| received(nics) >= before + FRAMES);
    assert_eq!(numbers(&client.hear("done"))["received"], FRAMES);
    client.end();
}

/// A server of DPDK's dies, and a new one is found.
#[test]
fn a_server_of_dpdks_may_be_killed_and_come_back() {
    let _pages = HugePages::for_two();
    let meeting = Meeting::new();
    let mut client = ours(&meeting, Role::Client, 1);
    for _ in 0..2 {
        let mut server = Child::start("echo", &meeting.memif_server(), &[]);
        server.hear("ready");
        echo_until(&mut client, |nics| nics[0].has_link());
        load_queue(&mut client[0], 0, FRAMES);
        server.kill();
        echo_until(&mut client, |nics| !nics[0].has_link());
        // DPDK's does not clear away what another has left.
        let _ = std::fs::remove_file(&meeting.path);
    }
}

/// A worker that sleeps is woken by each frame of DPDK's.
#[test]
fn a_frame_of_dpdks_ends_a_sleep() {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    let _pages = HugePages::for_two();
    let meeting = Meeting::new();
    let mut server = ours(&meeting, Role::Server, 1);
    let mut client = Child::start("load", &meeting.memif_client(), &[("frames", "2000")]);
    let limit = Timespec::try_from(PATIENCE).expect("short");
    while received(&server) < 2000 {
        let nic = &mut server[0];
        nic.arm();
        let mut set = [PollFd::new(&*nic, PollFlags::IN)];
        assert!(
            poll(&mut set, Some(&limit)).expect("poll") > 0,
            "it sleeps on"
        );
        nic.disarm();
        echo_back(nic, 0);
    }
    assert_eq!(numbers(&client.hear("done"))["received"], 2000);
    client.end();
}
