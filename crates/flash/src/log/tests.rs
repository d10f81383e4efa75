//! The log on simulated devices with every fault: a read gives the right record or none, never a wrong one.

use std::collections::{BTreeMap, HashMap};

use proptest::prelude::*;
use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};

use super::*;
use crate::Region;
use crate::device::{BlockDevice, Failure};
use crate::simulated::{Faults, Settings, SimulatedDevice};

const MIB: u64 = 1 << 20;

/// Devices, their time, and what an index would know.
struct Bench {
    devices: Vec<SimulatedDevice>,
    now_ns: u64,
    rng: Xoshiro256PlusPlus,
    /// By key: what it is and where, once it is written.
    index: BTreeMap<u32, Slot>,
    /// Appended and not written yet, by the filling.
    unwritten: HashMap<u64, Vec<(u32, Slot)>>,
    next_cas: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Slot {
    location: Location,
    cas: u64,
    item: Vec<u8>,
}

fn key_of(key: u32) -> Vec<u8> {
    format!("key-{key}").into_bytes()
}

fn hash_of(key: u32) -> u64 {
    u64::from(key).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

const OPTIONS: VolumeOptions = VolumeOptions {
    segment_len: 1 << 20,
    keeps_tombstones: true,
};

/// What reads came to.
#[derive(Debug, Default, PartialEq, Eq)]
struct Tally {
    right: usize,
    none: usize,
}

impl Bench {
    fn new(seed: u64, mib: &[u64], sector_len: usize) -> Bench {
        let devices = (seed..).zip(mib).map(|(seed, mib)| {
            let settings = Settings {
                sectors: mib * MIB / sector_len as u64,
                sector_len,
                transfer_len_max: 256 << 10,
                ..Settings::default()
            };
            SimulatedDevice::new(settings, seed)
        });
        Bench {
            devices: devices.collect(),
            now_ns: 0,
            rng: Xoshiro256PlusPlus::seed_from_u64(seed),
            index: BTreeMap::new(),
            unwritten: HashMap::new(),
            next_cas: 1,
        }
    }

    fn devices(&self) -> Vec<&dyn BlockDevice> {
        self.devices
            .iter()
            .map(|it| it as &dyn BlockDevice)
            .collect()
    }

    fn open(&mut self, start: Start<'_>, id: u64) -> Opened {
        self.try_open(start, id).expect("devices that work")
    }

    fn try_open(&mut self, start: Start<'_>, id: u64) -> Result<Opened, VolumeError> {
        let mut now_ns = self.now_ns;
        let opened = Volume::open(&self.devices(), OPTIONS, start, id, &mut || {
            now_ns += 20_000;
            now_ns
        });
        self.now_ns = now_ns;
        opened
    }

    fn close(&mut self, volume: std::sync::Arc<Volume>) -> Result<(), VolumeError> {
        let mut now_ns = self.now_ns;
        let closed = volume.close(&self.devices(), &mut || {
            now_ns += 20_000;
            now_ns
        });
        self.now_ns = now_ns;
        closed
    }

    fn worker(&self, volume: &std::sync::Arc<Volume>) -> WorkerVolume {
        let memory = Region::allocate(5 << 20);
        let memory = WorkerMemory::carve(memory, volume, 3);
        volume.worker(&self.devices(), 64, memory).expect("queues")
    }

    fn set_faults(&self, faults: Faults) {
        self.devices.iter().for_each(|it| it.set_faults(faults));
    }

    /// A new version of a key, on its way to flash. False where it must wait or the volume is full.
    fn append(&mut self, worker: &mut WorkerVolume, key: u32) -> Appended {
        let len = match self.rng.random_range(0..10) {
            0 => self.rng.random_range(30_000..100_000),
            1..4 => self.rng.random_range(1000..9000),
            _ => self.rng.random_range(0..600),
        };
        self.append_of(worker, key, len)
    }

    fn append_of(&mut self, worker: &mut WorkerVolume, key: u32, len: usize) -> Appended {
        let mut item = key_of(key);
        let key_len = item.len();
        let fill = self.rng.random::<u8>();
        item.extend(
            (0..=250)
                .cycle()
                .take(len)
                .map(|at: u8| fill.wrapping_add(at)),
        );
        let cas = self.next_cas;
        let hash = hash_of(key);
        let draft = Draft {
            hash,
            cas,
            expiry: u32::MAX,
            item: &item,
            key: 0..key_len,
        };
        let appended = worker.append(&draft);
        if let Appended::At { location, sequence } = appended {
            self.next_cas += 1;
            // The newer version is in memory: nothing of an older one may be seen any more.
            self.index.remove(&key);
            for slots in self.unwritten.values_mut() {
                slots.retain(|(other, _)| *other != key);
            }
            let slot = Slot {
                location,
                cas,
                item,
            };
            self.unwritten
                .entry(sequence)
                .or_default()
                .push((key, slot));
        }
        appended
    }

    fn remove(&mut self, worker: &mut WorkerVolume, key: u32) {
        let order = self.next_cas;
        self.next_cas += 1;
        while worker.append_tombstone(hash_of(key), order) == Appended::Busy {
            self.turn(worker, &mut HashMap::new(), &mut Tally::default());
        }
        self.index.remove(&key);
        for slots in self.unwritten.values_mut() {
            slots.retain(|(other, _)| *other != key);
        }
    }

    /// One turn of a worker. `expected` is what each read is for.
    fn turn(
        &mut self,
        worker: &mut WorkerVolume,
        expected: &mut HashMap<u64, (u32, Slot)>,
        tally: &mut Tally,
    ) {
        worker.submit(self.now_ns);
        self.now_ns += 40_000;
        let mut events = Vec::new();
        worker.poll(self.now_ns, &mut events);
        for event in events {
            match event {
                Event::Written(written) => {
                    let slots = self.unwritten.remove(&written.sequence).unwrap_or_default();
                    let volume = std::sync::Arc::clone(worker.volume());
                    let told: HashMap<Location, u64> = written
                        .records(&volume)
                        .map(|(hash, at)| (at, hash))
                        .collect();
                    for (key, slot) in slots {
                        assert_eq!(told.get(&slot.location), Some(&hash_of(key)));
                        self.index.insert(key, slot);
                    }
                    worker.reuse(written);
                }
                Event::Lost(written, _) => {
                    self.unwritten.remove(&written.sequence);
                    worker.reuse(written);
                }
                Event::Read { token, result } => {
                    let (key, slot) = expected.remove(&token).expect("each read ends once");
                    match result {
                        Err(_) => tally.none += 1,
                        Ok(fetched) => {
                            assert!(fetched.of_key(hash_of(key) ^ 1, &key_of(key)).is_none());
                            assert!(fetched.of_key(hash_of(key), &key_of(key + 1)).is_none());
                            match fetched.of_key(hash_of(key), &key_of(key)) {
                                None => tally.none += 1,
                                Some(record) => {
                                    // A slot that has moved meanwhile is looked at again.
                                    if self.index.get(&key) == Some(&slot) {
                                        assert!(record.item == slot.item, "a wrong item of {key}");
                                        assert_eq!(record.cas, slot.cas);
                                        assert_eq!(record.key, key_of(key));
                                    }
                                    tally.right += 1;
                                }
                            }
                            worker.give_back(fetched);
                        }
                    }
                }
            }
        }
    }

    /// Until nothing is under way.
    fn settle(
        &mut self,
        worker: &mut WorkerVolume,
        expected: &mut HashMap<u64, (u32, Slot)>,
        tally: &mut Tally,
    ) {
        for _ in 0..1_000_000 {
            if !worker.is_busy() {
                return;
            }
            self.turn(worker, expected, tally);
        }
        panic!("a worker that does not come to rest");
    }

    /// What a store does when the volume is full: drops the oldest, sweeps its index.
    fn drop_some(&mut self, volume: &Volume, count: usize) {
        let dropped = volume.drop_oldest(count);
        self.index
            .retain(|_, slot| !dropped.contains(volume, slot.location));
        volume.release(dropped);
    }

    /// Reads everything that the index has.
    fn read_all(&mut self, worker: &mut WorkerVolume) -> Tally {
        let mut tally = Tally::default();
        let mut expected = HashMap::new();
        let slots: Vec<(u32, Slot)> = self
            .index
            .iter()
            .map(|(key, slot)| (*key, slot.clone()))
            .collect();
        for (token, (key, slot)) in (0..).zip(slots) {
            loop {
                match worker.read(slot.location, token) {
                    ReadStart::UnderWay => {
                        expected.insert(token, (key, slot));
                        break;
                    }
                    ReadStart::Gone => {
                        tally.none += 1;
                        break;
                    }
                    ReadStart::Busy => self.turn(worker, &mut expected, &mut tally),
                }
            }
        }
        self.settle(worker, &mut expected, &mut tally);
        assert!(expected.is_empty());
        tally
    }

    /// Appends, reads, drops, in any order.
    fn mix(&mut self, worker: &mut WorkerVolume, steps: usize) -> Tally {
        let volume = std::sync::Arc::clone(worker.volume());
        let mut tally = Tally::default();
        let mut expected = HashMap::new();
        for step in 0..steps {
            let key = self.rng.random_range(0..400);
            match self.rng.random_range(0..20) {
                0..12 => match self.append(worker, key) {
                    Appended::VolumeFull => self.drop_some(&volume, 2),
                    Appended::TooLong => panic!("no item is too long here"),
                    Appended::At { .. } | Appended::Busy => {}
                },
                12..19 => {
                    if let Some(slot) = self.index.get(&key).cloned() {
                        let token = step as u64;
                        if worker.read(slot.location, token) == ReadStart::UnderWay {
                            expected.insert(token, (key, slot));
                        }
                    }
                }
                _ => drop(worker.seal()),
            }
            if self.rng.random_bool(0.4) {
                self.turn(worker, &mut expected, &mut tally);
            }
        }
        self.settle(worker, &mut expected, &mut tally);
        tally
    }

    fn seal(&mut self, worker: &mut WorkerVolume) {
        worker.seal();
        self.settle(worker, &mut HashMap::new(), &mut Tally::default());
    }
}

#[test]
fn everything_that_was_written_is_read_round_after_round() {
    for (seed, mib, sector_len) in [
        (1, &[6][..], 512),
        (2, &[4, 9, 5][..], 512),
        (3, &[6, 6][..], 4096),
    ] {
        let mut bench = Bench::new(seed, mib, sector_len);
        let opened = bench.open(Start::Fresh, 77);
        assert_eq!(opened.kept, Err(Cold::Asked));
        let mut worker = bench.worker(&opened.volume);
        let tally = bench.mix(&mut worker, 6000);
        assert_eq!(tally.none, 0, "{tally:?}");
        assert!(tally.right > 100, "{tally:?}");
        let rounds = worker.counts().segments_written / u64::from(opened.volume.segments());
        assert!(rounds >= 2, "{:?}", worker.counts());
        bench.seal(&mut worker);
        let all = bench.index.len();
        assert_eq!(
            bench.read_all(&mut worker),
            Tally {
                right: all,
                none: 0
            }
        );
        assert!(all > 20, "{all}");
        // Consecutive segments go to all devices.
        assert!(
            bench
                .devices
                .iter()
                .all(|it| it.counts().bytes_written > MIB)
        );
    }
}

#[test]
fn a_read_is_one_request_of_its_class() {
    let mut bench = Bench::new(4, &[6], 512);
    let volume = bench.open(Start::Fresh, 1).volume;
    let mut worker = bench.worker(&volume);
    let mut item = b"key-5".to_vec();
    item.resize(300, 9);
    let draft = Draft {
        hash: hash_of(5),
        cas: 1,
        expiry: 7,
        item: &item,
        key: 0..5,
    };
    let Appended::At { location, .. } = worker.append(&draft) else {
        panic!("an empty volume takes an item");
    };
    assert_eq!(
        worker.read(location, 0),
        ReadStart::Gone,
        "it is not there yet"
    );
    bench.seal(&mut worker);
    let before = bench.devices[0].counts();
    assert_eq!(worker.read(location, 0), ReadStart::UnderWay);
    bench.turn(
        &mut worker,
        &mut HashMap::from([(
            0,
            (
                5,
                Slot {
                    location,
                    cas: 1,
                    item,
                },
            ),
        )]),
        &mut Tally::default(),
    );
    while worker.is_busy() {
        let mut expected = HashMap::from([(
            0,
            (
                5,
                Slot {
                    location,
                    cas: 1,
                    item: vec![],
                },
            ),
        )]);
        bench.turn(&mut worker, &mut expected, &mut Tally::default());
    }
    let after = bench.devices[0].counts();
    assert_eq!(after.reads - before.reads, 1);
    assert_eq!(after.bytes_read - before.bytes_read, 512);

    // Whole segments expire unread.
    assert!(volume.drop_expired(6).is_empty());
    let dropped = volume.drop_expired(7);
    assert_eq!(dropped.len(), 1);
    assert!(dropped.contains(&volume, location));
    assert_eq!(worker.read(location, 0), ReadStart::Gone);
    volume.release(dropped);
    let too_long = vec![0; volume.item_len_max() + 1];
    let draft = Draft {
        hash: 0,
        cas: 2,
        expiry: 0,
        item: &too_long,
        key: 0..0,
    };
    assert_eq!(worker.append(&draft), Appended::TooLong);
    let draft = Draft {
        item: &too_long[1..],
        ..draft
    };
    assert!(matches!(worker.append(&draft), Appended::At { .. }));
}

#[test]
fn reads_hold_their_segment() {
    let mut bench = Bench::new(5, &[4], 512);
    let volume = bench.open(Start::Fresh, 1).volume;
    let mut worker = bench.worker(&volume);
    assert_eq!(volume.segments(), 3);
    for key in 0..3 {
        assert!(matches!(
            bench.append(&mut worker, key),
            Appended::At { .. }
        ));
        bench.seal(&mut worker);
    }
    assert_eq!(bench.append(&mut worker, 9), Appended::VolumeFull);
    let slot = bench.index[&0].clone();
    assert_eq!(worker.read(slot.location, 1), ReadStart::UnderWay);
    let dropped = volume.drop_oldest(1);
    assert!(dropped.contains(&volume, slot.location));
    assert_eq!(worker.read(slot.location, 2), ReadStart::Gone);
    volume.release(dropped);
    // The index was swept, and the segment is still not filled anew.
    assert_eq!(bench.append(&mut worker, 9), Appended::VolumeFull);
    let mut tally = Tally::default();
    bench.settle(
        &mut worker,
        &mut HashMap::from([(1, (0, slot))]),
        &mut tally,
    );
    assert_eq!(tally, Tally { right: 1, none: 0 });
    assert!(matches!(bench.append(&mut worker, 9), Appended::At { .. }));
}

/// Probabilities that make each fault happen some times in a run.
fn faults() -> impl Strategy<Value = Faults> {
    let often = || prop_oneof![Just(0.0), Just(0.02), Just(0.2)];
    (
        often(),
        often(),
        often(),
        often(),
        often(),
        often(),
        often(),
        often(),
    )
        .prop_map(|(a, b, c, d, e, f, g, h)| Faults {
            read_errors: a,
            misdirected_reads: b,
            write_errors: c,
            lost_writes: d,
            torn_writes: e,
            misdirected_writes: f,
            lost_flushes: g,
            timeouts: h / 10.0,
        })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 1 } else { 24 }, ..ProptestConfig::default() })]

    /// Over faults, deaths of the process, and deaths with a loss of power.
    #[test]
    fn a_read_gives_the_right_record_or_none(seed in any::<u64>(), faults in faults(), sector in 0..2) {
        let sector_len = [512, 4096][sector as usize];
        let mut bench = Bench::new(seed, &[4, 5], sector_len);
        let mut volume = bench.open(Start::Fresh, seed).volume;
        for round in 0..4u64 {
            let mut worker = bench.worker(&volume);
            bench.set_faults(faults);
            bench.mix(&mut worker, 900);
            let device = bench.rng.random_range(0..2);
            let sector = bench.rng.random_range(0..bench.devices[device].identity().sectors);
            bench.devices[device].flip_bit(sector, 3);
            bench.devices[device].spoil(sector / 2, 9);
            bench.read_all(&mut worker);
            bench.set_faults(Faults::default());
            drop(worker);
            bench.unwritten.clear();
            let believed: Vec<u64> = volume.sequences().collect();
            drop(volume);
            // Its superblocks may have been written over: then there is nothing to find.
            let opened = bench.open(Start::Index(&believed), seed ^ (round + 1));
            volume = opened.volume;
            if opened.kept.is_err() {
                // An index that is told of it is emptied; one that is not finds nothing.
                let mut worker = bench.worker(&volume);
                let tally = bench.read_all(&mut worker);
                prop_assert_eq!(tally.right, 0);
                bench.index.clear();
            }
            let mut worker = bench.worker(&volume);
            bench.read_all(&mut worker);
            if bench.rng.random_bool(0.3) {
                drop(worker);
                drop(volume);
                bench.devices.iter().for_each(SimulatedDevice::cut_power);
                let opened = bench.open(Start::Closed, seed ^ (round + 100));
                prop_assert!(opened.kept.is_err(), "nothing is proved after a loss of power");
                volume = opened.volume;
                let mut worker = bench.worker(&volume);
                prop_assert_eq!(bench.read_all(&mut worker).right, 0);
                bench.index.clear();
            }
        }
    }

    /// A volume that was closed, without its index: each hash's newest entry is the newest version, and what was deleted
    /// stays so, whatever the medium has lost meanwhile.
    #[test]
    fn what_is_recovered_is_the_newest(seed in any::<u64>(), spoilt in 0..4usize) {
        let mut bench = Bench::new(seed, &[6, 6], 512);
        let volume = bench.open(Start::Fresh, seed).volume;
        let mut workers = [bench.worker(&volume), bench.worker(&volume)];
        for _ in 0..600 {
            let key = bench.rng.random_range(0..60);
            let which = bench.rng.random_range(0..2);
            let worker = &mut workers[which];
            match bench.rng.random_range(0..8) {
                0 => bench.remove(worker, key),
                1 if worker.seal() => {}
                _ => drop(bench.append(worker, key)),
            }
            bench.turn(&mut workers[which], &mut HashMap::new(), &mut Tally::default());
            if volume.free_segments() < 3 {
                break;
            }
        }
        for worker in &mut workers {
            bench.seal(worker);
        }
        drop(workers);
        bench.close(volume).expect("it closes");
        let sectors = bench.devices[0].identity().sectors;
        for _ in 0..spoilt {
            let device = bench.rng.random_range(0..2);
            // Behind the reserved segment.
            let sector = bench.rng.random_range(2048..sectors - 32);
            bench.devices[device].spoil(sector, 32);
        }
        if spoilt > 2 {
            // The end of a segment: its summary.
            let nth = bench.rng.random_range(2..6);
            bench.devices[1].spoil(nth * 2048 - 1, 1);
        }
        let opened = bench.open(Start::Closed, 1);
        prop_assert_eq!(opened.kept, Ok(()));
        let volume = opened.volume;
        let mut found: HashMap<u64, RecoveredEntry> = HashMap::new();
        let mut now_ns = bench.now_ns;
        let recovered = volume.recover(&bench.devices(), &mut || { now_ns += 20_000; now_ns }, &mut |entry| {
            let newest = found.entry(entry.hash).or_insert(entry);
            if newest.order < entry.order {
                *newest = entry;
            }
        });
        bench.now_ns = now_ns;
        let recovered = recovered.expect("it was closed");
        for (hash, entry) in &found {
            let Some(location) = entry.location else {
                prop_assert!(!bench.index.keys().any(|&key| hash_of(key) == *hash));
                continue;
            };
            let newest = bench.index.iter().find(|(key, _)| hash_of(**key) == *hash);
            let (_, slot) = newest.expect("what was deleted does not come back");
            prop_assert_eq!((slot.location, slot.cas), (location, entry.order));
        }
        if recovered.lost_segments == 0 {
            let live = found.values().filter(|entry| entry.location.is_some());
            prop_assert_eq!(live.count(), bench.index.len());
        }
        let mut worker = bench.worker(&volume);
        let tally = bench.read_all(&mut worker);
        prop_assert!(spoilt > 0 || tally.none == 0, "{tally:?}");
    }
}

