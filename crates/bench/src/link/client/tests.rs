//! Clients and the bare service on coua's stack, over links that lose, repeat, reorder and spoil
//! frames, on a time that the test tells.

use std::sync::Arc;

use coua_tcp::nic::Mac;
use coua_tcp::simulated::{Card, End, Faults, Link};
use coua_tcp::time::Instant;

use super::*;
use crate::echo::Reply;
use crate::echo::canned_hit;
use crate::link::echo::Echo;
use crate::workload::{Popularity, Sampler};

const PORT: u16 = 11211;

/// One microsecond, as clients count.
const MICRO: u64 = 1000;

struct Scene {
    link: Link,
    clients: Clients,
    clients_card: End,
    echo: Echo,
    echo_card: End,
    now_us: u64,
}

struct Load {
    connections: usize,
    depth: usize,
    value_size: usize,
    sets: f64,
    answers: Answers,
}

const SMALL: Load = Load {
    connections: 40,
    depth: 1,
    value_size: 8,
    sets: 0.0,
    answers: Answers::Same,
};

fn settings(load: &Load, seed: u64) -> Settings {
    let keys = KeyFormat::new(8, 1000).unwrap();
    let values = Arc::new(Values::new(load.value_size));
    let sampler = Sampler::new(Popularity::Uniform, 1000, seed);
    Settings {
        server: (Address::v4([10, 0, 0, 1]), PORT),
        connections: load.connections,
        depth: load.depth,
        outstanding: 64,
        requests: Requests::new(keys, values.clone(), sampler, load.sets),
        keys,
        values,
        answers: load.answers,
        seed,
    }
}

fn echo(reply: Reply, card: &End) -> Echo {
    Echo::new(vec!["10.0.0.1/8".parse().unwrap()], PORT, 4096, reply, card).unwrap()
}

fn scene(load: &Load, seed: u64, faults: Faults) -> Scene {
    let cards = [1, 2].map(|last| Card::new(Mac([2, 0, 0, 0, 0, last])));
    scene_on(cards, load, seed, faults)
}

fn scene_on(cards: [Card; 2], load: &Load, seed: u64, faults: Faults) -> Scene {
    let (link, [clients_card, echo_card]) = Link::new(seed, cards, faults);
    let clients = Clients::new(settings(load, seed), &clients_card).unwrap();
    let reply = match load.answers {
        Answers::Mirror => Reply::Mirror,
        _ if load.sets > 0.0 => Reply::Same {
            lines: 2,
            reply: b"STORED\r\n".to_vec(),
        },
        _ => Reply::Same {
            lines: 1,
            reply: canned_hit(8, load.value_size, 1),
        },
    };
    Scene {
        link,
        clients,
        clients_card,
        echo: echo(reply, &echo_card),
        echo_card,
        now_us: 0,
    }
}

impl Scene {
    /// A turn of both sides, ten microseconds later.
    fn step(&mut self) -> anyhow::Result<()> {
        self.now_us += 10;
        self.link.advance_to(self.now_us);
        self.clients
            .turn(&mut self.clients_card, self.now_us * MICRO)?;
        self.link.advance_to(self.now_us);
        let now = Instant::from_micros(self.now_us);
        self.echo.turn(&mut self.echo_card, now)
    }

    fn open(&mut self) {
        while !self.clients.are_open() {
            self.step().unwrap();
            assert!(self.now_us < 60_000_000, "not all connections open");
        }
    }

    /// Load until there are so many replies, then an end in which all are answered.
    fn serve(&mut self, pace: Pace, replies: u64) -> Stretch {
        self.open();
        self.clients.begin(pace);
        while self.clients.stretch.measured.replies < replies {
            self.step().unwrap();
            assert!(self.now_us < 300_000_000, "the load hangs");
        }
        let mut stretch = self.clients.begin(Pace::Rest);
        while self.clients.is_waiting() {
            self.step().unwrap();
            assert!(self.now_us < 600_000_000, "not all is answered");
        }
        let rest = self.clients.begin(Pace::Rest);
        stretch.measured.add(&rest.measured);
        stretch.retransmitted += rest.retransmitted;
        stretch
    }
}

#[test]
fn every_request_is_answered_over_a_good_link() {
    let stretch = scene(&SMALL, 1, Faults::NONE).serve(Pace::Closed, 10_000);
    assert_eq!(stretch.measured.hits, stretch.measured.replies);
    assert_eq!(stretch.retransmitted, 0);
}

#[test]
fn batches_and_replies_of_several_segments_are_put_together() {
    for (sets, answers) in [
        (0.0, Answers::Same),
        (1.0, Answers::Same),
        (1.0, Answers::Mirror),
    ] {
        let load = Load {
            depth: 8,
            value_size: 1000,
            sets,
            answers,
            ..SMALL
        };
        let stretch = scene(&load, 2, Faults::NONE).serve(Pace::Closed, 4000);
        assert_eq!(stretch.retransmitted, 0);
    }
}

