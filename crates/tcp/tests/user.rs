//! What a user of a stack may do at odd moments.

use coua_tcp::config::Config;
use coua_tcp::nic::{Mac, Nic};
use coua_tcp::simulated::{Card, End, Faults, Link};
use coua_tcp::stack::{Failure, Received, Stack};
use coua_tcp::time::Instant;

/// Connections whose neighbour never answers, closed while they wait for it: each place is free
/// once, however often the wait is ended.
#[test]
fn closed_while_nobody_answers() {
    let cards = [1, 2].map(|last| Card::new(Mac([2, 0, 0, 0, 0, last])));
    let (link, [mut card, _]) = Link::new(1, cards, Faults::NONE);
    let config = Config::new(vec!["192.0.2.1/24".parse().expect("an address")], [1; 32]);
    let mut stack = Stack::new(config, card.features(), Instant::default());
    let to = "192.0.2.2:80".parse().expect("an address");
    let mut ids = Vec::new();
    for step in 0..40 {
        // Some turns ask again, and some do not.
        let now_us = step * 300_000;
        link.advance_to(now_us);
        stack.begin(Instant::from_micros(now_us), &mut card);
        if let Some(id) = ids.pop() {
            stack.close(id);
            // It is the name of nothing now.
            assert!(matches!(
                stack.receive(&card, id, &mut [0]),
                Received::Failed(_)
            ));
            assert!(stack.send(id, b"x").is_err());
            stack.close(id);
            stack.abort(id);
        }
        if step < 5 {
            let opened = [stack.connect(to, |_| true), stack.connect(to, |_| true)];
            ids.extend(opened.into_iter().map(|id| id.expect("there is room")));
        }
        stack.end(&mut card);
        assert_eq!(stack.connections(), ids.len(), "after {now_us} µs");
    }
    assert_eq!(stack.buffers_in_use(), 0);
}

/// The stacks of 192.0.2.1 and 192.0.2.2.
fn neighbours(cards: &[impl Nic; 2]) -> [Stack; 2] {
    [1, 2].map(|host: u8| {
        let address = format!("192.0.2.{host}/24").parse().expect("an address");
        Stack::new(
            Config::new(vec![address], [host; 32]),
            cards[usize::from(host) - 1].features(),
            Instant::default(),
        )
    })
}

/// A datagram that answers none leaves when the neighbour is known, and its answer comes back to the
/// port from which it was sent.
#[test]
fn who_asks_by_datagram_is_answered() {
    let cards = [1, 2].map(|last| Card::new(Mac([2, 0, 0, 0, 0, last])));
    let (link, mut cards) = Link::new(1, cards, Faults::NONE);
    let mut stacks = neighbours(&cards);
    stacks[1].listen_for_datagrams(80);
    let to = "192.0.2.2:80".parse().expect("an address");
    let far = "198.51.100.1:80".parse().expect("an address");
    let (mut asked, mut answer) = (0, None);
    for step in 0..20 {
        let now_us = step * 1000;
        link.advance_to(now_us);
        for (stack, card) in stacks.iter_mut().zip(&mut cards) {
            stack.begin(Instant::from_micros(now_us), card);
        }
        if asked == 0 {
            let sent = stacks[0].ask(&mut cards[0], 4000, to, &[b"who ", b"is there?"]);
            let sent = sent.expect("there is a way");
            assert!(step > 0 || !sent, "nobody is known at first");
            asked += u32::from(sent);
            assert!(stacks[0].ask(&mut cards[0], 4000, far, &[b"x"]).is_err());
        }
        while let Some(datagram) = stacks[1].next_datagram() {
            assert_eq!(datagram.bytes(&cards[1]), b"who is there?");
            assert!(stacks[1].answer(&mut cards[1], &datagram, &[b"me"]));
        }
        while let Some(datagram) = stacks[0].next_datagram() {
            assert_eq!(datagram.bytes(&cards[0]), b"me");
            answer = Some((datagram.source(), datagram.destination().port()));
        }
        for (stack, card) in stacks.iter_mut().zip(&mut cards) {
            stack.end(card);
        }
    }
    assert_eq!((asked, answer), (1, Some((to, 4000))));
}

