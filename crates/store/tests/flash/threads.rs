//! Several workers on real files, each with a thread of its own, and the keeper's. Each key has one worker that writes it
//! and knows what it must be; all read it.

use crate::rig::MIB;
use coua_flash::files::{FileDevice, Options};
use coua_flash::log::{Start as VolumeStart, Volume, VolumeOptions, WorkerMemory};
use coua_flash::{BlockDevice, Region};
use coua_store::*;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const WORKERS: usize = 3;
const KEYS: u64 = 18_000;
const STEPS: u64 = 30_000;
const NOW: UnixSeconds = UnixSeconds(1_000_000);

/// A file that goes when the test does.
struct TestFile(PathBuf);

impl Drop for TestFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn value(id: u64, version: u64) -> Vec<u8> {
    let mut value = format!("{id}.{version}:").into_bytes();
    let len = usize::try_from(100 + (id * 31 + version * 7) % 1800).unwrap();
    value.resize(len, b'a' + u8::try_from(version % 26).unwrap());
    value
}

/// The version that a value says it is, after checking each byte of it.
fn version_of(id: u64, bytes: &[u8]) -> u64 {
    let text = bytes.split(|&byte| byte == b':').next().unwrap();
    let text = std::str::from_utf8(text).unwrap();
    let (of, version) = text.split_once('.').unwrap();
    let version = version.parse().unwrap();
    assert_eq!(of.parse::<u64>().unwrap(), id, "another key's value");
    assert!(bytes == value(id, version), "a wrong value of {id}");
    version
}

struct Client {
    worker: Worker,
    began: Instant,
    reads: Vec<FlashRead>,
    token: u64,
    random: u64,
    /// The version of each key of this worker's.
    own: HashMap<u64, u64>,
    flash_hits: u64,
}

impl Client {
    fn below(&mut self, end: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 20) % end
    }

    fn turn(&mut self) {
        self.worker.end(NOW);
        let now_ns = || u64::try_from(self.began.elapsed().as_nanos()).unwrap();
        let submitted = now_ns();
        self.worker.submit_flash(submitted);
        self.worker.poll_flash(now_ns(), &mut self.reads);
    }

    fn fetch(&mut self, place: FlashPlace) -> Option<Fetched> {
        self.token += 1;
        loop {
            match self.worker.burst(NOW).fetch(place, self.token) {
                FetchStart::Gone => return None,
                FetchStart::UnderWay => break,
                FetchStart::Busy => self.turn(),
            }
        }
        let began = Instant::now();
        while began.elapsed() < Duration::from_secs(60) {
            self.turn();
            if let Some(read) = self.reads.pop() {
                assert_eq!(read.token, self.token);
                return Some(read.result.expect("a file that works"));
            }
            // As a server sleeps on its descriptors.
            self.worker.park();
            std::thread::yield_now();
        }
        panic!("a read never ends");
    }

    fn get(&mut self, id: u64) -> Option<u64> {
        let name = id.to_string();
        loop {
            let burst = self.worker.burst(NOW);
            let key = burst.key(name.as_bytes());
            let place = match burst.get(&key, Access::default()) {
                Ok(item) => return Some(version_of(id, item.as_slice().unwrap())),
                Err(Miss::OnFlash(place)) => place,
                Err(_) => return None,
            };
            burst.close();
            let Some(fetched) = self.fetch(place) else {
                continue;
            };
            let mut burst = self.worker.burst(NOW);
            let key = burst.key(name.as_bytes());
            let found = match burst.get_fetched(&key, place, &fetched, Access::default()) {
                FetchedGet::Hit(item) => Some(version_of(id, item.as_slice().unwrap())),
                FetchedGet::Dead(why) => panic!("{why:?}"),
                FetchedGet::InPieces { .. } => unreachable!("a short value"),
                FetchedGet::OtherKey | FetchedGet::Moved => None,
            };
            burst.close();
            self.worker.give_back(fetched);
            if found.is_some() {
                self.flash_hits += 1;
                return found;
            }
        }
    }

    fn store(&mut self, id: u64, version: u64, mode: Mode) -> bool {
        let name = id.to_string();
        let put = Put {
            mode,
            ..Put::set(0, Expiry::NEVER)
        };
        loop {
            let mut burst = self.worker.burst(NOW);
            let key = burst.key(name.as_bytes());
            let stored = burst.store(&key, &put, &value(id, version));
            burst.close();
            match stored {
                Stored::Stored { .. } => return true,
                Stored::NotStored => return false,
                Stored::Refused(Refused::Wait) => {
                    self.turn();
                    std::thread::yield_now();
                }
                Stored::OnFlash(place) => {
                    let Some(fetched) = self.fetch(place) else {
                        continue;
                    };
                    let mut burst = self.worker.burst(NOW);
                    let key = burst.key(name.as_bytes());
                    let back = burst.bring_back(&key, place, &fetched);
                    burst.close();
                    self.worker.give_back(fetched);
                    if back == BroughtBack::NoMemory {
                        self.turn();
                    }
                }
                other => panic!("{other:?}"),
            }
        }
    }

    fn step(&mut self, nth: u64, worker: u64) {
        let id = self.below(KEYS);
        let own = id - id % WORKERS as u64 + worker;
        let known = self.own.get(&own).copied();
        match self.below(16) {
            0..5 => {
                self.store(own, nth, Mode::Set);
                self.own.insert(own, nth);
            }
            5..8 => _ = self.get(id),
            8..12 => {
                let found = self.get(own);
                assert!(
                    found.is_none() || found == known,
                    "{own}: {found:?}, {known:?}"
                );
                if found.is_none() {
                    self.own.remove(&own);
                }
            }
            12 => {
                let name = own.to_string();
                let mut burst = self.worker.burst(NOW);
                let key = burst.key(name.as_bytes());
                burst.delete(&key, &Delete::default());
                self.own.remove(&own);
            }
            13 => {
                let mode = if nth.is_multiple_of(2) {
                    Mode::Add
                } else {
                    Mode::Replace
                };
                let is_stored = self.store(own, nth, mode);
                match (mode, is_stored) {
                    (Mode::Add, true) => _ = self.own.insert(own, nth),
                    (Mode::Add, false) => assert!(known.is_some(), "{own} came back"),
                    (_, true) => {
                        assert!(known.is_some(), "{own} came back");
                        self.own.insert(own, nth);
                    }
                    (_, false) => _ = self.own.remove(&own),
                }
            }
            _ => self.turn(),
        }
        if nth.is_multiple_of(64) {
            self.turn();
        }
    }
}

