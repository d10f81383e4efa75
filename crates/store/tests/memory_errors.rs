//! The store while the machine loses pages of it: a value is right or missing, and only what lay on
//! a lost page is missing.
//!
//! Pages are lost by `UFFDIO_POISON`. A kernel that cannot do that leaves the tests out, and they say
//! so.
#![cfg(not(any(miri, loom)))]
#![allow(clippy::cast_possible_truncation, reason = "small numbers")]

use coua_memory_errors::{Events, install_thread};
use coua_store::*;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

#[path = "support/losses.rs"]
mod losses;
use losses::{NOW, beside_mender, events, get, is_possible, put, random, value};

/// How pages are lost.
const BY: PoisonMeans = PoisonMeans::Userfault;

struct Life {
    memory: usize,
    file: Option<PathBuf>,
    keys: u64,
    steps: u64,
    /// One step in so many loses a page.
    poisons: u64,
    targets: &'static [PoisonTarget],
    /// The longest ordinary value, and how many keys of a hundred have one in pieces.
    len_max: u64,
    large: u64,
    seed: u64,
}

fn store_of(life: &Life) -> Arc<Store> {
    let config = Config {
        memory: life.memory,
        file: life.file.clone(),
        survives_memory_errors: true,
        seed: Some(life.seed),
        index_bits: Some(0),
        ..Config::default()
    };
    Store::new(config, NOW).expect("there is memory")
}

/// Lives through random operations and losses against a map. Returns the map at the end.
fn live(life: &Life, events: &mut Option<Events>) -> HashMap<u64, Vec<u8>> {
    let store = store_of(life);
    let mut worker = store.worker(0);
    let mut seed = life.seed;
    let mut map: HashMap<u64, Vec<u8>> = HashMap::new();
    let (mut poisoned, mut missing) = (0, 0);
    beside_mender(&store, events, |told| {
        for step in 0..life.steps {
            let number = random(&mut seed, life.keys);
            let name = format!("key-{number}");
            let name = name.as_bytes();
            let is_large = number % 100 < life.large;
            let len = match is_large {
                true => 100_000 + random(&mut seed, 100_000),
                false => random(&mut seed, life.len_max),
            };
            match random(&mut seed, 10) {
                0..=3 => {
                    let value = value(number, step, len as usize);
                    let set = Put::set(0, Expiry::NEVER);
                    let stored = put(&mut worker, name, &set, &value);
                    assert!(matches!(stored, Stored::Stored { .. }), "{stored:?}");
                    map.insert(number, value);
                }
                4 => {
                    let tail = value(number, step, 8);
                    let append = Put {
                        mode: Mode::Append,
                        ..Put::set(0, Expiry::NEVER)
                    };
                    match put(&mut worker, name, &append, &tail) {
                        Stored::Stored { .. } => map
                            .get_mut(&number)
                            .expect("nothing is appended to what is not there")
                            .extend(tail),
                        Stored::NotStored => missing += u64::from(map.remove(&number).is_some()),
                        other => panic!("{other:?}"),
                    }
                }
                5 => {
                    let mut burst = worker.burst(NOW);
                    let key = burst.key(name);
                    let deleted = burst.delete(&key, &Delete::default());
                    let was_there = map.remove(&number).is_some();
                    match deleted {
                        Deleted::Done => assert!(was_there, "a deleted item was there"),
                        Deleted::NotFound(_) => missing += u64::from(was_there),
                        other => panic!("{other:?}"),
                    }
                }
                6 => {
                    let mut burst = worker.burst(NOW);
                    let key = burst.key(name);
                    // The first expiry of an item rewrites it.
                    let touched =
                        burst.touch(&key, Expiry::at(UnixSeconds(2_000_000)), Access::default());
                    if let Err(Untouched::Miss(_)) = touched {
                        missing += u64::from(map.remove(&number).is_some());
                    }
                }
                _ => {
                    let found = get(&mut worker, name);
                    match (found, map.get(&number)) {
                        (Some(found), Some(right)) => assert!(found == *right, "a wrong value"),
                        (Some(_), None) => panic!("what is not there was found"),
                        (None, Some(_)) => {
                            missing += 1;
                            map.remove(&number);
                        }
                        (None, None) => {}
                    }
                }
            }
            if random(&mut seed, life.poisons) == 0 {
                let target = life.targets[random(&mut seed, life.targets.len() as u64) as usize];
                let burst = worker.burst(NOW);
                let key = burst.key(name);
                let lost = burst
                    .poison(&key, target, BY)
                    .expect("it was possible before");
                poisoned += u64::from(lost.is_some());
            }
        }
        worker.park();
        // All that is there is touched, so all that is lost is met.
        let mut left = HashMap::new();
        for (number, right) in map.drain() {
            match get(&mut worker, format!("key-{number}").as_bytes()) {
                Some(found) => {
                    assert!(found == right, "a wrong value");
                    left.insert(number, right);
                }
                None => missing += 1,
            }
        }
        worker.park();
        map = left;
        assert!(poisoned > 10, "{poisoned} pages were lost");
        assert!(told.losses.load(SeqCst) <= poisoned);
    });
    drop(worker);
    assert!(missing > 0, "nothing was missed");
    let stats = store.stats();
    if !life.targets.contains(&PoisonTarget::Index) {
        assert_eq!(stats.items, map.len() as u64);
        assert!(
            missing <= stats.totals.lost,
            "{missing} {}",
            stats.totals.lost
        );
        // A page, and an item at each end of it.
        let on_page = 4096 / 24 + 2;
        assert!(
            missing <= poisoned * on_page,
            "{missing} of {poisoned} pages"
        );
    }
    map
}

