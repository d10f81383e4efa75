//! The limit of memory, lowered and raised while the store serves.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use coua_store::{
    Access, Config, Delete, Expiry, LimitRefused, Put, Start, Store, StoreError, Stored,
    UnixSeconds, Worker,
};

const NOW: UnixSeconds = UnixSeconds(1_700_000_000);
const MOST: usize = 64 << 20;

/// One test at a time: what the process has of memory is compared.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn value_of(number: u32) -> Vec<u8> {
    number.to_le_bytes().repeat(250)
}

fn set(worker: &mut Worker, number: u32) {
    for _ in 0..1000 {
        let mut burst = worker.burst(NOW);
        let name = number.to_string();
        let key = burst.key(name.as_bytes());
        let stored = burst.store(&key, &Put::set(0, Expiry::NEVER), &value_of(number));
        burst.close();
        worker.end(NOW);
        if matches!(stored, Stored::Stored { .. }) {
            return;
        }
    }
    panic!("{number} is never stored");
}

/// How many of the first `count` items are there; each has its own value.
fn hits(worker: &mut Worker, count: u32) -> usize {
    let burst = worker.burst(NOW);
    let is_hit = |number: &u32| {
        let name = number.to_string();
        let item = burst.get(&burst.key(name.as_bytes()), Access::default());
        item.is_ok_and(|item| {
            assert_eq!(item.as_slice(), Some(&value_of(*number)[..]));
            true
        })
    };
    (0..count).filter(is_hit).count()
}

fn store(memory_limit: Option<usize>, evict: bool) -> Arc<Store> {
    let config = Config {
        memory: MOST,
        memory_limit,
        evict,
        ..Config::default()
    };
    Store::new(config, NOW).expect("a store")
}

/// Turns until the worker says that nothing is left to do.
fn rest(worker: &mut Worker) {
    for _ in 0..100_000 {
        worker.burst(NOW).close();
        if !worker.end(NOW) {
            return;
        }
    }
    panic!("the worker never rests");
}

/// Bytes of the mapping that the system has given, as `/proc` tells.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("/proc");
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let words = line.expect("VmRSS").split_whitespace();
    words
        .clone()
        .nth(1)
        .and_then(|kb| kb.parse::<usize>().ok())
        .expect("a number")
        << 10
}

#[test]
fn memory_is_given_back_and_taken_again() {
    let _alone = alone();
    let store = store(None, true);
    let mut worker = store.worker(0);
    for number in 0..80_000 {
        set(&mut worker, number);
    }
    let (full, resident_full) = (hits(&mut worker, 80_000), resident());
    assert_eq!(store.stats().memory, MOST as u64);

    store.set_memory_limit(MOST / 2).expect("enough to live on");
    rest(&mut worker);
    assert!(
        store.stats().memory <= MOST as u64 / 2,
        "{:?}",
        store.stats()
    );
    let (half, resident_half) = (hits(&mut worker, 80_000), resident());
    assert!(
        half * 10 > full * 4 && half * 10 < full * 6,
        "{half} of {full}"
    );
    let gone = resident_full.saturating_sub(resident_half);
    assert!(gone > MOST / 3, "{gone} bytes went back to the system");
    // It stays so, whatever is stored.
    for number in 80_000..120_000 {
        set(&mut worker, number);
    }
    assert!(store.stats().memory <= MOST as u64 / 2);

    store.set_memory_limit(MOST).expect("as at the start");
    for number in 0..80_000 {
        set(&mut worker, number);
    }
    assert_eq!(store.stats().memory, MOST as u64);
    let again = hits(&mut worker, 80_000);
    assert!(again * 10 > full * 9, "{again} of {full}");
}

#[test]
fn a_store_begins_small_and_grows() {
    let _alone = alone();
    let store = store(Some(MOST / 4), true);
    assert!(store.stats().memory <= MOST as u64 / 4);
    let mut worker = store.worker(0);
    for number in 0..80_000 {
        set(&mut worker, number);
    }
    let small = hits(&mut worker, 80_000);
    store.set_memory_limit(MOST).expect("foreseen");
    for number in 0..80_000 {
        set(&mut worker, number);
    }
    let large = hits(&mut worker, 80_000);
    assert!(large > 3 * small, "{small}, then {large}");
}

#[test]
fn nothing_is_evicted_for_a_limit_where_nothing_may_be() {
    let _alone = alone();
    let store = store(None, false);
    let mut worker = store.worker(0);
    for number in 0..40_000 {
        set(&mut worker, number);
    }
    store.set_memory_limit(MOST / 4).expect("enough to live on");
    rest(&mut worker);
    assert_eq!(hits(&mut worker, 40_000), 40_000);
    assert!(store.stats().memory < MOST as u64, "what is free goes back");
    let mut burst = worker.burst(NOW);
    let key = burst.key(b"one more");
    let refused = (0..2000).any(|_| {
        let stored = burst.store(&key, &Put::set(0, Expiry::NEVER), &value_of(1));
        matches!(stored, Stored::Refused(_))
    });
    assert!(refused);
}

#[test]
fn limits_that_cannot_be_are_refused() {
    let _alone = alone();
    let store = store(None, true);
    assert_eq!(
        store.set_memory_limit(MOST + 1),
        Err(LimitRefused::TooLarge { most: MOST })
    );
    assert!(matches!(
        store.set_memory_limit(1 << 20),
        Err(LimitRefused::TooSmall { least }) if least > 1 << 20
    ));
    assert_eq!(store.stats().memory, MOST as u64);
    let config = Config {
        memory: MOST,
        memory_limit: Some(1 << 20),
        ..Config::default()
    };
    let refused = Store::new(config, NOW).err();
    assert!(matches!(refused, Some(StoreError::MemoryTooSmall { .. })));
}

