//! Values that are sent over several turns, while their segments are emptied.

mod support;

use coua_store::*;
use support::{NOW, put};

/// A look that does not make an item worth keeping.
const LOOK: Access = Access {
    bump: false,
    cas: false,
};

/// A segment that was emptied while somebody read from it is free as soon as that reader lets go: no worker goes
/// through such segments to see.
#[test]
#[cfg_attr(miri, ignore = "memory full of items")]
fn who_lets_go_last_frees_the_segment() {
    let config = Config {
        memory: 8 << 20,
        seed: Some(7),
        ..Config::default()
    };
    let store = Store::new(config, NOW).unwrap();
    let mut worker = store.worker(0);
    let mut number = 0_u64;
    let mut store_some = |worker: &mut Worker, count: u64| {
        for _ in 0..count {
            let set = Put::set(0, Expiry::NEVER);
            let _ = put(worker, &number.to_be_bytes(), &set, &[1; 1000]);
            number += 1;
        }
    };
    while store.stats().totals.evicted == 0 {
        store_some(&mut worker, 1);
    }
    let (mut oldest, mut emptied) = (0_u64, 0);
    for attempt in 0..1000 {
        if emptied == 5 {
            return;
        }
        // The oldest item that is there likely lies in the segment that is being emptied.
        let burst = worker.burst(NOW);
        let pinned = loop {
            let item = burst.get(&burst.key(&oldest.to_be_bytes()), LOOK);
            match item {
                Ok(item) => break burst.pin(&item).unwrap(),
                Err(_) => oldest += 1,
            }
        };
        burst.close();
        store_some(&mut worker, 256);
        let burst = worker.burst(NOW);
        let key = oldest.to_be_bytes();
        let is_gone = burst.get(&burst.key(&key), LOOK).is_err();
        burst.close();
        // Its grace period ends.
        worker.end(NOW);
        let before = store.stats();
        drop(pinned);
        let after = store.stats();
        assert_eq!(after.memory_held, 0);
        let freed = after.memory_free - before.memory_free;
        if is_gone {
            assert_eq!(freed, after.segment_len);
            emptied += 1;
        } else {
            assert_eq!(freed, 0, "the item is there");
            // Perhaps its segment is begun with next time.
            store_some(&mut worker, 1 + attempt % 61);
        }
    }
    panic!("only {emptied} segments were emptied while they were pinned");
}

/// A value that alone takes more than all pins may is read by two workers at once, again and again: a
/// reader who begins while the other one's pin is half made is not refused.
#[test]
#[cfg_attr(miri, ignore = "a long value")]
fn readers_of_an_oversized_value_join_each_other() {
    let config = Config {
        memory: 64 << 20,
        workers: 2,
        item_size_max: 32 << 20,
        seed: Some(7),
        ..Config::default()
    };
    let store = Store::new(config, NOW).unwrap();
    let mut first = store.worker(0);
    let set = Put::set(0, Expiry::NEVER);
    let stored = put(&mut first, b"giant", &set, &vec![1; 24 << 20]);
    assert!(matches!(stored, Stored::Stored { .. }), "{stored:?}");
    let together = std::sync::Barrier::new(2);
    let refused = std::sync::atomic::AtomicU32::new(0);
    std::thread::scope(|scope| {
        for mut worker in [first, store.worker(1)] {
            let (together, refused) = (&together, &refused);
            scope.spawn(move || {
                for _ in 0..300 {
                    together.wait();
                    let burst = worker.burst(NOW);
                    let item = burst.get(&burst.key(b"giant"), LOOK).expect("it stays");
                    let pinned = burst.pin(&item);
                    let is_refused = u32::from(pinned.is_none());
                    refused.fetch_add(is_refused, std::sync::atomic::Ordering::Relaxed);
                    burst.close();
                    worker.end(NOW);
                }
            });
        }
    });
    assert_eq!(refused.into_inner(), 0, "of 600 readers");
}
