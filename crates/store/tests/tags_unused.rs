//! The table of tags is given back when no item has tags any more, and nothing rises or dies of that.

#![cfg(not(miri))]

use coua_store::*;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

mod support;
use support::{NOW, put, value_of};

fn store(memory: usize) -> Arc<Store> {
    let config = Config {
        memory,
        workers: 2,
        seed: Some(5),
        ..Config::default()
    };
    Store::new(config, NOW).unwrap()
}

fn set(worker: &mut Worker, key: &[u8], tag: Option<&[u8]>, value: &[u8]) {
    let mut tags = NO_TAGS;
    tags[0] = tag.map(|name| worker.store().tag(name));
    let with = Put {
        tags,
        ..Put::set(0, Expiry::NEVER)
    };
    let mut stored = put(worker, key, &with, value);
    // Segments are freed when the other worker's turn ends.
    while stored == Stored::Refused(Refused::Wait) {
        thread::yield_now();
        stored = put(worker, key, &with, value);
    }
    assert!(matches!(stored, Stored::Stored { .. }), "{stored:?}");
}

fn get(worker: &mut Worker, key: &[u8]) -> Option<Vec<u8>> {
    let burst = worker.burst(NOW);
    let item = burst.get(&burst.key(key), Access::default()).ok()?;
    Some(value_of(&item))
}

fn delete(worker: &mut Worker, key: &[u8]) {
    let mut burst = worker.burst(NOW);
    let key = burst.key(key);
    burst.delete(&key, &Delete::default());
    burst.close();
    worker.end(NOW);
}

fn invalidate(worker: &mut Worker, name: &[u8]) {
    let tag = worker.store().tag(name);
    worker.burst(NOW).invalidate(tag, Invalidation::Gone);
}

fn name(prefix: &str, number: usize) -> Vec<u8> {
    format!("{prefix}-{number}").into_bytes()
}

struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 33) % n
    }
}

/// Items without tags that are stored again and again, so that no segment stays open.
fn fill(worker: &mut Worker, round: usize) {
    for number in 0..8 {
        set(
            worker,
            &name("filler", number),
            None,
            &[u8::try_from(round % 250).unwrap(); 10_000],
        );
    }
}

/// A second passes for a worker, and all that is due in it happens.
fn second(worker: &mut Worker, now: &mut UnixSeconds) {
    now.0 += 1;
    while worker.end(*now) {}
}

/// The items with tags, what each holds, and its tag. Of the first `kept` items no tag is in use.
struct Model {
    random: Random,
    values: HashMap<usize, usize>,
    plain: HashMap<usize, usize>,
    version: usize,
}

impl Model {
    fn store(&mut self, worker: &mut Worker, id: usize) {
        self.version += 1;
        let version = self.version.to_le_bytes();
        set(worker, &name("key", id), Some(&name("tag", id)), &version);
        self.plain.remove(&id);
        self.values.insert(id, self.version);
    }

    /// Ends the life of an item with a tag, in one way or another.
    fn end(&mut self, worker: &mut Worker, id: usize) {
        self.values.remove(&id);
        match self.random.below(3) {
            0 => delete(worker, &name("key", id)),
            1 => invalidate(worker, &name("tag", id)),
            _ => {
                self.version += 1;
                set(worker, &name("key", id), None, &self.version.to_le_bytes());
                self.plain.insert(id, self.version);
            }
        }
    }

    /// Whatever is there is the last that was stored. Returns how many items died with another one's tag.
    fn check(&mut self, worker: &mut Worker, ids: usize) -> usize {
        let mut died = 0;
        for id in 0..ids {
            let found = get(worker, &name("key", id));
            let found = found.map(|value| usize::from_le_bytes(value.try_into().unwrap()));
            let tagged = self.values.get(&id).copied();
            if tagged.is_some() && found.is_none() {
                self.values.remove(&id);
                died += 1;
                continue;
            }
            assert_eq!(found, tagged.or(self.plain.get(&id).copied()), "{id}");
        }
        died
    }
}

