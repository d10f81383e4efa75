//! A store in a file, and the next store in the same file.

// Miri has no files that are memory.
#![cfg(not(miri))]
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "patterns and small numbers"
)]

use coua_store::*;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

mod support;
use support::{NOW, cas_of, put, value_of};

/// A file that goes when the test does.
struct TestFile(PathBuf);

impl TestFile {
    fn new(name: &str) -> TestFile {
        let name = format!("coua-{name}-{}", std::process::id());
        let path = Path::new("/dev/shm").join(name);
        let _ = std::fs::remove_file(&path);
        TestFile(path)
    }

    fn config(&self) -> Config {
        Config {
            memory: 16 << 20,
            file: Some(self.0.clone()),
            ..Config::default()
        }
    }

    fn open(&self) -> Arc<Store> {
        Store::new(self.config(), NOW).unwrap()
    }
}

impl Drop for TestFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn set(worker: &mut Worker, key: &str, value: &[u8]) {
    let stored = put(worker, key.as_bytes(), &Put::set(7, Expiry::NEVER), value);
    assert!(matches!(stored, Stored::Stored { .. }), "{stored:?}");
}

fn get(worker: &mut Worker, now: UnixSeconds, key: &str) -> Option<(Vec<u8>, u32, Expiry)> {
    let burst = worker.burst(now);
    let key = burst.key(key.as_bytes());
    let item = burst.get(&key, Access::default()).ok()?;
    Some((value_of(&item), item.client_flags(), item.expiry()))
}

fn warm(store: &Store) -> &Warm {
    match store.start() {
        Start::Warm(warm) => warm,
        other => panic!("not warm: {other:?}"),
    }
}

fn cold(store: &Store) -> &ColdReason {
    match store.start() {
        Start::Cold(why) => why,
        other => panic!("not cold: {other:?}"),
    }
}

fn value(n: usize) -> Vec<u8> {
    let len = match n % 50 {
        0 => 20_000,
        1 => 300_000,
        _ => n % 400,
    };
    (0..len).map(|i| (n * 31 + i * 7) as u8).collect()
}

#[test]
fn everything_comes_back() {
    let file = TestFile::new("everything");
    let store = file.open();
    assert_eq!(cold(&store), &ColdReason::New);
    let mut worker = store.worker(0);
    for n in 0..300 {
        set(&mut worker, &format!("key{n}"), &value(n));
    }
    let mortal = Put::set(0, Expiry::at(UnixSeconds(NOW.0 + 100)));
    put(&mut worker, b"mortal", &mortal, b"for a while");
    let cas = cas_of(&mut worker, b"key5");
    for n in (0..300).step_by(3) {
        let mut burst = worker.burst(NOW);
        let name = format!("key{n}");
        let key = burst.key(name.as_bytes());
        assert_eq!(burst.delete(&key, &Delete::default()), Deleted::Done);
    }
    let items = store.stats().items;
    drop(worker);
    drop(store);

    let store = file.open();
    assert_eq!(warm(&store).items, items);
    assert!(!warm(&store).was_killed);
    assert_eq!(store.stats().items, items);
    let mut worker = store.worker(0);
    for n in 0..300 {
        let found = get(&mut worker, NOW, &format!("key{n}"));
        match n % 3 {
            0 => assert_eq!(found, None),
            _ => assert_eq!(found, Some((value(n), 7, Expiry::NEVER)), "{n}"),
        }
    }
    assert_eq!(cas_of(&mut worker, b"key5"), cas);
    assert!(get(&mut worker, UnixSeconds(NOW.0 + 99), "mortal").is_some());
    assert!(get(&mut worker, UnixSeconds(NOW.0 + 100), "mortal").is_none());
    // A new item's CAS is one that no client has seen.
    set(&mut worker, "key5", b"new");
    assert!(cas_of(&mut worker, b"key5") > cas);
}

