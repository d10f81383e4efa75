//! What each operation promises, one thread.
#![allow(
    clippy::cast_possible_truncation,
    reason = "patterns and small numbers"
)]

mod support;

use coua_store::*;
use std::sync::Arc;
use support::{NOW, cas_of, put, value_of};

fn store(memory: usize) -> Arc<Store> {
    let config = Config {
        memory,
        seed: Some(7),
        ..Config::default()
    };
    Store::new(config, NOW).unwrap()
}

fn get(worker: &mut Worker, key: &[u8], now: UnixSeconds) -> Result<Vec<u8>, Miss> {
    let burst = worker.burst(now);
    let key = burst.key(key);
    burst
        .get(&key, Access::default())
        .map(|item| value_of(&item))
}

fn set(worker: &mut Worker, key: &[u8], value: &[u8]) {
    let stored = put(worker, key, &Put::set(0, Expiry::NEVER), value);
    assert!(matches!(stored, Stored::Stored { .. }), "{stored:?}");
}

#[test]
fn a_value_is_found_until_it_is_deleted() {
    let store = store(64 << 20);
    let mut worker = store.worker(0);
    assert_eq!(get(&mut worker, b"k", NOW), Err(Miss::Absent));
    set(&mut worker, b"k", b"one");
    assert_eq!(get(&mut worker, b"k", NOW).unwrap(), b"one");
    set(&mut worker, b"k", b"two, longer");
    assert_eq!(get(&mut worker, b"k", NOW).unwrap(), b"two, longer");
    let mut burst = worker.burst(NOW);
    let key = burst.key(b"k");
    assert_eq!(burst.delete(&key, &Delete::default()), Deleted::Done);
    assert_eq!(
        burst.delete(&key, &Delete::default()),
        Deleted::NotFound(Miss::Absent)
    );
    burst.close();
    assert_eq!(get(&mut worker, b"k", NOW), Err(Miss::Absent));
    assert_eq!(store.stats().items, 0);
}

/// How far memory reaches back is what the size of a cache is chosen by.
#[test]
fn the_oldest_segment_remembers_when_it_was_opened() {
    let store = store(64 << 20);
    let mut worker = store.worker(0);
    assert_eq!(store.stats().oldest_segment, None);
    set(&mut worker, b"first", b"value");
    worker.end(NOW);
    assert_eq!(store.stats().oldest_segment, Some(NOW));
    let later = UnixSeconds(NOW.0 + 60);
    worker.end(later);
    // Enough for segments that are opened later.
    for number in 0..5000 {
        set(&mut worker, format!("k{number}").as_bytes(), &[b'v'; 1000]);
    }
    worker.end(later);
    assert_eq!(store.stats().oldest_segment, Some(NOW));
}

#[test]
fn modes_respect_what_is_there() {
    let store = store(64 << 20);
    let mut worker = store.worker(0);
    let mode = |mode| Put {
        mode,
        ..Put::set(5, Expiry::NEVER)
    };
    assert_eq!(
        put(&mut worker, b"k", &mode(Mode::Replace), b"x"),
        Stored::NotStored
    );
    assert_eq!(
        put(&mut worker, b"k", &mode(Mode::Append), b"x"),
        Stored::NotStored
    );
    assert_eq!(
        put(&mut worker, b"k", &mode(Mode::Cas), b"x"),
        Stored::NotFound
    );
    assert!(matches!(
        put(&mut worker, b"k", &mode(Mode::Add), b"b"),
        Stored::Stored { .. }
    ));
    assert_eq!(
        put(&mut worker, b"k", &mode(Mode::Add), b"x"),
        Stored::NotStored
    );
    put(
        &mut worker,
        b"k",
        &Put {
            client_flags: 9,
            ..mode(Mode::Append)
        },
        b"c",
    );
    let joined = put(&mut worker, b"k", &mode(Mode::Prepend), b"a");
    assert_eq!(
        joined,
        Stored::Stored {
            cas: 0,
            value_len: 3,
            over_newer: false
        }
    );
    assert_eq!(get(&mut worker, b"k", NOW).unwrap(), b"abc");
    let burst = worker.burst(NOW);
    let key = burst.key(b"k");
    assert_eq!(
        burst.get(&key, Access::default()).unwrap().client_flags(),
        5
    );
}

