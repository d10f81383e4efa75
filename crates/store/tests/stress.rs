//! Many threads at once: no key that is there is ever missed and no value is ever wrong, while
//! items move, sub-tables split, items expire and segments are emptied.
#![allow(
    clippy::cast_possible_truncation,
    reason = "patterns and small numbers"
)]

use coua_store::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::thread;

const START: u32 = 1_000_000;

fn mix(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}

/// Values tell their key and how often it was written: `version`, then a pattern of both.
fn value(id: u64, version: u64, buffer: &mut Vec<u8>) {
    buffer.clear();
    buffer.extend_from_slice(&version.to_le_bytes());
    let seed = mix(id ^ version.rotate_left(32));
    let len = match seed % 100 {
        0 => 40_000,
        1..10 => 500 + seed as usize % 1500,
        _ => 8 + seed as usize % 90,
    };
    let mut i = 0;
    while buffer.len() < len {
        buffer.extend_from_slice(&mix(seed.wrapping_add(i)).to_le_bytes());
        i += 1;
    }
}

/// The version of a value, after checking each byte of it.
fn check(id: u64, item: &Item<'_>, scratch: &mut (Vec<u8>, Vec<u8>)) -> u64 {
    let (found, expected) = scratch;
    found.clear();
    item.value().for_each(|part| found.extend_from_slice(part));
    let version = u64::from_le_bytes(found[..8].try_into().unwrap());
    value(id, version, expected);
    assert!(
        found == expected,
        "a wrong value of {id} at version {version}"
    );
    version
}

/// Stores a value, waiting where that is asked for. That there is no memory would be untrue: half of it is dead.
fn set(worker: &mut Worker, now: UnixSeconds, id: u64, expiry: Expiry, bytes: &[u8]) {
    for _ in 0..1_000_000 {
        let mut burst = worker.burst(now);
        let name = id.to_le_bytes();
        let key = burst.key(&name);
        let ahead = burst.prefetch(key.hash, Intent::Write);
        let ahead = burst.look(key.hash, Intent::Write, ahead);
        let ahead = burst.look_again(key.hash, Intent::Write, ahead);
        let stored = burst.store_ahead(&key, ahead, &Put::set(0, expiry), bytes);
        burst.close();
        match stored {
            Stored::Stored { .. } => return,
            Stored::Refused(Refused::Wait) => {
                worker.end(now);
                thread::yield_now();
            }
            other => panic!("{other:?}: {:?}", worker.store().stats()),
        }
    }
    panic!("waits for ever: {:?}", worker.store().stats());
}

/// Two threads write, two read. With evictions off, what is set and not deleted must be there.
#[test]
fn nothing_is_missed_and_nothing_is_wrong() {
    const STABLE: u64 = 20_000;
    let config = Config {
        memory: 96 << 20,
        workers: 4,
        evict: false,
        index_bits: Some(0),
        ..Config::default()
    };
    let store = Store::new(config, UnixSeconds(START)).unwrap();
    let now = AtomicU32::new(START);
    let stop = AtomicBool::new(false);
    let reads = AtomicU64::new(0);
    let versions: Vec<AtomicU64> = (0..STABLE).map(|_| AtomicU64::new(0)).collect();
    {
        let mut worker = store.worker(0);
        let mut buffer = Vec::new();
        for id in 0..STABLE {
            value(id, 0, &mut buffer);
            set(&mut worker, UnixSeconds(START), id, Expiry::NEVER, &buffer);
        }
    }
    let clock = || UnixSeconds(now.load(Ordering::Relaxed));
    // All that the threads are to be tried by has happened.
    let is_enough = || {
        let totals = store.stats().totals;
        let has_moved = totals.splits > 0 && totals.compacted > 0;
        has_moved && totals.expired > 0 && reads.load(Ordering::Relaxed) > 10_000
    };
    thread::scope(|scope| {
        let mut threads = Vec::new();
        for writer in 0..2u64 {
            let (store, stop, versions, clock) = (&store, &stop, &versions, &clock);
            threads.push(scope.spawn(move || write(store, writer, stop, versions, clock)));
        }
        for reader in 2..4usize {
            let (store, stop, versions, clock) = (&store, &stop, &versions, &clock);
            let reads = &reads;
            threads.push(scope.spawn(move || {
                let mut worker = store.worker(reader);
                let mut random = Random(reader as u64);
                let mut scratch = (Vec::new(), Vec::new());
                while !stop.load(Ordering::Relaxed) {
                    let mut burst = worker.burst(clock());
                    for _ in 0..16 {
                        // A later version may be found than the one that was surely written.
                        let id = random.below(STABLE);
                        let least = versions[id as usize].load(Ordering::Acquire);
                        let name = id.to_le_bytes();
                        let cas = random.below(8) == 0;
                        let (key, access) = (burst.key(&name), Access { bump: true, cas });
                        let touched = match random.below(8) {
                            // Its first expiry, far off, moves the item under the others' eyes.
                            0 => burst.touch(&key, Expiry::at(UnixSeconds(u32::MAX)), access),
                            1 => burst.touch(&key, Expiry::NEVER, access),
                            _ => Err(Untouched::Refused(Refused::Wait)),
                        };
                        let item = match touched {
                            Err(Untouched::Refused(_)) => burst.get(&key, access),
                            Err(Untouched::Miss(miss)) => Err(miss),
                            Ok(item) => Ok(item),
                        };
                        let item = item.unwrap_or_else(|miss| panic!("{id} is missed: {miss:?}"));
                        let version = check(id, &item, &mut scratch);
                        assert!(
                            version >= least,
                            "an old value of {id}: {version} < {least}"
                        );
                    }
                    reads.fetch_add(16, Ordering::Relaxed);
                    burst.close();
                    if random.below(64) == 0 {
                        worker.park();
                        thread::yield_now();
                    } else {
                        worker.end(clock());
                    }
                }
            }));
        }
        // A sanitizer or a busy machine may need many times the usual time; who ends early has failed.
        for second in 0..4000 {
            let has_failed = threads.iter().any(thread::ScopedJoinHandle::is_finished);
            if has_failed || (second >= 40 && is_enough()) {
                break;
            }
            thread::sleep(std::time::Duration::from_millis(150));
            now.fetch_add(1, Ordering::Relaxed);
        }
        stop.store(true, Ordering::Relaxed);
    });
    let stats = store.stats();
    assert_eq!(stats.totals.evicted, 0);
    assert!(is_enough(), "{stats:?}");
}

