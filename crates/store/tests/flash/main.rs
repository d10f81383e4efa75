//! The store with flash, on simulated devices.

// What a simulated device does is too much for Miri.
#![cfg(not(any(miri, loom)))]

#[cfg(feature = "kill-points")]
mod killed;
mod large;
mod lost;
mod model;
mod restart;
mod rig;
mod tags;
mod threads;

use coua_flash::simulated::{Faults, Timing};
use coua_store::*;
use rig::*;

#[path = "../support/losses.rs"]
mod losses;

fn name(n: usize) -> Vec<u8> {
    format!("key-{n}").into_bytes()
}

/// A value that tells its key and version.
fn value(n: usize, version: usize) -> Vec<u8> {
    let mut value = format!("{n}.{version}:").into_bytes();
    value.resize(200 + n * 37 % 1500, b'a' + u8::try_from(n % 26).unwrap());
    value
}

/// Stores more than memory holds, until the first keys are on flash.
fn fill(rig: &mut Rig, keys: usize) {
    for n in 0..keys {
        rig.set(&name(n), &value(n, 0));
    }
    rig.settle();
}

#[test]
fn what_memory_has_no_room_for_is_found_on_flash() {
    let mut rig = Rig::new(Devices::new(&[64], 1));
    let keys = 20_000;
    fill(&mut rig, keys);
    let stats = rig.stats();
    assert!(stats.items > 8_000, "{stats:?}");
    let mut found = 0;
    for n in 0..keys {
        let got = rig.value(&name(n));
        assert!(got.is_none() || got == Some(value(n, 0)), "key {n}");
        found += usize::from(got.is_some());
    }
    // The device is quick enough for all of it. A plain set drops what may be its key's: now and then
    // that is another's.
    let stats = rig.stats();
    assert_eq!(rig.store.stats().totals.evicted, 0);
    assert!(found > keys - keys / 1000, "{found} {stats:?}");
    assert!(stats.segments_written < 40, "{stats:?}");
    assert!(stats.hits > 8_000 && stats.damaged == 0 && stats.failed == 0);
    assert_eq!(rig.store.stats().items, found as u64);
}

#[test]
fn one_read_in_some_thousands_meets_another_keys_record() {
    let config = Config {
        memory: 24 * MIB,
        seed: Some(23),
        // An index that has to grow, which takes bits of the tags.
        index_bits: Some(0),
        ..Config::default()
    };
    let mut rig = Rig::with(Devices::new(&[128], 23), config, 5);
    let keys = 300_000;
    for n in 0..keys {
        rig.set(&name(n), &value(n, 0)[..100]);
    }
    rig.settle();
    let stats = rig.stats();
    assert!(stats.items > 60_000, "{stats:?}");
    let mut reads = 0;
    for n in (0..keys).step_by(3) {
        if rig.is_on_flash(&name(n)) {
            assert_eq!(rig.value(&name(n)), Some(value(n, 0)[..100].to_vec()));
            reads += 1;
        }
    }
    // Keys that are nowhere are not looked for on flash.
    for n in keys..keys + 20_000 {
        assert_eq!(rig.value(&name(n)), None);
    }
    let stats = rig.stats();
    assert!(reads > 20_000, "{reads}");
    assert!(stats.false_matches <= reads / 4000, "{reads} {stats:?}");
}

#[test]
fn the_second_read_brings_an_item_back() {
    let mut rig = Rig::new(Devices::new(&[64], 2));
    fill(&mut rig, 20_000);
    let n = (0..20_000)
        .find(|&n| rig.is_on_flash(&name(n)))
        .expect("one on flash");
    assert_eq!(rig.value(&name(n)), Some(value(n, 0)));
    assert!(rig.is_on_flash(&name(n)));
    assert_eq!(rig.value(&name(n)), Some(value(n, 0)));
    assert!(!rig.is_on_flash(&name(n)));
    assert_eq!(rig.value(&name(n)), Some(value(n, 0)));
    assert_eq!(rig.stats().brought_back, 1);
}

