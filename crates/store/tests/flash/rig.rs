//! A store with flash on simulated devices, and a client that does what a server does: it reads what an operation says is
//! on flash, and executes the operation again.

use coua_flash::BlockDevice;
use coua_flash::Region;
use coua_flash::log::{Opened, Start as VolumeStart, Volume, VolumeOptions, WorkerMemory};
use coua_flash::simulated::{Settings, SimulatedDevice};
use coua_store::*;
use std::sync::Arc;

pub(crate) const MIB: usize = 1 << 20;

const OPTIONS: VolumeOptions = VolumeOptions {
    segment_len: MIB,
    keeps_tombstones: false,
};

/// What is read from flash for a client, until its answer is there.
const TURN_NS: u64 = 50_000;

/// Why an operation has to be executed again.
pub(crate) enum Again {
    OnFlash(FlashPlace),
    Wait,
}

pub(crate) type Tried<T> = Result<T, Again>;

/// Devices and the time that they live by.
#[derive(Clone)]
pub(crate) struct Devices {
    pub(crate) devices: Vec<SimulatedDevice>,
    pub(crate) now_ns: u64,
}

impl Devices {
    pub(crate) fn new(mib: &[usize], seed: u64) -> Devices {
        let devices = (seed..).zip(mib).map(|(seed, mib)| {
            let settings = Settings {
                sectors: (mib * MIB / 512) as u64,
                transfer_len_max: 256 << 10,
                ..Settings::default()
            };
            SimulatedDevice::new(settings, seed)
        });
        Devices {
            devices: devices.collect(),
            now_ns: 0,
        }
    }

    /// Devices that have memory pinned for good.
    pub(crate) fn pinning(mib: &[usize], seed: u64) -> Devices {
        let devices = (seed..).zip(mib).map(|(seed, mib)| {
            let settings = Settings {
                sectors: (mib * MIB / 512) as u64,
                transfer_len_max: 256 << 10,
                pins_memory: true,
                ..Settings::default()
            };
            SimulatedDevice::new(settings, seed)
        });
        Devices {
            devices: devices.collect(),
            now_ns: 0,
        }
    }

    /// As they are now, for the next process.
    #[cfg(feature = "kill-points")]
    pub(crate) fn fork(&self) -> Devices {
        let forks = self.devices.iter().map(SimulatedDevice::fork);
        Devices {
            devices: forks.collect(),
            now_ns: self.now_ns,
        }
    }

    pub(crate) fn all(&self) -> Vec<&dyn BlockDevice> {
        let all = self.devices.iter();
        all.map(|device| device as &dyn BlockDevice).collect()
    }

    pub(crate) fn open(&mut self, believed: &[u64], id: u64) -> Opened {
        let start = match believed {
            [] => VolumeStart::Fresh,
            believed => VolumeStart::Index(believed),
        };
        let mut now_ns = self.now_ns;
        let opened = Volume::open(&self.all(), OPTIONS, start, id, &mut || {
            now_ns += 20_000;
            now_ns
        });
        self.now_ns = now_ns;
        opened.expect("devices that work")
    }
}

pub(crate) struct Rig {
    pub(crate) worker: Worker,
    pub(crate) store: Arc<Store>,
    pub(crate) keeper: FlashKeeper,
    pub(crate) devices: Devices,
    /// What is read into and written from.
    pub(crate) region: Arc<Region>,
    /// Milliseconds.
    pub(crate) now: u64,
    reads: Vec<FlashRead>,
    next_token: u64,
}

impl Rig {
    /// A store with 8 MiB of memory.
    pub(crate) fn new(devices: Devices) -> Rig {
        let config = Config {
            memory: 8 * MIB,
            seed: Some(7),
            ..Config::default()
        };
        Rig::with(devices, config, 11)
    }

    pub(crate) fn with(mut devices: Devices, config: Config, id: u64) -> Rig {
        let now = 1_000_000_000;
        let store = Store::new(config, UnixSeconds(1_000_000)).expect("a store");
        let opened = devices.open(&store.flash_sequences(), id);
        let options = FlashOptions::default();
        store
            .attach_flash(Arc::clone(&opened.volume), options)
            .expect("the first");
        let keeper = store.flash_keeper().expect("the first");
        let mut worker = store.worker(0);
        let memory = Region::watched(5 * MIB);
        let region = Arc::clone(memory.region());
        let memory = WorkerMemory::carve(memory, &opened.volume, 3);
        let volume = opened.volume.worker(&devices.all(), 64, memory);
        worker.attach_flash(volume.expect("queues"));
        Rig {
            worker,
            store,
            keeper,
            devices,
            region,
            now,
            reads: Vec::new(),
            next_token: 0,
        }
    }

