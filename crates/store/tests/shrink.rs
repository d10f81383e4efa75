//! The index after a phase of small items: its sub-tables merge, and their pages are used for others.

// Miri takes too long for so many items.
#![cfg(not(miri))]
#![allow(clippy::cast_possible_truncation, reason = "small numbers")]

use coua_store::{
    Access, Config, Delete, Expiry, Intent, LimitRefused, Put, Start, Stats, Store, Stored,
    UnixSeconds, Worker,
};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier};

const NOW: UnixSeconds = UnixSeconds(1_700_000_000);
const MEMORY: usize = 24 << 20;

fn config() -> Config {
    Config {
        memory: MEMORY,
        workers: 3,
        ..Config::default()
    }
}

/// Time goes on a second in so many turns, so that the index is looked at.
struct Clock(u32);

impl Clock {
    fn now(&mut self) -> UnixSeconds {
        self.0 += 1;
        UnixSeconds(NOW.0 + self.0 / 64)
    }
}

fn store_in(worker: &mut Worker, key: &str, value: &[u8], now: UnixSeconds) {
    for _ in 0..10_000 {
        let mut burst = worker.burst(now);
        let stored = burst.store(
            &burst.key(key.as_bytes()),
            &Put::set(0, Expiry::NEVER),
            value,
        );
        burst.close();
        worker.end(now);
        if matches!(stored, Stored::Stored { .. }) {
            return;
        }
    }
    panic!("{key} is never stored");
}

fn delete(worker: &mut Worker, key: &str) {
    let mut burst = worker.burst(NOW);
    burst.delete(&burst.key(key.as_bytes()), &Delete::default());
}

fn value_of(worker: &mut Worker, key: &str) -> Option<Vec<u8>> {
    let burst = worker.burst(NOW);
    let item = burst.get(&burst.key(key.as_bytes()), Access::default());
    Some(item.ok()?.as_slice()?.to_vec())
}

/// Turns until the worker has nothing left to do for some seconds.
fn rest(worker: &mut Worker, clock: &mut Clock) {
    let mut quiet = 0;
    for _ in 0..1_000_000 {
        let now = clock.now();
        worker.burst(now).close();
        quiet = if worker.end(now) { 0 } else { quiet + 1 };
        if quiet > 64 * 20 {
            return;
        }
    }
    panic!("the worker never rests");
}

/// Fills memory with tiny items.
fn fill_with_tiny(worker: &mut Worker, clock: &mut Clock) -> Stats {
    for number in 0..700_000 {
        store_in(worker, &number.to_string(), b"tiny", clock.now());
    }
    worker.store().stats()
}

#[test]
fn a_phase_of_tiny_items_does_not_keep_its_index() {
    let store = Store::new(config(), NOW).expect("a store");
    let begin = store.stats();
    let mut worker = store.worker(0);
    let mut clock = Clock(0);
    let tiny = fill_with_tiny(&mut worker, &mut clock);
    assert!(tiny.totals.evicted > 0, "memory is full");
    assert!(tiny.memory_index > MEMORY as u64 / 8, "{tiny:?}");
    assert_eq!(tiny.totals.merges, 0, "what is full does not merge");

    let large = vec![7; 4000];
    for number in 0..20_000 {
        store_in(&mut worker, &format!("large {number}"), &large, clock.now());
    }
    let after = store.stats();
    assert!(after.totals.merges > 0, "{after:?}");
    // Back to what the index began with, or nearly: pages of 64 KiB hold one sub-table each.
    assert!(
        after.memory_index <= 2 * begin.memory_index,
        "{} at first, then {}, now {}",
        begin.memory_index,
        tiny.memory_index,
        after.memory_index
    );
    // Items have what the index had.
    let gained = tiny.memory_index - after.memory_index;
    assert!(gained > MEMORY as u64 / 10, "{gained}");
    let of_items = |stats: &Stats| stats.memory - stats.memory_index - stats.memory_free;
    assert!(of_items(&after) > of_items(&tiny) + gained / 2);

    // And back again: no sub-table merges that has to split soon after.
    let merges = after.totals.merges;
    let again = fill_with_tiny(&mut worker, &mut clock);
    assert!(
        again.items * 10 > tiny.items * 9,
        "{} {}",
        again.items,
        tiny.items
    );
    assert_eq!(again.totals.merges, merges);
}

