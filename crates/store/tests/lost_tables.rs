//! The store while the machine loses pages of its tables: the superblock, the page table and the directory
//! are kept twice, so nothing is lost with them.
//!
//! Pages are lost by `UFFDIO_POISON`. A kernel that cannot do that leaves the tests out, and they say
//! so.
#![cfg(not(any(miri, loom)))]
#![allow(clippy::cast_possible_truncation, reason = "small numbers")]

use coua_memory_errors::{Events, install_thread};
use coua_store::*;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex, PoisonError};

#[path = "support/losses.rs"]
mod losses;
use losses::{NOW, beside_mender, events, get, is_possible, put, random, value};

const TABLES: [PoisonTarget; 4] = [
    PoisonTarget::Superblock,
    PoisonTarget::PageTable,
    PoisonTarget::Directory,
    PoisonTarget::Copies,
];

/// A path for a file on tmpfs that nobody has.
fn path(name: &str) -> PathBuf {
    let path = PathBuf::from(format!("/dev/shm/coua-{name}-{}", std::process::id()));
    let _ = std::fs::remove_file(&path);
    path
}

fn store_in(file: Option<&PathBuf>, workers: usize) -> Arc<Store> {
    let config = Config {
        memory: 96 << 20,
        file: file.cloned(),
        workers,
        survives_memory_errors: true,
        seed: Some(9),
        index_bits: Some(0),
        ..Config::default()
    };
    Store::new(config, NOW).expect("there is memory")
}

/// Whether pages can be lost here.
fn can_lose() -> bool {
    let can = is_possible(&mut store_in(None, 1).worker(0));
    #[expect(clippy::print_stderr, reason = "what is left out is told")]
    if !can {
        eprintln!("left out: this kernel has no UFFDIO_POISON");
    }
    can
}

fn name(number: u64) -> String {
    format!("key-{number}")
}

fn poison(worker: &mut Worker, name: &str, target: PoisonTarget) {
    // A page can be poisoned by one at a time.
    static ONE: Mutex<()> = Mutex::new(());
    let burst = worker.burst(NOW);
    let key = burst.key(name.as_bytes());
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    burst
        .poison(&key, target, PoisonMeans::Userfault)
        .expect("it was possible before");
}

/// One worker's operations on keys of its own, checked against a map.
fn live(worker: &mut Worker, own: u64, steps: u64, poisons: u64) -> HashMap<u64, Vec<u8>> {
    let mut seed = own + 1;
    let mut map: HashMap<u64, Vec<u8>> = HashMap::new();
    let mut pinned: Vec<(Pinned, Vec<u8>)> = Vec::new();
    for step in 0..steps {
        let number = random(&mut seed, 1 << 16) << 8 | own;
        let name = name(number);
        match random(&mut seed, 8) {
            0..=3 => {
                let len = match random(&mut seed, 1000) {
                    0 => 200_000,
                    1..=20 => 20_000,
                    _ => random(&mut seed, 300) as usize,
                };
                let value = value(number, step, len);
                let expiry = match number % 3 {
                    0 => Expiry::at(UnixSeconds(NOW.0 + 1000)),
                    _ => Expiry::NEVER,
                };
                let stored = put(worker, name.as_bytes(), &Put::set(0, expiry), &value);
                assert!(matches!(stored, Stored::Stored { .. }), "{stored:?}");
                map.insert(number, value);
            }
            4 => {
                let mut burst = worker.burst(NOW);
                let key = burst.key(name.as_bytes());
                let deleted = burst.delete(&key, &Delete::default());
                let is_gone = deleted == Deleted::Done;
                assert_eq!(is_gone, map.remove(&number).is_some(), "{deleted:?}");
            }
            5 => {
                let burst = worker.burst(NOW);
                let key = burst.key(name.as_bytes());
                if let Ok(item) = burst.get(&key, Access::default())
                    && let Some(pin) = burst.pin(&item)
                {
                    pinned.push((pin, map[&number].clone()));
                }
                if pinned.len() > 8 {
                    let (pin, right) = pinned.remove(0);
                    assert!(pin.chunks().collect::<Vec<_>>().concat() == right);
                }
            }
            _ => assert!(
                get(worker, name.as_bytes()) == map.get(&number).cloned(),
                "{number}"
            ),
        }
        if poisons > 0 && random(&mut seed, poisons) == 0 {
            let target = TABLES[random(&mut seed, 4) as usize];
            poison(worker, &name, target);
        }
    }
    map
}

fn compare(store: &Arc<Store>, maps: &[HashMap<u64, Vec<u8>>]) {
    let mut worker = store.worker(0);
    for (number, right) in maps.iter().flatten() {
        let found = get(&mut worker, name(*number).as_bytes());
        assert!(
            found.as_ref() == Some(right),
            "{number}: {}",
            found.is_some()
        );
    }
    let count: usize = maps.iter().map(HashMap::len).sum();
    assert_eq!(store.stats().items, count as u64);
    assert_eq!(store.stats().totals.evicted, 0);
    assert_eq!(store.stats().totals.lost, 0);
}

fn run(file: Option<&PathBuf>, events: &mut Option<Events>) {
    const WORKERS: u64 = 2;
    let store = store_in(file, WORKERS as usize);
    let mut maps = Vec::new();
    beside_mender(&store, events, |told| {
        std::thread::scope(|scope| {
            let lives: Vec<_> = (0..WORKERS)
                .map(|own| {
                    let store = &store;
                    scope.spawn(move || {
                        let _stack = install_thread().expect("there is memory");
                        let mut worker = store.worker(own as usize);
                        live(&mut worker, own, 40_000, 400)
                    })
                })
                .collect();
            maps = lives
                .into_iter()
                .map(|life| life.join().expect("a worker"))
                .collect();
        });
        compare(&store, &maps);
        let losses = told.losses.load(SeqCst);
        assert!(losses > 50, "{losses} pages were lost");
        assert_eq!(told.items.load(SeqCst), 0);
    });
    assert!(store.stats().totals.splits > 2, "{:?}", store.stats());
    if file.is_none() {
        return;
    }
    // The file has what was restored too.
    drop(store);
    let store = store_in(file, WORKERS as usize);
    assert!(
        matches!(store.start(), Start::Warm(_)),
        "{:?}",
        store.start()
    );
    compare(&store, &maps);
}

#[test]
fn nothing_is_lost_with_a_page_of_the_tables() {
    let _stack = install_thread().expect("there is memory");
    let mut events = events();
    if !can_lose() {
        return;
    }
    run(None, &mut events);
    let path = path("lost-tables");
    run(Some(&path), &mut events);
    let _ = std::fs::remove_file(path);
}