    pub(crate) fn time(&self) -> UnixTime {
        UnixTime::of_millis(self.now)
    }

    /// The end of a turn and the beginning of the next.
    pub(crate) fn turn(&mut self) {
        let now = self.time();
        self.worker.end(now);
        self.worker.submit_flash(self.devices.now_ns);
        self.devices.now_ns += TURN_NS;
        self.worker.poll_flash(self.devices.now_ns, &mut self.reads);
        self.keeper.keep(now.second());
    }

    /// Turns until nothing is under way.
    pub(crate) fn settle(&mut self) {
        for _ in 0..200 {
            self.turn();
        }
    }

    /// Reads the record of a place; nothing if there is none.
    pub(crate) fn fetch(&mut self, place: FlashPlace) -> Option<Fetched> {
        self.next_token += 1;
        let token = self.next_token;
        loop {
            let now = self.time();
            match self.worker.burst(now).fetch(place, token) {
                FetchStart::Gone => return None,
                FetchStart::UnderWay => break,
                FetchStart::Busy => self.turn(),
            }
        }
        for _ in 0..1_000_000 {
            self.turn();
            let Some(read) = self.reads.pop() else {
                continue;
            };
            assert_eq!(read.token, token);
            match read.result {
                Ok(fetched) => return Some(fetched),
                Err(_) => {
                    let now = self.time();
                    self.worker.burst(now).drop_flash(place);
                    return None;
                }
            }
        }
        panic!("a read never ends");
    }

    /// Executes an operation until it needs nothing from flash.
    pub(crate) fn run<T>(
        &mut self,
        name: &[u8],
        mut op: impl FnMut(&mut Burst<'_>, &Key<'_>) -> Tried<T>,
    ) -> T {
        for _ in 0..100_000 {
            let now = self.time();
            let mut burst = self.worker.burst(now);
            let key = burst.key(name);
            let tried = op(&mut burst, &key);
            burst.close();
            match tried {
                Ok(done) => return done,
                Err(Again::Wait) => self.turn(),
                Err(Again::OnFlash(place)) => {
                    let Some(fetched) = self.fetch(place) else {
                        continue;
                    };
                    let mut burst = self.worker.burst(now);
                    let key = burst.key(name);
                    let back = burst.bring_back(&key, place, &fetched);
                    burst.close();
                    match back {
                        BroughtBack::NoMemory => self.turn(),
                        BroughtBack::InPieces => self.recall(name, place, &fetched),
                        _ => {}
                    }
                    self.worker.give_back(fetched);
                }
            }
        }
        panic!("an operation never ends");
    }

    /// Brings a value in pieces back, if it is all there.
    fn recall(&mut self, name: &[u8], place: FlashPlace, head: &Fetched) {
        let now = self.time();
        let mut burst = self.worker.burst(now);
        let key = burst.key(name);
        let begun = burst.begin_recall(&key, place, head);
        burst.close();
        let Ok(mut recall) = begun else { return };
        while let Some(nth) = recall.missing().next() {
            let Some(piece) = self.fetch(recall.pieces().place(nth)) else {
                self.worker.burst(now).drop_flash(place);
                return;
            };
            let taken = self.worker.burst(now).recall(&mut recall, &piece);
            self.worker.give_back(piece);
            match taken {
                Ok(is_it) => assert!(is_it, "another piece"),
                Err(Refused::Wait) => self.turn(),
                Err(why) => panic!("{why}"),
            }
        }
        loop {
            let mut burst = self.worker.burst(now);
            let key = burst.key(name);
            let finished = burst.finish_recall(&key, head, recall);
            burst.close();
            match finished {
                Ok(_) => return,
                Err(unfinished) => recall = unfinished,
            }
            self.turn();
        }
    }

    /// The value of an item that is in pieces on flash, read from there.
    fn pieced(&mut self, name: &[u8], place: FlashPlace, head: &Fetched) -> Option<Vec<u8>> {
        let now = self.time();
        let mut burst = self.worker.burst(now);
        let key = burst.key(name);
        let found = burst.flash_pieces(&key, place, head);
        let pieces = found.map(|(_, pieces)| pieces);
        burst.close();
        let pieces = pieces?;
        let mut value = Vec::new();
        for nth in 0..pieces.count() {
            let Some(piece) = self.fetch(pieces.place(nth)) else {
                self.worker.burst(now).drop_flash(place);
                return None;
            };
            value.extend_from_slice(pieces.data(nth, &piece).expect("the piece"));
            self.worker.give_back(piece);
        }
        assert_eq!(value.len(), pieces.value_len());
        Some(value)
    }

