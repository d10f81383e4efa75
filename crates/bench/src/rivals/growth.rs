//! How long a single set can take while the index grows.

use coua_store::{Config, Store, StoreError};
use hdrhistogram::Histogram;
use serde::Serialize;

use super::KeySizes;
use super::coua::store_one;
use crate::cpu;
use crate::hits::coua::now;
use crate::workload::Values;

/// The hash seed of all rounds.
const SEED: u64 = 0x636f_7561;

/// How long single sets took while a store grew from nothing.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Growth {
    /// Keys stored.
    pub(crate) keys: u32,
    /// Splits of the index on the way.
    pub(crate) splits: u64,
    /// The sets of all rounds, ends of bursts included.
    pub(crate) sets: Pauses,
    /// Arithmetic in registers, which took turns with the sets: what it shows is the machine's
    /// doing (interrupts, and the hypervisor, whose time counts as the thread's).
    pub(crate) arithmetic: Pauses,
    /// The same sets, each by the round in which it took least. A store with the same seed does
    /// the same work for each set in every round, and the machine does not stop the thread at
    /// the same set in all of them: what is left is the store's own.
    pub(crate) sets_least: Pauses,
}

/// Durations of one kind of work, in nanoseconds of the thread's CPU time. Reading the clock is
/// part of each.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Pauses {
    /// All of them together.
    pub(crate) total_ns: u64,
    /// Half of them took no longer.
    pub(crate) p50_ns: u64,
    /// 99.9 % took no longer.
    pub(crate) p999_ns: u64,
    /// 99.999 % took no longer.
    pub(crate) p99999_ns: u64,
    /// The longest.
    pub(crate) max_ns: u64,
    /// Those that took more than [`LONG_NS`](Self::LONG_NS).
    pub(crate) long: u64,
}

impl Pauses {
    /// What no set should take.
    pub(crate) const LONG_NS: u64 = 100_000;

    /// Long ones for each second of the work.
    pub(crate) fn long_each_second(&self) -> f64 {
        self.long as f64 * 1e9 / self.total_ns.max(1) as f64
    }
}

/// The thread's CPU time that `work` takes, in nanoseconds: four seconds at most.
#[inline]
fn time<T>(work: impl FnOnce() -> T) -> u32 {
    let before = cpu::of_this_thread();
    std::hint::black_box(work());
    let took = cpu::of_this_thread() - before;
    u32::try_from(took.as_nanos()).unwrap_or(u32::MAX)
}

/// Times of a kind of work.
struct Times {
    times: Histogram<u64>,
    total_ns: u64,
}

impl Times {
    const NS_MAX: u64 = u32::MAX as u64;

    fn new() -> Times {
        Times {
            times: Histogram::new_with_max(Self::NS_MAX, 3).expect("the bounds are in order"),
            total_ns: 0,
        }
    }

    #[inline]
    fn add(&mut self, took: u32) {
        self.times.saturating_record(took.into());
        self.total_ns += u64::from(took);
    }

    fn pauses(&self) -> Pauses {
        Pauses {
            total_ns: self.total_ns,
            p50_ns: self.times.value_at_quantile(0.5),
            p999_ns: self.times.value_at_quantile(0.999),
            p99999_ns: self.times.value_at_quantile(0.99999),
            max_ns: self.times.max(),
            long: self.times.count_between(Pauses::LONG_NS, Self::NS_MAX),
        }
    }
}

/// Stores the keys below `keys` one burst each in an empty store of `memory` bytes, in each round
/// anew.
pub(crate) fn grow(
    rounds: usize,
    keys: u32,
    sizes: KeySizes,
    values: &Values,
    memory: usize,
) -> Result<Growth, StoreError> {
    let (mut sets, mut arithmetic) = (Times::new(), Times::new());
    let mut least = vec![u32::MAX; keys as usize];
    let mut splits = 0;
    for _ in 0..rounds {
        let config = Config {
            memory,
            seed: Some(SEED),
            ..Config::default()
        };
        let store = Store::new(config, now())?;
        let mut worker = store.worker(0);
        let mut buffer = KeySizes::buffer();
        for (number, least) in (0..keys).zip(&mut least) {
            let start = sizes.write(number, &mut buffer);
            let (key, value) = (&buffer[start..], values.of(number));
            let took = time(|| store_one(&store, &mut worker, key, value));
            sets.add(took);
            *least = took.min(*least);
            arithmetic.add(time(|| multiply(number)));
        }
        splits = store.stats().totals.splits;
    }
    let mut sets_least = Times::new();
    for took in least {
        sets_least.add(took);
    }
    Ok(Growth {
        keys,
        splits,
        sets: sets.pauses(),
        arithmetic: arithmetic.pauses(),
        sets_least: sets_least.pauses(),
    })
}

/// Takes about as long as a set.
#[inline(never)]
fn multiply(start: u32) -> u64 {
    let product = (0..200).fold(u64::from(start), |product, _| {
        std::hint::black_box(product.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    });
    std::hint::black_box(product)
}
