use super::{Card, End, Faults, Link, Switch, Way};
use crate::nic::{Mac, Nic, Offload};

const MACS: [Mac; 3] = [
    Mac([2, 0, 0, 0, 0, 1]),
    Mac([2, 0, 0, 0, 0, 2]),
    Mac([2, 0, 0, 0, 0, 3]),
];
const CARDS: [Card; 2] = [Card::new(MACS[0]), Card::new(MACS[1])];

const EVERYTHING: Faults = Faults {
    loss: 0.05,
    duplication: 0.05,
    reordering: 0.1,
    reordering_us: 3000,
    haste: 0.05,
    corruption: 0.05,
    truncation: 0.03,
    garbage: 0.03,
    delay_us: 100,
    jitter_us: 50,
    rate: 1_000_000_000,
    queue_len_max: 30_000,
    frame_len_max: 1400,
    outage: 0.002,
    outage_us: 2000,
};

/// A frame of `len` bytes with its number behind the header.
fn frame(from: Mac, to: Mac, number: u32, len: usize) -> Vec<u8> {
    let mut frame = [to.0, from.0].concat();
    frame.extend_from_slice(&[0x88, 0xb5]);
    frame.extend_from_slice(&number.to_be_bytes());
    frame.resize(len, number.to_le_bytes()[0]);
    frame
}

fn number(frame: &[u8]) -> u32 {
    u32::from_be_bytes(frame[14..18].try_into().expect("four bytes"))
}

fn commit(end: &mut End, frame: &[u8]) {
    end.slot().expect("room")[..frame.len()].copy_from_slice(frame);
    end.commit(frame.len(), Offload::None);
}

fn send(end: &mut End, frame: &[u8]) {
    commit(end, frame);
    end.flush();
}

fn receive(end: &mut End) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    loop {
        let count = end.receive();
        frames.extend((0..count).map(|at| end.frame(at).bytes.to_vec()));
        if count == 0 {
            return frames;
        }
    }
}

/// Sends so many frames of 100 bytes, `every_us`, and receives what comes: when, and what.
fn run(seed: u64, faults: Faults, count: u32, every_us: u64) -> (Link, Vec<(u64, Vec<u8>)>) {
    let (link, [mut a, mut b]) = Link::new(seed, CARDS, faults);
    let mut came = Vec::new();
    for at in 0..count {
        send(&mut a, &frame(MACS[0], MACS[1], at, 100));
        let next_us = link.now_us() + every_us;
        while let Some(event_us) = link.next_event_us().filter(|&event| event <= next_us) {
            link.advance_to(event_us);
            came.extend(receive(&mut b).into_iter().map(|frame| (event_us, frame)));
        }
        link.advance_to(next_us);
    }
    while let Some(event_us) = link.next_event_us() {
        link.advance_to(event_us);
        came.extend(receive(&mut b).into_iter().map(|frame| (event_us, frame)));
    }
    (link, came)
}

fn numbers(came: &[(u64, Vec<u8>)]) -> Vec<u32> {
    came.iter().map(|(_, frame)| number(frame)).collect()
}

#[test]
fn a_perfect_cable_brings_everything_whole_and_in_order() {
    let (link, [mut a, mut b]) = Link::new(1, CARDS, Faults::NONE);
    for at in 0..200 {
        commit(&mut a, &frame(MACS[0], MACS[1], at, 60 + at as usize));
    }
    link.advance_to(5);
    assert_eq!(link.next_event_us(), None, "nothing leaves before a flush");
    a.flush();
    assert_eq!(b.receive(), 0, "nothing arrives unless time is told");
    assert_eq!(link.next_event_us(), Some(5));
    link.advance_to(5);
    assert_eq!(b.receive(), 64);
    assert_eq!(b.frame(63).bytes, frame(MACS[0], MACS[1], 63, 123));
    let rest = receive(&mut b);
    assert_eq!(rest.len(), 200 - 64);
    for (at, came) in (64..).zip(rest) {
        assert_eq!(came, frame(MACS[0], MACS[1], at, 60 + at as usize));
    }
    send(&mut b, &frame(MACS[1], MACS[0], 7, 1514));
    link.advance_to(5);
    assert_eq!(receive(&mut a), [frame(MACS[1], MACS[0], 7, 1514)]);
    assert_eq!(
        (link.counters(0).arrived, link.counters(1).arrived),
        (200, 1)
    );
}

#[test]
fn the_same_seed_gives_the_same_run() {
    for seed in 0..20 {
        let (first, came) = run(seed, EVERYTHING, 500, 20);
        let (second, again) = run(seed, EVERYTHING, 500, 20);
        assert_eq!(came, again, "seed {seed}");
        assert_eq!(first.counters(0), second.counters(0));
        let (_, other) = run(seed + 1000, EVERYTHING, 500, 20);
        assert_ne!(came, other, "seed {seed}");
    }
}

