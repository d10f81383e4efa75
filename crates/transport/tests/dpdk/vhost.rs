//! Two processes on a virtio link, vhost at our end.

use std::thread;
use std::time::Duration;

use super::child::{Child, numbers};
use super::huge_pages::HugePages;
use super::links::Meeting;

#[test]
fn frames_go_both_ways_unchanged() {
    let _pages = HugePages::for_two();
    let meeting = Meeting::new();
    let mut server = Child::start("echo", &meeting.vhost(1), &[]);
    server.hear("ready");
    let mut client = Child::start("load", &meeting.virtio(1), &[("frames", "40000")]);
    assert_eq!(numbers(&client.hear("done"))["received"], 40_000);
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
    let mut server = Child::start("echo", &meeting.vhost(2), &[two]);
    server.hear("ready");
    let mut client = Child::start("load", &meeting.virtio(2), &[two, ("frames", "10000")]);
    for _ in 0..2 {
        assert_eq!(numbers(&client.hear("done"))["received"], 10_000);
    }
    client.end();
    server.ask_until("counters", |of| of["busy"] == 2);
    server.end();
}

#[test]
fn a_peer_may_be_killed_and_come_back() {
    let _pages = HugePages::for_two();
    let meeting = Meeting::new();
    let mut server = Child::start("echo", &meeting.vhost(1), &[]);
    server.hear("ready");
    for round in 0..4 {
        let mut client = Child::start("load", &meeting.virtio(1), &[]);
        client.hear("ready");
        thread::sleep(Duration::from_millis(20 + 13 * round));
        client.kill();
    }
    let before = server.ask_until("counters", |of| of["up"] == 0);
    assert!(before["received"] > 1000, "the killed peers had traffic");

    let mut client = Child::start("load", &meeting.virtio(1), &[("frames", "20000")]);
    assert_eq!(numbers(&client.hear("done"))["received"], 20_000);
    client.end();
    server.end();
}

/// A worker that sleeps is woken by each burst after a pause.
#[test]
fn a_sleeping_worker_is_woken() {
    let _pages = HugePages::for_two();
    let meeting = Meeting::new();
    let mut server = Child::start("echo", &meeting.vhost(1), &[("interrupts", "1")]);
    server.hear("ready");
    for _ in 0..2 {
        let mut client = Child::start("load", &meeting.virtio(1), &[("frames", "1000")]);
        assert_eq!(numbers(&client.hear("done"))["received"], 1000);
        client.end();
    }
    server.ask_until("counters", |of| of["received"] == 2000 && of["sleeps"] >= 2);
    server.end();
}