/// A limit that the index made impossible becomes possible.
#[test]
fn a_smaller_index_permits_a_lower_limit() {
    let store = Store::new(config(), NOW).expect("a store");
    let mut worker = store.worker(0);
    let mut clock = Clock(0);
    fill_with_tiny(&mut worker, &mut clock);
    let before = least(&store);
    for number in 0..700_000 {
        delete(&mut worker, &number.to_string());
        if number % 1000 == 0 {
            worker.end(clock.now());
        }
    }
    rest(&mut worker, &mut clock);
    let after = least(&store);
    assert!(before - after > MEMORY / 10, "{before}, then {after}");
    store.set_memory_limit(after).expect("the least");
    rest(&mut worker, &mut clock);
    assert!(store.stats().memory <= after as u64, "{:?}", store.stats());
}

/// The lowest limit that the store takes.
fn least(store: &Store) -> usize {
    match store.set_memory_limit(0) {
        Err(LimitRefused::TooSmall { least }) => least,
        other => panic!("{other:?}"),
    }
}

/// Two workers write and a third one looks, while the index grows and shrinks several times. Nothing
/// may be evicted, so nothing may be missing.
#[test]
fn no_key_is_lost_while_the_index_shrinks() {
    const KEYS: u64 = 60_000;
    /// These stay, and are looked for all the time.
    const KEPT: u64 = 500;
    let config = Config {
        evict: false,
        index_bits: Some(0),
        ..config()
    };
    let store = Store::new(config, NOW).expect("a store");
    let seconds = Arc::new(AtomicU64::new(0));
    let ends = Arc::new(AtomicBool::new(false));
    let together = Arc::new(Barrier::new(2));
    let now = |seconds: &AtomicU64| {
        let turns = seconds.fetch_add(1, Ordering::Relaxed);
        UnixSeconds(NOW.0 + u32::try_from(turns / 2000).expect("some seconds"))
    };
    let mut worker = store.worker(0);
    for number in 0..KEPT {
        let value = number.to_le_bytes();
        store_in(&mut worker, &format!("kept {number}"), &value, NOW);
    }
    drop(worker);
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..2u64)
            .map(|own| {
                let (store, seconds) = (Arc::clone(&store), Arc::clone(&seconds));
                let together = Arc::clone(&together);
                scope.spawn(move || {
                    let mut worker = store.worker(own as usize);
                    for round in 0..4u64 {
                        for number in (own..KEYS).step_by(2) {
                            let value = [number.to_le_bytes(), round.to_le_bytes()].concat();
                            store_in(&mut worker, &number.to_string(), &value, now(&seconds));
                        }
                        for number in (own..KEYS).step_by(2) {
                            let value = [number.to_le_bytes(), round.to_le_bytes()].concat();
                            let name = number.to_string();
                            assert_eq!(value_of(&mut worker, &name), Some(value), "{name}");
                            // All but each hundredth one goes.
                            if number % 100 > 1 {
                                delete(&mut worker, &name);
                                assert_eq!(value_of(&mut worker, &name), None, "{name}");
                            }
                            worker.end(now(&seconds));
                        }
                        // Both wait until the index is as small as it was.
                        together.wait();
                        for turn in 0.. {
                            let now = now(&seconds);
                            worker.burst(now).close();
                            worker.end(now);
                            if turn % 64 == 0 && store.stats().tables == 1 {
                                break;
                            }
                            assert!(turn < 100_000_000, "{:?}", store.stats());
                        }
                        together.wait();
                        for number in (own..KEYS).step_by(2).filter(|n| n % 100 <= 1) {
                            let value = [number.to_le_bytes(), round.to_le_bytes()].concat();
                            let name = number.to_string();
                            assert_eq!(value_of(&mut worker, &name), Some(value), "{name}");
                        }
                    }
                })
            })
            .collect();
        let (looker, ends_then) = (Arc::clone(&store), Arc::clone(&ends));
        scope.spawn(move || {
            let mut worker = looker.worker(2);
            while !ends_then.load(Ordering::Relaxed) {
                for from in (0..KEPT).step_by(50) {
                    let burst = worker.burst(NOW);
                    let names: Vec<_> = (from..from + 50).map(|n| format!("kept {n}")).collect();
                    let keys: Vec<_> = names
                        .iter()
                        .map(|name| burst.key(name.as_bytes()))
                        .collect();
                    let read = Intent::Read;
                    let mut seen: Vec<_> = keys
                        .iter()
                        .map(|key| burst.prefetch(key.hash, read))
                        .collect();
                    for (ahead, key) in seen.iter_mut().zip(&keys) {
                        *ahead = burst.look(key.hash, read, *ahead);
                        *ahead = burst.look_again(key.hash, read, *ahead);
                    }
                    for (n, (ahead, key)) in (from..).zip(seen.into_iter().zip(&keys)) {
                        let item = burst.get_ahead(key, ahead, Access::default());
                        let item = item.unwrap_or_else(|_| panic!("{n} is missed"));
                        assert_eq!(item.as_slice(), Some(&n.to_le_bytes()[..]));
                    }
                }
                // A scan shows each of them.
                let mut shown = vec![false; KEPT as usize];
                let mut position = Some(coua_store::ScanPosition::START);
                while let Some(at) = position {
                    position = worker.burst(NOW).scan(at, 256, &mut |item| {
                        let name = String::from_utf8_lossy(item.key()).into_owned();
                        if let Some(number) = name.strip_prefix("kept ") {
                            shown[number.parse::<usize>().expect("a number")] = true;
                        }
                    });
                }
                let missing = shown.iter().position(|&is_shown| !is_shown);
                assert_eq!(missing, None, "a scan misses a key");
                worker.end(NOW);
            }
        });
        let results: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
        ends.store(true, Ordering::Relaxed);
        for result in results {
            result.expect("a writer");
        }
    });
    let totals = store.stats().totals;
    assert_eq!(totals.merges, totals.splits);
    assert!(totals.merges > 8, "{totals:?}");
}

