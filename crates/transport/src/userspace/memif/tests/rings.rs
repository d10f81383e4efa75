//! Rings, from the sides of both roles, in one memory.

use std::sync::Arc;

use super::super::Role;
use super::super::frames::Frames;
use super::super::layout::Layout;
use super::super::receive::{Consumer, IndexOutOfRange};
use super::super::region::Memory;
use super::super::ring::Ring;
use super::super::transmit::Producer;

const FRAME_LEN: usize = 1518;
const LOG2_LEN: u8 = 6;
const LEN: usize = 1 << LOG2_LEN;

/// A client's memory and what both roles make of it.
struct Scene {
    layout: Layout,
    memory: Arc<Memory>,
}

impl Scene {
    fn new() -> Scene {
        let layout = Layout::new(1, LOG2_LEN, FRAME_LEN).expect("it is little");
        let (memory, _) = layout.create().expect("memory");
        Scene { layout, memory }
    }

    fn servers(&self, to_server: bool) -> Ring {
        let offset = self.layout.offset(to_server, 0);
        let ring = Ring::new(&self.memory, 0, offset, LOG2_LEN, Role::Server);
        ring.expect("the client has made it")
    }

    fn clients(&self, to_server: bool) -> Ring {
        self.layout.ring(&self.memory, to_server, 0)
    }

    /// A producer and a consumer of one direction.
    fn ends(&self, to_server: bool) -> (Producer, Consumer) {
        let refill = Some(self.layout.buffers(false, 0).len);
        match to_server {
            true => {
                let producer =
                    Producer::new(self.clients(true), Some(self.layout.buffers(true, 0)));
                (producer, Consumer::new(self.servers(true), None))
            }
            false => {
                let consumer = Consumer::new(self.clients(false), refill);
                (Producer::new(self.servers(false), None), consumer)
            }
        }
    }
}

/// Whose every byte follows from a number, of 14 to 1518 bytes.
fn frame(number: usize) -> Vec<u8> {
    let len = 14 + number * 37 % (FRAME_LEN - 13);
    let byte = |at: usize| u8::try_from((number + at * 3) % 256).expect("it is one");
    (0..len).map(byte).collect()
}

fn frames() -> Frames {
    Frames::new(FRAME_LEN)
}

fn pending(numbers: impl Iterator<Item = usize>) -> Frames {
    let mut pending = frames();
    for number in numbers {
        let bytes = frame(number);
        pending.room()[..bytes.len()].copy_from_slice(&bytes);
        pending.push(bytes.len());
    }
    pending
}

/// Past the end of the indices' 16 bits, in bursts of all lengths.
#[test]
fn frames_come_over_in_order_and_unchanged() {
    for to_server in [true, false] {
        let scene = Scene::new();
        let (mut producer, mut consumer) = scene.ends(to_server);
        let mut received = frames();
        let (mut sent, mut seen) = (0, 0);
        while seen < 150_000 {
            let count = 1 + sent % 50;
            assert_eq!(producer.has_room(count - 1), Ok(true));
            producer.ask_ahead(count / 2);
            producer.look_ahead();
            for number in 0..count {
                producer.expect(number, frame(sent + number).len());
            }
            let given = producer.send(&pending(sent..sent + count));
            assert_eq!((given.sent, given.unfit), (count as u64, 0));
            sent += count;
            received.clear();
            assert_eq!(consumer.receive(&mut received).expect("no lie").unfit, 0);
            for bytes in received.iter() {
                assert_eq!(bytes, frame(seen), "frame {seen}");
                seen += 1;
            }
            assert_eq!(seen, sent);
        }
    }
}