/// Overwrites stable keys, half each, and lets others come, expire and go.
fn write(
    store: &Arc<Store>,
    writer: u64,
    stop: &AtomicBool,
    versions: &[AtomicU64],
    clock: &dyn Fn() -> UnixSeconds,
) {
    let mut worker = store.worker(writer as usize);
    let mut random = Random(writer + 100);
    let mut buffer = Vec::new();
    let mut mortal = 0u64;
    while !stop.load(Ordering::Relaxed) {
        let now = clock();
        let id = random.below(versions.len() as u64 / 2) * 2 + writer;
        let version = versions[id as usize].load(Ordering::Relaxed) + 1;
        value(id, version, &mut buffer);
        set(&mut worker, now, id, Expiry::NEVER, &buffer);
        versions[id as usize].store(version, Ordering::Release);
        // Others: some die of age, some are deleted.
        mortal += 1;
        let id = (1 << 40) | (writer << 32) | mortal;
        value(id, 1, &mut buffer);
        buffer.truncate(100);
        set(
            &mut worker,
            now,
            id,
            Expiry::at(UnixSeconds(now.0 + 1 + (mortal % 3) as u32)),
            &buffer,
        );
        if mortal > 200 {
            let name = ((1u64 << 40) | (writer << 32) | (mortal - random.below(200))).to_le_bytes();
            let mut burst = worker.burst(now);
            burst.delete(&burst.key(&name), &Delete::default());
        }
        if mortal.is_multiple_of(8) {
            worker.end(now);
        }
    }
}

/// A thousand times more keys than the index had room for at first.
#[test]
fn the_index_grows_a_thousandfold() {
    let config = Config {
        memory: 1 << 30,
        workers: 2,
        evict: false,
        index_bits: Some(0),
        ..Config::default()
    };
    let store = Store::new(config, UnixSeconds(START)).unwrap();
    let keys = store.stats().slots * 1000;
    let now = UnixSeconds(START);
    let done = [AtomicU64::new(0), AtomicU64::new(0)];
    thread::scope(|scope| {
        for me in 0..2usize {
            let (store, done) = (&store, &done);
            scope.spawn(move || {
                let mut worker = store.worker(me);
                let mut random = Random(me as u64);
                for i in 0..keys / 2 {
                    let id = i * 2 + me as u64;
                    set(&mut worker, now, id, Expiry::NEVER, &mix(id).to_le_bytes());
                    done[me].store(i + 1, Ordering::Release);
                    if i % 16 == 0 {
                        // One of the other's keys that is there, and one that is not.
                        let theirs = done[1 - me].load(Ordering::Acquire);
                        let burst = worker.burst(now);
                        if theirs > 0 {
                            let id = random.below(theirs) * 2 + 1 - me as u64;
                            let name = id.to_le_bytes();
                            let item = burst.get(&burst.key(&name), Access::default());
                            let item = item.unwrap_or_else(|_| panic!("{id} is missed"));
                            assert_eq!(item.as_slice(), Some(&mix(id).to_le_bytes()[..]));
                        }
                        let name = (keys + i).to_le_bytes();
                        assert!(burst.get(&burst.key(&name), Access::default()).is_err());
                        burst.close();
                        worker.end(now);
                    }
                }
            });
        }
    });
    let mut worker = store.worker(0);
    for id in 0..keys {
        let burst = worker.burst(now);
        let name = id.to_le_bytes();
        assert!(
            burst.get(&burst.key(&name), Access::default()).is_ok(),
            "{id} is missed"
        );
    }
    assert_eq!(store.stats().items, keys);
}
