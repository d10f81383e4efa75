//! What must hold where operations meet at awkward moments.
#![allow(
    clippy::cast_possible_truncation,
    reason = "patterns and small numbers"
)]

mod support;

use coua_store::*;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use support::{NOW, cas_of, put, value_of};

/// How long a race is tried for.
const RACE: Duration = Duration::from_millis(if cfg!(miri) { 20 } else { 500 });

fn store(workers: usize, evict: bool) -> Arc<Store> {
    let config = Config {
        memory: 8 << 20,
        item_size_max: 2 << 20,
        workers,
        evict,
        seed: Some(7),
        ..Config::default()
    };
    Store::new(config, NOW).unwrap()
}

fn try_set(worker: &mut Worker, key: &[u8], value: &[u8]) -> Stored {
    put(worker, key, &Put::set(0, Expiry::NEVER), value)
}

fn set(worker: &mut Worker, key: &[u8], value: &[u8]) {
    for _ in 0..100_000 {
        match try_set(worker, key, value) {
            Stored::Stored { .. } => return,
            Stored::Refused(Refused::Wait | Refused::OutOfMemory) => thread::yield_now(),
            other => panic!("{other:?}"),
        }
    }
    panic!("no memory for a long time");
}

fn get(worker: &mut Worker, key: &[u8]) -> Option<Vec<u8>> {
    let burst = worker.burst(NOW);
    let key = burst.key(key);
    let item = burst.get(&key, Access::default()).ok()?;
    Some(value_of(&item))
}

fn delete(worker: &mut Worker, key: &[u8]) {
    let mut burst = worker.burst(NOW);
    let key = burst.key(key);
    assert_eq!(burst.delete(&key, &Delete::default()), Deleted::Done);
}