#[test]
fn a_death_loses_nothing_that_was_written_and_a_clean_stop_neither() {
    let mut bench = Bench::new(6, &[6, 5], 512);
    let mut volume = bench.open(Start::Fresh, 9).volume;
    for round in 0..4 {
        let mut worker = bench.worker(&volume);
        bench.mix(&mut worker, 1200);
        drop(worker);
        bench.unwritten.clear();
        let believed: Vec<u64> = volume.sequences().collect();
        let opened = if round % 2 == 0 {
            drop(volume);
            bench.open(Start::Index(&believed), 0)
        } else {
            bench.close(volume).expect("it closes");
            bench.devices.iter().for_each(SimulatedDevice::cut_power);
            bench.open(Start::Closed, 0)
        };
        assert_eq!((opened.kept, opened.lost_segments), (Ok(()), 0));
        volume = opened.volume;
        assert_eq!(volume.sequences().collect::<Vec<_>>(), believed);
        let mut worker = bench.worker(&volume);
        let all = bench.index.len();
        assert!(all > 20);
        assert_eq!(
            bench.read_all(&mut worker),
            Tally {
                right: all,
                none: 0
            }
        );
    }
    // In use: it was not closed.
    drop(volume);
    assert_eq!(bench.open(Start::Closed, 1).kept, Err(Cold::NotClosed));
}

