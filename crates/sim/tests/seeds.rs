//! Thousands of runs, each from a seed. `COUA_SIM_SEEDS` is how many, `COUA_SIM_SEED` which one
//! alone, with all that happens in it:
//!
//! ```sh
//! COUA_SIM_SEED=17 cargo test -p coua-sim one_seed -- --nocapture
//! ```

use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use coua_sim::{Summary, run};

/// Seeds of a test run that does not say how many.
const SEEDS: u64 = 2000;

fn from_environment(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{name}: {text} is no number")),
    )
}

/// Runs a seed; a panic of the server is a failure like any other.
fn run_caught(seed: u64) -> Result<Summary, String> {
    catch_unwind(AssertUnwindSafe(|| run(seed, false)))
        .unwrap_or_else(|_| Err(format!("seed {seed}: it panicked, as told above")))
}

#[test]
fn every_seed() {
    let count = from_environment("COUA_SIM_SEEDS").unwrap_or(SEEDS);
    let (next, failed) = (AtomicU64::new(0), AtomicBool::new(false));
    let failures = Mutex::new(Vec::new());
    let total = Mutex::new(Summary::default());
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while !failed.load(Relaxed) {
                    let seed = next.fetch_add(1, Relaxed);
                    if seed >= count {
                        break;
                    }
                    match run_caught(seed) {
                        Ok(summary) => total.lock().expect("no panics").add(&summary),
                        Err(why) => {
                            failed.store(true, Relaxed);
                            failures.lock().expect("no panics").push((seed, why));
                        }
                    }
                }
            });
        }
    });
    let (failures, total) = (failures.into_inner(), total.into_inner());
    let failures = failures.expect("no panics");
    if let Some((seed, why)) = failures.into_iter().min() {
        panic!(
            "{why}\n\nalone: COUA_SIM_SEED={seed} cargo test -p coua-sim one_seed -- --nocapture"
        );
    }
    // What is never reached is not tested.
    let total = total.expect("no panics");
    let reached = [
        total.evictions,
        total.idle_kicks,
        total.rejected,
        total.refused,
    ];
    assert!(
        count < SEEDS || reached.iter().all(|&times| times > 0),
        "{total:?}"
    );
    // Only --nocapture shows it.
    let _ = writeln!(std::io::stderr(), "{count} seeds: {total:?}");
}

#[test]
fn one_seed() {
    let seed = from_environment("COUA_SIM_SEED");
    if let Err(why) = run(seed.unwrap_or(0), seed.is_some()) {
        panic!("{why}");
    }
}

#[test]
fn the_same_seed_makes_the_same_run() {
    for seed in 0..24 {
        let (first, second) = (run_caught(seed), run_caught(seed));
        assert_eq!(first, second, "seed {seed}");
    }
}
