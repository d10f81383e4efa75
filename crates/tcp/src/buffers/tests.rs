use proptest::prelude::*;

use super::class::Node;
use super::*;

#[test]
fn sizes_are_round() {
    assert_eq!(size_of::<Node<{ LENS[0] }>>(), 128);
    assert_eq!(size_of::<Node<{ LENS[1] }>>(), 512);
    assert_eq!(size_of::<Node<{ LENS[2] }>>(), 2048);
    assert_eq!(size_of::<Node<{ LENS[3] }>>(), 9216);
}

#[test]
fn every_size_holds_its_bytes() {
    let mut buffers = Buffers::new(1 << 20);
    let bytes: Vec<u8> = (0..10_000u32).map(|at| (at % 251) as u8).collect();
    for len in [0, 1, 104, 105, 488, 489, 2024, 2025, 9192, 9193] {
        let id = buffers
            .store(SeqNumber(5), &bytes[..len], usize::MAX)
            .expect("memory");
        let held = len.min(9192);
        assert_eq!(buffers.bytes(id), &bytes[..held]);
        assert_eq!(
            buffers[id].end(),
            SeqNumber(5) + u32::try_from(held).expect("small")
        );
        assert!(buffers.free(id).is_none());
    }
    assert_eq!(buffers.in_use(), 0);
}

#[test]
fn the_budget_is_kept() {
    let mut buffers = Buffers::new(0);
    let store = |buffers: &mut Buffers, len: usize| buffers.store(SeqNumber(0), &vec![1; len], len);
    let all = Buffers::BUDGET_MIN / 2048;
    let taken: Vec<BufferId> = std::iter::from_fn(|| store(&mut buffers, 2000)).collect();
    assert_eq!(taken.len(), all * 3 / 4);
    // The rest is for what is received.
    let received = |buffers: &mut Buffers| buffers.store_received(SeqNumber(0), &[1; 2000]);
    let more: Vec<BufferId> = std::iter::from_fn(|| received(&mut buffers)).collect();
    assert_eq!(more.len(), all / 4);
    assert_eq!((store(&mut buffers, 0), buffers.room()), (None, 0));
    for id in taken {
        buffers.free(id);
    }
    assert!(buffers.room() > 0);
    // Where there is none of the right size another does.
    let id = store(&mut buffers, 3).expect("a large one");
    assert_eq!(buffers.bytes(id), [1; 3]);
    let id = store(&mut buffers, 9000).expect("a large one");
    assert_eq!(buffers.bytes(id), [1; LENS[2]]);
}

#[test]
fn a_cut_takes_what_sizes_there_are() {
    let mut buffers = Buffers::new(0);
    let bytes: Vec<u8> = (0..9000u32).map(|at| (at % 251) as u8).collect();
    let id = buffers.store(SeqNumber(7), &bytes, 9000).expect("memory");
    buffers[id].marks.set(Marks::FIN);
    while buffers.store(SeqNumber(0), &[0; 9000], 9000).is_some() {}
    let last = buffers.split(id, 100).expect("what is kept for receiving");
    let (mut at, mut seq, mut found) = (id, SeqNumber(7), Vec::<u8>::new());
    while !at.is_none() {
        assert_eq!(buffers[at].seq, seq);
        assert_eq!(buffers[at].marks.has(Marks::FIN), at == last);
        found.extend(buffers.bytes(at));
        seq = buffers[at].end();
        at = buffers[at].next;
    }
    assert_eq!(found, bytes);
    assert!(buffers[id].len() == 100 && buffers[id].next != last);
}

#[test]
fn no_size_takes_all_memory() {
    for len in [1, 400, 9000] {
        let mut buffers = Buffers::new(0);
        while buffers.store(SeqNumber(0), &vec![0; len], len).is_some() {}
        assert!(buffers.has_pieces(Buffers::BUDGET_MIN / 2048 / 4), "{len}");
    }
}

#[test]
fn what_is_kept_for_receiving_does_not_become_buffers_to_send() {
    let mut buffers = Buffers::new(0);
    let kept = Buffers::BUDGET_MIN / 2048 / 4;
    while buffers.store(SeqNumber(0), &[0; 2000], 2000).is_some() {}
    // Short ones come and go, and others send what is short too.
    for _ in 0..if cfg!(miri) { 1000 } else { 10_000 } {
        let id = buffers
            .store_received(SeqNumber(0), &[])
            .expect("what is kept");
        let _ = buffers.store(SeqNumber(0), &[0; 100], 100);
        buffers.free(id);
    }
    assert!(buffers.has_pieces(kept));
}

