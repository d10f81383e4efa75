//! Items that are stored without an expiry, and are given one later: they are written anew, and nobody
//! sees more of that than the expiry.
#![allow(
    clippy::cast_possible_truncation,
    reason = "patterns and small numbers"
)]

mod support;

use coua_store::*;
use std::sync::Arc;
use support::{NOW, put, value_of};

const LATER: Expiry = Expiry::at(UnixSeconds(NOW.0 + 100));

/// Looks, and leaves no trace.
const PEEK: Access = Access {
    bump: false,
    cas: false,
};

fn store(evict: bool) -> Arc<Store> {
    let config = Config {
        memory: 8 << 20,
        evict,
        seed: Some(7),
        ..Config::default()
    };
    Store::new(config, NOW).unwrap()
}

fn set(worker: &mut Worker, key: &[u8], expiry: Expiry, value: &[u8]) {
    for _ in 0..100_000 {
        match put(worker, key, &Put::set(0, expiry), value) {
            Stored::Stored { .. } => return,
            Stored::Refused(Refused::Wait) => {}
            other => panic!("{other:?}"),
        }
    }
    panic!("no memory for a long time");
}

fn touch(worker: &mut Worker, key: &[u8], expiry: Expiry) -> Result<Vec<u8>, Untouched> {
    let mut burst = worker.burst(NOW);
    let key = burst.key(key);
    let item = burst.touch(&key, expiry, PEEK)?;
    assert!(item.expiry() == expiry || expiry.is_past(NOW));
    Ok(value_of(&item))
}

fn get(worker: &mut Worker, key: &[u8], now: UnixSeconds) -> Result<Vec<u8>, Miss> {
    let burst = worker.burst(now);
    let item = burst.get(&burst.key(key), PEEK)?;
    Ok(value_of(&item))
}

fn expiry_of(worker: &mut Worker, key: &[u8]) -> Expiry {
    let burst = worker.burst(NOW);
    burst.get(&burst.key(key), PEEK).unwrap().expiry()
}

/// What `mg` asks, changing nothing.
const QUESTION: MetaGet = MetaGet {
    access: PEEK,
    vivify: None,
    vivify_cas: None,
    tags: NO_TAGS,
    recache: None,
    touch: None,
    touch_first: false,
};

/// All that a client can see of an item but its expiry.
#[derive(Debug, PartialEq)]
struct LookupHint {
    value: Vec<u8>,
    client_flags: u32,
    cas: u64,
    key_is_binary: bool,
    fetched: bool,
    idle_seconds: u32,
    stale: bool,
    won: bool,
}

/// Looks at "k" with a CAS only where `shows_cas`, since showing one may change how it is kept.
fn sight(worker: &mut Worker, shows_cas: bool) -> LookupHint {
    let mut burst = worker.burst(UnixSeconds(NOW.0 + 9));
    let question = MetaGet {
        access: Access {
            bump: false,
            cas: shows_cas,
        },
        ..QUESTION
    };
    let hit = burst.meta_get(&burst.key(b"k"), &question).ok().unwrap();
    LookupHint {
        value: value_of(&hit.item),
        client_flags: hit.item.client_flags(),
        cas: hit.item.cas(),
        key_is_binary: hit.item.key_is_binary(),
        fetched: hit.fetched_before,
        idle_seconds: hit.idle_seconds,
        stale: hit.stale,
        won: hit.won || hit.token_sent,
    }
}

/// How an item comes to be that is touched then.
#[derive(Clone, Copy, Debug)]
struct Past {
    value_len: usize,
    client_flags: u32,
    key_is_binary: bool,
    cas: Option<u64>,
    shows_cas: bool,
    fetched: bool,
    stale: bool,
}

fn pasts() -> impl Iterator<Item = Past> {
    // The longest lies in pieces.
    let lens = [0, 3, 1000, 16_000, 300_000];
    let all = if cfg!(miri) { 8 } else { 64u8 };
    lens.into_iter().flat_map(move |value_len| {
        (0..all).map(move |bits| {
            let bit = |at: u8| bits >> at & 1 != 0;
            Past {
                value_len,
                client_flags: if bit(0) { 0xdead_beef } else { 0 },
                key_is_binary: bit(1),
                cas: bit(2).then_some(1 << 60),
                shows_cas: bit(3),
                fetched: bit(4),
                stale: bit(5),
            }
        })
    })
}