/// A card that cuts segments gets many in one frame, and the peer gets every byte.
#[test]
fn a_card_that_cuts_segments_is_given_long_frames() {
    const LEN: usize = 300_000;
    let mut cards = [1, 2].map(|last| Card::new(Mac([2, 0, 0, 0, 0, last])));
    cards[0].segmentation_len_max = 40_000;
    let (link, mut cards) = Link::new(1, cards, Faults::NONE);
    let mut stacks = neighbours(&cards);
    stacks[1].listen(80);
    let to = "192.0.2.2:80".parse().expect("an address");
    let bytes: Vec<u8> = (0..LEN)
        .map(|at| u8::try_from(at % 251).expect("small"))
        .collect();
    let id = stacks[0].connect(to, |_| true).expect("there is room");
    let (mut given, mut got, mut accepted) = (0, Vec::<u8>::new(), None);
    for step in 0..10_000 {
        let now_us = step * 50;
        link.advance_to(now_us);
        for (stack, card) in stacks.iter_mut().zip(&mut cards) {
            stack.begin(Instant::from_micros(now_us), card);
        }
        given += stacks[0].send(id, &bytes[given..]).expect("it is open");
        accepted = accepted.or(stacks[1].next_accepted());
        let mut space = [0; 65536];
        while let Some(id) = accepted
            && let Received::Bytes(len) = stacks[1].receive(&cards[1], id, &mut space)
        {
            got.extend(&space[..len]);
        }
        for (stack, card) in stacks.iter_mut().zip(&mut cards) {
            while stack.next_ready().is_some() {}
            stack.end(card);
        }
        if got.len() == LEN {
            break;
        }
    }
    assert!(got == bytes, "{} of {LEN} bytes", got.len());
    let sent = stacks[0].counters();
    let (segments, frames) = (sent.segments_sent, sent.frames_sent);
    assert!(
        segments > 200 && frames < segments / 3,
        "{segments} in {frames}"
    );
    assert_eq!(sent.segments_retransmitted, 0);
}

/// Many who ask and do not read hold all memory that there is for answers; others are answered all
/// the same, after a while.
#[test]
fn who_does_not_read_does_not_keep_others_from_being_answered() {
    const GREEDY: usize = 400;
    let cards = [1, 2].map(|last| Card::new(Mac([2, 0, 0, 0, 0, last])));
    let (link, mut cards) = Link::new(1, cards, Faults::NONE);
    let mut stacks = [1, 2].map(|host: u8| {
        let address = format!("192.0.2.{host}/24").parse().expect("an address");
        let mut config = Config::new(vec![address], [host; 32]);
        config.connections_max = 1000;
        config.half_open_max = 1000;
        (config.receive_len_max, config.memory_max) = match host {
            1 => (20_000, 1 << 20),
            _ => (4000, 64 << 20),
        };
        let features = cards[usize::from(host) - 1].features();
        Stack::new(config, features, Instant::default())
    });
    stacks[0].listen(80);
    let to = "192.0.2.1:80".parse().expect("an address");
    let connect = |stack: &mut Stack| stack.connect(to, |_| true).expect("there is room");
    let answer = [7; 60_000];
    let (mut others, mut got, mut latest) = (0, 0, None);
    for step in 0..40_000 {
        let now_us = step * 1000;
        link.advance_to(now_us);
        for (stack, card) in stacks.iter_mut().zip(&mut cards) {
            stack.begin(Instant::from_micros(now_us), card);
        }
        let [server, client] = &mut stacks;
        if usize::try_from(step).is_ok_and(|step| step < GREEDY) {
            connect(client);
        } else if step == 2000 {
            latest = Some(connect(client));
        }
        while let Some(id) = server.next_accepted() {
            // Each is answered at once, and goes on being answered.
            others += usize::from(server.send(id, &answer).is_ok_and(|taken| taken > 0));
        }
        while let Some((id, readiness)) = server.next_ready() {
            if readiness.failure.is_some() {
                server.close(id);
            } else if readiness.writable {
                let _ = server.send(id, &answer);
            }
        }
        while client.next_ready().is_some() {}
        if let Some(id) = latest {
            let mut space = [0; 4000];
            while let Received::Bytes(len) = client.receive(&cards[1], id, &mut space) {
                got += len;
            }
        }
        for (stack, card) in stacks.iter_mut().zip(&mut cards) {
            stack.end(card);
        }
        if got > 100_000 {
            break;
        }
    }
    assert!(others > 100, "{others} were answered");
    assert!(got > 100_000, "{got} bytes came");
}

/// Two stacks of one address on a card, to each of which all may come, and a third one that is the peer
/// of both.
struct Shared {
    link: Link,
    card: End,
    ours: [Stack; 2],
    peer_card: End,
    peer: Stack,
    now_us: u64,
}