#[test]
fn the_books_balance() {
    let mut sum = [0; 10];
    for seed in 0..100 {
        let (link, [mut a, mut b]) = Link::new(seed, CARDS, EVERYTHING);
        for at in 0..300 {
            commit(
                &mut a,
                &frame(MACS[0], MACS[1], at, 40 + at as usize * 49 / 10),
            );
            if at % 16 == 0 {
                a.flush();
                link.advance_to(link.now_us() + 100);
            }
        }
        a.flush();
        link.advance_to(1_000_000);
        let came = receive(&mut b).len() as u64;
        let books = link.counters(0);
        assert_eq!(books.sent, 300);
        assert_eq!(books.arrived, came);
        assert_eq!(
            books.sent + books.duplicated + books.garbage,
            books.arrived + books.lost + books.down + books.too_long + books.queue_full
        );
        let all = [
            books.lost,
            books.down,
            books.too_long,
            books.queue_full,
            books.duplicated,
            books.reordered,
            books.corrupted,
            books.truncated,
            books.garbage,
            books.outages,
        ];
        for (sum, count) in sum.iter_mut().zip(all) {
            *sum += count;
        }
    }
    assert!(sum.iter().all(|&count| count > 0), "each happens: {sum:?}");
}

#[test]
fn probabilities_are_kept() {
    let faults = Faults {
        loss: 0.1,
        duplication: 0.2,
        ..Faults::NONE
    };
    let (link, _) = run(3, faults, 10_000, 1);
    let counters = link.counters(0);
    assert!((900..1100).contains(&counters.lost), "{counters:?}");
    assert!((1850..2150).contains(&counters.duplicated), "{counters:?}");
}

#[test]
fn jitter_keeps_the_order_and_reordering_does_not() {
    let faults = Faults {
        delay_us: 1000,
        jitter_us: 500,
        ..Faults::NONE
    };
    let (_, came) = run(4, faults, 1000, 10);
    assert!(numbers(&came).is_sorted());
    assert_eq!(came.len(), 1000);
    for (at, (time_us, _)) in (0..).zip(&came) {
        let delay_us = time_us - 10 * at;
        assert!((1000..=1500).contains(&delay_us), "{delay_us}");
    }
    let faults = Faults {
        reordering: 0.1,
        reordering_us: 200,
        ..faults
    };
    let (link, came) = run(4, faults, 1000, 10);
    assert!((60..140).contains(&link.counters(0).reordered));
    let mut sorted = numbers(&came);
    assert!(!sorted.is_sorted());
    sorted.sort_unstable();
    assert!(sorted.into_iter().eq(0..1000), "each once");
}

#[test]
fn a_rate_takes_its_time_and_a_queue_has_an_end() {
    let faults = Faults {
        rate: 1_000_000,
        queue_len_max: 5000,
        ..Faults::NONE
    };
    let (link, [mut a, mut b]) = Link::new(5, CARDS, faults);
    for at in 0..10 {
        send(&mut a, &frame(MACS[0], MACS[1], at, 1250));
    }
    assert_eq!(link.counters(0).queue_full, 6, "four of 1250 bytes fit");
    for at in 1..=4 {
        assert_eq!(link.next_event_us(), Some(at * 10_000));
        link.advance_to(at * 10_000 - 1);
        assert_eq!(b.receive(), 0);
        link.advance_to(at * 10_000);
        assert_eq!(b.receive(), 1);
    }
    assert_eq!(link.next_event_us(), None);
    send(&mut a, &frame(MACS[0], MACS[1], 11, 1250));
    assert_eq!(
        link.next_event_us(),
        Some(50_000),
        "the queue is empty again"
    );
}

#[test]
fn long_frames_vanish_in_a_black_hole() {
    let (link, [mut a, mut b]) = Link::new(6, CARDS, Faults::NONE);
    let hole = Faults {
        frame_len_max: 1294,
        ..Faults::NONE
    };
    link.set_faults(0, hole);
    for len in [1294, 1295, 1514] {
        send(&mut a, &frame(MACS[0], MACS[1], 0, len));
        send(&mut b, &frame(MACS[1], MACS[0], 0, len));
    }
    link.advance_to(0);
    assert_eq!((receive(&mut b).len(), receive(&mut a).len()), (1, 3));
    assert_eq!(link.counters(0).too_long, 2);
}