impl Past {
    fn happen(self, worker: &mut Worker) {
        let value: Vec<u8> = (0..self.value_len).map(|i| (i / 3) as u8).collect();
        let request = Put {
            key_is_binary: self.key_is_binary,
            cas: self.cas,
            ..Put::set(self.client_flags, Expiry::NEVER)
        };
        let stored = put(worker, b"k", &request, &value);
        assert!(matches!(stored, Stored::Stored { .. }), "{stored:?}");
        let mut burst = worker.burst(UnixSeconds(NOW.0 + 2));
        let key = burst.key(b"k");
        if self.fetched {
            assert!(burst.get(&key, Access::default()).is_ok());
        }
        if self.stale {
            let delete = Delete {
                mark_stale: true,
                ..Delete::default()
            };
            assert_eq!(burst.delete(&key, &delete), Deleted::Done);
        }
    }
}

#[test]
fn all_but_the_expiry_stays() {
    let sooner = Expiry::at(UnixSeconds(NOW.0 + 50));
    let touches: [&[Expiry]; 3] = [&[LATER], &[sooner, LATER], &[sooner, Expiry::NEVER, LATER]];
    for (number, past) in pasts().enumerate() {
        let store = store(true);
        let mut worker = store.worker(0);
        past.happen(&mut worker);
        let before = sight(&mut worker, past.shows_cas);
        assert_eq!((before.fetched, before.stale), (past.fetched, past.stale));
        let mut expiry_before = Expiry::NEVER;
        for &expiry in touches[number % 3] {
            let mut burst = worker.burst(NOW);
            let key = burst.key(b"k");
            if number % 2 == 0 {
                assert_eq!(burst.touch(&key, expiry, PEEK).unwrap().expiry(), expiry);
            } else {
                let touch = MetaGet {
                    touch: Some(expiry),
                    ..QUESTION
                };
                let hit = burst.meta_get(&key, &touch).ok().unwrap();
                assert_eq!(
                    (hit.expiry_before, hit.item.expiry()),
                    (expiry_before, expiry)
                );
            }
            expiry_before = expiry;
        }
        assert_eq!(sight(&mut worker, past.shows_cas), before, "{past:?}");
        assert_eq!(store.stats().items, 1);
        let end = UnixSeconds(NOW.0 + 100);
        assert!(get(&mut worker, b"k", UnixSeconds(end.0 - 1)).is_ok());
        assert_eq!(get(&mut worker, b"k", end), Err(Miss::Expired), "{past:?}");
    }
}

#[test]
fn a_token_that_nobody_holds_is_won_by_who_touches() {
    let store = store(true);
    let mut worker = store.worker(0);
    let mut past = pasts().next().unwrap();
    past.stale = true;
    past.happen(&mut worker);
    touch(&mut worker, b"k", LATER).unwrap();
    past.happen(&mut worker);
    let mut burst = worker.burst(NOW);
    let key = burst.key(b"k");
    let both = MetaGet {
        touch: Some(LATER),
        ..QUESTION
    };
    let hit = burst.meta_get(&key, &both).ok().unwrap();
    assert!(hit.won && hit.stale && !hit.token_sent);
    let hit = burst.meta_get(&key, &both).ok().unwrap();
    assert!(!hit.won && hit.stale && hit.token_sent);
    assert_eq!(hit.expiry_before, LATER);
    // In the order sent: due by the new expiry, not by the old one.
    assert_eq!(burst.delete(&key, &Delete::default()), Deleted::Done);
    let never = Put::set(0, Expiry::NEVER);
    assert!(matches!(
        burst.store(&key, &never, b"v"),
        Stored::Stored { .. }
    ));
    let recache = MetaGet {
        recache: Some(Expiry::at(UnixSeconds(NOW.0 + 200))),
        ..both
    };
    assert!(!burst.meta_get(&key, &recache).ok().unwrap().won);
    assert!(matches!(
        burst.store(&key, &never, b"v"),
        Stored::Stored { .. }
    ));
    let touch_first = MetaGet {
        touch_first: true,
        ..recache
    };
    assert!(burst.meta_get(&key, &touch_first).ok().unwrap().won);
}

