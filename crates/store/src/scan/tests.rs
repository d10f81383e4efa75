use crate::*;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const NOW: UnixSeconds = UnixSeconds(1_000_000);

/// How long anything may take that a test waits for.
const PATIENCE: Duration = Duration::from_secs(600);

fn store(config: Config) -> Arc<Store> {
    Store::new(config, NOW).expect("a store")
}

fn set(worker: &mut Worker, now: UnixSeconds, key: &[u8], expiry: Expiry, value: &[u8]) {
    loop {
        let mut burst = worker.burst(now);
        let stored = burst.store(&burst.key(key), &Put::set(0, expiry), value);
        burst.close();
        match stored {
            Stored::Stored { .. } => return,
            // With evictions off the cleaner may be behind.
            Stored::Refused(Refused::Wait | Refused::OutOfMemory) => _ = worker.end(now),
            other => panic!("{other:?}"),
        }
    }
}

/// How often each key is shown by a scan in steps of `buckets`; `between` is called between them.
fn scan(
    worker: &mut Worker,
    now: UnixSeconds,
    buckets: u32,
    mut between: impl FnMut(&mut Worker),
) -> HashMap<Vec<u8>, usize> {
    let mut shown = HashMap::new();
    let mut position = Some(ScanPosition::START);
    while let Some(at) = position {
        let burst = worker.burst(now);
        position = burst.scan(at, buckets, &mut |item| {
            *shown.entry(item.key().to_vec()).or_default() += 1;
        });
        burst.close();
        between(worker);
    }
    shown
}

fn name(number: usize) -> [u8; 8] {
    number.to_le_bytes()
}

#[test]
fn every_item_of_a_store_at_rest_is_shown_once() {
    const ITEMS: usize = 100_000;
    let store = store(Config::default());
    let mut worker = store.worker(0);
    assert!(scan(&mut worker, NOW, 1000, |_| ()).is_empty());
    for number in 0..ITEMS {
        set(&mut worker, NOW, &name(number), Expiry::NEVER, b"value");
        if number % 100 == 0 {
            worker.end(NOW);
        }
    }
    worker.park();
    assert_eq!(store.stats().items, ITEMS as u64);
    for buckets in [0, 100, u32::MAX] {
        let shown = scan(&mut worker, NOW, buckets, |_| ());
        assert_eq!(shown.len(), ITEMS);
        assert!(shown.values().all(|&count| count == 1), "{buckets}");
    }
}

#[test]
fn a_step_is_as_large_as_was_asked_for() {
    let store = store(Config::default());
    let mut worker = store.worker(0);
    for number in 0..50_000 {
        set(&mut worker, NOW, &name(number), Expiry::NEVER, b"");
    }
    let slots = usize::try_from(store.stats().slots).expect("few");
    let mut position = Some(ScanPosition::START);
    let mut steps = 0;
    while let Some(at) = position {
        let mut shown = 0;
        let burst = worker.burst(NOW);
        position = burst.scan(at, 64, &mut |_| shown += 1);
        steps += 1;
        // How many of a part's keys stand in odd buckets, which are not counted off, is chance.
        assert!(shown <= 64 * 7 * 2, "{shown} items in 64 buckets");
    }
    assert_eq!(steps, slots / 7 / 64);
}

#[test]
fn what_stays_is_shown_once_however_the_index_grows_meanwhile() {
    const STAYING: usize = 3000;
    let store = store(Config {
        index_bits: Some(0),
        ..Config::default()
    });
    let mut worker = store.worker(0);
    for number in 0..STAYING {
        set(&mut worker, NOW, &name(number), Expiry::NEVER, b"stays");
    }
    assert_eq!(store.stats().tables, 1);
    let mut next = STAYING;
    let shown = scan(&mut worker, NOW, 32, |worker| {
        // Splits are at all their stages when the scan goes on.
        for _ in 0..700 {
            if next < 300_000 {
                set(worker, NOW, &name(next), Expiry::NEVER, b"comes");
                next += 1;
            }
        }
        if next.is_multiple_of(3) {
            worker.end(NOW);
        }
    });
    let tables = store.stats().tables;
    assert!(tables >= 32, "{tables} sub-tables");
    for number in 0..STAYING {
        assert_eq!(shown.get(&name(number)[..]), Some(&1), "{number}");
    }
    assert!(shown.values().all(|&count| count == 1));
}