#[test]
fn lost_segments_are_noticed_when_a_volume_is_opened() {
    let mut bench = Bench::new(7, &[6], 512);
    let volume = bench.open(Start::Fresh, 9).volume;
    let mut worker = bench.worker(&volume);
    for key in 0..3 {
        bench.append(&mut worker, key);
        if key == 1 {
            bench.set_faults(Faults {
                lost_writes: 1.0,
                ..Faults::default()
            });
        }
        bench.seal(&mut worker);
        bench.set_faults(Faults::default());
    }
    let tally = bench.read_all(&mut worker);
    assert_eq!(tally, Tally { right: 2, none: 1 });
    assert_eq!(worker.counts().damaged, 1);
    let believed: Vec<u64> = volume.sequences().collect();
    drop((worker, volume));
    let opened = bench.open(Start::Index(&believed), 0);
    assert_eq!((opened.kept, opened.lost_segments), (Ok(()), 1));
}

#[test]
fn a_device_that_goes_takes_its_items_and_nothing_else() {
    let mut bench = Bench::new(8, &[5, 5], 512);
    let volume = bench.open(Start::Fresh, 9).volume;
    let mut worker = bench.worker(&volume);
    for key in 0..6 {
        bench.append(&mut worker, key);
        bench.seal(&mut worker);
    }
    bench.devices[1].remove();
    let tally = bench.read_all(&mut worker);
    assert_eq!(tally, Tally { right: 3, none: 3 });
    assert_eq!(volume.gone_devices().collect::<Vec<_>>(), [1]);
    let dropped = volume.drop_device(1);
    assert_eq!(dropped.len(), 3);
    bench
        .index
        .retain(|_, slot| !dropped.contains(&volume, slot.location));
    volume.release(dropped);
    // Writing goes on, on what is left.
    for round in 0..10 {
        for key in 100..104 {
            loop {
                match bench.append(&mut worker, key) {
                    Appended::At { .. } => break,
                    Appended::VolumeFull => bench.drop_some(&volume, 1),
                    other => panic!("{other:?} in round {round}"),
                }
            }
            bench.seal(&mut worker);
        }
    }
    let all = bench.index.len();
    assert!(all >= 2);
    assert_eq!(
        bench.read_all(&mut worker),
        Tally {
            right: all,
            none: 0
        }
    );
}