#[test]
fn what_is_set_over_or_deleted_does_not_come_back() {
    let mut rig = Rig::new(Devices::new(&[64], 3));
    fill(&mut rig, 20_000);
    let on_flash: Vec<usize> = (0..20_000).filter(|&n| rig.is_on_flash(&name(n))).collect();
    assert!(on_flash.len() > 4_000);
    let reads = rig.stats().reads;
    for &n in on_flash.iter().take(2000) {
        match n % 2 {
            0 => rig.set(&name(n), &value(n, 1)),
            _ => assert_eq!(rig.delete(&name(n)), Deleted::Done),
        }
    }
    assert_eq!(
        rig.stats().reads,
        reads,
        "a plain set or delete reads nothing"
    );
    rig.settle();
    let mut newer = 0;
    for &n in on_flash.iter().take(2000) {
        let got = rig.value(&name(n));
        if n % 2 == 0 {
            assert!(got.is_none() || got == Some(value(n, 1)), "key {n}");
            newer += usize::from(got.is_some());
        } else {
            assert_eq!(got, None, "key {n} was deleted");
        }
    }
    assert!(newer > 900, "{newer}");
}

#[test]
fn a_cas_that_a_client_knows_stays_the_same() {
    let mut rig = Rig::new(Devices::new(&[64], 4));
    let access = Access {
        bump: false,
        cas: true,
    };
    rig.set(
        b"first",
        b"a value that is long enough to go to flash, surely, all of it",
    );
    let cas = rig.get(b"first", access, |item| item.cas()).unwrap();
    fill(&mut rig, 20_000);
    assert!(rig.is_on_flash(b"first"));
    assert_eq!(rig.get(b"first", access, |item| item.cas()), Ok(cas));
    let compare = |compare| Put {
        mode: Mode::Cas,
        compare,
        ..Put::set(0, Expiry::NEVER)
    };
    assert_eq!(rig.put(b"first", &compare(cas + 1), b"x"), Stored::Exists);
    assert!(!rig.is_on_flash(b"first"));
    assert_eq!(rig.get(b"first", access, |item| item.cas()), Ok(cas));
    let stored = rig.put(b"first", &compare(cas), b"x");
    assert!(matches!(stored, Stored::Stored { .. }), "{stored:?}");
}

#[test]
fn a_new_cas_is_above_that_of_what_it_replaces_on_flash() {
    let mut rig = Rig::new(Devices::new(&[64], 5));
    let shown = Access {
        bump: false,
        cas: true,
    };
    let high = Put {
        cas: Some(1 << 60),
        ..Put::set(0, Expiry::NEVER)
    };
    rig.put(b"high", &high, &[b'x'; 100]);
    fill(&mut rig, 20_000);
    assert!(rig.is_on_flash(b"high"));
    rig.set(b"high", b"newer");
    assert!(rig.get(b"high", shown, |item| item.cas()).unwrap() > 1 << 60);
}

#[test]
fn conditional_operations_find_what_is_on_flash() {
    let mut rig = Rig::new(Devices::new(&[64], 6));
    let mode = |mode| Put {
        mode,
        ..Put::set(0, Expiry::NEVER)
    };
    let first = [b'v'; 100];
    for n in 0..8 {
        rig.set(&[b'c', n], &first);
    }
    rig.set(
        b"number",
        b"41                                                                  ",
    );
    fill(&mut rig, 20_000);
    for n in 0..8 {
        assert!(rig.is_on_flash(&[b'c', n]), "{n}");
    }
    assert_eq!(rig.put(b"c\0", &mode(Mode::Add), b"x"), Stored::NotStored);
    rig.put(b"c\x01", &mode(Mode::Replace), b"replaced");
    assert_eq!(rig.value(b"c\x01").as_deref(), Some(&b"replaced"[..]));
    rig.put(b"c\x02", &mode(Mode::Append), b"behind");
    assert_eq!(rig.value(b"c\x02"), Some([&first[..], b"behind"].concat()));
    rig.put(b"c\x03", &mode(Mode::PrependOrSet), b"before");
    assert_eq!(rig.value(b"c\x03"), Some([b"before", &first[..]].concat()));
    let until = Expiry::at(UnixSeconds(1_000_010));
    let touched = rig.run(b"c\x04", |burst, key| {
        match burst.touch(key, until, Access::default()) {
            Ok(item) => Ok(item.expiry()),
            Err(Untouched::Miss(Miss::OnFlash(place))) => Err(Again::OnFlash(place)),
            Err(_) => Err(Again::Wait),
        }
    });
    assert_eq!(touched, until);
    let get = MetaGet {
        access: Access::default(),
        vivify: Some(Expiry::NEVER),
        vivify_cas: None,
        tags: NO_TAGS,
        recache: None,
        touch: None,
        touch_first: false,
    };
    let created = rig.run(b"c\x05", |burst, key| match burst.meta_get(key, &get) {
        Ok(hit) => Ok(hit.created),
        Err(MetaMiss::Miss(Miss::OnFlash(place))) => Err(Again::OnFlash(place)),
        Err(_) => Err(Again::Wait),
    });
    assert!(!created);
    let stale = Delete {
        mark_stale: true,
        ..Delete::default()
    };
    let marked = rig.run(b"c\x06", |burst, key| {
        deleted_or_again(burst.delete(key, &stale))
    });
    assert_eq!(marked, Deleted::Done);
    let count = Arithmetic {
        delta: 1,
        decrement: false,
        compare: 0,
        cas: None,
        return_cas: false,
        vivify: Some((7, Expiry::NEVER)),
        tags: NO_TAGS,
        touch: None,
    };
    let counted = rig.run(b"number", |burst, key| {
        match burst.arithmetic(key, &count) {
            ArithmeticResult::NotFound(Miss::OnFlash(place)) => Err(Again::OnFlash(place)),
            ArithmeticResult::Refused(Refused::Wait) => Err(Again::Wait),
            counted => Ok(counted),
        }
    });
    assert!(matches!(
        counted,
        ArithmeticResult::Value {
            number: 42,
            created: false,
            ..
        }
    ));
}