#[test]
fn a_full_ring_has_room_when_the_consumer_has_read() {
    for to_server in [true, false] {
        let scene = Scene::new();
        let (mut producer, mut consumer) = scene.ends(to_server);
        let half = LEN / 2;
        for first in [0, half] {
            assert_eq!(producer.has_room(half - 1), Ok(true));
            producer.send(&pending(first..first + half));
        }
        assert_eq!(producer.has_room(0), Ok(false));
        // What does not fit is not lost silently.
        let given = producer.send(&pending(0..1));
        assert_eq!((given.sent, given.unfit), (0, 1));
        let mut received = frames();
        assert!(consumer.receive(&mut received).is_ok());
        assert_eq!(received.len(), LEN);
        assert_eq!(producer.has_room(LEN - 1), Ok(true));
        assert_eq!(producer.has_room(LEN), Ok(false));
    }
}

/// What a client can write into a ring to the server, and what the server makes of it: the lengths
/// of the frames that it takes, and how many it drops.
fn taken(entries: &[(bool, u16, u32)]) -> (Vec<usize>, u64) {
    let scene = Scene::new();
    let ring = scene.clients(true);
    let (_, mut consumer) = scene.ends(true);
    for (number, &(goes_on, region, len)) in (0..).zip(entries) {
        ring.write(number, goes_on, region, len);
    }
    ring.publish(u16::try_from(entries.len()).expect("a few"));
    let (mut lens, mut unfit) = (Vec::new(), 0);
    let mut received = frames();
    for _ in 0..=entries.len() {
        received.clear();
        unfit += consumer.receive(&mut received).expect("no lie").unfit;
        lens.extend(received.iter().map(<[u8]>::len));
    }
    assert!(!consumer.is_waiting(), "everything is handed back");
    (lens, unfit)
}

#[test]
fn frames_in_pieces_are_put_together() {
    let entries = [
        (false, 0, 60),
        (true, 0, 1000),
        (true, 0, 0),
        (false, 0, 500),
        (false, 0, 61),
    ];
    assert_eq!(taken(&entries), (vec![60, 1500, 61], 0));
    // Sixty pieces, behind some frames: the burst ends before them.
    let mut entries = vec![(false, 0, 60); 10];
    entries.extend([(true, 0, 20); 52]);
    entries.push((false, 0, 20));
    let expected = [vec![60; 10], vec![53 * 20]].concat();
    assert_eq!(taken(&entries), (expected, 0));
}

#[test]
fn what_is_no_frame_is_dropped_and_counted() {
    for (entries, dropped) in [
        (vec![(false, 0, 13)], 1),
        (vec![(false, 0, 0)], 1),
        (vec![(false, 0, 1519)], 1),
        (vec![(false, 0, u32::MAX)], 1),
        (vec![(false, 1, 60)], 1),
        (vec![(true, 0, 1000), (false, 0, 1000)], 1),
        // The end of the last one is missing.
        (vec![(true, 0, 60), (true, 0, 60)], 1),
        // No end in sight.
        (vec![(true, 0, 20); LEN], 1),
    ] {
        assert_eq!(taken(&entries), (vec![], dropped), "{entries:?}");
        let whole = [&[(false, 0, 60)], &entries[..entries.len().min(LEN - 1)]].concat();
        assert_eq!(taken(&whole), (vec![60], dropped), "{entries:?}");
    }
}

#[test]
fn an_index_out_of_range_is_a_lie() {
    for to_server in [true, false] {
        let scene = Scene::new();
        let (mut producer, mut consumer) = scene.ends(to_server);
        let (sender, receiver) = match to_server {
            true => (scene.clients(true), scene.servers(true)),
            false => (scene.servers(false), scene.clients(false)),
        };
        sender.publish(u16::try_from(LEN).expect("short") + 1);
        assert_eq!(consumer.receive(&mut frames()), Err(IndexOutOfRange));
        receiver.publish(30_000);
        assert_eq!(producer.has_room(0), Err(IndexOutOfRange));
    }
}