#[test]
fn devices_that_do_not_fit_are_refused_or_made_anew() {
    let mut bench = Bench::new(9, &[5, 5], 512);
    drop(bench.open(Start::Fresh, 9));
    let mut turned = Bench::new(9, &[], 512);
    turned.devices = vec![bench.devices[1].clone(), bench.devices[0].clone()];
    assert_eq!(turned.open(Start::Closed, 1).kept, Err(Cold::OtherLayout));
    let mut alone = Bench::new(9, &[], 512);
    alone.devices = vec![bench.devices[0].clone()];
    assert_eq!(alone.open(Start::Closed, 1).kept, Err(Cold::OtherLayout));
    assert_eq!(
        Bench::new(10, &[5], 512).open(Start::Closed, 1).kept,
        Err(Cold::NoSuperblock)
    );
    let mut small = Bench::new(11, &[5, 1], 512);
    assert!(matches!(
        small.try_open(Start::Fresh, 1),
        Err(VolumeError::Layout)
    ));

    let mut forgetful = Bench::new(12, &[5], 512);
    forgetful.set_faults(Faults {
        lost_writes: 1.0,
        ..Faults::default()
    });
    assert!(matches!(
        forgetful.try_open(Start::Fresh, 1),
        Err(VolumeError::Forgets { .. })
    ));
    forgetful.devices[0].remove();
    assert!(matches!(
        forgetful.try_open(Start::Fresh, 1),
        Err(VolumeError::Queue { .. })
    ));
    let volume = bench.open(Start::Fresh, 5).volume;
    let worker = bench.worker(&volume);
    assert!(matches!(bench.close(volume), Err(VolumeError::InUse)));
    drop(worker);
}