#[test]
fn a_cas_that_a_client_has_seen_never_comes_again() {
    // The first worker's segment is older, so it has to write CASs above the second's out.
    for writes in 1..if cfg!(miri) { 3 } else { 12 } {
        let store = store(2, true);
        let (mut older, mut younger) = (store.worker(0), store.worker(1));
        set(&mut older, b"other", b"");
        set(&mut younger, b"k", b"v");
        let mut seen = vec![cas_of(&mut younger, b"k")];
        for _ in 0..writes {
            set(&mut older, b"k", b"v");
            let cas = cas_of(&mut older, b"k");
            assert!(cas > *seen.last().unwrap(), "a CAS fell");
            seen.push(cas);
        }
        delete(&mut older, b"k");
        for worker in [&mut younger, &mut older] {
            for _ in 0..writes {
                set(worker, b"k", b"v");
                let cas = cas_of(worker, b"k");
                assert!(!seen.contains(&cas), "CAS {cas} after {writes} writes");
                seen.push(cas);
            }
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "memory full of items")]
fn an_upload_that_waits_takes_its_share_once() {
    let store = store(1, true);
    let mut worker = store.worker(0);
    // Nothing can be cleaned while pages are lent and nothing was ever stored.
    let mut i = 0u32;
    while store.stats().totals.waits == 0 {
        let mut burst = worker.burst(NOW);
        let name = i.to_le_bytes();
        let key = burst.key(&name);
        let _ = burst.store(&key, &Put::set(0, Expiry::NEVER), &[0; 8000]);
        i += 1;
    }
    let before = store.stats().memory_uploads;
    let mut burst = worker.burst(NOW);
    let key = burst.key(b"large");
    let mut upload = burst
        .begin_upload(&key, &Put::set(0, Expiry::NEVER), 500_000)
        .unwrap();
    let mut waits = 0;
    for _ in 0..1000 {
        match burst.upload_space(&mut upload) {
            Ok(space) => {
                let n = space.len();
                upload.advance(n);
            }
            Err(refused) => {
                assert_eq!(refused, Refused::Wait);
                waits += 1;
            }
        }
    }
    assert!(waits > 900);
    let taken = store.stats().memory_uploads - before;
    assert!(taken < 100_000, "{taken} bytes");
    drop(upload);
    burst.close();
    assert_eq!(store.stats().memory_uploads, before);
}

#[test]
#[cfg_attr(miri, ignore = "thousands of items")]
fn slow_uploads_cannot_hold_all_segments() {
    let store = store(1, true);
    let mut worker = store.worker(0);
    let mut uploads = Vec::new();
    let mut refused = 0;
    // Each begins in another segment and never ends.
    for i in 0..400u32 {
        let mut burst = worker.burst(NOW);
        let key = burst.key(b"slow");
        match burst.begin_upload(&key, &Put::set(0, Expiry::NEVER), 100) {
            Ok(upload) => uploads.push(upload),
            Err(_) => refused += 1,
        }
        burst.close();
        for j in 0..8u32 {
            set(
                &mut worker,
                &[i.to_le_bytes(), j.to_le_bytes()].concat(),
                &[1; 8000],
            );
        }
    }
    assert!(refused > 0);
    let stats = store.stats();
    assert!(stats.memory_held <= stats.memory / 4, "{stats:?}");
}

#[test]
fn one_value_at_a_time_may_hold_more_than_pins_may() {
    let store = store(1, true);
    let mut worker = store.worker(0);
    set(&mut worker, b"large", &[7; 2_000_000]);
    set(&mut worker, b"other", &[8; 2_000_000]);
    set(&mut worker, b"small", &[7; 2_000]);
    let burst = worker.burst(NOW);
    let pin = |key: &[u8]| {
        let item = burst.get(&burst.key(key), Access::default()).unwrap();
        let pinned = burst.can_pin(&item).then(|| burst.pin(&item).unwrap());
        assert!(pinned.is_some() || burst.pin(&item).is_none());
        pinned
    };
    let first = pin(b"large");
    assert!(first.is_some());
    assert!(pin(b"other").is_none());
    assert!(pin(b"small").is_some());
    let second = pin(b"large");
    assert!(second.is_some());
    drop(first);
    assert!(pin(b"other").is_none());
    drop(second);
    assert!(pin(b"other").is_some());
}

#[test]
fn keys_and_lengths_beyond_all_bounds_are_refused() {
    let store = store(1, true);
    let mut worker = store.worker(0);
    let long = [b'k'; 300];
    assert_eq!(
        try_set(&mut worker, &long, b"v"),
        Stored::Refused(Refused::TooLarge)
    );
    let mut burst = worker.burst(NOW);
    let key = burst.key(b"k");
    let put = Put::set(0, Expiry::NEVER);
    for len in [usize::MAX, usize::MAX - 1, 1 << 32, (2 << 20) + 1] {
        assert!(matches!(
            burst.begin_upload(&key, &put, len),
            Err(Refused::TooLarge)
        ));
    }
}

#[test]
fn an_index_may_begin_small_in_any_memory() {
    let config = Config {
        memory: 8 << 30,
        index_bits: Some(0),
        seed: Some(7),
        ..Config::default()
    };
    // Address space only: no page of it is touched but the first.
    if cfg!(not(miri)) {
        let store = Store::new(config, NOW).unwrap();
        assert_eq!(store.stats().tables, 1);
    }
}

/// Runs `other` on a thread with its own worker, over and over, until the race is over.
fn against(store: &Arc<Store>, mut other: impl FnMut(&mut Worker) + Send, race: impl FnOnce()) {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let mut worker = store.worker(1);
        let stop = &stop;
        let joined = scope.spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                other(&mut worker);
            }
        });
        let raced = catch_unwind(AssertUnwindSafe(race));
        stop.store(true, Ordering::Relaxed);
        joined.join().unwrap();
        if let Err(panic) = raced {
            resume_unwind(panic);
        }
    });
}

