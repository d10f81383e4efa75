//! A file whose items say anything: the store begins, and none of what it does with them reads outside of
//! a segment, panics, or goes on for ever. What was left as it was comes back, or is missing.

// Miri has no files that are memory.
#![cfg(not(miri))]
#![allow(
    clippy::cast_possible_truncation,
    reason = "patterns and small numbers"
)]

use coua_store::*;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

mod support;
use support::{NOW, put};

const PAGE_LEN: usize = 64 << 10;
/// As the layout says: the superblock, then the open records.
const PAGE_TABLE: usize = 2 * 4096;
const ENTRY_LEN: usize = 64;
const PAGES: usize = 255;
const SEALED: u32 = 2;

/// A file that goes when the test does.
struct TestFile(PathBuf);

impl TestFile {
    fn new(name: &str) -> TestFile {
        let name = format!("coua-{name}-{}", std::process::id());
        let path = Path::new("/dev/shm").join(name);
        let _ = std::fs::remove_file(&path);
        TestFile(path)
    }

    fn open(&self) -> Arc<Store> {
        let config = Config {
            memory: 16 << 20,
            memory_limit: Some(16 << 20),
            workers: 2,
            seed: Some(5),
            index_bits: Some(0),
            file: Some(self.0.clone()),
            ..Config::default()
        };
        Store::new(config, NOW).unwrap()
    }
}

impl Drop for TestFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

struct Random(u64);

impl Random {
    fn below(&mut self, below: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % below as u64) as usize
    }
}

/// Keys of items in pieces, of ordinary ones, and of many that are small, so that the index splits.
const LARGE: usize = 12;
const ORDINARY: usize = 3_000;
const ALL: usize = 60_000;

fn name(n: usize) -> String {
    format!("key{n}")
}

fn value(n: usize) -> Vec<u8> {
    let len = match n {
        _ if n < LARGE => 40_000 + n * 20_000,
        _ if n < ORDINARY => n % 1500,
        _ => n % 9,
    };
    (0..len).map(|i| (n * 31 + i * 7) as u8).collect()
}

/// Items of all kinds: with expiries of either length, client flags and tags.
fn how(n: usize, store: &Store) -> Put {
    let expiry = match n % 5 {
        0 => Expiry::at(UnixSeconds(NOW.0 + 1 + (n % 40) as u32)),
        1 => Expiry::at_millis(u64::from(NOW.0 + 1000) * 1000 + n as u64),
        _ => Expiry::NEVER,
    };
    let mut put = Put::set((n % 3) as u32, expiry);
    if n.is_multiple_of(7) {
        put.tags[0] = Some(store.tag(b"one"));
        put.tags[1] = Some(store.tag(format!("tag{}", n % 11).as_bytes()));
    }
    put
}

fn fill(file: &TestFile) -> Vec<u8> {
    let store = file.open();
    let mut worker = store.worker(0);
    for n in 0..ALL {
        let stored = put(&mut worker, name(n).as_bytes(), &how(n, &store), &value(n));
        assert!(matches!(stored, Stored::Stored { .. }), "{stored:?}");
    }
    assert_eq!(store.stats().totals.evicted, 0);
    drop((worker, store));
    std::fs::read(&file.0).unwrap()
}

/// Segments that hold items.
fn segments_of(bytes: &[u8]) -> Vec<usize> {
    let state = |page: usize| {
        let word = &bytes[PAGE_TABLE + page * ENTRY_LEN..][..4];
        u32::from_ne_bytes(word.try_into().unwrap())
    };
    (0..PAGES).filter(|&page| state(page) == SEALED).collect()
}

/// Overwrites bytes of segments, and how long they are.
fn damage(bytes: &mut [u8], segments: &[usize], random: &mut Random, round: usize) {
    let strikes = [2, 20, 200, 4000][round % 4];
    for _ in 0..strikes {
        let segment = segments[random.below(segments.len())];
        let start = segment * PAGE_LEN;
        let at = start + random.below(PAGE_LEN);
        match random.below(6) {
            0 => bytes[at] ^= 1 << random.below(8),
            1 => bytes[at] = random.below(256) as u8,
            // A header: lengths and fields.
            2 => {
                let at = at & !7;
                bytes[at..at + 4].copy_from_slice(&(random.below(1 << 32) as u32).to_ne_bytes());
            }
            // The optional fields, a head's locations, tags.
            3 => bytes[at & !3..][..4].copy_from_slice(&[[0; 4], [255; 4]][random.below(2)]),
            4 if round % 8 == 3 => {
                // As many headers as there is room for, all of one kind.
                let header: [u8; 4] = (random.below(1 << 32) as u32).to_ne_bytes();
                for word in bytes[start..start + PAGE_LEN].chunks_exact_mut(8) {
                    word[..4].copy_from_slice(&header);
                }
            }
            _ => {
                let used = PAGE_TABLE + segment * ENTRY_LEN + 16;
                let len = random.below(PAGE_LEN + 1) as u32;
                if random.below(8) == 0 {
                    bytes[used..used + 4].copy_from_slice(&len.to_ne_bytes());
                }
            }
        }
    }
}

