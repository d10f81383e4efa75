//! A full memory: room is made in measure with what is stored, so that nobody waits for it.

mod support;

use coua_store::*;
use std::sync::Arc;
use support::{NOW, put};

/// Requests of a burst of the server at most.
const BURST: u64 = 1024;

const MEMORY: usize = 64 << 20;

/// What is stored, in memories full.
const TIMES: usize = 3;

fn store() -> Arc<Store> {
    let config = Config {
        memory: MEMORY,
        seed: Some(7),
        ..Config::default()
    };
    Store::new(config, NOW).unwrap()
}

/// Stores values of `len` bytes in the largest bursts until all has been written over several times, and
/// reads as many keys as `reads` says for each, evenly among those that went before, as far back as half
/// of memory: with two, most of what is cleaned has been read. Returns how many were refused, and of how many.
fn refused(len: usize, reads: u64) -> (u64, u64) {
    let store = store();
    let mut worker = store.worker(0);
    let value = vec![b'v'; len];
    let put = Put::set(0, Expiry::NEVER);
    let burst_len = BURST.min((1 << 20) / len as u64);
    let mut refused = 0;
    let mut number = 0_u64;
    let known = MEMORY as u64 / 2 / (len as u64 + 24);
    while store.stats().totals.bytes_appended < (TIMES * MEMORY) as u64 {
        let mut burst = worker.burst(NOW);
        for _ in 0..burst_len {
            let key = number.to_be_bytes();
            let stored = burst.store(&burst.key(&key), &put, &value);
            assert!(
                matches!(
                    stored,
                    Stored::Stored { .. } | Stored::Refused(Refused::Wait)
                ),
                "{stored:?}"
            );
            refused += u64::from(stored == Stored::Refused(Refused::Wait));
            number += 1;
            for read in 0..reads {
                let back =
                    (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20).wrapping_add(read) % known;
                let key = number.saturating_sub(back).to_be_bytes();
                let _ = burst.get(&burst.key(&key), Access::default());
            }
        }
        burst.close();
        worker.end(NOW);
    }
    assert!(store.stats().totals.evicted > 0);
    (refused, number)
}

#[test]
fn small_items_in_large_bursts_find_room() {
    assert_eq!(refused(8, 0).0, 0);
}

#[test]
fn larger_items_find_room() {
    for len in [100, 1000, 10_000, 100_000] {
        assert_eq!(refused(len, 0).0, 0, "{len} bytes");
    }
}

/// All that comes before the first eviction has been read: some wait until that is found out.
#[test]
fn items_find_room_where_others_are_read() {
    for len in [20, 1000] {
        let (refused, all) = refused(len, 2);
        assert!(refused * 20 < all, "{refused} of {all} with {len} bytes");
    }
}

/// A value that takes many segments at once, as one does that is appended to, cannot take what others leave
/// bit by bit: it is refused until there is room for all of it, and that comes.
#[test]
fn a_value_of_many_segments_finds_room() {
    let store = store();
    let mut worker = store.worker(0);
    let value = vec![b'v'; 1_000_000];
    for number in 0..200_u64 {
        let key = number.to_be_bytes();
        let mut turns = 0;
        while !matches!(
            put(&mut worker, &key, &Put::set(0, Expiry::NEVER), &value),
            Stored::Stored { .. }
        ) {
            turns += 1;
            assert!(turns < 64, "value {number} finds no room");
            // What was read is hard to evict.
            for back in 1..40.min(number) {
                let burst = worker.burst(NOW);
                let _ = burst.get(
                    &burst.key(&(number - back).to_be_bytes()),
                    Access::default(),
                );
            }
        }
    }
    assert!(store.stats().totals.evicted > 100);
}

/// Large values over small items: what a turn does is bounded, whatever has to go for them.
#[test]
fn a_turn_looks_at_a_bounded_number_of_items() {
    let store = store();
    let mut worker = store.worker(0);
    let set = Put::set(0, Expiry::NEVER);
    let mut number = 0_u64;
    while store.stats().totals.evicted == 0 {
        let mut burst = worker.burst(NOW);
        for _ in 0..BURST {
            let key = number.to_be_bytes();
            let _ = burst.store(&burst.key(&key), &set, &[0; 8]);
            number += 1;
        }
        burst.close();
        worker.end(NOW);
    }
    let cleaned = || {
        let totals = store.stats().totals;
        totals.evicted + totals.promoted + totals.kept + totals.compacted
    };
    let value = vec![b'v'; 250_000];
    let (mut stored, mut turns) = (0, 0);
    while stored < 64 {
        let mut burst = worker.burst(NOW);
        for large in 0..4 {
            let key = format!("large {}", stored + large);
            let outcome = burst.store(&burst.key(key.as_bytes()), &set, &value);
            if outcome == Stored::Refused(Refused::Wait) {
                break;
            }
            stored += 1;
        }
        burst.close();
        let before = cleaned();
        worker.end(NOW);
        assert!(cleaned() - before <= 4096, "{} items", cleaned() - before);
        turns += 1;
        assert!(turns < 4000, "{stored} values found room");
    }
}