#[test]
fn a_flush_is_not_undone_by_what_is_under_way() {
    let store = store(2, true);
    let mut worker = store.worker(0);
    let count = Arithmetic {
        delta: 1,
        decrement: false,
        compare: 0,
        cas: None,
        return_cas: false,
        vivify: None,
        tags: NO_TAGS,
        touch: None,
    };
    against(
        &store,
        |other| {
            let mut burst = other.burst(NOW);
            let key = burst.key(b"n");
            for _ in 0..64 {
                burst.arithmetic(&key, &count);
            }
            burst.close();
            other.end(NOW);
        },
        || {
            let end = Instant::now() + RACE;
            while Instant::now() < end {
                set(&mut worker, b"n", b"100");
                thread::yield_now();
                worker.burst(NOW).flush_all(None);
                for _ in 0..10 {
                    assert_eq!(get(&mut worker, b"n"), None);
                    thread::yield_now();
                    worker.end(NOW);
                }
            }
        },
    );
}

#[test]
fn large_items_are_whole_whatever_is_cleaned_while_they_are_written() {
    let store = store(2, true);
    let mut worker = store.worker(0);
    let value = |round: u32| vec![round as u8; 200_000 + (round % 64) as usize * 1000];
    against(
        &store,
        |other| {
            other.burst(NOW).flush_all(None);
            for i in 0..40u32 {
                try_set(other, &i.to_le_bytes(), &[0xee; 3000]);
            }
        },
        || {
            let end = Instant::now() + RACE;
            let (mut round, mut stored) = (0, 0);
            while Instant::now() < end {
                round += 1;
                // One that is refused for lack of memory leaves the one before.
                if let Stored::Stored { .. } = try_set(&mut worker, b"large", &value(round)) {
                    stored = round;
                }
                for _ in 0..3 {
                    if let Some(found) = get(&mut worker, b"large") {
                        assert!(found == value(stored), "a value that was never stored");
                    }
                    worker.end(NOW);
                }
            }
        },
    );
}

/// Asks for "k" some times, and counts the tokens won and the items made.
fn ask(worker: &mut Worker, get: &MetaGet) -> (u32, u32) {
    let (mut wins, mut made) = (0, 0);
    for _ in 0..4 {
        loop {
            let mut burst = worker.burst(NOW);
            let key = burst.key(b"k");
            let answer = burst.meta_get(&key, get);
            let waits = matches!(answer, Err(MetaMiss::Refused(_) | MetaMiss::Untouched(_)));
            if let Ok(hit) = answer {
                wins += u32::from(hit.won);
                made += u32::from(hit.created);
            }
            burst.close();
            worker.end(NOW);
            if !waits {
                break;
            }
            thread::yield_now();
        }
    }
    (wins, made)
}

#[test]
fn a_win_token_goes_to_one_request() {
    let store = store(2, true);
    let access = Access {
        bump: true,
        cas: true,
    };
    let stale = MetaGet {
        access,
        vivify: None,
        vivify_cas: None,
        tags: NO_TAGS,
        recache: None,
        // The first to ask has the item written anew, with room for it.
        touch: Some(Expiry::at(UnixSeconds(NOW.0 + 9))),
        touch_first: false,
    };
    let vivify = MetaGet {
        vivify: Some(Expiry::NEVER),
        touch: None,
        ..stale
    };
    let get_of = |round: u32| {
        if round.is_multiple_of(2) {
            &stale
        } else {
            &vivify
        }
    };
    // Odd rounds vivify. The second worker answers a round with the wins in it, shifted, and one.
    let (asked, answered) = (AtomicU32::new(0), AtomicU32::new(0));
    let second = |worker: &mut Worker| {
        let round = asked.load(Ordering::Acquire);
        if round == 0 {
            std::hint::spin_loop();
            return;
        }
        let (wins, made) = ask(worker, get_of(round));
        asked.store(0, Ordering::Relaxed);
        answered.store(1 + wins * 2 + made * 32, Ordering::Release);
    };
    against(&store, second, || {
        let mut first = store.worker(0);
        let end = Instant::now() + RACE;
        for round in 1u32.. {
            if Instant::now() >= end {
                break;
            }
            // Keeps the cleaner moving what lives.
            for other in 0..8 {
                let key = format!("other {}", (round * 8 + other) % 5000);
                set(&mut first, key.as_bytes(), &[1; 900]);
            }
            let is_stale = round.is_multiple_of(2);
            let mut delete = Delete::default();
            if is_stale {
                set(&mut first, b"k", b"value");
                delete.mark_stale = true;
            }
            let mut burst = first.burst(NOW);
            let key = burst.key(b"k");
            let deleted = burst.delete(&key, &delete);
            burst.close();
            first.end(NOW);
            if is_stale && deleted != Deleted::Done {
                // It was evicted meanwhile, and has no token to give.
                continue;
            }
            asked.store(round, Ordering::Release);
            let here = ask(&mut first, get_of(round));
            let there = loop {
                match answered.swap(0, Ordering::Acquire) {
                    0 => std::hint::spin_loop(),
                    answer => break (answer / 2 % 16, answer / 32),
                }
            };
            let (wins, made) = (here.0 + there.0, here.1 + there.1);
            assert_eq!((wins, made), (1, u32::from(!is_stale)), "in round {round}");
        }
    });
}