#[test]
fn a_damaged_table_is_no_table() {
    let mut bench = Bench::new(13, &[5], 512);
    let volume = bench.open(Start::Fresh, 9).volume;
    bench.close(volume).expect("it closes");
    bench.devices[0].flip_bit(16, 5);
    assert_eq!(bench.open(Start::Closed, 1).kept, Err(Cold::TableDamaged));
}

#[test]
fn a_write_that_fails_loses_its_segment_only() {
    let mut bench = Bench::new(14, &[5], 512);
    let volume = bench.open(Start::Fresh, 9).volume;
    let mut worker = bench.worker(&volume);
    bench.set_faults(Faults {
        write_errors: 1.0,
        ..Faults::default()
    });
    bench.append(&mut worker, 1);
    worker.seal();
    let mut events = Vec::new();
    while events.is_empty() {
        bench.now_ns += 40_000;
        worker.poll(bench.now_ns, &mut events);
    }
    match events.remove(0) {
        Event::Lost(written, Failure::Media) => worker.reuse(written),
        other => panic!("{other:?}"),
    }
    bench.unwritten.clear();
    bench.set_faults(Faults::default());
    bench.append(&mut worker, 2);
    bench.seal(&mut worker);
    assert_eq!(bench.read_all(&mut worker), Tally { right: 1, none: 0 });
    let counts = worker.counts();
    assert_eq!((counts.segments_lost, counts.segments_written), (1, 1));
}