#[test]
fn other_numbers_of_workers_take_over() {
    let file = TestFile::new("workers");
    let with = |workers| Config {
        workers,
        memory: 32 << 20,
        ..file.config()
    };
    for (round, workers) in [4, 1, 9, 2].into_iter().enumerate() {
        let store = Store::new(with(workers), NOW).unwrap();
        assert_eq!(round > 0, matches!(store.start(), Start::Warm(_)));
        for id in 0..workers {
            let mut worker = store.worker(id);
            set(&mut worker, &format!("of {workers} {id}"), &value(id));
        }
        let mut worker = store.worker(0);
        for before in [4, 1, 9, 2].into_iter().take(round) {
            for id in 0..before {
                let found = get(&mut worker, NOW, &format!("of {before} {id}"));
                assert_eq!(found.map(|(bytes, ..)| bytes), Some(value(id)));
            }
        }
    }
}

/// Far more than memory holds, so that all that eviction knows is there, and again after each restart.
#[test]
fn a_full_store_goes_on_as_it_was() {
    let file = TestFile::new("full");
    let mut hits = Vec::new();
    let mut key = 0usize;
    for _ in 0..4 {
        let store = file.open();
        let mut worker = store.worker(0);
        let mut round = (0, 0);
        for n in 0..60_000 {
            key = key
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            // Small numbers far more often than great ones.
            let uniform = (key >> 33) as f64 / (1u64 << 31) as f64;
            let name = format!("k{}", (uniform * uniform * uniform * 100_000.0) as usize);
            let found = get(&mut worker, NOW, &name);
            if n > 5_000 {
                round = (round.0 + usize::from(found.is_some()), round.1 + 1);
            }
            match found {
                Some((bytes, ..)) => assert_eq!(bytes, name.repeat(200).into_bytes()),
                None => set(&mut worker, &name, &name.repeat(200).into_bytes()),
            }
        }
        hits.push(round.0 * 1000 / round.1);
        assert!(store.stats().totals.evicted > 0);
    }
    // The first round begins empty.
    assert!(hits[1] + 20 > hits[0] && hits[3] + 20 > hits[1], "{hits:?}");
}

#[test]
fn a_flush_lasts() {
    let file = TestFile::new("flush");
    let store = file.open();
    let mut worker = store.worker(0);
    set(&mut worker, "before", b"1");
    let mut burst = worker.burst(NOW);
    burst.flush_all(None);
    burst.close();
    set(&mut worker, "after", b"2");
    worker.burst(NOW).flush_all(Some(UnixSeconds(NOW.0 + 10)));
    drop(worker);
    drop(store);
    let store = file.open();
    let mut worker = store.worker(0);
    assert!(get(&mut worker, NOW, "before").is_none());
    assert!(get(&mut worker, NOW, "after").is_some());
    let later = UnixSeconds(NOW.0 + 10);
    assert!(get(&mut worker, later, "after").is_none());
    drop(worker);
    drop(store);
    let store = file.open();
    let mut worker = store.worker(0);
    assert!(get(&mut worker, NOW, "after").is_none());
}

#[test]
fn only_one_process_has_a_file() {
    let file = TestFile::new("locked");
    let store = file.open();
    let refused = Store::new(file.config(), NOW).err().unwrap();
    assert!(
        refused.to_string().contains("another process uses it"),
        "{refused}"
    );
    drop(store);
    file.open();
}

#[test]
fn a_file_that_others_may_write_to_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let file = TestFile::new("others");
    drop(file.open());
    std::fs::set_permissions(&file.0, PermissionsExt::from_mode(0o620)).unwrap();
    let refused = Store::new(file.config(), NOW).err().unwrap();
    assert!(
        refused.to_string().contains("others may write"),
        "{refused}"
    );
    std::fs::set_permissions(&file.0, PermissionsExt::from_mode(0o600)).unwrap();
    assert!(matches!(file.open().start(), Start::Warm(_)));
}

#[test]
fn what_cannot_be_a_store_is_refused() {
    let config = Config {
        file: Some("/dev/shm".into()),
        ..Config::default()
    };
    assert!(Store::new(config, NOW).is_err());
    let config = Config {
        memory: 64 << 30,
        item_size_max: 1 << 20,
        file: Some(format!("/dev/shm/coua-too-large-{}", std::process::id()).into()),
        ..Config::default()
    };
    let path = config.file.clone().unwrap();
    let refused = Store::new(config, NOW).err().unwrap();
    let _ = std::fs::remove_file(path);
    assert!(refused.to_string().contains("has room for"), "{refused}");
}

