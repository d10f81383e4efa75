//! What a sender sends again over links that reorder frames and lose none: little, once it has
//! learnt how late they come (RFC 8985, section 6.2).
//!
//! ```sh
//! cargo test -p coua-tcp --test reordering -- --nocapture     # tells the shares
//! ```

#![expect(clippy::print_stderr, reason = "tests tell what they saw")]

use coua_tcp::config::Config;
use coua_tcp::nic::{Mac, Nic};
use coua_tcp::simulated::{Card, End, Faults, Link};
use coua_tcp::stack::{ConnectionId, Received, Stack};
use coua_tcp::time::Instant;

/// Microseconds that a frame takes to the other end and its answer back, alone.
const ROUND_TRIP_US: u64 = 10_000;

/// Bytes of a transfer, which is counted in parts: a hundred round trips each and more.
const LEN: usize = 40_000_000;
const PARTS: usize = 4;

/// A sender, a receiver, and the cable between them.
struct Scene {
    link: Link,
    cards: [End; 2],
    stacks: [Stack; 2],
    now_us: u64,
    sender: ConnectionId,
    receiver: Option<ConnectionId>,
    received: usize,
}

/// What a sender has counted.
#[derive(Clone, Copy, Debug, Default)]
struct Count {
    segments: u64,
    again: u64,
    timeouts: u64,
}

impl Scene {
    /// Frames of `there` go to the receiver.
    fn new(seed: u64, there: Faults, back: Faults) -> Scene {
        let cards = [1, 2].map(|last| {
            let mut card = Card::new(Mac([2, 0, 0, 0, 0, last]));
            (card.receive_len_max, card.send_len_max) = (4096, 4096);
            card
        });
        let (link, cards) = Link::new(seed, cards, there);
        link.set_faults(1, back);
        let mut stacks = [1, 2].map(|host: u8| {
            let address = format!("192.0.2.{host}/24").parse().expect("an address");
            let mut config = Config::new(vec![address], [host; 32]);
            (config.receive_len_max, config.send_len_max) = (400_000, 400_000);
            let features = cards[usize::from(host) - 1].features();
            Stack::new(config, features, Instant::default())
        });
        stacks[1].listen(80);
        let to = "192.0.2.2:80".parse().expect("an address");
        let sender = stacks[0].connect(to, |_| true).expect("there is room");
        Scene {
            link,
            cards,
            stacks,
            now_us: 0,
            sender,
            receiver: None,
            received: 0,
        }
    }

    /// One turn of both, and time goes on to what happens next.
    fn turn(&mut self) {
        self.link.advance_to(self.now_us);
        for (stack, card) in self.stacks.iter_mut().zip(&mut self.cards) {
            stack.begin(Instant::from_micros(self.now_us), card);
        }
        let bytes = [0; 16_384];
        while self.stacks[0].send(self.sender, &bytes) == Ok(bytes.len()) {}
        self.receiver = self.receiver.or(self.stacks[1].next_accepted());
        let mut space = [0; 65_536];
        while let Some(id) = self.receiver
            && let Received::Bytes(len) = self.stacks[1].receive(&self.cards[1], id, &mut space)
        {
            self.received += len;
        }
        for (stack, card) in self.stacks.iter_mut().zip(&mut self.cards) {
            while stack.next_ready().is_some() {}
            stack.end(card);
        }
        let deadlines = self.stacks.each_ref().map(Stack::deadline);
        let next = deadlines.into_iter().flatten().map(Instant::micros);
        let next = next.chain(self.link.next_event_us()).min();
        let has_frames = self.cards.iter().any(|card| card.arrived() > 0);
        self.now_us = match has_frames {
            true => self.now_us + 1,
            false => next.expect("something happens").max(self.now_us + 1),
        };
    }

    fn count(&self) -> Count {
        let counters = self.stacks[0].counters();
        Count {
            segments: counters.segments_sent,
            again: counters.segments_retransmitted,
            timeouts: counters.timeouts,
        }
    }