#[test]
fn a_cable_that_is_cut_takes_nothing() {
    let faults = Faults {
        delay_us: 100,
        ..Faults::NONE
    };
    let (link, [mut a, mut b]) = Link::new(7, CARDS, faults);
    send(&mut a, &frame(MACS[0], MACS[1], 1, 60));
    link.cut(0, 1000);
    for now_us in [0, 500, 999, 1000] {
        link.advance_to(now_us);
        send(&mut a, &frame(MACS[0], MACS[1], 2, 60));
        send(&mut b, &frame(MACS[1], MACS[0], 3, 60));
    }
    link.advance_to(2000);
    let came: Vec<u32> = receive(&mut b).iter().map(|frame| number(frame)).collect();
    assert_eq!(came, [1, 2], "what was under way, and what came after");
    assert_eq!(receive(&mut a).len(), 4);
    assert_eq!(link.counters(0).down, 3);
}

#[test]
fn outages_end() {
    let faults = Faults {
        outage: 0.01,
        outage_us: 500,
        ..Faults::NONE
    };
    let (link, came) = run(8, faults, 10_000, 10);
    let counters = link.counters(0);
    assert!(counters.outages > 10, "{counters:?}");
    assert!(counters.down > counters.outages, "they last: {counters:?}");
    assert!(counters.down <= counters.outages * 51, "{counters:?}");
    assert_eq!(came.len() as u64 + counters.down, 10_000);
}