#[test]
fn a_flush_kills_what_is_on_flash_and_on_the_way() {
    let mut rig = Rig::new(Devices::new(&[64], 7));
    for n in 0..20_000 {
        rig.set(&name(n), &value(n, 0));
    }
    let now = rig.time();
    rig.worker.burst(now).flush_all(None);
    rig.set(b"after", b"the flush");
    for n in 0..20_000 {
        assert_eq!(rig.value(&name(n)), None, "key {n}");
    }
    assert_eq!(rig.value(b"after").as_deref(), Some(&b"the flush"[..]));
    rig.settle();
    assert_eq!(rig.stats().items, 0);
    fill(&mut rig, 20_000);
    assert!(rig.stats().items > 8_000);
}

#[test]
fn what_expires_or_is_invalidated_on_flash_is_a_miss() {
    let mut rig = Rig::new(Devices::new(&[64], 8));
    let mut tags = NO_TAGS;
    tags[0] = Some(rig.store.tag(b"tag"));
    for n in 0..1000 {
        let expiry = Expiry::at_millis(1_000_000_000 + 5_500 * (n as u64 % 2));
        let expiry = if n % 2 == 0 { Expiry::NEVER } else { expiry };
        let put = Put {
            tags: if n % 4 == 0 { tags } else { NO_TAGS },
            ..Put::set(0, expiry)
        };
        rig.put(&name(n), &put, &value(n, 0));
    }
    for n in 1000..20_000 {
        rig.set(&name(n), &value(n, 0));
    }
    rig.settle();
    assert!((0..1000).filter(|&n| rig.is_on_flash(&name(n))).count() > 900);
    let now = rig.time();
    rig.worker
        .burst(now)
        .invalidate(tags[0].unwrap(), Invalidation::Gone);
    rig.now += 6_000;
    for n in 0..1000 {
        let got = rig.get(&name(n), Access::default(), |item| item.value_len());
        match n % 4 {
            0 => assert!(
                matches!(got, Err(Miss::Invalidated | Miss::Absent)),
                "{got:?}"
            ),
            2 => assert!(got.is_ok() || got == Err(Miss::Absent)),
            _ => assert!(matches!(got, Err(Miss::Expired | Miss::Absent)), "{got:?}"),
        }
    }
}

#[test]
fn the_oldest_goes_when_the_volume_is_full() {
    let mut rig = Rig::new(Devices::new(&[24], 9));
    for round in 0..3 {
        for n in 0..20_000 {
            rig.set(&name(n), &value(n, round));
        }
    }
    rig.settle();
    let stats = rig.stats();
    assert!(
        stats.dropped > 10_000 && stats.segments_free > 0,
        "{stats:?}"
    );
    let mut found = 0;
    for n in 0..20_000 {
        let got = rig.value(&name(n));
        assert!(got.is_none() || got == Some(value(n, 2)), "key {n}");
        found += usize::from(got.is_some());
    }
    assert!(found > 15_000, "{found}: {stats:?}");
    assert_eq!(rig.store.stats().items, found as u64);
}