/// Waits until the process has at least, or at most, so much memory.
fn wait_for_resident(what: &str, holds: impl Fn(usize) -> bool) {
    for _ in 0..6000 {
        if holds(resident()) {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    panic!("{what}: {} bytes", resident());
}

/// Nobody touches what a higher limit has put back into use; the system supplies it all the same.
#[test]
fn memory_is_supplied_ahead_of_use_again() {
    let _alone = alone();
    let store = store(None, true);
    let mut worker = store.worker(0);
    for number in 0..80_000 {
        set(&mut worker, number);
    }
    let full = resident();
    store.set_memory_limit(MOST / 2).expect("enough to live on");
    rest(&mut worker);
    wait_for_resident("it goes back", |now| now < full - MOST / 3);
    store.set_memory_limit(MOST).expect("as at the start");
    wait_for_resident("it is supplied", |now| now > full - MOST / 8);
}

/// What is locked into memory goes back to the system as well, and is locked again.
#[test]
fn locked_memory_moves() {
    let _alone = alone();
    let before = resident();
    let config = Config {
        memory: MOST,
        memory_limit: Some(MOST / 2),
        lock_memory: true,
        ..Config::default()
    };
    let store = Store::new(config, NOW).expect("memory can be locked");
    let begun = resident() - before;
    assert!(
        begun < MOST * 5 / 8,
        "{begun} bytes are locked at the start"
    );
    store.set_memory_limit(MOST).expect("foreseen");
    wait_for_resident("all is locked", |now| now - before > MOST * 7 / 8);
    store.set_memory_limit(MOST / 4).expect("enough to live on");
    let mut worker = store.worker(0);
    rest(&mut worker);
    wait_for_resident("it goes back", |now| now - before < MOST * 3 / 8);
}

/// Memory that deletes make reclaimable goes back to the system first, and is then used.
#[test]
fn without_evictions_deletes_make_room_below_the_limit() {
    let _alone = alone();
    let store = store(None, false);
    let mut worker = store.worker(0);
    for number in 0..50_000 {
        set(&mut worker, number);
    }
    let limit = MOST * 5 / 8;
    store.set_memory_limit(limit).expect("enough to live on");
    rest(&mut worker);
    assert!(store.stats().memory > limit as u64, "nothing may go");
    // Every other one, so that no segment becomes empty by itself. Sets go on meanwhile, and take
    // nothing of what becomes free while there is too much.
    let mut refused = 0;
    for number in (0..50_000).step_by(2) {
        let mut burst = worker.burst(NOW);
        let name = number.to_string();
        let key = burst.key(name.as_bytes());
        burst.delete(&key, &Delete::default());
        let extra = format!("extra {number}");
        let key = burst.key(extra.as_bytes());
        let stored = burst.store(&key, &Put::set(0, Expiry::NEVER), &value_of(number));
        refused += u32::from(!matches!(stored, Stored::Stored { .. }));
        burst.close();
        worker.end(NOW);
        if store.stats().memory <= limit as u64 {
            break;
        }
    }
    rest(&mut worker);
    assert!(store.stats().memory <= limit as u64, "{:?}", store.stats());
    assert!(refused > 0, "no set had to wait for the limit");
    // Then there is room for new ones, as much as the limit leaves.
    for number in (0..50_000).step_by(2) {
        let mut burst = worker.burst(NOW);
        let name = number.to_string();
        burst.delete(&burst.key(name.as_bytes()), &Delete::default());
    }
    for number in 100_000..108_000 {
        set(&mut worker, number);
    }
    assert_eq!(store.stats().totals.evicted, 0);
    assert!(store.stats().memory <= limit as u64);
    let kept = (0..50_000).skip(1).step_by(2);
    assert!(kept.into_iter().all(|number| has(&mut worker, number)));
}

fn has(worker: &mut Worker, number: u32) -> bool {
    let burst = worker.burst(NOW);
    let name = number.to_string();
    burst
        .get(&burst.key(name.as_bytes()), Access::default())
        .is_ok()
}

/// A process that begins in a file uses no more of it than the limit, whatever the one before used.
#[test]
fn a_file_is_taken_over_below_a_limit() {
    let _alone = alone();
    let path = std::path::PathBuf::from(format!("/dev/shm/coua-limit-{}", std::process::id()));
    let in_file = |memory_limit| {
        let config = Config {
            memory: MOST,
            memory_limit,
            file: Some(path.clone()),
            ..Config::default()
        };
        Store::new(config, NOW).expect("a store")
    };
    let blocks = || {
        use std::os::unix::fs::MetadataExt;
        std::fs::metadata(&path).expect("the file").blocks() * 512
    };
    let store = in_file(None);
    let mut worker = store.worker(0);
    for number in 0..80_000 {
        set(&mut worker, number);
    }
    store.set_memory_limit(MOST / 2).expect("enough to live on");
    rest(&mut worker);
    assert!(
        blocks() <= MOST as u64 / 2,
        "{} bytes of the file",
        blocks()
    );
    let kept = hits(&mut worker, 80_000);
    drop((worker, store));

    let store = in_file(Some(MOST / 2));
    assert!(matches!(store.start(), Start::Warm(_)));
    let mut worker = store.worker(0);
    rest(&mut worker);
    assert_eq!(hits(&mut worker, 80_000), kept);
    for number in 0..20_000 {
        set(&mut worker, number);
    }
    assert!(
        blocks() <= MOST as u64 / 2,
        "{} bytes of the file",
        blocks()
    );
    assert!(store.stats().memory <= MOST as u64 / 2);
    drop((worker, store));
    std::fs::remove_file(&path).expect("the file");
}