#[test]
fn cas_rises_and_guards() {
    let store = store(64 << 20);
    let mut worker = store.worker(0);
    set(&mut worker, b"k", b"1");
    let first = cas_of(&mut worker, b"k");
    assert_eq!(first, cas_of(&mut worker, b"k"));
    set(&mut worker, b"k", b"2");
    let second = cas_of(&mut worker, b"k");
    assert!(second > first);
    let guarded = |compare| Put {
        mode: Mode::Cas,
        compare,
        ..Put::set(0, Expiry::NEVER)
    };
    assert_eq!(
        put(&mut worker, b"k", &guarded(first), b"x"),
        Stored::Exists
    );
    assert_eq!(put(&mut worker, b"k", &guarded(0), b"x"), Stored::Exists);
    assert!(matches!(
        put(&mut worker, b"k", &guarded(second), b"3"),
        Stored::Stored { .. }
    ));
    assert_eq!(get(&mut worker, b"k", NOW).unwrap(), b"3");
    // An explicit one, higher than any place in the log.
    let high = Put {
        cas: Some(u64::MAX - 9),
        return_cas: true,
        ..Put::set(0, Expiry::NEVER)
    };
    let stored = put(&mut worker, b"k", &high, b"4");
    assert!(matches!(stored, Stored::Stored { cas, .. } if cas == u64::MAX - 9));
    set(&mut worker, b"k", b"5");
    assert!(cas_of(&mut worker, b"k") > u64::MAX - 9);
    // Behind the highest there is none higher, but another.
    let highest = Put {
        cas: Some(u64::MAX),
        ..high
    };
    put(&mut worker, b"k", &highest, b"6");
    set(&mut worker, b"k", b"7");
    assert_ne!(cas_of(&mut worker, b"k"), u64::MAX);
}

#[test]
fn items_die_at_their_second() {
    let store = store(64 << 20);
    let mut worker = store.worker(0);
    let until = Put::set(0, Expiry::at(UnixSeconds(NOW.0 + 10)));
    put(&mut worker, b"k", &until, b"v");
    assert_eq!(
        get(&mut worker, b"k", UnixSeconds(NOW.0 + 9)).unwrap(),
        b"v"
    );
    let mut burst = worker.burst(UnixSeconds(NOW.0 + 9));
    let key = burst.key(b"k");
    let later = Expiry::at(UnixSeconds(NOW.0 + 20));
    assert!(burst.touch(&key, later, Access::default()).is_ok());
    burst.close();
    assert_eq!(
        get(&mut worker, b"k", UnixSeconds(NOW.0 + 19)).unwrap(),
        b"v"
    );
    assert_eq!(
        get(&mut worker, b"k", UnixSeconds(NOW.0 + 20)),
        Err(Miss::Expired)
    );
    assert_eq!(
        get(&mut worker, b"k", UnixSeconds(NOW.0 + 20)),
        Err(Miss::Absent)
    );
}

#[test]
fn flush_kills_what_was_there() {
    let store = store(64 << 20);
    let mut worker = store.worker(0);
    for i in 0..1000u32 {
        set(&mut worker, &i.to_le_bytes(), b"old");
    }
    let mut burst = worker.burst(NOW);
    burst.flush_all(None);
    let (old, new) = (1u32.to_le_bytes(), 2u32.to_le_bytes());
    let key = burst.key(&old);
    assert_eq!(
        burst.get(&key, Access::default()).err(),
        Some(Miss::Flushed)
    );
    let key = burst.key(&new);
    burst.store(&key, &Put::set(0, Expiry::NEVER), b"new");
    burst.close();
    for _ in 0..100 {
        worker.end(NOW);
    }
    assert_eq!(get(&mut worker, &new, NOW).unwrap(), b"new");
    assert_eq!(store.stats().items, 1);
    assert_eq!(store.stats().totals.flushed, 1000);
}