/// Many tags come and go, again and again: the table grows with them, goes with the last one, and begins anew.
#[test]
fn the_table_goes_with_the_last_tag() {
    const IDS: usize = 9_000;
    let store = store(64 << 20);
    let mut worker = store.worker(0);
    let mut now = NOW;
    let mut model = Model {
        random: Random(3),
        values: HashMap::new(),
        plain: HashMap::new(),
        version: 0,
    };
    for round in 0..5 {
        for id in 0..IDS {
            model.store(&mut worker, id);
        }
        let grown = store.stats().memory_tags;
        assert!(grown >= 2 * store.stats().segment_len, "{grown}");
        let died = model.check(&mut worker, IDS);
        assert_eq!(died, 0, "nothing was invalidated");
        for id in 0..IDS {
            if model.random.below(4) > 0 {
                model.end(&mut worker, id);
            }
        }
        // Some live: the table stays.
        let died = model.check(&mut worker, IDS);
        assert!(died < IDS / 4, "{died} died with others");
        for _ in 0..50 {
            fill(&mut worker, round);
            second(&mut worker, &mut now);
        }
        assert_eq!(store.stats().memory_tags, grown);
        assert_eq!(model.check(&mut worker, IDS), 0);
        for id in 0..IDS {
            if model.values.contains_key(&id) {
                model.end(&mut worker, id);
            }
        }
        let mut seconds = 0;
        while store.stats().memory_tags > 0 {
            seconds += 1;
            assert!(seconds < 5_000, "{} are left", store.stats().memory_tags);
            // What is left of a segment is rewritten, so that it is freed.
            for id in model.plain.keys() {
                if id % 64 == seconds % 64 {
                    set(
                        &mut worker,
                        &name("key", *id),
                        None,
                        &model.plain[id].to_le_bytes(),
                    );
                }
            }
            fill(&mut worker, round);
            second(&mut worker, &mut now);
        }
        model.check(&mut worker, IDS);
        // Its pages are others' now, and a new table knows none of the old items.
        for id in (0..IDS).step_by(50) {
            invalidate(&mut worker, &name("tag", id));
            set(&mut worker, b"another", Some(&name("tag", id)), b"x");
        }
        assert_eq!(get(&mut worker, b"another").as_deref(), Some(&b"x"[..]));
        model.check(&mut worker, IDS);
        assert_eq!(store.stats().memory_tags, store.stats().segment_len);
        delete(&mut worker, b"another");
    }
    worker.park();
}

/// Items with tags are stored at any moment of the way out, moved and deleted: none dies before it is
/// deleted, and none is seen after.
#[test]
fn a_store_meets_the_table_on_its_way_out() {
    /// So often the table has to go.
    const TIMES: usize = 150;
    let store = store(16 << 20);
    let (mut one, mut two) = (store.worker(0), store.worker(1));
    let ends = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut now = NOW;
            while !ends.load(Ordering::Relaxed) {
                second(&mut two, &mut now);
                thread::yield_now();
            }
            two.park();
        });
        scope.spawn(|| {
            let _ends = Ends(&ends);
            let (mut random, mut gone, mut round) = (Random(9), 0, 0usize);
            while gone < TIMES {
                round += 1;
                assert!(round < 2_000_000, "the table went {gone} times");
                let key = name("key", round % 5);
                let tag = name("tag", round % 3);
                set(&mut one, &key, Some(&tag), &round.to_le_bytes());
                // It may be moved, and the table may be looked at.
                for _ in 0..random.below(4) {
                    fill(&mut one, round);
                    let found = get(&mut one, &key);
                    assert_eq!(found.as_deref(), Some(&round.to_le_bytes()[..]));
                }
                if random.below(2) == 0 {
                    delete(&mut one, &key);
                } else {
                    invalidate(&mut one, &tag);
                }
                // At any moment of the way out, or after it.
                let wait = random.below(60);
                for _ in 0..wait {
                    assert_eq!(get(&mut one, &key), None);
                    fill(&mut one, round);
                    if store.stats().memory_tags == 0 {
                        gone += 1;
                        break;
                    }
                }
            }
            one.park();
        });
    });
}

/// Ends the other thread's loop, also when this one panics.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