#[test]
fn segments_grow_with_the_volume() {
    let len = |len| VolumeOptions::for_len(len).segment_len as u64 / MIB;
    assert_eq!(
        [len(0), len(64 << 30), len(1 << 40), len(1 << 50)],
        [1, 1, 16, 32]
    );
}

/// An older version of the same key, whole, at the same place: only the filling tells.
#[test]
fn what_a_lost_write_leaves_standing_is_not_read() {
    let mut bench = Bench::new(15, &[4], 512);
    let volume = bench.open(Start::Fresh, 9).volume;
    let mut worker = bench.worker(&volume);
    for round in 0..2 {
        for key in 0..volume.segments() {
            if round == 1 {
                bench.drop_some(&volume, 1);
                bench.set_faults(Faults {
                    lost_writes: 1.0,
                    ..Faults::default()
                });
            }
            assert!(matches!(
                bench.append_of(&mut worker, key, 50),
                Appended::At { .. }
            ));
            bench.seal(&mut worker);
            bench.set_faults(Faults::default());
        }
    }
    assert_eq!(bench.index.len(), 3);
    assert_eq!(bench.read_all(&mut worker), Tally { right: 0, none: 3 });
}

/// A process dies while it writes; the next one fills the same segment in the same turn, and that write is lost.
#[test]
fn what_a_dead_process_had_begun_is_not_read() {
    let mut bench = Bench::new(16, &[4], 512);
    let volume = bench.open(Start::Fresh, 9).volume;
    let mut worker = bench.worker(&volume);
    let Appended::At {
        location: before, ..
    } = bench.append_of(&mut worker, 1, 50)
    else {
        panic!("an empty volume takes an item");
    };
    worker.seal();
    worker.submit(bench.now_ns);
    // What was submitted is carried out: the records, without a summary.
    drop(worker);
    bench.unwritten.clear();
    drop(volume);
    let volume = bench.open(Start::Index(&[0, 0, 0]), 0).volume;
    let mut worker = bench.worker(&volume);
    bench.set_faults(Faults {
        lost_writes: 1.0,
        ..Faults::default()
    });
    bench.append_of(&mut worker, 1, 50);
    bench.seal(&mut worker);
    bench.set_faults(Faults::default());
    assert_eq!(bench.index[&1].location.address(), before.address());
    assert_eq!(bench.read_all(&mut worker), Tally { right: 0, none: 1 });
}