#[test]
fn a_delayed_flush_waits_for_its_second() {
    let store = store(64 << 20);
    let mut worker = store.worker(0);
    set(&mut worker, b"before", b"v");
    worker.burst(NOW).flush_all(Some(UnixSeconds(NOW.0 + 5)));
    set(&mut worker, b"between", b"v");
    assert!(get(&mut worker, b"before", UnixSeconds(NOW.0 + 4)).is_ok());
    let later = UnixSeconds(NOW.0 + 5);
    assert_eq!(get(&mut worker, b"before", later), Err(Miss::Flushed));
    assert_eq!(get(&mut worker, b"between", later), Err(Miss::Flushed));
    set(&mut worker, b"after", b"v");
    assert!(get(&mut worker, b"after", later).is_ok());
}

#[test]
fn counting_pads_in_place_and_grows() {
    let store = store(64 << 20);
    let mut worker = store.worker(0);
    set(&mut worker, b"n", b"10");
    let count = |worker: &mut Worker, delta, decrement| {
        let request = Arithmetic {
            delta,
            decrement,
            compare: 0,
            cas: None,
            return_cas: false,
            vivify: None,
            tags: NO_TAGS,
            touch: None,
        };
        let mut burst = worker.burst(NOW);
        let key = burst.key(b"n");
        match burst.arithmetic(&key, &request) {
            ArithmeticResult::Value { number, .. } => Some(number),
            _ => None,
        }
    };
    assert_eq!(count(&mut worker, 1, true), Some(9));
    assert_eq!(get(&mut worker, b"n", NOW).unwrap(), b"9 ");
    assert_eq!(count(&mut worker, 991, false), Some(1000));
    assert_eq!(get(&mut worker, b"n", NOW).unwrap(), b"1000");
    assert_eq!(count(&mut worker, u64::MAX, true), Some(0));
    set(&mut worker, b"n", b"no number");
    assert_eq!(count(&mut worker, 1, false), None);
}

#[test]
fn one_request_wins_what_is_stale_or_missing() {
    let store = store(64 << 20);
    let mut worker = store.worker(0);
    let request = MetaGet {
        access: Access::default(),
        vivify: Some(Expiry::at(UnixSeconds(NOW.0 + 30))),
        vivify_cas: None,
        tags: NO_TAGS,
        recache: None,
        touch: None,
        touch_first: false,
    };
    let ask = |worker: &mut Worker, request: &MetaGet| {
        let mut burst = worker.burst(NOW);
        let key = burst.key(b"k");
        let hit = burst.meta_get(&key, request).ok().unwrap();
        (hit.created, hit.won, hit.token_sent, hit.stale)
    };
    assert_eq!(ask(&mut worker, &request), (true, true, false, false));
    assert_eq!(ask(&mut worker, &request), (false, false, true, false));
    set(&mut worker, b"k", b"v");
    assert_eq!(ask(&mut worker, &request), (false, false, false, false));
    let mut burst = worker.burst(NOW);
    let key = burst.key(b"k");
    let stale = Delete {
        mark_stale: true,
        ..Delete::default()
    };
    assert_eq!(burst.delete(&key, &stale), Deleted::Done);
    burst.close();
    assert_eq!(ask(&mut worker, &request), (false, true, false, true));
    assert_eq!(ask(&mut worker, &request), (false, false, true, true));
    assert_eq!(get(&mut worker, b"k", NOW).unwrap(), b"v");
}