const ITEMS: &[PoisonTarget] = &[PoisonTarget::Item, PoisonTarget::Value];
const ALL: &[PoisonTarget] = &[PoisonTarget::Item, PoisonTarget::Value, PoisonTarget::Index];

fn life() -> Life {
    Life {
        memory: 64 << 20,
        file: None,
        keys: 20_000,
        steps: 60_000,
        poisons: 500,
        targets: ITEMS,
        len_max: 400,
        large: 0,
        seed: 1,
    }
}

fn run(lives: &[Life]) {
    let _stack = install_thread().expect("there is memory");
    let mut events = events();
    for life in lives {
        let possible = is_possible(
            &mut store_of(&Life {
                file: None,
                ..*life
            })
            .worker(0),
        );
        if !possible {
            #[expect(clippy::print_stderr, reason = "what is left out is told")]
            {
                eprintln!("left out: this kernel has no UFFDIO_POISON");
            }
            return;
        }
        live(life, &mut events);
    }
}

impl Clone for Life {
    fn clone(&self) -> Life {
        Life {
            file: self.file.clone(),
            ..*self
        }
    }
}

#[test]
fn values_are_right_or_missing_when_items_are_lost() {
    run(&[life(), Life { seed: 2, ..life() }]);
}

#[test]
fn values_are_right_or_missing_when_pieces_are_lost() {
    run(&[Life {
        keys: 500,
        steps: 10_000,
        poisons: 50,
        large: 30,
        memory: 256 << 20,
        ..life()
    }]);
}

#[test]
fn values_are_right_or_missing_when_buckets_are_lost() {
    run(&[Life {
        targets: ALL,
        seed: 3,
        ..life()
    }]);
}

