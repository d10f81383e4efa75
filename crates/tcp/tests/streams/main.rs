//! Streams of bytes between two stacks over a link that does to frames what networks do, from
//! seeds: every byte right, in order, every connection closed cleanly, everything forgotten.
//!
//! `COUA_TCP_SEEDS` is how many, `COUA_TCP_SEED` which one alone, with all that happens in it:
//!
//! ```sh
//! COUA_TCP_SEED=17 cargo test -p coua-tcp --test streams one_seed -- --nocapture
//! ```

#![expect(clippy::print_stderr, reason = "tests tell what they saw")]

mod host;
mod plan;
mod stream;
mod world;

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use world::{Summary, run};

/// Seeds of a test run that does not say how many.
const SEEDS: u64 = 10_000;

fn from_environment(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    let number = text.parse();
    Some(number.unwrap_or_else(|_| panic!("{name}: {text} is no number")))
}

#[test]
fn every_seed() {
    let count = from_environment("COUA_TCP_SEEDS").unwrap_or(SEEDS);
    let (next, has_failed) = (AtomicU64::new(0), AtomicBool::new(false));
    let (total, failures) = (Mutex::new(Summary::default()), Mutex::new(Vec::new()));
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while !has_failed.load(Relaxed) {
                    let seed = next.fetch_add(1, Relaxed);
                    if seed >= count {
                        break;
                    }
                    match std::panic::catch_unwind(|| run(seed, false)) {
                        Ok(Ok(summary)) => total.lock().expect("no panics").add(&summary),
                        Ok(Err(why)) => {
                            has_failed.store(true, Relaxed);
                            failures.lock().expect("no panics").push((seed, why));
                        }
                        Err(_) => {
                            has_failed.store(true, Relaxed);
                            let why = "it panicked, as told above".to_owned();
                            failures.lock().expect("no panics").push((seed, why));
                        }
                    }
                }
            });
        }
    });
    let failures = failures.into_inner().expect("no panics");
    if let Some((seed, why)) = failures.into_iter().min() {
        panic!(
            "seed {seed}: {why}\n\nalone: COUA_TCP_SEED={seed} cargo test -p coua-tcp --test streams one_seed -- --nocapture"
        );
    }
    let total = total.into_inner().expect("no panics");
    eprintln!("{count} seeds: {total:?}");
    // What is never reached is not tested.
    if count >= SEEDS {
        let unreached = total.unreached();
        assert!(unreached.is_empty(), "never: {unreached:?}");
        // Where a network loses a tenth of all that is said, some handshakes fail.
        assert!(total.unopened * 100 < total.streams, "{total:?}");
    }
}

#[test]
fn one_seed() {
    let seed = from_environment("COUA_TCP_SEED");
    if let Err(why) = run(seed.unwrap_or(0), seed.is_some()) {
        panic!("{why}");
    }
}

#[test]
fn the_same_seed_makes_the_same_run() {
    for seed in 0..20 {
        assert_eq!(run(seed, false), run(seed, false), "seed {seed}");
    }
}