/// Each operation that gives an item an expiry or keeps one.
#[test]
fn an_expiry_comes_and_goes_by_every_operation() {
    let store = store(true);
    let mut worker = store.worker(0);
    let never = Expiry::NEVER;
    let stale_until = |expiry| Delete {
        mark_stale: true,
        expiry,
        ..Delete::default()
    };
    let count = |touch| Arithmetic {
        delta: 1,
        decrement: false,
        compare: 0,
        cas: None,
        return_cas: false,
        vivify: None,
        tags: NO_TAGS,
        touch,
    };
    let append = Put {
        mode: Mode::Append,
        ..Put::set(0, LATER)
    };
    for before in [never, LATER] {
        for touched in [
            None,
            Some(never),
            Some(LATER),
            Some(Expiry::at(UnixSeconds(NOW.0 + 7))),
        ] {
            let after = touched.unwrap_or(before);
            let now = |worker: &mut Worker| {
                if let Some(expiry) = touched {
                    touch(worker, b"k", expiry).unwrap();
                }
                assert_eq!(expiry_of(worker, b"k"), after);
            };
            set(&mut worker, b"k", before, b"1");
            now(&mut worker);
            assert!(matches!(
                put(&mut worker, b"k", &append, b"2"),
                Stored::Stored { .. }
            ));
            assert_eq!(expiry_of(&mut worker, b"k"), after);
            // md I, md I T
            for expiry in [None, touched] {
                set(&mut worker, b"k", before, b"41");
                let mut burst = worker.burst(NOW);
                let deleted = burst.delete(&burst.key(b"k"), &stale_until(expiry));
                assert_eq!(deleted, Deleted::Done);
                assert_eq!(expiry_of(&mut worker, b"k"), expiry.unwrap_or(before));
            }
            // ma, ma T
            for expiry in [None, touched] {
                set(&mut worker, b"k", before, b"99");
                let mut burst = worker.burst(NOW);
                let counted = burst.arithmetic(&burst.key(b"k"), &count(expiry));
                assert!(
                    matches!(counted, ArithmeticResult::Value { number: 100, expiry_before, .. } if expiry_before == before)
                );
                assert_eq!(expiry_of(&mut worker, b"k"), expiry.unwrap_or(before));
            }
            // ms I keeps the expiry of what it writes over.
            set(&mut worker, b"k", before, b"new");
            now(&mut worker);
            let over_newer = Put {
                mode: Mode::Cas,
                compare: 1,
                allow_stale: true,
                ..Put::set(0, Expiry::at(UnixSeconds(NOW.0 + 9)))
            };
            let stored = put(&mut worker, b"k", &over_newer, b"old");
            assert!(matches!(
                stored,
                Stored::Stored {
                    over_newer: true,
                    ..
                }
            ));
            assert_eq!(expiry_of(&mut worker, b"k"), after);
        }
    }
}

#[test]
fn only_the_first_expiry_takes_memory() {
    let store = store(true);
    let mut worker = store.worker(0);
    let appended = || store.stats().totals.bytes_appended;
    for len in [10, 15_000, 100_000] {
        set(&mut worker, b"k", Expiry::NEVER, &vec![7; len]);
        let before = appended();
        touch(&mut worker, b"k", Expiry::NEVER).unwrap();
        assert_eq!(appended(), before);
        touch(&mut worker, b"k", LATER).unwrap();
        // What is large has room for an expiry in any case.
        assert_eq!(appended() > before, len < 64 << 10, "{len}");
        let before = appended();
        for expiry in [Expiry::NEVER, LATER] {
            touch(&mut worker, b"k", expiry).unwrap();
        }
        assert_eq!(appended(), before);
        // What a vivifying mg makes is often touched.
        let mut burst = worker.burst(NOW);
        let vivify = MetaGet {
            vivify: Some(LATER),
            ..QUESTION
        };
        let key = burst.key(b"made");
        assert!(burst.meta_get(&key, &vivify).ok().unwrap().won);
        let before = appended();
        assert!(burst.touch(&key, Expiry::NEVER, PEEK).is_ok());
        assert_eq!(appended(), before);
        assert_eq!(burst.delete(&key, &Delete::default()), Deleted::Done);
    }
}

/// Fills memory with items that have no expiry. Returns how many.
fn fill(worker: &mut Worker) -> u32 {
    let (mut count, mut failures) = (0u32, 0);
    while failures < 500 {
        let stored = put(
            worker,
            &count.to_le_bytes(),
            &Put::set(0, Expiry::NEVER),
            &[7; 100],
        );
        match stored {
            Stored::Stored { .. } => (count, failures) = (count + 1, 0),
            Stored::Refused(Refused::OutOfMemory) => failures += 1,
            other => panic!("{other:?}"),
        }
    }
    count
}