#[test]
#[cfg_attr(miri, ignore = "thousands of items")]
fn a_crawl_that_its_worker_leaves_is_finished_by_another() {
    let store = store(2, true);
    let (mut first, mut second) = (store.worker(0), store.worker(1));
    let expiry = Expiry::at(UnixSeconds(NOW.0 + 1));
    for number in 0..2000 {
        let mut burst = first.burst(NOW);
        let key = format!("key {number}");
        let key = burst.key(key.as_bytes());
        let stored = burst.store(&key, &Put::set(0, expiry), b"value");
        assert!(matches!(stored, Stored::Stored { .. }));
        burst.close();
        first.end(NOW);
    }
    // Fills its segment up, so that it is sealed, with what does not expire.
    for number in 0..5000 {
        set(&mut first, format!("other {number}").as_bytes(), &[0; 900]);
    }
    let items = || store.stats().items;
    let later = UnixSeconds(NOW.0 + 10);
    let before = items();
    // Until the first slice of the expired ones, which does not get far; then the worker goes.
    for _ in 0..100_000 {
        if items() < before {
            break;
        }
        first.end(later);
    }
    assert!(
        (before - 2000 + 1..before).contains(&items()),
        "one slice crawls some"
    );
    drop(first);
    for seconds in 1..200 {
        while second.end(UnixSeconds(later.0 + seconds)) {}
    }
    assert_eq!(items(), before - 2000);
    assert!(get(&mut second, b"key 1999").is_none() && get(&mut second, b"other 4999").is_some());
}

/// A burst that splits more sub-tables than a worker has under way at a time completes the rest
/// where it goes.
#[test]
#[cfg_attr(miri, ignore = "half a million items")]
fn a_burst_may_split_any_number_of_sub_tables() {
    let config = Config {
        memory: 64 << 20,
        index_bits: Some(0),
        seed: Some(7),
        ..Config::default()
    };
    let store = Store::new(config, NOW).unwrap();
    let mut worker = store.worker(0);
    let keys = 600_000u32;
    let mut burst = worker.burst(NOW);
    for number in 0..keys {
        let name = number.to_be_bytes();
        let key = burst.key(&name);
        let stored = burst.store(&key, &Put::set(0, Expiry::NEVER), b"v");
        assert!(
            matches!(stored, Stored::Stored { .. }),
            "{number} {stored:?}"
        );
    }
    let splits = store.stats().totals.splits;
    assert!(splits > 64, "{splits}");
    for number in 0..keys {
        let name = number.to_be_bytes();
        let key = burst.key(&name);
        assert!(burst.get(&key, Access::default()).is_ok(), "{number}");
    }
    assert_eq!(store.stats().items, u64::from(keys));
}