/// The mark of a damaged segment outlives the process; what of it was lost is not known any more.
#[test]
fn a_process_that_dies_before_it_has_seen_to_a_loss_leaves_no_wrong_value() {
    let _stack = install_thread().expect("there is memory");
    let mut events = events();
    let path = std::path::Path::new("/dev/shm").join(format!("coua-lost-{}", std::process::id()));
    let _ = std::fs::remove_file(&path);
    let life = Life {
        file: Some(path.clone()),
        memory: 16 << 20,
        ..life()
    };
    let store = store_of(&life);
    let mut worker = store.worker(0);
    if !is_possible(&mut store_of(&Life { file: None, ..life }).worker(0)) {
        return;
    }
    let set = Put::set(0, Expiry::NEVER);
    // Large values too, some pieces of which lie beside the item that is lost.
    let len = |key: u64| if key.is_multiple_of(20) { 50_000 } else { 300 };
    for key in 0..1000 {
        let stored = put(
            &mut worker,
            format!("key-{key}").as_bytes(),
            &set,
            &value(key, 0, len(key)),
        );
        assert!(matches!(stored, Stored::Stored { .. }));
    }
    let mender = store.watch(events.take().expect("the list"));
    let name = b"key-777";
    let burst = worker.burst(NOW);
    let key = burst.key(name);
    assert!(
        burst
            .poison(&key, PoisonTarget::Value, BY)
            .expect("it is possible")
            .is_some()
    );
    burst.close();
    assert_eq!(get(&mut worker, name), None);
    // The next burst sees that something was lost.
    assert_eq!(get(&mut worker, name), None);
    // It ends here, and nobody has seen to it.
    *events = mender.into_events();
    drop(worker);
    drop(store);
    let store = store_of(&Life {
        file: Some(path.clone()),
        ..life
    });
    assert!(
        matches!(store.start(), Start::Warm(_)),
        "{:?}",
        store.start()
    );
    let mut worker = store.worker(0);
    let mut missing = 0;
    for key in 0..1000 {
        match get(&mut worker, format!("key-{key}").as_bytes()) {
            Some(found) => assert!(found == value(key, 0, len(key)), "a wrong value"),
            None => missing += 1,
        }
    }
    // One segment of 64 KiB, and values of which a piece lay there.
    assert!((1..64 * 1024 / 300 + 8).contains(&missing), "{missing}");
    assert_eq!(store.stats().items, 1000 - missing as u64);
    // All of memory is of use again, and every segment is emptied once.
    for key in 0..60_000 {
        put(
            &mut worker,
            format!("key-{key}").as_bytes(),
            &set,
            &value(key, 1, 300),
        );
    }
    assert!(store.stats().totals.evicted > 0);
    drop(worker);
    drop(store);
    let _ = std::fs::remove_file(&path);
}

/// The handler puts on record what it lost before it puts zeros there. The process is killed before anybody
/// has asked: its file, as it is at that moment, is taken over.
#[test]
fn a_process_that_is_killed_at_a_loss_leaves_no_wrong_value() {
    use std::os::unix::fs::FileExt;

    let _stack = install_thread().expect("there is memory");
    let mut events = events();
    if !is_possible(&mut store_of(&life()).worker(0)) {
        return;
    }
    let path = std::path::Path::new("/dev/shm").join(format!("coua-killed-{}", std::process::id()));
    let len = |key: u64| if key.is_multiple_of(20) { 50_000 } else { 300 };
    for target in [PoisonTarget::Value, PoisonTarget::Item, PoisonTarget::Index] {
        let _ = std::fs::remove_file(&path);
        let life = Life {
            file: Some(path.clone()),
            memory: 16 << 20,
            ..life()
        };
        let store = store_of(&life);
        let mut worker = store.worker(0);
        let set = Put::set(0, Expiry::NEVER);
        for key in 0..1000 {
            let value = value(key, 0, len(key));
            let stored = put(&mut worker, format!("key-{key}").as_bytes(), &set, &value);
            assert!(matches!(stored, Stored::Stored { .. }));
        }
        let mender = store.watch(events.take().expect("the list"));
        let before = store.losses_seen();
        let burst = worker.burst(NOW);
        let key = burst.key(b"key-777");
        let item = burst.get(&key, Access::default()).expect("it was stored");
        let lost = burst.poison(&key, target, BY).expect("it is possible");
        assert!(lost.is_some());
        // Somebody touches it: the handler is done.
        let read = item.value().collect::<Vec<_>>().concat();
        let _ = burst.get(&key, Access::default());
        assert_eq!(store.losses_seen(), before + 1);
        assert!(target == PoisonTarget::Index || read != value(777, 0, len(777)));
        let killed = std::fs::read(&path).expect("the file is there");
        burst.close();
        *events = mender.into_events();
        // The next process has a list of its own.
        let _ = events.as_mut().expect("the list").take();
        drop((worker, store));
        let file = std::fs::File::options().write(true).open(&path);
        let file = file.expect("the file is there");
        file.write_all_at(&killed, 0).expect("there is room");

        let store = store_of(&life);
        assert!(
            matches!(store.start(), Start::Warm(warm) if warm.was_killed),
            "{:?}",
            store.start()
        );
        let mut worker = store.worker(0);
        let mut missing = 0;
        for key in 0..1000 {
            match get(&mut worker, format!("key-{key}").as_bytes()) {
                Some(found) => assert!(found == value(key, 0, len(key)), "a wrong value"),
                None => missing += 1,
            }
        }
        // What lay on the page, and no more: an item at each end of it, or the slots of 64 buckets.
        let most = match target {
            PoisonTarget::Index => 64 * 7,
            _ => 4096 / 300 + 2,
        };
        assert!((1..=most).contains(&missing), "{target:?}: {missing}");
        assert_eq!(store.stats().items, 1000 - missing as u64);
        // It is seen to, once: all of memory is of use.
        for key in 0..60_000 {
            let value = value(key, 1, 300);
            put(&mut worker, format!("key-{key}").as_bytes(), &set, &value);
        }
        assert!(store.stats().totals.evicted > 0);
        drop((worker, store));
        let store = store_of(&life);
        let mut worker = store.worker(0);
        for key in 0..60_000 {
            if let Some(found) = get(&mut worker, format!("key-{key}").as_bytes()) {
                assert!(found == value(key, 1, 300), "a wrong value");
            }
        }
    }
    let _ = std::fs::remove_file(&path);
}