#[test]
fn a_device_that_goes_away_leaves_misses() {
    let mut rig = Rig::new(Devices::new(&[40, 40], 10));
    fill(&mut rig, 20_000);
    rig.devices.devices[0].remove();
    let mut missing = 0;
    for n in 0..20_000 {
        let got = rig.value(&name(n));
        assert!(got.is_none() || got == Some(value(n, 0)), "key {n}");
        missing += usize::from(got.is_none());
    }
    assert!((2_000..12_000).contains(&missing), "{missing}");
    // It serves on with the other one.
    for n in 0..20_000 {
        rig.set(&name(n), &value(n, 1));
    }
    for n in 0..20_000 {
        let got = rig.value(&name(n));
        assert!(got.is_none() || got == Some(value(n, 1)), "key {n}");
    }
    let stats = rig.stats();
    assert_eq!(stats.devices_gone, 1);
    rig.devices.devices[1].remove();
    for n in 0..20_000 {
        let got = rig.value(&name(n));
        assert!(got.is_none() || got == Some(value(n, 1)), "key {n}");
    }
    rig.settle();
    assert_eq!(rig.stats().items, 0, "{:?}", rig.stats());
}

#[test]
fn damaged_records_are_misses() {
    let mut rig = Rig::new(Devices::new(&[64], 11));
    let faults = Faults {
        read_errors: 0.01,
        misdirected_reads: 0.01,
        write_errors: 0.02,
        lost_writes: 0.02,
        torn_writes: 0.02,
        misdirected_writes: 0.02,
        timeouts: 0.002,
        ..Faults::default()
    };
    rig.devices.devices[0].set_faults(faults);
    let mut found = 0;
    for round in 0..3 {
        for n in 0..20_000 {
            rig.set(&name(n), &value(n, round));
        }
        for n in 0..20_000 {
            let got = rig.value(&name(n));
            assert!(got.is_none() || got == Some(value(n, round)), "key {n}");
            found += usize::from(got.is_some());
        }
    }
    let stats = rig.stats();
    assert!(
        stats.damaged > 10 && stats.failed > 10 && stats.segments_lost > 0,
        "{stats:?}"
    );
    assert!(found > 30_000, "{found} {stats:?}");
}

/// Items are touched and their CAS shown while they are copied and not written yet.
#[test]
fn what_changes_on_the_way_to_flash_is_not_lost() {
    let mut rig = Rig::new(Devices::new(&[64], 14));
    let timing = Timing {
        write_ns: 30_000_000,
        ..Timing::default()
    };
    rig.devices.devices[0].set_timing(timing);
    let [before, after] = [2_000_000, 3_000_000].map(|second| Expiry::at(UnixSeconds(second)));
    for n in 0..9_000 {
        rig.put(&name(n), &Put::set(0, before), &value(n, 0));
    }
    let written = rig.stats().written;
    assert!(rig.stats().appended > written + 300, "{:?}", rig.stats());
    let access = Access {
        bump: false,
        cas: true,
    };
    let mut changed = Vec::new();
    for n in 0..9_000 {
        let (now, name) = (rig.time(), name(n));
        let mut burst = rig.worker.burst(now);
        let key = burst.key(&name);
        // Those on flash are not brought back for it.
        let Ok(cas) = burst.get(&key, access).map(|item| item.cas()) else {
            continue;
        };
        if n % 2 == 0 {
            burst.touch(&key, after, access).unwrap();
        }
        changed.push((n, cas));
    }
    (0..20_000).for_each(|_| rig.turn());
    assert!(rig.stats().written < written + 300, "{:?}", rig.stats());
    // They go there later, as they are then.
    for n in 9_000..20_000 {
        rig.put(&name(n), &Put::set(0, before), &value(n, 0));
    }
    (0..20_000).for_each(|_| rig.turn());
    let mut on_flash = 0;
    for (n, cas) in changed {
        on_flash += usize::from(rig.is_on_flash(&name(n)));
        let expected = if n % 2 == 0 { after } else { before };
        let got = rig.get(&name(n), access, |item| (item.expiry(), item.cas()));
        assert!(
            got.is_err() || got == Ok((expected, cas)),
            "key {n}: {got:?}, {cas}"
        );
    }
    assert!(on_flash > 500, "{on_flash}");
}