/// What is longer than a window comes through, also by cards that are often full.
#[test]
fn long_batches_and_replies_are_put_together() {
    let free = |last| Card::new(Mac([2, 0, 0, 0, 0, last]));
    let full = |last| Card {
        send_len_max: 48,
        full: 0.05,
        ..free(last)
    };
    for (depth, sets, answers) in [
        (1, 0.0, Answers::Same),
        (1, 1.0, Answers::Same),
        (3, 1.0, Answers::Same),
        (1, 1.0, Answers::Mirror),
        (1, 0.5, Answers::Mirror),
    ] {
        let load = Load {
            connections: 5,
            depth,
            value_size: 100_000,
            sets,
            answers,
        };
        let serve = |cards| scene_on(cards, &load, 8, Faults::NONE).serve(Pace::Closed, 300);
        let stretch = serve([1, 2].map(free));
        assert_eq!(stretch.retransmitted, 0, "depth {depth}, {sets} sets");
        serve([1, 2].map(full));
    }
}

#[test]
fn long_batches_get_over_what_a_bad_link_does() {
    let faults = Faults {
        loss: 0.001,
        duplication: 0.01,
        reordering: 0.001,
        reordering_us: 300,
        corruption: 0.001,
        delay_us: 20,
        ..Faults::NONE
    };
    for seed in 0..4 {
        let load = Load {
            connections: 5,
            value_size: 100_000,
            sets: if seed % 2 == 0 { 1.0 } else { 0.0 },
            answers: if seed < 2 {
                Answers::Mirror
            } else {
                Answers::Same
            },
            ..SMALL
        };
        let stretch = scene(&load, seed, faults).serve(Pace::Closed, 100);
        assert!(stretch.retransmitted > 0, "seed {seed}");
    }
}

#[test]
fn a_wrong_byte_within_a_long_reply_is_noticed() {
    let load = Load {
        value_size: 50_000,
        ..SMALL
    };
    let mut scene = scene(&load, 9, Faults::NONE);
    let mut reply = canned_hit(8, 50_000, 1);
    reply[40_000] = b'w';
    scene.echo = echo(Reply::Same { lines: 1, reply }, &scene.echo_card);
    scene.open();
    scene.clients.begin(Pace::Closed);
    let failure = (0..10_000).find_map(|_| scene.step().err());
    let failure = failure.expect("an error").to_string();
    assert!(failure.contains("wvvvv"), "{failure}");
}

#[test]
fn what_a_bad_link_does_is_made_good() {
    let faults = Faults {
        loss: 0.02,
        duplication: 0.02,
        reordering: 0.02,
        reordering_us: 300,
        corruption: 0.02,
        truncation: 0.01,
        garbage: 0.01,
        delay_us: 20,
        ..Faults::NONE
    };
    for seed in 0..20 {
        let load = Load {
            depth: 1 + usize::try_from(seed).unwrap() % 8,
            value_size: 700,
            ..SMALL
        };
        let stretch = scene(&load, seed, faults).serve(Pace::Closed, 2000);
        assert!(stretch.retransmitted > 0, "seed {seed}");
    }
}

/// Where a connection waits long for its next request, its last reply is acknowledged all the same.
#[test]
fn a_resting_connection_acknowledges() {
    let load = Load {
        connections: 2000,
        ..SMALL
    };
    let mut scene = scene(&load, 3, Faults::NONE);
    let pace = Pace::open(0, 1e4);
    let stretch = scene.serve(pace, 5000);
    assert_eq!(stretch.retransmitted, 0, "the server had to send again");
}

#[test]
fn a_fixed_rate_is_kept() {
    let mut scene = scene(&SMALL, 4, Faults::NONE);
    scene.open();
    let begun_us = scene.now_us;
    let pace = Pace::open(begun_us * MICRO, 1e5);
    let stretch = scene.serve(pace, 10_000);
    let took_us = scene.now_us - begun_us;
    assert!((99_000..102_000).contains(&took_us), "{took_us} µs");
    assert!(stretch.measured.latency_max() < Duration::from_micros(100));
}

#[test]
fn a_wrong_byte_is_noticed() {
    let mut scene = scene(&SMALL, 5, Faults::NONE);
    let reply = Reply::Same {
        lines: 1,
        reply: b"VALUE kkkkkkkk 0 8\r\nvvvvvvvw\r\nEND\r\n".to_vec(),
    };
    scene.echo = echo(reply, &scene.echo_card);
    scene.open();
    scene.clients.begin(Pace::Closed);
    let failure = (0..1000).find_map(|_| scene.step().err());
    let failure = failure.expect("an error").to_string();
    assert!(failure.contains("vvvvvvvw"), "{failure}");
}

/// Connections that the server remembers of clients that died without a word are taken over.
#[test]
fn new_clients_come_after_dead_ones() {
    let mut scene = scene(&SMALL, 6, Faults::NONE);
    scene.open();
    scene.clients = Clients::new(settings(&SMALL, 77), &scene.clients_card).unwrap();
    scene.serve(Pace::Closed, 1000);
}

#[test]
fn ended_connections_are_gone_at_the_server() {
    let mut scene = scene(&SMALL, 7, Faults::NONE);
    scene.serve(Pace::Closed, 100);
    assert_eq!(scene.echo.connections(), 40);
    while !scene.clients.reset_all(&mut scene.clients_card) {}
    for _ in 0..10 {
        scene.now_us += 10;
        scene.link.advance_to(scene.now_us);
        let now = Instant::from_micros(scene.now_us);
        scene.echo.turn(&mut scene.echo_card, now).unwrap();
    }
    assert_eq!(scene.echo.connections(), 0);
}