/// A store of two items, closed; then `change` is made to its file. What the next one says.
fn after(name: &str, change: impl FnOnce(&Path)) -> Start {
    let file = TestFile::new(name);
    let store = file.open();
    let mut worker = store.worker(0);
    set(&mut worker, "a", b"1");
    set(&mut worker, "b", &value(1));
    drop(worker);
    drop(store);
    change(&file.0);
    let store = file.open();
    let mut worker = store.worker(0);
    if matches!(store.start(), Start::Cold(_)) {
        assert_eq!(get(&mut worker, NOW, "a"), None);
        assert_eq!(store.stats().items, 0);
    }
    // It works either way.
    set(&mut worker, "c", b"3");
    assert!(get(&mut worker, NOW, "c").is_some());
    store.start().clone()
}

fn overwrite(path: &Path, at: u64, bytes: &[u8]) {
    let file = File::options().write(true).open(path).unwrap();
    file.write_all_at(bytes, at).unwrap();
}

#[test]
fn other_files_are_cold() {
    let cold = |why| Start::Cold(why);
    assert!(matches!(after("untouched", |_| ()), Start::Warm(_)));
    let emptied = after("emptied", |path| drop(File::create(path).unwrap()));
    assert_eq!(emptied, cold(ColdReason::New));
    let foreign = after("foreign", |path| {
        std::fs::write(path, vec![b'x'; 16 << 20]).unwrap();
    });
    assert_eq!(foreign, cold(ColdReason::Foreign));
    let odd = after("odd", |path| std::fs::write(path, b"hello").unwrap());
    assert_eq!(odd, cold(ColdReason::Foreign));
    let truncated = after("truncated", |path| {
        let file = File::options().write(true).open(path).unwrap();
        file.set_len(8 << 20).unwrap();
    });
    assert!(matches!(truncated, Start::Cold(ColdReason::Damaged(_))));
    let version = after("version", |path| overwrite(path, 8, &4u32.to_ne_bytes()));
    assert_eq!(version, cold(ColdReason::Version { found: 4, own: 3 }));
    let damaged = after("damaged", |path| overwrite(path, 40, &[9; 8]));
    assert!(matches!(damaged, Start::Cold(ColdReason::Damaged(_))));
    let copied = after("copied", |path| {
        let copy = path.with_extension("copy");
        std::fs::copy(path, &copy).unwrap();
        std::fs::rename(copy, path).unwrap();
    });
    assert_eq!(copied, cold(ColdReason::Copy));
    let directory = after("directory", |path| {
        overwrite(path, 4096 * 2 + 64 * 256, &[255; 64 << 10])
    });
    assert!(
        matches!(directory, Start::Cold(ColdReason::Damaged(_))),
        "{directory:?}"
    );
}

/// A value that says whose it is.
fn marked(n: usize) -> Vec<u8> {
    let mut value = vec![n as u8; 5000 + n % 1000];
    value[..8].copy_from_slice(&(n as u64).to_ne_bytes());
    value
}

/// Fills a file that was made for `memory` with as many items as fit.
fn filled(file: &TestFile, memory: usize) -> usize {
    let config = Config {
        memory,
        workers: 4,
        ..file.config()
    };
    let store = Store::new(config, NOW).unwrap();
    let mut worker = store.worker(0);
    let mut count = 0;
    while store.stats().totals.evicted == 0 {
        set(&mut worker, &format!("key{count}"), &marked(count));
        worker.end(NOW);
        count += 1;
    }
    count
}

/// The machine is as it was, and the process was killed.
fn kill(file: &TestFile) {
    overwrite(&file.0, 64, &1u32.to_ne_bytes());
}

/// How many of the items are there, each with its own value.
fn hits(worker: &mut Worker, count: usize) -> usize {
    let is_hit = |n: &usize| match get(worker, NOW, &format!("key{n}")) {
        Some((bytes, ..)) => {
            assert_eq!(bytes, marked(*n), "{n}");
            true
        }
        None => false,
    };
    (0..count).filter(is_hit).count()
}