/// Anything in the rings, and the indices anywhere: nothing but frames of fit lengths comes of it.
#[test]
fn a_peer_may_write_whatever_it_likes() {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = |end: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % end
    };
    let short = |number: u64| u16::try_from(number).expect("short");
    let scene = Scene::new();
    for _ in 0..200 {
        for to_server in [true, false] {
            let (mut producer, mut consumer) = scene.ends(to_server);
            let rings = [scene.clients(to_server), scene.servers(to_server)];
            for _ in 0..50 {
                for _ in 0..20 {
                    let number = short(random(LEN as u64));
                    let len = [60, 1518, 4096, u64::from(u32::MAX)][usize::from(short(random(4)))];
                    let len = u32::try_from(random(len + 1)).expect("long");
                    rings[0].write(number, random(3) == 0, short(random(2)), len);
                    let end = [1 << 20, 1 << 32][usize::from(short(random(2)))];
                    rings[0].write_offset(number, u32::try_from(random(end)).expect("long"));
                }
                let ring = &rings[usize::from(short(random(2)))];
                let step = [LEN as u64, 1 << 16][usize::from(random(8) == 0)];
                ring.publish(ring.own_index().wrapping_add(short(random(step))));
                let mut received = frames();
                let _ = consumer.receive(&mut received);
                let is_fit = |frame: &[u8]| (14..=FRAME_LEN).contains(&frame.len());
                assert!(received.iter().all(is_fit));
                if producer.has_room(3) == Ok(true) {
                    producer.ask_ahead(3);
                    producer.look_ahead();
                    let given = producer.send(&pending(0..4));
                    assert_eq!(given.sent + given.unfit, 4);
                }
            }
        }
    }
}

/// The client's buffers are shorter than a frame, or nowhere.
#[test]
fn frames_go_into_several_short_buffers() {
    let scene = Scene::new();
    let (mut producer, mut consumer) = scene.ends(false);
    let ring = scene.clients(false);
    let len = u16::try_from(LEN).expect("short");
    (0..len).for_each(|number| ring.write(number, false, 0, 500));
    let longest = FRAME_LEN - 14;
    let numbers = (0..).filter(|number| number * 37 % (FRAME_LEN - 13) == longest);
    let numbers: Vec<usize> = numbers.take(3).collect();
    assert_eq!(producer.has_room(2), Ok(true));
    let given = producer.send(&pending(numbers.iter().copied()));
    assert_eq!((given.sent, given.unfit), (3, 0));
    let mut received = frames();
    assert!(consumer.receive(&mut received).is_ok());
    let expected: Vec<_> = numbers.iter().map(|&number| frame(number)).collect();
    assert!(received.iter().eq(expected.iter().map(Vec::as_slice)));
    for wrong in [(9, 2048), (0, 0), (0, u32::MAX)] {
        for number in 0..len {
            ring.write(number, false, wrong.0, wrong.1);
        }
        let given = producer.send(&pending(0..2));
        assert_eq!((given.sent, given.unfit), (0, 2), "{wrong:?}");
    }
}

#[test]
fn events_are_wanted_where_they_were_asked_for() {
    for to_server in [true, false] {
        let scene = Scene::new();
        let (mut producer, consumer) = scene.ends(to_server);
        let mut send = || {
            assert_eq!(producer.has_room(0), Ok(true));
            producer.send(&pending(0..1));
            producer.wants_event()
        };
        assert!(!send(), "nobody sleeps at first");
        consumer.ask_for_events(true);
        assert!(send());
        assert!(consumer.is_waiting());
        consumer.ask_for_events(false);
        assert!(!send());
    }
}

#[test]
fn a_ring_has_to_be_where_it_says() {
    let scene = Scene::new();
    let ring = |region, offset, log2_len| {
        Ring::new(&scene.memory, region, offset, log2_len, Role::Server).is_some()
    };
    assert!(ring(0, 0, 14));
    for (region, offset, log2_len) in [
        (0, 0, 15),
        (0, 0, 16),
        (0, 0, 255),
        (1, 0, 6),
        (0, 4, 6),
        (0, u32::MAX - 7, 6),
        (0, 1 << 30, 6),
    ] {
        assert!(!ring(region, offset, log2_len), "{offset} {log2_len}");
    }
}
