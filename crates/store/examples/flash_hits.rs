//! Hits with and without flash, with as much memory, for keys that are asked for after a power law. A miss stores the item,
//! as those do who use a cache in front of a database. The device is simulated, so only counts mean anything.
//!
//! `cargo run --release -p coua-store --example flash_hits -- MEMORY_MIB FLASH_MIB REQUESTS`

#![allow(clippy::print_stdout, reason = "an example that reports")]

use coua_flash::log::{Start, Volume, VolumeOptions, WorkerMemory};
use coua_flash::simulated::{Settings, SimulatedDevice};
use coua_flash::{BlockDevice, Region};
use coua_store::*;
use std::sync::Arc;

const NOW: UnixSeconds = UnixSeconds(1_000_000);
const MIB: usize = 1 << 20;
/// Times as many keys as both tiers have room for.
const KEYS_SHARE: usize = 2;
/// Bytes of a value: 100 to 1900.
const VALUE_LEN: usize = 1000;

/// Numbers after a power law, hashed apart: rank `r` is asked for as often as `r^-0.9`.
struct Zipf {
    keys: f64,
    state: u64,
}

impl Zipf {
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "ranks are small"
    )]
    fn next(&mut self) -> u64 {
        self.state = self
            .state
            .wrapping_mul(0x5851_f42d_4c95_7f2d)
            .wrapping_add(1);
        let uniform = (self.state >> 11) as f64 / (1u64 << 53) as f64;
        // The inverse of the integral of x^-0.9.
        let rank = ((self.keys.powf(0.1) - 1.0) * uniform + 1.0).powi(10);
        rank as u64
    }
}

struct Cache {
    worker: Worker,
    keeper: Option<FlashKeeper>,
    now_ns: u64,
    reads: Vec<FlashRead>,
}

impl Cache {
    fn turn(&mut self) {
        self.worker.end(NOW);
        self.worker.submit_flash(self.now_ns);
        self.now_ns += 20_000;
        self.worker.poll_flash(self.now_ns, &mut self.reads);
    }

    fn get(&mut self, name: &[u8]) -> bool {
        loop {
            let burst = self.worker.burst(NOW);
            let key = burst.key(name);
            let place = match burst.get(&key, Access::default()) {
                Ok(_) => return true,
                Err(Miss::OnFlash(place)) => place,
                Err(_) => return false,
            };
            burst.close();
            match self.worker.burst(NOW).fetch(place, 0) {
                FetchStart::UnderWay => {}
                FetchStart::Gone | FetchStart::Busy => {
                    self.turn();
                    continue;
                }
            }
            while self.reads.is_empty() {
                self.turn();
            }
            let Some(Ok(fetched)) = self.reads.pop().map(|read| read.result) else {
                self.worker.burst(NOW).drop_flash(place);
                continue;
            };
            let mut burst = self.worker.burst(NOW);
            let key = burst.key(name);
            let got = burst.get_fetched(&key, place, &fetched, Access::default());
            let is_hit = matches!(got, FetchedGet::Hit(_) | FetchedGet::InPieces { .. });
            burst.close();
            self.worker.give_back(fetched);
            if is_hit {
                return true;
            }
        }
    }

    fn set(&mut self, name: &[u8], value: &[u8]) {
        loop {
            let mut burst = self.worker.burst(NOW);
            let key = burst.key(name);
            let stored = burst.store(&key, &Put::set(0, Expiry::NEVER), value);
            burst.close();
            self.turn();
            if stored != Stored::Refused(Refused::Wait) {
                return;
            }
        }
    }
}

fn run(memory: usize, flash: usize, keys: usize, requests: u64) {
    let config = Config {
        memory: memory * MIB,
        seed: Some(1),
        ..Config::default()
    };
    let store = Store::new(config, NOW).expect("a store");
    let settings = Settings {
        sectors: (flash.max(8) * MIB / 512) as u64,
        transfer_len_max: 256 << 10,
        ..Settings::default()
    };
    let device = SimulatedDevice::new(settings, 1);
    let devices: [&dyn BlockDevice; 1] = [&device];
    let mut now_ns = 0;
    let handle = (flash > 0).then(|| {
        let options = VolumeOptions::for_len((flash * MIB) as u64);
        let opened = Volume::open(&devices, options, Start::Fresh, 1, &mut || {
            now_ns += 20_000;
            now_ns
        });
        let volume = opened.expect("a device that works").volume;
        let memory = WorkerMemory::carve(Region::allocate(5 * MIB), &volume, 3);
        let handle = volume.worker(&devices, 64, memory).expect("queues");
        store
            .attach_flash(Arc::clone(&volume), FlashOptions::default())
            .expect("the first");
        handle
    });
    let mut worker = store.worker(0);
    if let Some(handle) = handle {
        worker.attach_flash(handle);
    }
    let mut cache = Cache {
        keeper: store.flash_keeper(),
        worker,
        now_ns,
        reads: Vec::new(),
    };
    #[allow(clippy::cast_precision_loss, reason = "a number of keys")]
    let mut zipf = Zipf {
        keys: keys as f64,
        state: 7,
    };
    let value = [b'x'; 2 * VALUE_LEN];
    let (mut hits, mut set_bytes) = (0u64, 0u64);
    for nth in 0..requests {
        let id = zipf.next();
        let name = format!("key-{id}");
        if cache.get(name.as_bytes()) {
            hits += 1;
        } else {
            let len = 100 + usize::try_from(id.wrapping_mul(0x9e37_79b9) % 1800).expect("short");
            cache.set(name.as_bytes(), &value[..len]);
            set_bytes += len as u64;
        }
        if nth.is_multiple_of(16) {
            cache.turn();
            if let Some(keeper) = &mut cache.keeper {
                keeper.keep(NOW);
            }
        }
    }
    let percent = |part: u64, of: u64| part * 1000 / of.max(1);
    let stats = store.flash_stats().unwrap_or_default();
    println!(
        "{memory} MiB of memory, {flash} of flash: hits {} of 1000, {} of flash; set {} MiB, to flash {} MiB; \
         index {} KiB, {stats:?}",
        percent(hits, requests),
        percent(stats.hits, requests),
        set_bytes >> 20,
        stats.segments_written,
        store.stats().memory_index >> 10,
    );
}

fn main() {
    let mut args = std::env::args()
        .skip(1)
        .map(|arg| arg.parse().expect("a number"));
    let memory = args.next().unwrap_or(32);
    let flash = args.next().unwrap_or(256);
    let requests: usize = args.next().unwrap_or(2_000_000);
    let keys = (memory + flash) * MIB / VALUE_LEN * KEYS_SHARE;
    run(memory, 0, keys, requests as u64);
    run(memory, flash, keys, requests as u64);
    run(memory + flash, 0, keys, requests as u64);
}