#[test]
fn large_values_are_stored_joined_and_read_in_pieces() {
    let store = store(64 << 20);
    let mut worker = store.worker(0);
    let len = if cfg!(miri) { 100_000u32 } else { 1_000_000 };
    let large: Vec<u8> = (0..len).map(|i| (i / 7) as u8).collect();
    set(&mut worker, b"k", &large);
    assert_eq!(get(&mut worker, b"k", NOW).unwrap(), large);
    let behind = Put {
        mode: Mode::Append,
        ..Put::set(0, Expiry::NEVER)
    };
    assert!(matches!(
        put(&mut worker, b"k", &behind, b"tail"),
        Stored::Stored { .. }
    ));
    let both = [&large[..], b"tail"].concat();
    assert_eq!(get(&mut worker, b"k", NOW).unwrap(), both);
    let burst = worker.burst(NOW);
    let key = burst.key(b"k");
    let pinned = burst
        .pin(&burst.get(&key, Access::default()).unwrap())
        .unwrap();
    burst.close();
    set(&mut worker, b"k", b"small");
    assert_eq!(pinned.chunks().collect::<Vec<_>>().concat(), both);
    let too_large = put(
        &mut worker,
        b"k",
        &Put::set(0, Expiry::NEVER),
        &vec![0; 2 << 20],
    );
    assert_eq!(too_large, Stored::Refused(Refused::TooLarge));
}

#[test]
fn an_upload_whose_key_alone_is_too_large_is_refused() {
    let config = Config {
        item_size_max: 100,
        ..Config::default()
    };
    let store = Store::new(config, NOW).unwrap();
    let mut worker = store.worker(0);
    let mut burst = worker.burst(NOW);
    for (key_len, value_len, fits) in [
        (100, 0, true),
        (90, 11, false),
        (101, 0, false),
        (200, 5, false),
    ] {
        let bytes = vec![b'k'; key_len];
        let key = burst.key(&bytes);
        let upload = burst.begin_upload(&key, &Put::set(0, Expiry::NEVER), value_len);
        let refused = upload.err();
        assert_eq!(
            refused,
            (!fits).then_some(Refused::TooLarge),
            "{key_len} and {value_len}"
        );
    }
}

#[test]
fn uploads_arrive_in_parts() {
    let store = store(64 << 20);
    let mut worker = store.worker(0);
    let longest = if cfg!(miri) { 50_000 } else { 700_000 };
    for len in [1usize, 5000, 20_000, longest] {
        let value: Vec<u8> = (0..len).map(|i| ((i * 31) >> 3) as u8).collect();
        let mut burst = worker.burst(NOW);
        let key = burst.key(b"up");
        let mut upload = burst
            .begin_upload(&key, &Put::set(3, Expiry::NEVER), len)
            .unwrap();
        burst.close();
        while upload.remaining() > 0 {
            let done = len - upload.remaining();
            let mut burst = worker.burst(NOW);
            let space = burst.upload_space(&mut upload).unwrap();
            let n = space.len().min(1777);
            space[..n].copy_from_slice(&value[done..done + n]);
            upload.advance(n);
            burst.close();
            worker.end(NOW);
        }
        let mut burst = worker.burst(NOW);
        assert!(matches!(
            burst.finish_upload(upload),
            Ok(Stored::Stored { .. })
        ));
        burst.close();
        assert_eq!(get(&mut worker, b"up", NOW).unwrap(), value);
        // One that is given up leaves the item alone.
        let mut burst = worker.burst(NOW);
        let key = burst.key(b"up");
        let mut upload = burst
            .begin_upload(&key, &Put::set(3, Expiry::NEVER), len)
            .unwrap();
        assert!(!burst.upload_space(&mut upload).unwrap().is_empty());
        drop(upload);
        burst.close();
        assert_eq!(get(&mut worker, b"up", NOW).unwrap(), value);
        assert_eq!(store.stats().memory_uploads, 0);
    }
}