/// The next process finds a smaller index, and frees its pages.
#[test]
fn a_smaller_index_is_taken_over() {
    let path = PathBuf::from(format!("/dev/shm/coua-shrink-{}", std::process::id()));
    let in_file = || {
        let config = Config {
            file: Some(path.clone()),
            ..config()
        };
        Store::new(config, NOW).expect("a store")
    };
    let store = in_file();
    let mut worker = store.worker(0);
    let mut clock = Clock(0);
    let tiny = fill_with_tiny(&mut worker, &mut clock);
    for number in 0..700_000 {
        if number % 200 != 0 {
            delete(&mut worker, &number.to_string());
        }
    }
    rest(&mut worker, &mut clock);
    let small = store.stats();
    assert!(small.memory_index * 3 < tiny.memory_index);
    let kept = |worker: &mut Worker| -> Vec<u32> {
        let all = (0..700_000).step_by(200);
        all.filter(|number| value_of(worker, &number.to_string()).is_some())
            .collect()
    };
    let there = kept(&mut worker);
    assert!(there.len() > 500);
    drop((worker, store));
    let store = in_file();
    assert!(matches!(store.start(), Start::Warm(_)));
    assert_eq!(store.stats().memory_index, small.memory_index);
    let mut worker = store.worker(0);
    assert_eq!(kept(&mut worker), there);
    for number in 0..700_000 {
        store_in(&mut worker, &number.to_string(), b"tiny", clock.now());
    }
    drop((worker, store));
    std::fs::remove_file(&path).expect("the file");
}