    /// Sends it all, and counts each part.
    fn transfer(&mut self) -> [Count; PARTS] {
        let mut before = Count::default();
        std::array::from_fn(|part| {
            while self.received < LEN / PARTS * (part + 1) {
                self.turn();
            }
            let now = self.count();
            let part = Count {
                segments: now.segments - before.segments,
                again: now.again - before.again,
                timeouts: now.timeouts - before.timeouts,
            };
            before = now;
            part
        })
    }
}

/// A link that delays frames and does nothing else to them.
fn plain() -> Faults {
    Faults {
        delay_us: ROUND_TRIP_US / 2,
        rate: 400_000_000,
        ..Faults::NONE
    }
}

/// That share of the frames is put off, by up to so many per cent of the round trip.
fn put_off(share: f64, per_cent: u64) -> Faults {
    Faults {
        reordering: share,
        reordering_us: ROUND_TRIP_US * per_cent / 100,
        ..plain()
    }
}

/// That share of the frames takes no time.
fn hasten(share: f64) -> Faults {
    Faults {
        haste: share,
        ..plain()
    }
}

/// Transfers over a link, tells what was sent again, and gives it in per cent for each part.
fn shares(what: &str, there: Faults, back: Faults) -> [f64; PARTS] {
    let parts = Scene::new(1, there, back).transfer();
    let shares = parts.map(|part| 100.0 * part.again as f64 / part.segments as f64);
    let shown = shares.map(|share| format!("{share:7.3}"));
    let timeouts: u64 = parts.iter().map(|part| part.timeouts).sum();
    let shown = shown.join("");
    eprintln!("{what:50} {shown} % sent again, {timeouts:2} timeouts");
    shares
}

/// What comes late by less than the usual round trip is waited for, after the first ones.
#[test]
fn what_is_put_off_is_waited_for() {
    for share in [0.01, 0.05, 0.2] {
        for per_cent in [25, 90] {
            let link = put_off(share, per_cent);
            let what = format!("{share} put off by up to {per_cent} %");
            for (what, back) in [(what.clone(), plain()), (what + ", both ways", link)] {
                let [first, later @ ..] = shares(&what, link, back);
                assert!(first < 0.5, "{what}: {first} %");
                assert!(later.iter().all(|share| *share < 0.02), "{what}: {later:?}");
            }
        }
    }
}

/// No longer is waited than the round trip usually takes (RFC 8985, section 6.2, step 4): what is
/// later is sent again, unless so much is late that the usual round trip becomes longer.
#[test]
fn what_is_put_off_for_too_long_is_sent_again() {
    for share in [0.01, 0.05, 0.2] {
        for per_cent in [150, 200, 400] {
            let link = put_off(share, per_cent);
            let what = format!("{share} put off by up to {per_cent} %");
            let [.., last] = shares(&what, link, plain());
            assert!(last < 100.0 * share, "{what}: {last} %");
        }
    }
}

/// What overtakes others, and its acknowledgment too, is not taken for the round trip of all.
#[test]
fn what_hastens_does_not_make_others_late() {
    for share in [0.01, 0.05] {
        for (what, back) in [("there", plain()), ("both ways", hasten(share))] {
            let what = format!("{share} hasten, {what}");
            let [.., last] = shares(&what, hasten(share), back);
            assert!(last < 40.0 * share, "{what}: {last} %");
        }
    }
}

/// What is lost is sent again, and nothing else, also where others are late.
#[test]
fn what_is_lost_is_sent_again() {
    for (what, there) in [
        ("lost", plain()),
        ("lost, 0.05 put off by up to 50 %", put_off(0.05, 50)),
    ] {
        let loss = 0.001;
        let [.., last] = shares(&format!("{loss} {what}"), Faults { loss, ..there }, plain());
        let right = 100.0 * loss;
        assert!((0.5 * right..2.0 * right).contains(&last), "{last} %");
    }
}
