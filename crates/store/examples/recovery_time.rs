//! How long it takes to see to a lost page, and how long requests take meanwhile, by size of memory:
//! `cargo run --release -p coua-store --example recovery_time -- MEGABYTES [VALUE_LEN]`.
#![allow(clippy::print_stdout, reason = "it reports")]

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use coua_memory_errors::{events_seen, install, install_thread, wait_for_events};
use coua_store::{
    Access, Config, Expiry, PoisonMeans, PoisonTarget, Put, Store, Stored, UnixSeconds,
};

const NOW: UnixSeconds = UnixSeconds(1_000_000);

/// Pages that are lost, one after the other.
const LOSSES: u64 = 5;

/// Reads in a burst.
const BURST: u64 = 16;

fn main() {
    let mut arguments = std::env::args()
        .skip(1)
        .map(|word| word.parse().expect("a number"));
    let memory: usize = arguments.next().unwrap_or(2048) << 20;
    let value = vec![b'v'; arguments.next().unwrap_or(100)];
    let events = install().expect("nothing is installed yet");
    let _stack = install_thread().expect("there is memory");
    let config = Config {
        memory,
        survives_memory_errors: true,
        ..Config::default()
    };
    let store = Store::new(config, NOW).expect("there is memory");
    let mut worker = store.worker(0);
    let mut keys = 0;
    let set = Put::set(0, Expiry::NEVER);
    while store.stats().totals.evicted == 0 {
        for _ in 0..1000 {
            let mut burst = worker.burst(NOW);
            let name = format!("key-{keys:012}");
            let key = burst.key(name.as_bytes());
            let stored = burst.store(&key, &set, &value);
            keys += u64::from(matches!(stored, Stored::Stored { .. }));
            burst.close();
            worker.end(NOW);
        }
    }
    let items = store.stats().items;
    println!(
        "{} MiB, {items} items of {} bytes",
        memory >> 20,
        value.len()
    );
    let mut mender = store.watch(events);
    let (ends, mended) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let _stack = install_thread().expect("there is memory");
            while !ends.load(SeqCst) {
                let seen = events_seen();
                if let Some(told) = mender.mend(NOW) {
                    let [doubtful, took] =
                        [told.doubtful_for, told.took].map(|time| time.as_secs_f64() * 1000.0);
                    println!(
                        "  lost {} items of {} bytes: nothing doubtful after {doubtful:.2} ms, \
                         nothing refers there after {took:.1} ms",
                        told.items, told.bytes
                    );
                    mended.fetch_add(1, SeqCst);
                }
                wait_for_events(seen, Duration::from_millis(1));
            }
        });
        let mut seed = 1_u64;
        let mut longest = [Duration::ZERO; 2];
        for lost in 0..=LOSSES {
            if lost > 0 {
                let burst = worker.burst(NOW);
                let name = format!("key-{:012}", keys / 2 + lost * 1000);
                let key = burst.key(name.as_bytes());
                let target = match lost % 3 {
                    0 => PoisonTarget::Index,
                    _ => PoisonTarget::Item,
                };
                assert!(
                    burst
                        .poison(&key, target, PoisonMeans::Userfault)
                        .expect("UFFDIO_POISON")
                        .is_some()
                );
                let _ = burst.get(&key, Access::default());
            }
            let began = Instant::now();
            while mended.load(SeqCst) < lost || began.elapsed() < Duration::from_millis(500) {
                let turn = Instant::now();
                let burst = worker.burst(NOW);
                for _ in 0..BURST {
                    seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    let name = format!("key-{:012}", (seed >> 33) % keys);
                    let key = burst.key(name.as_bytes());
                    std::hint::black_box(burst.get(&key, Access::default()).is_ok());
                }
                burst.close();
                worker.end(NOW);
                let all = &mut longest[usize::from(lost > 0)];
                *all = (*all).max(turn.elapsed());
            }
        }
        ends.store(true, SeqCst);
        let [before, after] = longest.map(|time| time.as_secs_f64() * 1000.0);
        println!(
            "  longest turn of {BURST} reads: {before:.2} ms without losses, {after:.2} ms with"
        );
    });
}