impl Shared {
    fn new() -> Shared {
        let cards = [1, 2].map(|last| Card::new(Mac([2, 0, 0, 0, 0, last])));
        let (link, [card, peer_card]) = Link::new(1, cards, Faults::NONE);
        let stack = |host: u8, secret: u8, features| {
            let address = format!("192.0.2.{host}/24").parse().expect("an address");
            let config = Config::new(vec![address], [secret; 32]);
            Stack::new(config, features, Instant::default())
        };
        let mut ours = [1, 3].map(|secret| stack(1, secret, card.features()));
        for stack in &mut ours {
            stack.set_others(1);
            stack.listen(80);
        }
        let mut peer = stack(2, 2, peer_card.features());
        peer.listen(80);
        Shared {
            link,
            card,
            ours,
            peer_card,
            peer,
            // Not within the first second, in which no stack resets what it does not know.
            now_us: 1_000_000,
        }
    }

    /// Some turns, in which all that comes is one stack's; the other one has nothing of the card but
    /// sends. What the one passes on or learns
    /// the other one gets.
    fn turns(&mut self, gets: usize) {
        for _ in 0..100 {
            self.now_us += 50;
            self.link.advance_to(self.now_us);
            let now = Instant::from_micros(self.now_us);
            for at in [gets, 1 - gets] {
                // The second one finds the card's queue empty.
                self.ours[at].begin(now, &mut self.card);
                while self.ours[at].next_ready().is_some() {}
                self.ours[at].end(&mut self.card);
                while let Some(stray) = self.ours[at].next_stray() {
                    self.ours[1 - at].take_stray(now, &stray);
                }
                while let Some(notice) = self.ours[at].next_notice() {
                    self.ours[1 - at].take_notice(notice);
                }
            }
            self.peer.begin(now, &mut self.peer_card);
            self.peer.end(&mut self.peer_card);
        }
    }
}

/// The answer to an opening comes to the queue of another worker's stack, as a card may have it: who
/// opens is told, since all that follows would come there too, and who answers is not left with half a
/// connection.
#[test]
fn an_answer_to_another_queue_is_told() {
    let mut shared = Shared::new();
    let to = "192.0.2.2:80".parse().expect("an address");
    let id = shared.ours[0].connect(to, |_| true).expect("there is room");
    shared.turns(1);
    let failure = shared.ours[0].readiness(id).expect("it is there").failure;
    assert_eq!(failure, Some(Failure::Misdirected));
    shared.ours[0].close(id);
    shared.turns(1);
    assert_eq!(
        [shared.ours[0].connections(), shared.peer.connections()],
        [0, 0]
    );
}

/// A connection goes on where its segments come to another worker's queue, in both directions and to
/// its end.
#[test]
fn a_connection_lives_when_its_segments_come_to_another_queue() {
    let mut shared = Shared::new();
    let to = "192.0.2.1:80".parse().expect("an address");
    let id = shared.peer.connect(to, |_| true).expect("there is room");
    shared.turns(0);
    let ours = shared.ours[0].next_accepted().expect("it is open");
    for (round, gets) in [1, 1, 0, 1].into_iter().enumerate() {
        let (question, answer) = (vec![1; 100 + round], vec![2; 5000 + round]);
        let sent = shared.peer.send(id, &question);
        assert_eq!(sent, Ok(question.len()));
        shared.turns(gets);
        let mut space = [0; 6000];
        let received = shared.ours[0].receive(&shared.card, ours, &mut space);
        assert_eq!(received, Received::Bytes(question.len()), "round {round}");
        assert_eq!(space[..question.len()], question);
        let sent = shared.ours[0].send(ours, &answer);
        assert_eq!(sent, Ok(answer.len()));
        shared.turns(gets);
        let received = shared.peer.receive(&shared.peer_card, id, &mut space);
        assert_eq!(received, Received::Bytes(answer.len()), "round {round}");
        assert_eq!(space[..answer.len()], answer);
    }
    let counters = shared.ours.each_ref().map(|stack| *stack.counters());
    assert!(counters[1].segments_passed_on > 4, "{counters:?}");
    assert_eq!(counters.map(|counters| counters.resets_sent), [0, 0]);
    shared.peer.abort(id);
    shared.turns(1);
    assert_eq!(shared.ours[0].counters().reset_by_peer, 1);
}

/// What no stack has a connection for is reset, once, by the last one.
#[test]
fn what_nobody_has_is_reset() {
    let mut shared = Shared::new();
    let to = "192.0.2.1:80".parse().expect("an address");
    let id = shared.peer.connect(to, |_| true).expect("there is room");
    shared.turns(0);
    shared.ours = Shared::new().ours;
    shared
        .peer
        .send(id, b"is anybody there?")
        .expect("it is open");
    shared.turns(1);
    let resets = shared
        .ours
        .each_ref()
        .map(|stack| stack.counters().resets_sent);
    assert_eq!(resets, [1, 0]);
    let failure = shared.peer.readiness(id).expect("it is there").failure;
    assert_eq!(failure, Some(Failure::Reset));
}