#[test]
fn workers_share_a_volume_on_a_real_file() {
    let path = std::env::temp_dir().join(format!("coua-tier-{}", std::process::id()));
    let file = TestFile(path);
    let options = Options {
        len: Some(24 * MIB as u64),
        ..Options::default()
    };
    let device = FileDevice::open(&file.0, options, &[]).expect("a file");
    let devices: [&dyn BlockDevice; 1] = [&device];
    let began = Instant::now();
    let options = VolumeOptions::for_len(24 * MIB as u64);
    let opened = Volume::open(&devices, options, VolumeStart::Fresh, 5, &mut || {
        u64::try_from(began.elapsed().as_nanos()).unwrap()
    });
    let volume = opened.expect("a file that works").volume;
    let config = Config {
        memory: 10 * MIB,
        workers: WORKERS,
        ..Config::default()
    };
    let store = Store::new(config, NOW).expect("a store");
    let attached = store.attach_flash(Arc::clone(&volume), FlashOptions::default());
    attached.expect("the first");
    let is_over = AtomicBool::new(false);
    let flash_hits = std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut keeper = store.flash_keeper().expect("the first");
            while !is_over.load(Ordering::Relaxed) {
                while keeper.keep(NOW) {}
                keeper.wait(Duration::from_millis(5));
            }
        });
        let clients = (0..WORKERS).map(|id| {
            let memory = WorkerMemory::carve(Region::allocate(5 * MIB), &volume, 3);
            let handle = volume.worker(&devices, 64, memory).expect("queues");
            let store = &store;
            scope.spawn(move || {
                let mut worker = store.worker(id);
                worker.attach_flash(handle);
                let mut client = Client {
                    worker,
                    began,
                    reads: Vec::new(),
                    token: 0,
                    random: 0x9e37_79b9 + id as u64,
                    own: HashMap::new(),
                    flash_hits: 0,
                };
                for nth in 0..STEPS {
                    client.step(nth, id as u64);
                }
                client.flash_hits
            })
        });
        let clients: Vec<_> = clients.collect();
        let ended: Vec<_> = clients.into_iter().map(|client| client.join()).collect();
        is_over.store(true, Ordering::Relaxed);
        let hits = ended.into_iter().map(|hits| hits.expect("no panic"));
        hits.sum::<u64>()
    });
    let stats = store.flash_stats().expect("flash");
    assert!(flash_hits > 300, "{flash_hits} {stats:?}");
    assert!(stats.brought_back > 100 && stats.dropped > 100, "{stats:?}");
    assert_eq!(stats.damaged + stats.failed + stats.segments_lost, 0);
}