#[test]
fn memory_that_is_full_evicts_and_stays_bounded() {
    let store = store(16 << 20);
    let mut worker = store.worker(0);
    let mut waits = 0;
    for i in 0..500_000u64 {
        loop {
            let stored = put(
                &mut worker,
                &i.to_le_bytes(),
                &Put::set(0, Expiry::NEVER),
                &[1; 100],
            );
            match stored {
                Stored::Stored { .. } => break,
                Stored::Refused(Refused::Wait) => waits += 1,
                other => panic!("{other:?}"),
            }
        }
        if i % 10 == 0 {
            let _ = get(&mut worker, &(i / 2).to_le_bytes(), NOW);
        }
    }
    let stats = store.stats();
    assert!(stats.totals.evicted > 350_000, "{stats:?}");
    assert!(stats.items > 80_000, "{stats:?}");
    assert!(waits < 1000, "{waits}");
    let held = (0..500_000u64)
        .filter(|i| get(&mut worker, &i.to_le_bytes(), NOW).is_ok())
        .count();
    assert_eq!(held as u64, stats.items);
}

#[test]
fn the_age_of_what_is_evicted_is_told() {
    let store = store(16 << 20);
    let mut worker = store.worker(0);
    let mut set_at = |number: u64, now| {
        while store.stats().totals.evicted == 0 || now == NOW {
            let mut burst = worker.burst(now);
            let name = number.to_le_bytes();
            let key = burst.key(&name);
            let stored = burst.store(&key, &Put::set(0, Expiry::NEVER), &[1; 1000]);
            burst.close();
            worker.end(now);
            if matches!(stored, Stored::Stored { .. }) {
                return;
            }
        }
    };
    // Memory is nearly full with items of one moment; ten seconds later they go.
    (0..12_000).for_each(|number| set_at(number, NOW));
    assert_eq!(
        (store.stats().totals.evicted, store.stats().evicted_idle_s),
        (0, 0)
    );
    (12_000..30_000).for_each(|number| set_at(number, UnixSeconds(NOW.0 + 10)));
    assert!(store.stats().totals.evicted > 0);
    assert_eq!(store.stats().evicted_idle_s, 10);
}

#[test]
fn the_largest_item_can_be_uploaded() {
    let config = Config {
        memory: 64 << 20,
        item_size_max: 30 << 20,
        ..Config::default()
    };
    let store = Store::new(config, NOW).unwrap();
    let mut worker = store.worker(0);
    // Round and round, so that memory is full of the last one.
    for round in 0..4u8 {
        let len = (30 << 20) - 1;
        let mut burst = worker.burst(NOW);
        let key = burst.key(b"k");
        let put = Put::set(0, Expiry::NEVER);
        let mut upload = burst.begin_upload(&key, &put, len).unwrap();
        let mut tries = 0;
        while upload.remaining() > 0 {
            let mut burst = worker.burst(NOW);
            match burst.upload_space(&mut upload) {
                Ok(space) => {
                    let n = space.len();
                    space.fill(round);
                    upload.advance(n);
                }
                Err(refused) => {
                    tries += 1;
                    assert!(tries < 10_000, "{refused}: {:?}", store.stats());
                }
            }
            worker.end(NOW);
        }
        let mut burst = worker.burst(NOW);
        assert!(matches!(
            burst.finish_upload(upload),
            Ok(Stored::Stored { .. })
        ));
        let value = get(&mut worker, b"k", NOW).unwrap();
        assert!(value.len() == len && value.iter().all(|&b| b == round));
    }
}

/// What the heap holds for each segment and worker is part of the memory that the store may take.
#[test]
#[cfg_attr(miri, ignore = "much address space")]
fn many_workers_leave_less_for_items() {
    let stats = |workers| {
        let config = Config {
            memory: 64 << 30,
            workers,
            index_bits: Some(0),
            ..Config::default()
        };
        Store::new(config, NOW).unwrap().stats()
    };
    let (few, many) = (stats(1), stats(1000));
    let heap = 4 * 999 * many.segments;
    assert!(many.memory_tables >= few.memory_tables + heap);
    // In whole segments.
    assert!(many.memory_free + heap <= few.memory_free + few.segment_len);
    for stats in [few, many] {
        assert!(stats.memory_free + stats.memory_index + stats.memory_tables <= stats.memory);
    }
}