/// Does everything that a client can ask for with a key. Whether it had the value that it should have.
fn use_key(worker: &mut Worker, n: usize, now: UnixSeconds, what: usize) -> bool {
    let name = name(n);
    let how = how(n, worker.store());
    let mut burst = worker.burst(now);
    let hash = burst.key(name.as_bytes()).hash;
    let mut ahead = burst.prefetch(hash, Intent::Read);
    ahead = burst.look(hash, Intent::Read, ahead);
    ahead = burst.look_again(hash, Intent::Read, ahead);
    let key = burst.key(name.as_bytes());
    let mut is_right = false;
    if let Ok(item) = burst.get_ahead(
        &key,
        ahead,
        Access {
            bump: true,
            cas: true,
        },
    ) {
        assert_eq!(item.key(), name.as_bytes());
        let found = item.value().collect::<Vec<_>>().concat();
        assert_eq!(found.len(), item.value_len(), "a value of another length");
        is_right = found == value(n);
        let tags: Vec<u32> = item.tags().collect();
        assert!(tags.len() <= TAGS_MAX);
        let _ = (
            item.stored_len(),
            item.client_flags(),
            item.expiry(),
            item.cas(),
        );
        let pinned = burst.pin(&item);
        if let Some(pinned) = pinned {
            assert_eq!(
                pinned.chunks().map(<[u8]>::len).sum::<usize>(),
                pinned.value_len()
            );
        }
    }
    match what {
        0 => drop(burst.touch(
            &key,
            Expiry::at_millis(u64::from(NOW.0 + 50) * 1000),
            Access::default(),
        )),
        1 => drop(burst.delete(&key, &Delete::default())),
        2 => {
            let append = Put {
                mode: Mode::Append,
                ..how
            };
            let _ = burst.store(&key, &append, b"more");
        }
        3 => drop(burst.store(&key, &how, &value(n))),
        4 => {
            let stale = Delete {
                mark_stale: true,
                ..Delete::default()
            };
            let _ = burst.delete(&key, &stale);
        }
        _ => {}
    }
    burst.close();
    worker.end(now);
    is_right
}

/// A worker's load: reads and changes all keys in an order of its own, and stores new ones.
fn load(store: &Arc<Store>, id: usize, clock: &AtomicU32, mut random: Random) {
    let mut worker = store.worker(id);
    for step in 0..20_000 {
        let now = UnixSeconds(NOW.0 + clock.fetch_add(1, Ordering::Relaxed) / 500);
        let n = match random.below(4) {
            0 => random.below(LARGE),
            1 => random.below(ORDINARY),
            _ => random.below(ALL),
        };
        use_key(&mut worker, n, now, random.below(10));
        if step % 4 == 0 {
            // So that all segments are cleaned.
            let key = format!("new{}", random.below(1 << 20));
            let mut burst = worker.burst(now);
            let key = burst.key(key.as_bytes());
            let _ = burst.store(&key, &Put::set(0, Expiry::NEVER), &[7; 6000]);
            burst.close();
            worker.end(now);
        }
        if step % 5_000 == 0 {
            let mut burst = worker.burst(now);
            let one = burst.tag(b"one");
            burst.invalidate(one, Invalidation::Gone);
            burst.close();
            // As a dump does.
            let mut position = Some(ScanPosition::START);
            while let Some(at) = position {
                let burst = worker.burst(now);
                position = burst.scan(at, 64, &mut |item| {
                    assert_eq!(
                        item.value().map(<[u8]>::len).sum::<usize>(),
                        item.value_len()
                    );
                });
            }
        }
    }
    // Deletes nearly all, so that the index merges.
    for n in 0..ALL {
        use_key(&mut worker, n, UnixSeconds(NOW.0 + 200), 1);
    }
    for turn in 0..4_000 {
        worker.burst(UnixSeconds(NOW.0 + 300 + turn / 40)).close();
        worker.end(UnixSeconds(NOW.0 + 300 + turn / 40));
    }
}

/// Whatever the items say, nothing but them is lost.
#[test]
fn whatever_the_items_say_the_store_serves() {
    let file = TestFile::new("items");
    let valid = fill(&file);
    let segments = segments_of(&valid);
    assert!(segments.len() > 30, "{} segments", segments.len());
    let mut random = Random(88_172_645_463_325_252);
    let mut merges = 0;
    for round in 0..if cfg!(debug_assertions) { 8 } else { 40 } {
        let mut bytes = valid.clone();
        damage(&mut bytes, &segments, &mut random, round);
        // The file is the same, so that it is no copy.
        let same = File::options().write(true).open(&file.0).unwrap();
        same.set_len(bytes.len() as u64).unwrap();
        same.write_all_at(&bytes, 0).unwrap();
        let store = file.open();
        assert!(
            matches!(store.start(), Start::Warm(_)),
            "{:?}",
            store.start()
        );
        let mut worker = store.worker(0);
        let right = (0..ALL)
            .filter(|&n| use_key(&mut worker, n, NOW, 9))
            .count();
        drop(worker);
        // Each stroke loses an item or two, and at most what follows them in a segment.
        assert!(round % 4 > 1 || right > ALL * 9 / 10, "{round}: {right}");
        let clock = AtomicU32::new(0);
        std::thread::scope(|scope| {
            for id in 0..2 {
                let random = Random(random.below(1 << 30) as u64 + 1);
                let (store, clock) = (&store, &clock);
                scope.spawn(move || load(store, id, clock, random));
            }
        });
        merges += store.stats().totals.merges;
        // Headers that say what they cannot were met, with four thousand strokes.
        assert!(
            round % 4 != 3 || store.stats().totals.lost > 100,
            "{:?}",
            store.stats()
        );
        // It is of use again, and warm once more.
        drop(store);
        let store = file.open();
        assert!(
            matches!(store.start(), Start::Warm(_)),
            "{:?}",
            store.start()
        );
        let mut worker = store.worker(1);
        for n in 0..3_000 {
            let name = format!("again{n}");
            let mut tries = 0;
            while !matches!(
                put(
                    &mut worker,
                    name.as_bytes(),
                    &Put::set(0, Expiry::NEVER),
                    &[3; 4000]
                ),
                Stored::Stored { .. }
            ) {
                tries += 1;
                assert!(tries < 10_000, "{round}: {:?}", store.stats());
            }
        }
    }
    assert!(merges > 0, "nothing merged");
}
