//! `-M`: what is deleted can be used again, however thinly it is spread, and a store that is really full says so.
#![allow(clippy::cast_possible_truncation, reason = "patterns")]

mod support;

use coua_store::*;
use std::sync::Arc;
use support::{NOW, put, value_of};

fn set() -> Put {
    Put::set(0, Expiry::NEVER)
}

fn store(memory: usize) -> Arc<Store> {
    let config = Config {
        memory,
        item_size_max: 2 << 20,
        evict: false,
        seed: Some(7),
        ..Config::default()
    };
    Store::new(config, NOW).unwrap()
}

/// Asks until there is another answer than to wait.
fn ask(worker: &mut Worker, key: &[u8], value: &[u8]) -> Stored {
    for _ in 0..5000 {
        let stored = put(worker, key, &set(), value);
        if stored != Stored::Refused(Refused::Wait) {
            return stored;
        }
    }
    panic!("waits for ever: {:?}", worker.store().stats());
}

/// Stores values of `len` bytes until there is no memory. Returns how many.
fn fill(worker: &mut Worker, len: usize) -> u64 {
    for number in 0_u64.. {
        match ask(worker, &number.to_be_bytes(), &vec![number as u8; len]) {
            Stored::Stored { .. } => {}
            Stored::Refused(Refused::OutOfMemory) => return number,
            other => panic!("{other:?}"),
        }
    }
    unreachable!()
}

fn delete(burst: &mut Burst<'_>, number: u64) {
    let name = number.to_be_bytes();
    let key = burst.key(&name);
    assert_eq!(burst.delete(&key, &Delete::default()), Deleted::Done);
}

/// Whether each of the items before `count` is there, with its own value.
fn check(worker: &mut Worker, count: u64, len: usize, is_there: impl Fn(u64) -> bool) {
    for number in 0..count {
        let burst = worker.burst(NOW);
        let item = burst.get(&burst.key(&number.to_be_bytes()), Access::default());
        let value = item.ok().map(|item| value_of(&item));
        let expected = is_there(number).then(|| vec![number as u8; len]);
        assert!(value == expected, "{number} is wrong");
    }
}

#[test]
#[cfg_attr(miri, ignore = "memory full of items")]
fn what_is_deleted_evenly_can_be_used_again() {
    for (every, sets) in [(20, 1000), (10, 2000), (5, 4000)] {
        let store = store(64 << 20);
        let mut worker = store.worker(0);
        let count = fill(&mut worker, 1000);
        assert!(count > 50_000, "{count}");
        for number in (0..count).step_by(every) {
            delete(&mut worker.burst(NOW), number);
            worker.end(NOW);
        }
        for more in 0..sets {
            let key = (count + more).to_be_bytes();
            let stored = ask(&mut worker, &key, &[0; 1000]);
            assert!(
                matches!(stored, Stored::Stored { .. }),
                "{every}: {more} {stored:?}"
            );
        }
        check(&mut worker, count, 1000, |number| {
            number % every as u64 != 0
        });
        assert_eq!(store.stats().totals.evicted, 0);
    }
}

/// One worker deletes, and sleeps from then on; another stores.
#[test]
#[cfg_attr(miri, ignore = "memory full of items")]
fn what_one_worker_has_deleted_another_can_use() {
    let config = Config {
        memory: 16 << 20,
        workers: 2,
        evict: false,
        seed: Some(7),
        ..Config::default()
    };
    let store = Store::new(config, NOW).unwrap();
    let (mut storing, mut deleting) = (store.worker(0), store.worker(1));
    let count = fill(&mut storing, 1000);
    for number in (0..count).step_by(10) {
        delete(&mut deleting.burst(NOW), number);
    }
    deleting.park();
    for more in 0..count / 20 {
        let stored = ask(&mut storing, &(count + more).to_be_bytes(), &[0; 1000]);
        assert!(
            matches!(stored, Stored::Stored { .. }),
            "{more}: {stored:?}"
        );
    }
    check(&mut storing, count, 1000, |number| number % 10 != 0);
}

/// Memory is filled, emptied and filled again with items of another size.
#[test]
#[cfg_attr(miri, ignore = "memory full of items")]
fn all_that_is_deleted_can_be_used_again() {
    let store = store(8 << 20);
    let mut worker = store.worker(0);
    for len in [100, 3000, 700, 20_000] {
        let count = fill(&mut worker, len);
        let stored = count * len as u64;
        assert!(stored > 4 << 20, "only {stored} bytes of {len} each");
        check(&mut worker, count, len, |_| true);
        // Every other one, so that no segment is empty; then the rest.
        for number in (0..count).step_by(2).chain((1..count).step_by(2)) {
            delete(&mut worker.burst(NOW), number);
            worker.end(NOW);
        }
        assert_eq!(store.stats().items, 0);
    }
}

/// Deleted and stored in one burst: the store cannot know yet what it can make of that, so it asks for patience.
#[test]
#[cfg_attr(miri, ignore = "memory full of items")]
fn what_is_deleted_in_the_same_burst_is_waited_for() {
    let store = store(16 << 20);
    let mut worker = store.worker(0);
    let count = fill(&mut worker, 1000);
    let mut burst = worker.burst(NOW);
    for number in (0..count).step_by(4) {
        delete(&mut burst, number);
    }
    let name = count.to_be_bytes();
    let key = burst.key(&name);
    assert_eq!(
        burst.store(&key, &set(), &[0; 1000]),
        Stored::Refused(Refused::Wait)
    );
    burst.close();
    for more in 0..count / 8 {
        let stored = ask(&mut worker, &(count + more).to_be_bytes(), &[0; 1000]);
        assert!(
            matches!(stored, Stored::Stored { .. }),
            "{more}: {stored:?}"
        );
    }
}

/// A value of many segments waits for all of them, if that many can be made.
#[test]
#[cfg_attr(miri, ignore = "memory full of items")]
fn a_value_of_many_segments_waits_for_them() {
    let store = store(64 << 20);
    let mut worker = store.worker(0);
    let count = fill(&mut worker, 1000);
    let value = vec![9; 2_000_000];
    let refused = Stored::Refused(Refused::OutOfMemory);
    assert_eq!(ask(&mut worker, b"large", &value), refused);
    // A tenth of 1.5 MB, and then four times as much as it takes.
    for number in 0..150 {
        delete(&mut worker.burst(NOW), number * 10);
    }
    assert_eq!(ask(&mut worker, b"large", &value), refused);
    for number in 150..count.div_ceil(10) {
        delete(&mut worker.burst(NOW), number * 10);
    }
    let stored = ask(&mut worker, b"large", &value);
    assert!(matches!(stored, Stored::Stored { .. }), "{stored:?}");
    check(&mut worker, count, 1000, |number| number % 10 != 0);
}

/// Turns that find nothing to do look at no segments, so a full store is as fast as another.
#[test]
#[cfg_attr(miri, ignore = "memory full of items")]
fn a_full_store_says_so_at_once() {
    let store = store(64 << 20);
    let mut worker = store.worker(0);
    fill(&mut worker, 1000);
    for _ in 0..100 {
        let stored = put(&mut worker, b"one more", &set(), &[0; 1000]);
        assert_eq!(stored, Stored::Refused(Refused::OutOfMemory));
        assert!(!worker.end(NOW), "there is nothing to do");
    }
}