/// The sum that the Internet's protocols use.
fn checksum(bytes: &[u8]) -> u16 {
    let mut sum = 0_u32;
    for pair in bytes.chunks(2) {
        let low = pair.get(1).copied().unwrap_or(0);
        sum += u32::from(u16::from_be_bytes([pair[0], low]));
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !u16::try_from(sum).expect("carries are folded")
}

#[test]
fn damage_is_never_more_than_a_checksum_notices() {
    let faults = Faults {
        corruption: 1.0,
        ..Faults::NONE
    };
    let (link, [mut a, mut b]) = Link::new(9, CARDS, faults);
    const FRAMES: u32 = if cfg!(miri) { 300 } else { 30_000 };
    for at in 0..FRAMES {
        let mut sent = frame(MACS[0], MACS[1], at, 20 + at as usize % 90);
        // Where all bits are alike, a sum is easiest to deceive.
        match at % 3 {
            0 => sent[18..].fill(0),
            1 => sent[18..].fill(0xff),
            _ => {}
        }
        sent[14..16].fill(0);
        let sum = checksum(&sent[14..]);
        sent[14..16].copy_from_slice(&sum.to_be_bytes());
        assert_eq!(checksum(&sent[14..]), 0);
        send(&mut a, &sent);
        link.advance_to(0);
        let came = receive(&mut b);
        assert_eq!(came.len(), 1);
        assert_eq!(came[0][..14], sent[..14], "the link header is spared");
        assert_ne!(checksum(&came[0][14..]), 0, "frame {at}");
    }
    assert_eq!(link.counters(0).corrupted, u64::from(FRAMES));
}

#[test]
fn damaged_arp_is_lost() {
    let faults = Faults {
        corruption: 1.0,
        garbage: 1.0,
        ..Faults::NONE
    };
    let (link, [mut a, mut b]) = Link::new(10, CARDS, faults);
    let mut plain = frame(MACS[0], MACS[1], 0, 60);
    plain[12..14].copy_from_slice(&[0x08, 0x06]);
    let mut tagged = plain.clone();
    tagged.splice(12..12, [0x81, 0x00, 0x00, 0x05]);
    for sent in [&plain, &tagged] {
        send(&mut a, sent);
    }
    link.advance_to(0);
    let came = receive(&mut b);
    assert_eq!(came.len(), 2, "garbage alone arrives");
    for frame in came {
        assert_eq!(frame[12..14], [0x08, 0x00], "and is no ARP");
    }
    assert_eq!(link.counters(0).lost, 2);
}

#[test]
fn garbage_and_what_is_cut_short_have_headers() {
    let faults = Faults {
        truncation: 0.5,
        garbage: 0.5,
        ..Faults::NONE
    };
    let (link, came) = run(11, faults, 2000, 1);
    let header = &frame(MACS[0], MACS[1], 0, 60)[..14];
    assert!(came.iter().all(|(_, frame)| frame[..14] == *header));
    assert!(came.iter().all(|(_, frame)| frame.len() <= 1514));
    let shorter = came.iter().filter(|(_, frame)| frame.len() < 100).count() as u64;
    assert!(shorter >= link.counters(0).truncated, "{shorter}");
    assert_eq!(came.len() as u64, 2000 + link.counters(0).garbage);
}

#[test]
fn a_full_card_gives_no_slot_until_it_has_made_room() {
    let mut cards = CARDS;
    cards[0].full = 0.3;
    let (link, [mut a, _]) = Link::new(12, cards, Faults::NONE);
    let mut refused = 0;
    for at in 0..1000_u32 {
        if a.slot().is_none() {
            refused += 1;
            assert!(a.slot().is_none(), "it stays full");
            if at % 2 == 0 {
                a.flush();
            } else {
                a.receive();
            }
            continue;
        }
        assert!(a.slot().is_some(), "an open slot is given again");
        a.commit(60, Offload::None);
    }
    assert!((200..400).contains(&refused), "{refused}");
    assert_eq!(a.counters().refused, 2 * refused);
    a.flush();
    assert_eq!(link.counters(0).sent, 1000 - refused);
}

#[test]
fn cards_keep_so_many_frames() {
    let mut cards = CARDS;
    cards[0].send_len_max = 100;
    cards[1].receive_len_max = 70;
    let (link, [mut a, mut b]) = Link::new(13, cards, Faults::NONE);
    for at in 0..100 {
        commit(&mut a, &frame(MACS[0], MACS[1], at, 60));
    }
    assert!(a.slot().is_none());
    a.flush();
    assert!(a.slot().is_some());
    link.advance_to(0);
    assert_eq!(b.arrived(), 70);
    assert_eq!(receive(&mut b).len(), 70);
    assert_eq!((b.counters().overrun, b.counters().received), (30, 70));
}

#[test]
#[should_panic(expected = "a slot is open")]
fn a_commit_without_a_slot_is_a_mistake() {
    let (_, [mut a, _]) = Link::new(14, CARDS, Faults::NONE);
    commit(&mut a, &frame(MACS[0], MACS[1], 0, 60));
    a.commit(60, Offload::None);
}

#[test]
#[should_panic(expected = "index out of bounds")]
fn what_is_released_is_gone() {
    let (link, [mut a, mut b]) = Link::new(15, CARDS, Faults::NONE);
    send(&mut a, &frame(MACS[0], MACS[1], 0, 60));
    link.advance_to(0);
    assert_eq!(b.receive(), 1);
    b.release();
    b.frame(0);
}

#[test]
fn a_switch_learns_who_is_where() {
    let cards = MACS.map(Card::new);
    let (switch, mut ends) = Switch::new(16, &cards, Faults::NONE);
    let mut pass = |from: usize, to: Mac| {
        send(&mut ends[from], &frame(MACS[from], to, 0, 60));
        switch.advance_to(0);
        let came: Vec<usize> = ends.iter_mut().map(|end| receive(end).len()).collect();
        came
    };
    assert_eq!(pass(0, MACS[1]), [0, 1, 1], "nobody knows the receiver");
    assert_eq!(pass(1, MACS[0]), [1, 0, 0], "it has been heard of");
    assert_eq!(pass(0, MACS[1]), [0, 1, 0]);
    assert_eq!(pass(2, Mac::BROADCAST), [1, 1, 0]);
    assert_eq!(pass(0, MACS[0]), [0, 0, 0], "it is where it came from");
    let counters = switch.counters();
    assert_eq!(
        (counters.flooded, counters.forwarded, counters.filtered),
        (2, 2, 1)
    );
}

#[test]
fn each_way_of_a_port_has_its_own_faults() {
    let cards = MACS.map(Card::new);
    let delay = Faults {
        delay_us: 10,
        ..Faults::NONE
    };
    let (switch, mut ends) = Switch::new(17, &cards, delay);
    let lossy = Faults {
        loss: 1.0,
        ..Faults::NONE
    };
    switch.set_faults(1, Way::Out, lossy);
    switch.cut(2, Way::In, 100);
    for (at, from) in ends.iter_mut().zip(MACS) {
        send(at, &frame(from, Mac::BROADCAST, 0, 60));
    }
    assert_eq!(switch.next_event_us(), Some(10));
    switch.advance_to(10);
    assert_eq!(switch.next_event_us(), Some(20));
    switch.advance_to(20);
    let came: Vec<usize> = ends.iter_mut().map(|end| receive(end).len()).collect();
    assert_eq!(came, [1, 0, 2]);
    assert_eq!(switch.cable_counters(1, Way::Out).lost, 1);
    assert_eq!(switch.cable_counters(2, Way::In).down, 1);
}

#[test]
fn buffers_are_used_again() {
    let (link, [mut a, mut b]) = Link::new(
        18,
        CARDS,
        Faults {
            duplication: 0.1,
            ..Faults::NONE
        },
    );
    for at in 0..if cfg!(miri) { 300 } else { 10_000 } {
        send(&mut a, &frame(MACS[0], MACS[1], at, 60));
        link.advance_to(at.into());
        receive(&mut b);
    }
    assert!(a.spare_buffers() <= 3, "{}", a.spare_buffers());
}