/// A device that takes seconds for a write.
#[test]
fn a_slow_device_does_not_keep_sets_waiting() {
    let mut rig = Rig::new(Devices::new(&[64], 13));
    let timing = Timing {
        write_ns: 5_000_000_000,
        timeout_ns: 60_000_000_000,
        ..Timing::default()
    };
    rig.devices.devices[0].set_timing(timing);
    let (mut waits, mut longest) = (0, 0);
    for n in 0..20_000 {
        let mut here = 0;
        loop {
            let (now, put) = (rig.time(), Put::set(0, Expiry::NEVER));
            let mut burst = rig.worker.burst(now);
            let key = name(n);
            let key = burst.key(&key);
            let stored = burst.store(&key, &put, &value(n, 0));
            burst.close();
            rig.turn();
            rig.now += 1;
            match stored {
                Stored::Stored { .. } => break,
                Stored::Refused(Refused::Wait) => here += 1,
                other => panic!("{other:?}"),
            }
        }
        waits += here;
        longest = longest.max(here);
    }
    // In milliseconds, one a turn.
    assert!(
        longest < 30 && waits < 4_000,
        "{longest} {waits} {:?}",
        rig.stats()
    );
    for n in 0..20_000 {
        let got = rig.value(&name(n));
        assert!(got.is_none() || got == Some(value(n, 0)), "key {n}");
    }
}

/// Each read that brings an item back would push another one out, and leave a dead record on flash.
#[test]
fn reads_alone_lose_nothing() {
    let config = Config {
        memory: 24 * MIB,
        seed: Some(7),
        ..Config::default()
    };
    let mut rig = Rig::with(Devices::new(&[112], 15), config, 11);
    let keys = 60_000;
    fill(&mut rig, keys);
    let before = rig.stats();
    let used = before.segments - before.segments_free;
    assert!((38..50).contains(&used), "{before:?}");
    let items = rig.store.stats().items;
    let mut random = 1_u64;
    for _ in 0..5 * keys {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let n = usize::try_from((random >> 33) % keys as u64).unwrap();
        let got = rig.value(&name(n));
        assert!(got.is_none() || got == Some(value(n, 0)), "key {n}");
    }
    rig.settle();
    let (stats, after) = (rig.store.stats(), rig.stats());
    assert_eq!(
        after.dropped + stats.totals.evicted,
        before.dropped,
        "{after:?}"
    );
    assert_eq!(stats.items, items, "{after:?}");
    // Some have come back, while there was much room.
    assert!(after.brought_back > 1_000, "{after:?}");
}

/// The device is quick, but the worker gets a processor once in 50 ms.
#[test]
fn a_worker_that_seldom_runs_evicts_nothing() {
    let mut rig = Rig::new(Devices::new(&[64], 16));
    let timing = Timing {
        write_ns: 200_000,
        ..Timing::default()
    };
    rig.devices.devices[0].set_timing(timing);
    for n in 0..30_000 {
        let key = name(n);
        loop {
            let (now, put) = (rig.time(), Put::set(0, Expiry::NEVER));
            let mut burst = rig.worker.burst(now);
            let key = burst.key(&key);
            let stored = burst.store(&key, &put, &value(n, 0));
            burst.close();
            let waits = stored == Stored::Refused(Refused::Wait);
            if waits || n % 100 == 0 {
                rig.turn();
                rig.now += 50;
            }
            if !waits {
                break;
            }
        }
    }
    rig.settle();
    let stats = rig.stats();
    assert!(stats.items > 15_000, "{stats:?}");
    assert_eq!(rig.store.stats().totals.evicted, 0, "{stats:?}");
    assert_eq!(stats.refused, 0, "{stats:?}");
}

/// Items on flash are so many that their slots would fill memory.
#[test]
fn the_index_leaves_half_of_memory_to_items() {
    let mut rig = Rig::new(Devices::new(&[160], 12));
    let small = [b'x'; 40];
    for n in 0..900_000 {
        let name = format!("a key of some length {n}");
        let (now, put) = (rig.time(), Put::set(0, Expiry::NEVER));
        let mut burst = rig.worker.burst(now);
        let key = burst.key(name.as_bytes());
        let stored = burst.store(&key, &put, &small);
        burst.close();
        if n % 20 == 0 || stored == Stored::Refused(Refused::Wait) {
            rig.turn();
        }
    }
    let (stats, flash) = (rig.store.stats(), rig.stats());
    assert!(stats.memory_index <= 5 * MIB as u64, "{stats:?}");
    assert!(stats.totals.evicted_index_full > 1000, "{stats:?}");
    assert!(flash.items > 300_000, "{flash:?}");
    let mut found = 0;
    for n in (0..900_000).step_by(101) {
        let name = format!("a key of some length {n}");
        let got = rig.value(name.as_bytes());
        assert!(got.is_none() || got.as_deref() == Some(&small));
        found += usize::from(got.is_some());
    }
    assert!(found > 2000, "{found}");
}