    /// A plain read: `with` is shown the item.
    pub(crate) fn get<T>(
        &mut self,
        name: &[u8],
        access: Access,
        mut with: impl FnMut(&Item<'_>) -> T,
    ) -> Result<T, Miss> {
        self.get_value(name, access, |item, _| with(item))
    }

    /// A plain read: `with` is shown the item and its value.
    pub(crate) fn get_value<T>(
        &mut self,
        name: &[u8],
        access: Access,
        mut with: impl FnMut(&Item<'_>, Vec<u8>) -> T,
    ) -> Result<T, Miss> {
        let value_of = |item: &Item<'_>| item.value().collect::<Vec<_>>().concat();
        for _ in 0..100_000 {
            let now = self.time();
            let burst = self.worker.burst(now);
            let key = burst.key(name);
            let place = match burst.get(&key, access) {
                Ok(item) => {
                    let got = with(&item, value_of(&item));
                    if item.is_doubtful() {
                        continue;
                    }
                    return Ok(got);
                }
                Err(Miss::OnFlash(place)) => place,
                Err(miss) => return Err(miss),
            };
            burst.close();
            let Some(fetched) = self.fetch(place) else {
                continue;
            };
            let mut burst = self.worker.burst(now);
            let key = burst.key(name);
            let mut is_in_pieces = false;
            let mut got = match burst.get_fetched(&key, place, &fetched, access) {
                FetchedGet::Hit(item) => {
                    assert!(item.is_fetched() && !burst.can_pin(&item));
                    let got = with(&item, value_of(&item));
                    (!item.is_doubtful()).then_some(Ok(got))
                }
                FetchedGet::InPieces { item, .. } => {
                    assert!(item.is_fetched() && item.value().next().is_none());
                    is_in_pieces = true;
                    None
                }
                FetchedGet::Dead(miss) => Some(Err(miss)),
                FetchedGet::OtherKey | FetchedGet::Moved => None,
            };
            burst.close();
            if is_in_pieces && let Some(value) = self.pieced(name, place, &fetched) {
                let mut burst = self.worker.burst(now);
                let key = burst.key(name);
                let found = burst.flash_pieces(&key, place, &fetched);
                got = found.map(|(item, _)| Ok(with(&item, value)));
            }
            self.worker.give_back(fetched);
            if let Some(got) = got {
                return got;
            }
        }
        panic!("a read never ends");
    }

    pub(crate) fn value(&mut self, name: &[u8]) -> Option<Vec<u8>> {
        let value = self.get_value(name, Access::default(), |_, value| value);
        value.ok()
    }

    pub(crate) fn put(&mut self, name: &[u8], put: &Put, value: &[u8]) -> Stored {
        let stored = self.run(name, |burst, key| {
            stored_or_again(burst.store(key, put, value))
        });
        self.turn();
        stored
    }

    pub(crate) fn set(&mut self, name: &[u8], value: &[u8]) {
        let stored = self.put(name, &Put::set(0, Expiry::NEVER), value);
        assert!(matches!(stored, Stored::Stored { .. }), "{stored:?}");
    }

    pub(crate) fn delete(&mut self, name: &[u8]) -> Deleted {
        self.run(name, |burst, key| {
            deleted_or_again(burst.delete(key, &Delete::default()))
        })
    }

    /// Whether the key is on flash, as far as a lookup can tell.
    pub(crate) fn is_on_flash(&mut self, name: &[u8]) -> bool {
        let now = self.time();
        let burst = self.worker.burst(now);
        let key = burst.key(name);
        let access = Access {
            bump: false,
            cas: false,
        };
        matches!(burst.get(&key, access), Err(Miss::OnFlash(_)))
    }

    pub(crate) fn stats(&self) -> FlashStats {
        self.store.flash_stats().expect("flash")
    }
}

pub(crate) fn stored_or_again(stored: Stored) -> Tried<Stored> {
    match stored {
        Stored::OnFlash(place) => Err(Again::OnFlash(place)),
        Stored::Refused(Refused::Wait) => Err(Again::Wait),
        stored => Ok(stored),
    }
}

pub(crate) fn deleted_or_again(deleted: Deleted) -> Tried<Deleted> {
    match deleted {
        Deleted::NotFound(Miss::OnFlash(place)) => Err(Again::OnFlash(place)),
        Deleted::Refused(Refused::Wait) => Err(Again::Wait),
        deleted => Ok(deleted),
    }
}