#[test]
fn less_memory_takes_over_what_it_holds() {
    for (workers, killed) in [(4, false), (1, true), (7, false)] {
        let file = TestFile::new("less");
        let count = filled(&file, 96 << 20);
        if killed {
            kill(&file);
        }
        let config = Config {
            memory: 48 << 20,
            workers,
            ..file.config()
        };
        let store = Store::new(config, NOW).unwrap();
        assert_eq!(warm(&store).was_killed, killed);
        assert_eq!(
            (warm(&store).memory, store.memory_most()),
            (96 << 20, 48 << 20)
        );
        let mut all: Vec<Worker> = (0..workers).map(|id| store.worker(id)).collect();
        // What is too much is evicted by the workers, turn by turn.
        let mut turns = 0;
        while store.stats().memory > 48 << 20 {
            for worker in &mut all {
                worker.burst(NOW).close();
                worker.end(NOW);
            }
            turns += 1;
            assert!(turns < 1_000_000, "{} bytes", store.stats().memory);
        }
        let found = hits(&mut all[0], count);
        assert!(
            found > count / 4 && found < count * 5 / 8,
            "{found} of {count}"
        );
        set(&mut all[0], "more", b"than before");
        assert_eq!(
            store.set_memory_limit(96 << 20),
            Err(LimitRefused::TooLarge { most: 48 << 20 })
        );
        drop((all, store));
        // As large as it was made for, it uses all again.
        let config = Config {
            memory: 96 << 20,
            workers: 2,
            ..file.config()
        };
        let store = Store::new(config, NOW).unwrap();
        assert_eq!(warm(&store).memory, store.memory_most());
        let mut worker = store.worker(0);
        assert!(hits(&mut worker, count) >= found - found / 50);
        for n in count..count * 2 {
            set(&mut worker, &format!("key{n}"), &marked(n));
            worker.end(NOW);
        }
        assert!(hits(&mut worker, count * 2) > count * 3 / 4);
    }
}

#[test]
fn more_memory_goes_on_with_what_the_file_has() {
    for killed in [false, true] {
        let file = TestFile::new("more");
        let count = filled(&file, 24 << 20);
        if killed {
            kill(&file);
        }
        let config = Config {
            memory: 64 << 20,
            workers: 2,
            ..file.config()
        };
        let store = Store::new(config, NOW).unwrap();
        assert_eq!(
            (warm(&store).memory, store.memory_most()),
            (24 << 20, 24 << 20)
        );
        let mut worker = store.worker(0);
        assert!(hits(&mut worker, count) > count * 7 / 8);
        assert_eq!(
            store.set_memory_limit(25 << 20),
            Err(LimitRefused::TooLarge { most: 24 << 20 })
        );
        set(&mut worker, "more", b"than before");
    }
}

/// A file with room to grow (`memory_limit`) is used up to all that it was made for.
#[test]
fn a_file_grows_as_far_as_it_was_made_for() {
    let file = TestFile::new("grows");
    let with = |limit| {
        let config = Config {
            memory: 64 << 20,
            memory_limit: limit,
            ..file.config()
        };
        Store::new(config, NOW).unwrap()
    };
    let fill = |store: &Arc<Store>| {
        let mut worker = store.worker(0);
        for n in 0..4000 {
            set(&mut worker, &format!("key{n}"), &[7; 10_000]);
            worker.end(NOW);
        }
        store.stats().items
    };
    let store = with(Some(24 << 20));
    let before = fill(&store);
    drop(store);
    let store = with(None);
    assert_eq!(warm(&store).items, before);
    assert!(fill(&store) > before * 3 / 2);
    drop(store);
    let store = with(Some(24 << 20));
    assert!(warm(&store).items > before * 3 / 2);
}

#[test]
fn too_little_memory_or_too_many_workers_are_cold() {
    let file = TestFile::new("settings");
    let with = |memory, workers| {
        let config = Config {
            memory,
            workers,
            ..file.config()
        };
        Store::new(config, NOW).unwrap()
    };
    drop(with(4 << 30, 1));
    // The tables alone are longer.
    let store = with(8 << 20, 1);
    assert!(
        matches!(cold(&store), ColdReason::MemoryTooSmall { memory: 4096, least } if *least > 8),
        "{:?}",
        store.start()
    );
    drop(store);
    let rows = std::thread::available_parallelism().unwrap().get().max(16);
    let store = with(1 << 30, rows + 1);
    assert_eq!(cold(&store), &ColdReason::Workers { most: rows });
}