#[test]
#[cfg_attr(miri, ignore = "memory full of items")]
fn where_there_is_no_memory_nothing_is_changed() {
    let store = store(false);
    let mut worker = store.worker(0);
    let count = fill(&mut worker);
    assert!(count > 10_000, "{count}");
    let refused = Untouched::Refused(Refused::OutOfMemory);
    for number in 0..count {
        let name = number.to_le_bytes();
        // The rest of the open segment may take one or two.
        match touch(&mut worker, &name, LATER) {
            Ok(value) => assert_eq!(value, [7; 100]),
            Err(untouched) => {
                assert_eq!(untouched, refused);
                assert_eq!(expiry_of(&mut worker, &name), Expiry::NEVER);
                let mut burst = worker.burst(NOW);
                let touch = MetaGet {
                    touch: Some(LATER),
                    ..QUESTION
                };
                let answer = burst.meta_get(&burst.key(&name), &touch);
                let refused = MetaMiss::Untouched(Refused::OutOfMemory);
                assert_eq!(answer.err(), Some(refused));
            }
        }
        assert_eq!(get(&mut worker, &name, NOW).unwrap(), [7; 100]);
        assert!(touch(&mut worker, &name, Expiry::NEVER).is_ok());
    }
    // To die takes no memory.
    assert_eq!(store.stats().items, u64::from(count));
    for number in 0..count {
        let name = number.to_le_bytes();
        assert_eq!(touch(&mut worker, &name, Expiry::at(NOW)), Ok(vec![7; 100]));
        assert!(get(&mut worker, &name, NOW).is_err());
    }
    assert_eq!(store.stats().items, 0);
    assert_eq!(store.stats().totals.expired, u64::from(count));
}

/// Memory many times over, every other item with an expiry, some of the rest touched to one.
#[test]
#[cfg_attr(miri, ignore = "memory full of items")]
fn both_kinds_are_moved_evicted_and_expire() {
    let store = store(true);
    let mut worker = store.worker(0);
    let count = 200_000u32;
    let value = |number: u32| vec![number as u8; 20 + (number % 97) as usize];
    let dies_by_touch = |number: u32| number.is_multiple_of(6);
    let dies = |number: u32| !number.is_multiple_of(2) || dies_by_touch(number);
    for number in 0..count {
        let name = number.to_le_bytes();
        let expiry = if number.is_multiple_of(2) {
            Expiry::NEVER
        } else {
            LATER
        };
        set(&mut worker, &name, expiry, &value(number));
        if dies_by_touch(number) {
            while let Err(untouched) = touch(&mut worker, &name, LATER) {
                assert_eq!(untouched, Untouched::Refused(Refused::Wait));
                worker.end(NOW);
            }
        }
        // Read, so that some move to the main queue and round it.
        let recent = number.saturating_sub(number % 4000);
        for name in [name, recent.to_le_bytes()] {
            let burst = worker.burst(NOW);
            let _ = burst.get(&burst.key(&name), Access::default());
        }
    }
    let totals = store.stats().totals;
    assert!(totals.promoted > 0 && totals.evicted > 10_000, "{totals:?}");
    let mut staying = 0;
    for number in 0..count {
        let Ok(found) = get(&mut worker, &number.to_le_bytes(), NOW) else {
            continue;
        };
        assert_eq!(found, value(number), "{number}");
        let expiry = if dies(number) { LATER } else { Expiry::NEVER };
        assert_eq!(expiry_of(&mut worker, &number.to_le_bytes()), expiry);
        staying += u64::from(!dies(number));
    }
    assert!(staying > 1000 && store.stats().items > staying + 1000);
    // The crawler finds whatever has died.
    for seconds in 100..300 {
        let now = UnixSeconds(NOW.0 + seconds);
        while worker.end(now) {}
        worker.burst(now).close();
    }
    // What lies in segments that are still open is found by lookups.
    let now = UnixSeconds(NOW.0 + 300);
    for number in 0..count {
        let found = get(&mut worker, &number.to_le_bytes(), now);
        assert!(found.is_err() || !dies(number), "{number}");
    }
    let stats = store.stats();
    assert_eq!(stats.items, staying);
    for number in 0..count {
        let mut burst = worker.burst(now);
        let name = number.to_le_bytes();
        burst.delete(&burst.key(&name), &Delete::default());
    }
    worker.end(now);
    assert_eq!((store.stats().items, store.stats().bytes), (0, 0));
}
