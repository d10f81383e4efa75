//! Two processes on a memif link.

use std::thread;
use std::time::Duration;

use super::child::{Child, numbers};
use super::huge_pages::HugePages;
use super::links::Meeting;

#[test]
fn frames_go_both_ways_unchanged() {
    let _pages = HugePages::for_two();
    let meeting = Meeting::new();
    let mut server = Child::start("echo", &meeting.memif_server(), &[]);
    server.hear("ready");
    let mut client = Child::start("load", &meeting.memif_client(), &[("frames", "40000")]);
    let done = numbers(&client.hear("done"));
    assert_eq!((done["received"], done["sent"]), (40_000, 40_000));
    client.end();
    server.ask_until("counters", |of| {
        (of["received"], of["sent"]) == (40_000, 40_000)
    });
    server.end();
}

#[test]
fn each_queue_has_frames_of_its_own() {
    let _pages = HugePages::for_two();
    let meeting = Meeting::new();
    let two = ("queues", "2");
    let mut server = Child::start("echo", &meeting.memif_server(), &[two]);
    server.hear("ready");
    let mut client = Child::start("load", &meeting.memif_client(), &[two, ("frames", "10000")]);
    for _ in 0..2 {
        let done = numbers(&client.hear("done"));
        assert_eq!(done["received"], 10_000);
    }
    client.end();
    server.ask_until("counters", |of| (of["received"], of["busy"]) == (20_000, 2));
    server.end();
}

#[test]
fn a_full_ring_leaves_no_slot_until_the_peer_reads() {
    let _pages = HugePages::for_two();
    let meeting = Meeting::new();
    let mut server = Child::start("late", &meeting.memif_server(), &[]);
    server.hear("ready");
    let mut client = Child::start("fill", &meeting.memif_client(), &[("frames", "5000")]);
    let full = numbers(&client.hear("full"));
    // The ring has 1024, and 64 wait before it.
    assert_eq!(full["sent"], 1024 + 64);
    assert!(full["without_slot"] >= 1000);
    let total = full["sent"] + 5000;
    server.tell(&total.to_string());
    assert_eq!(numbers(&client.hear("sent"))["total"], total);
    assert_eq!(numbers(&server.hear("received"))["total"], total);
    client.end();
    server.end();
}

/// The device unmaps what it shares with its peer the moment the peer is gone, while the worker
/// polls. On one CPU the thread that does so has to put the worker off it, often within a burst.
#[test]
fn a_peer_may_be_killed_and_come_back() {
    let _pages = HugePages::for_two();
    let meeting = Meeting::new();
    let mut server = Child::start("echo", &meeting.memif_server(), &[("one-cpu", "1")]);
    server.hear("ready");
    for round in 0..8 {
        let mut client = Child::start("load", &meeting.memif_client(), &[]);
        client.hear("ready");
        thread::sleep(Duration::from_millis(20 + 7 * round));
        client.kill();
    }
    // Nobody is there: what is to be sent is dropped, and the link is down.
    let before = server.ask_until("counters", |of| of["up"] == 0);
    assert!(before["received"] > 1000, "the killed peers had traffic");

    let mut client = Child::start("load", &meeting.memif_client(), &[("frames", "20000")]);
    assert_eq!(numbers(&client.hear("done"))["received"], 20_000);
    client.end();
    server.ask_until("counters", |of| {
        of["received"] == before["received"] + 20_000
    });
    server.end();
}