/// Loses a page that a key leads to, and has it seen to while nobody works.
fn lose_and_mend(
    worker: &mut Worker,
    mender: &mut Mender,
    name: &str,
    target: PoisonTarget,
) -> Mended {
    let burst = worker.burst(NOW);
    let key = burst.key(name.as_bytes());
    let lost = burst
        .poison(&key, target, BY)
        .expect("it was possible before");
    assert!(lost.is_some(), "{name} is there");
    // It is met.
    let _ = burst.get(&key, Access::default());
    burst.close();
    worker.park();
    mender.mend(NOW).expect("a page was lost")
}

#[test]
fn nothing_is_doubtful_after_a_few_steps_however_large_the_index_is() {
    let _stack = install_thread().expect("there is memory");
    let mut events = events();
    let config = Config {
        memory: 64 << 20,
        survives_memory_errors: true,
        seed: Some(3),
        index_bits: Some(0),
        ..Config::default()
    };
    let store = Store::new(config, NOW).expect("there is memory");
    let mut worker = store.worker(0);
    if !is_possible(&mut worker) {
        return;
    }
    const KEYS: u64 = 400_000;
    let right = |number: u64| value(number, 1, 20 + (number % 60) as usize);
    for number in 0..KEYS {
        let set = Put::set(0, Expiry::NEVER);
        let stored = put(
            &mut worker,
            format!("key-{number}").as_bytes(),
            &set,
            &right(number),
        );
        assert!(matches!(stored, Stored::Stored { .. }));
    }
    let splits = store.stats().totals.splits;
    assert!(splits > 40, "{splits}");
    let mut mender = store.watch(events.take().expect("the list"));
    // What it took to see that pages can be lost.
    worker.park();
    let _ = mender.mend(NOW);
    let items = store.stats().items;
    let mut quick = 0;
    let mut lost = 0;
    for round in 0..40 {
        let name = format!("key-{}", 5000 + round * 7001);
        let burst = worker.burst(NOW);
        let is_there = burst
            .get(&burst.key(name.as_bytes()), Access::default())
            .is_ok();
        burst.close();
        if !is_there {
            // It was on an earlier page.
            continue;
        }
        let mended = lose_and_mend(&mut worker, &mut mender, &name, PoisonTarget::Item);
        assert_eq!(mended.losses.len(), 1);
        assert!(mended.items > 0 && mended.items < 200, "{mended:?}");
        lost += mended.items;
        // A header or a key is cut now and then: then all of the index is looked at.
        assert!(mended.tables == 0 || mended.tables > splits, "{mended:?}");
        quick += u64::from(mended.tables == 0);
    }
    assert!(quick > 25, "{quick}");
    assert_eq!(store.stats().items, items - lost);
    for round in 0..4 {
        let name = format!("key-{}", 6000 + round * 7001);
        let mended = lose_and_mend(&mut worker, &mut mender, &name, PoisonTarget::Index);
        assert!(mended.tables > 0 && mended.tables <= 4, "{mended:?}");
    }
    // Right or missing, and no more is missing than was told.
    let missing =
        (0..KEYS).filter(
            |&number| match get(&mut worker, format!("key-{number}").as_bytes()) {
                Some(found) => {
                    assert!(found == right(number), "a wrong value");
                    false
                }
                None => true,
            },
        );
    let missing = missing.count() as u64;
    assert!(missing <= lost + 4 * 64 * 7, "{missing} {lost}");
    worker.park();
    *events = mender.into_events();
}
