//! Clean stops and deaths: what was in memory and on flash is found again, and nothing that was deleted.

use crate::model::{KEYS, World};
use crate::rig::*;
use crate::{name, value};
use coua_store::*;
use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;

/// Files that go when the test does.
pub(crate) struct Files {
    base: PathBuf,
    generation: usize,
}

impl Files {
    pub(crate) fn new(name: &str) -> Files {
        let base = format!("/dev/shm/coua-flash-{name}-{}", std::process::id());
        Files {
            base: PathBuf::from(base),
            generation: 0,
        }
    }

    pub(crate) fn config(&self) -> Config {
        Config {
            memory: 8 * MIB,
            seed: Some(7),
            file: Some(self.path(self.generation)),
            ..Config::default()
        }
    }

    #[cfg(feature = "kill-points")]
    pub(crate) fn generation(&self) -> usize {
        self.generation
    }

    /// Back to the file of before, once its copy is done with.
    #[cfg(feature = "kill-points")]
    pub(crate) fn go_back(&mut self, generation: usize) {
        let _ = std::fs::remove_file(self.path(self.generation));
        self.generation = generation;
    }

    fn path(&self, generation: usize) -> PathBuf {
        self.base.with_extension(generation.to_string())
    }

    /// Copies the file as a death at this moment would leave it.
    pub(crate) fn copy(&mut self) {
        let live = File::open(self.path(self.generation)).unwrap();
        self.generation += 1;
        let copy = File::create(self.path(self.generation)).unwrap();
        let mut bytes = vec![0; usize::try_from(live.metadata().unwrap().len()).unwrap()];
        live.read_exact_at(&mut bytes, 0).unwrap();
        // In the superblock: the file's number, by which a copy is told from it.
        bytes[80..88].copy_from_slice(&copy.metadata().unwrap().ino().to_ne_bytes());
        copy.write_all_at(&bytes, 0).unwrap();
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        for generation in 0..=self.generation {
            let _ = std::fs::remove_file(self.path(generation));
        }
    }
}

/// Ends a rig, by death or in order, and begins the next on the same devices and file.
pub(crate) fn next(rig: Rig, files: &mut Files, is_killed: bool) -> Rig {
    if is_killed {
        files.copy();
    }
    let (devices, now) = (rig.devices.clone(), rig.now);
    drop(rig);
    let mut next = Rig::with(devices, files.config(), 12);
    let Start::Warm(warm) = next.store.start() else {
        panic!("{:?}", next.store.start());
    };
    assert_eq!(warm.was_killed, is_killed);
    next.now = now;
    next
}

#[test]
fn all_of_it_is_found_again() {
    for is_killed in [false, true] {
        let mut files = Files::new("found");
        let mut rig = Rig::with(Devices::new(&[64], 1), files.config(), 11);
        for n in 0..20_000 {
            rig.set(&name(n), &value(n, 0));
        }
        let before = (rig.store.stats().items, rig.stats().items);
        assert!(before.1 > 8_000);
        rig = next(rig, &mut files, is_killed);
        // What was on its way stays in memory.
        let after = (rig.store.stats().items, rig.stats().items);
        assert_eq!(before.0, after.0);
        assert!(after.1 > before.1 * 9 / 10);
        let mut found = 0;
        for n in 0..20_000 {
            let got = rig.value(&name(n));
            assert!(got.is_none() || got == Some(value(n, 0)), "key {n}");
            found += u64::from(got.is_some());
        }
        assert_eq!(found, after.0);
        assert!(rig.stats().hits > 8_000 && rig.stats().damaged == 0);
    }
}

#[test]
fn without_its_volume_what_was_on_flash_is_gone_for_good() {
    let files = Files::new("without");
    let mut rig = Rig::with(Devices::new(&[64], 2), files.config(), 11);
    for n in 0..20_000 {
        rig.set(&name(n), &value(n, 0));
    }
    let on_flash = rig.stats().items;
    let devices = rig.devices.clone();
    drop(rig);
    // A process without flash.
    let store = Store::new(files.config(), UnixSeconds(1_000_000)).unwrap();
    assert!(matches!(store.start(), Start::Warm(_)));
    assert!(!store.flash_sequences().is_empty());
    let all = store.stats().items;
    let worker = store.worker(0);
    assert!(store.flash_sequences().is_empty() && store.flash_stats().is_none());
    assert!(store.stats().items + on_flash * 9 / 10 < all);
    drop((worker, store));
    // And one with the same volume again: nothing comes back.
    let mut rig = Rig::with(devices, files.config(), 13);
    assert_eq!(rig.stats().items, 0);
    let reads = rig.stats().reads;
    for n in 0..20_000 {
        let got = rig.value(&name(n));
        assert!(got.is_none() || got == Some(value(n, 0)), "key {n}");
    }
    assert_eq!(rig.stats().reads, reads);
}

#[test]
fn another_volume_is_not_taken_for_it() {
    let files = Files::new("another");
    let (first, other) = (Devices::new(&[64], 3), Devices::new(&[64], 4));
    let mut rig = Rig::with(first, files.config(), 11);
    for n in 0..20_000 {
        rig.set(&name(n), &value(n, 0));
    }
    drop(rig);
    // The other volume has segments with the same numbers and fillings.
    let other_config = Config {
        memory: 8 * MIB,
        seed: Some(7),
        ..Config::default()
    };
    let mut rig = Rig::with(other, other_config, 99);
    for n in 0..20_000 {
        rig.set(&name(n), &value(n, 1));
    }
    let other = rig.devices.clone();
    drop(rig);
    let mut rig = Rig::with(other, files.config(), 12);
    assert_eq!(rig.stats().items, 0);
    for n in 0..20_000 {
        let got = rig.value(&name(n));
        assert!(got.is_none() || got == Some(value(n, 0)), "key {n}");
    }
    for n in 0..20_000 {
        rig.set(&name(n), &value(n, 2));
    }
    let stats = rig.stats();
    assert!(stats.items > 8_000, "{stats:?}");
}

#[test]
fn a_flush_is_not_undone() {
    for is_killed in [false, true] {
        let mut files = Files::new("flush");
        let mut rig = Rig::with(Devices::new(&[64], 5), files.config(), 11);
        for n in 0..20_000 {
            rig.set(&name(n), &value(n, 0));
        }
        let now = rig.time();
        rig.worker.burst(now).flush_all(None);
        rig = next(rig, &mut files, is_killed);
        for n in 0..20_000 {
            assert_eq!(rig.value(&name(n)), None, "key {n}");
        }
    }
}

#[test]
fn random_operations_over_restarts() {
    for seed in 31..34 {
        let mut files = Files::new("random");
        let rig = Rig::with(Devices::new(&[30, 20], seed), files.config(), 11);
        let mut world = World::new(rig, seed);
        world.fill();
        for round in 0..10 {
            (0..3_000).for_each(|_| world.step());
            world = world.over(|rig| next(rig, &mut files, round % 3 != 0));
        }
        world.check_all();
        let stats = world.rig.stats();
        assert!(
            world.found > KEYS / 4 && stats.hits > 100,
            "{} {stats:?}",
            world.found
        );
    }
}