#[test]
fn what_is_reserved_is_there() {
    let mut buffers = Buffers::new(0);
    let mut reserved = 0;
    while buffers.has_pieces(1) && reserved < 40 {
        buffers.reserve(1);
        reserved += 1;
    }
    // Others take all that they can, of every size.
    for len in [1, 400, 2000, 9000].into_iter().cycle().take(5000) {
        let _ = buffers.store(SeqNumber(0), &vec![0; len], len);
    }
    for len in [1, 2024, 300].into_iter().cycle().take(reserved) {
        let id = buffers.store_reserved(SeqNumber(0), &vec![9; len]);
        assert_eq!(buffers.bytes(id), vec![9; len]);
    }
}

#[test]
fn bytes_are_appended_and_cut() {
    let mut buffers = Buffers::new(1 << 20);
    let id = buffers
        .store(SeqNumber(u32::MAX), b"abc", 100)
        .expect("memory");
    assert_eq!(buffers.append(id, b"defgh", 5), 2);
    assert_eq!(buffers.append(id, &[b'x'; 100], 1000), LENS[0] - 5);
    buffers[id].trim_front(1);
    assert_eq!(
        (buffers[id].seq, &buffers.bytes(id)[..5]),
        (SeqNumber(0), &b"bcdex"[..])
    );
    buffers[id].marks.set(Marks::FIN);
    let rest = buffers.split(id, 3).expect("memory");
    assert_eq!(buffers[id].next, rest);
    assert_eq!(
        (buffers.bytes(id), buffers[rest].seq),
        (&b"bcd"[..], SeqNumber(3))
    );
    assert_eq!(buffers.bytes(rest).len(), LENS[0] - 4);
    assert!(buffers[rest].marks.has(Marks::FIN) && !buffers[id].marks.has(Marks::FIN));
    buffers.free_all(id);
    assert_eq!(buffers.in_use(), 0);
}

/// What is done to buffers, at random.
#[derive(Clone, Copy, Debug)]
enum Step {
    Store(usize),
    Receive(usize),
    Reserve(usize),
    Free(usize),
    EndTurn,
}

fn step() -> impl Strategy<Value = Step> {
    let len = || prop_oneof![0..200usize, 400..600usize, 1900..2100usize, 8000..9500usize];
    prop_oneof![
        4 => len().prop_map(Step::Store),
        4 => len().prop_map(Step::Receive),
        3 => len().prop_map(Step::Reserve),
        1 => (0..1000usize).prop_map(Step::Free),
        1 => Just(Step::EndTurn),
    ]
}

/// Stores all for which there is a reserve.
fn store_all_reserved(buffers: &mut Buffers, reserved: &mut Vec<usize>, held: &mut Vec<BufferId>) {
    for mut len in reserved.drain(..) {
        while len > 0 {
            let id = buffers.store_reserved(SeqNumber(0), &vec![3; len]);
            len -= buffers[id].len() as usize;
            held.push(id);
        }
    }
    buffers.end_reserve();
}

proptest! {
    /// Whatever others take, of whatever sizes: what was reserved can be stored.
    #[test]
    fn the_reserve_holds(
        budget in 0..3_000_000usize,
        steps in proptest::collection::vec((step(), 1..30usize), 1..120),
    ) {
        let mut buffers = Buffers::new(budget);
        let (mut held, mut reserved) = (Vec::new(), Vec::new());
        for (step, times) in steps {
            for _ in 0..times {
                match step {
                    Step::Store(len) => held.extend(buffers.store(SeqNumber(0), &vec![1; len], len)),
                    Step::Receive(len) => held.extend(buffers.store_received(SeqNumber(0), &vec![2; len])),
                    Step::Reserve(len) => {
                        let pieces = len / Buffers::PIECE_LEN + 1;
                        if buffers.has_pieces(pieces) {
                            buffers.reserve(pieces);
                            reserved.push(len);
                        }
                    }
                    Step::Free(at) if !held.is_empty() => {
                        let id = held.swap_remove(at % held.len());
                        buffers.free(id);
                    }
                    Step::Free(_) => {}
                    Step::EndTurn => store_all_reserved(&mut buffers, &mut reserved, &mut held),
                }
            }
        }
        store_all_reserved(&mut buffers, &mut reserved, &mut held);
        prop_assert_eq!(buffers.in_use(), held.len());
    }
}
