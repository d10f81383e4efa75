//! What a user of a stack may do at odd moments.

use coua_tcp::config::Config;
use coua_tcp::nic::{Mac, Nic};
use coua_tcp::simulated::{Card, Faults, Link};
use coua_tcp::stack::{Failure, Notice, Received, Stack};
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

/// The answer to an opening comes to the queue of another worker's stack, as a card may have it: who
/// opens is told, and who answers is not left with half a connection.
#[test]
fn an_answer_to_another_queue_is_told() {
    let cards = [1, 2].map(|last| Card::new(Mac([2, 0, 0, 0, 0, last])));
    let (link, [mut card, mut server_card]) = Link::new(1, cards, Faults::NONE);
    let stack = |host: u8, secret: u8, features| {
        let address = format!("192.0.2.{host}/24").parse().expect("an address");
        let config = Config::new(vec![address], [secret; 32]);
        Stack::new(config, features, Instant::default())
    };
    let [mut opens, mut gets] = [1, 3].map(|secret| stack(1, secret, card.features()));
    let mut server = stack(2, 2, server_card.features());
    server.listen(80);
    let to = "192.0.2.2:80".parse().expect("an address");
    let id = opens.connect(to, |_| true).expect("there is room");
    let mut notice = None;
    for step in 0..100 {
        // Not within the first second, in which no stack resets what it does not know.
        let now_us = 1_000_000 + step * 50;
        link.advance_to(now_us);
        let now = Instant::from_micros(now_us);
        // The question for the server's MAC address, and the opening.
        let ours = match opens.counters().frames_sent < 2 {
            true => &mut opens,
            false => &mut gets,
        };
        ours.begin(now, &mut card);
        ours.end(&mut card);
        server.begin(now, &mut server_card);
        server.end(&mut server_card);
        let misdirected = |notice: &Notice| matches!(notice, Notice::Misdirected(_));
        notice = notice.or(gets.next_notice().filter(misdirected));
    }
    assert_eq!(opens.readiness(id).expect("it is there").failure, None);
    opens.take_notice(notice.expect("somebody was told"));
    let failure = opens.readiness(id).expect("it is there").failure;
    assert_eq!(failure, Some(Failure::Misdirected));
    assert_eq!(opens.next_ready().map(|(ready, _)| ready), Some(id));
    opens.close(id);
    opens.begin(Instant::from_micros(1_010_000), &mut card);
    opens.end(&mut card);
    assert_eq!([opens.connections(), server.connections()], [0, 0]);
}