/// Whatever the tables and the index say, the store begins, cold or warm, and serves. Where the items
/// of a segment end is left as it was: only the items tell whether that is right.
#[test]
fn whatever_the_tables_say_the_store_serves() {
    let file = TestFile::new("hostile");
    let config = || Config {
        memory: 16 << 20,
        workers: 2,
        seed: Some(5),
        ..file.config()
    };
    let store = Store::new(config(), NOW).unwrap();
    let mut worker = store.worker(0);
    for n in 0..3000 {
        set(&mut worker, &format!("key{n}"), &value(n));
        worker.end(NOW);
    }
    drop((worker, store));
    let valid = std::fs::read(&file.0).unwrap();
    let mut random = 99_172_645_463_325_253_u64;
    let mut draw = move |below: usize| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        (random % below as u64) as usize
    };
    // The superblock's changing lines, open records, page table, directory and dead bytes; and the
    // pages of the index, which the page table names.
    let page_len = 64 << 10;
    let page_table = 4096 * 2;
    let index: Vec<usize> = (0..256)
        .filter(|page| valid[page_table + page * 64..][..4] == 5u32.to_ne_bytes())
        .collect();
    assert!(!index.is_empty());
    let (mut starts, mut cold_ones) = (0, 0);
    for round in 0..if cfg!(debug_assertions) { 100 } else { 1000 } {
        let mut bytes = valid.clone();
        for _ in 0..1 + draw(8) {
            let (from, len) = match draw(6) {
                0 => (64, 128),
                1 => (4096, 2048),
                2 => (page_table, 256 * 64),
                3 => (0, page_len),
                _ => (index[draw(index.len())] * page_len, page_len),
            };
            let at = from + draw(len);
            let in_entry = at.wrapping_sub(page_table);
            if in_entry < 1024 * 64 && (16..20).contains(&(in_entry % 64)) {
                continue;
            }
            match draw(3) {
                0 => bytes[at] ^= 1 << draw(8),
                1 => bytes[at] = draw(256) as u8,
                _ => bytes[at & !3..][..4].copy_from_slice(&[[0; 4], [255; 4]][draw(2)]),
            }
        }
        // The file is the same, so that it is no copy.
        File::options()
            .write(true)
            .open(&file.0)
            .unwrap()
            .write_all_at(&bytes, 0)
            .unwrap();
        let store = Store::new(config(), NOW).unwrap();
        starts += 1;
        cold_ones += usize::from(matches!(store.start(), Start::Cold(_)));
        let mut worker = store.worker(0);
        for n in 0..300 {
            let _ = get(&mut worker, NOW, &format!("key{n}"));
            let name = format!("new{n}");
            let mut turns = 0;
            loop {
                let stored = put(
                    &mut worker,
                    name.as_bytes(),
                    &Put::set(7, Expiry::NEVER),
                    &value(n),
                );
                worker.end(NOW);
                if matches!(stored, Stored::Stored { .. }) {
                    break;
                }
                turns += 1;
                assert!(turns < 10_000, "{round}: {stored:?} {:?}", store.stats());
            }
        }
        drop((worker, store));
        assert_eq!(
            std::fs::metadata(&file.0).unwrap().len(),
            16 << 20,
            "{round}"
        );
    }
    assert!(
        cold_ones > 0 && cold_ones < starts,
        "{cold_ones} of {starts}"
    );
}

/// Another user must not be able to lead the store to a file of his choice.
#[test]
fn a_symbolic_link_is_refused() {
    let (file, link) = (TestFile::new("target"), TestFile::new("link"));
    drop(file.open());
    std::os::unix::fs::symlink(&file.0, &link.0).unwrap();
    let refused = Store::new(link.config(), NOW).err().unwrap();
    assert!(refused.to_string().contains("symbolic link"), "{refused}");
}

/// The machine went down: a store that was in use then is a mixture, one that was left in order is none.
#[test]
fn a_restart_of_the_machine_needs_order() {
    // As in the superblock: in use, and the number of the machine's boot.
    let another_boot = |path: &Path| overwrite(path, 64 + 8, &[3; 8]);
    let left = after("rebooted", another_boot);
    assert!(matches!(left, Start::Warm(_)), "{left:?}");
    let in_use = after("crashed", |path| {
        another_boot(path);
        overwrite(path, 64, &1u32.to_ne_bytes());
    });
    assert_eq!(in_use, Start::Cold(ColdReason::Restarted));
}