#[test]
fn the_dead_are_not_shown() {
    let store = store(Config::default());
    let mut worker = store.worker(0);
    let later = UnixSeconds(NOW.0 + 10);
    set(&mut worker, NOW, b"flushed", Expiry::NEVER, b"1");
    let mut burst = worker.burst(NOW);
    burst.flush_all(None);
    burst.close();
    assert!(scan(&mut worker, NOW, 1 << 20, |_| ()).is_empty());
    set(&mut worker, NOW, b"expires", Expiry::at(later), b"2");
    set(&mut worker, NOW, b"stays", Expiry::NEVER, b"3");
    set(&mut worker, NOW, b"goes", Expiry::NEVER, b"4");
    let mut burst = worker.burst(NOW);
    let key = burst.key(b"goes");
    assert_eq!(burst.delete(&key, &Delete::default()), Deleted::Done);
    burst.close();
    let keys = |worker: &mut Worker, now| {
        let mut keys: Vec<_> = scan(worker, now, 1 << 20, |_| ()).into_keys().collect();
        keys.sort();
        keys
    };
    assert_eq!(
        keys(&mut worker, NOW),
        [b"expires".to_vec(), b"stays".to_vec()]
    );
    assert_eq!(keys(&mut worker, later), [b"stays".to_vec()]);
}

#[test]
fn an_item_is_shown_as_it_is_and_stays_so() {
    let store = store(Config::default());
    let mut worker = store.worker(0);
    let large: Vec<u8> = (0..100_000_u32).flat_map(u32::to_le_bytes).collect();
    let mut burst = worker.burst(NOW);
    let put = Put {
        client_flags: 77,
        expiry: Expiry::at(UnixSeconds(NOW.0 + 100)),
        cas: Some(12_345),
        key_is_binary: true,
        ..Put::set(0, Expiry::NEVER)
    };
    let stored = burst.store(&burst.key(b"large"), &put, &large);
    assert!(matches!(stored, Stored::Stored { .. }), "{stored:?}");
    burst.close();
    for _ in 0..2 {
        let mut shown = 0;
        let later = UnixSeconds(NOW.0 + 5);
        let burst = worker.burst(later);
        let end = burst.scan(ScanPosition::START, u32::MAX, &mut |item| {
            shown += 1;
            assert!(item.as_slice().is_none(), "it lies in pieces");
            assert_eq!(item.value().collect::<Vec<_>>().concat(), large);
            assert_eq!(
                (item.key(), item.client_flags(), item.expiry()),
                (&b"large"[..], 77, put.expiry)
            );
            assert_eq!((item.cas(), item.value_len()), (12_345, large.len()));
            assert!(item.stored_len() > large.len() && item.key_is_binary());
            // Looking is no access.
            assert_eq!((item.fetched(), item.idle_seconds(later)), (false, 5));
        });
        assert_eq!((end, shown), (None, 1));
    }
}

/// Another thread pushes items about as well as it can: it fills sub-tables until they split, and
/// deletes, so that they fill again; and it overwrites, so that segments are cleaned.
#[test]
fn what_nobody_touches_is_shown_while_others_write() {
    const STAYING: usize = 10_000;
    const COMING: usize = 120_000;
    let store = store(Config {
        memory: 64 << 20,
        workers: 2,
        evict: false,
        index_bits: Some(0),
        ..Config::default()
    });
    let mut worker = store.worker(0);
    for number in 0..STAYING {
        set(&mut worker, NOW, &name(number), Expiry::NEVER, b"stays");
        worker.end(NOW);
    }
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let mut other = store.worker(1);
        let stop = &stop;
        scope.spawn(move || {
            let mut bounds = (STAYING..STAYING + COMING).step_by(6000).cycle();
            while !stop.load(Ordering::Relaxed) {
                let Some(start) = bounds.next() else { return };
                for number in start..start + 6000 {
                    if stop.load(Ordering::Relaxed) {
                        return;
                    }
                    set(&mut other, NOW, &name(number), Expiry::NEVER, &[b'x'; 40]);
                    if number % 3 == 0 {
                        let mut burst = other.burst(NOW);
                        let key = name(number - 1);
                        let key = burst.key(&key);
                        burst.delete(&key, &Delete::default());
                    }
                    if number % 16 == 0 {
                        other.end(NOW);
                    }
                }
            }
        });
        let moved = || {
            let totals = store.stats().totals;
            (totals.displacements, totals.splits, totals.compacted)
        };
        let began = Instant::now();
        let mut rounds = 0;
        loop {
            rounds += 1;
            let shown = scan(&mut worker, NOW, 64, |worker| _ = worker.end(NOW));
            let missing = (0..STAYING).find(|&number| !shown.contains_key(&name(number)[..]));
            // So long that there was something to be passed over.
            let (displaced, split, _) = moved();
            let is_enough = rounds >= 6 && displaced >= 1000 && split >= 5;
            if missing.is_some() || is_enough || began.elapsed() > PATIENCE {
                stop.store(true, Ordering::Relaxed);
                assert_eq!(missing, None, "in round {rounds}");
                assert!(is_enough, "{rounds} rounds, moved {:?}", moved());
                return;
            }
        }
    });
}
