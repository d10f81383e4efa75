//! How long a single set can take while the index grows.

use coua_store::{Config, Store, StoreError};
use hdrhistogram::Histogram;
use serde::Serialize;

use super::KeySizes;
use super::coua::store_one;
use crate::cpu;
use crate::hits::coua::now;
use crate::workload::Values;

/// How long single sets took while a store grew from nothing.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Growth {
    /// Keys stored.
    pub(crate) keys: u32,
    /// Splits of the index on the way.
    pub(crate) splits: u64,
    /// The sets, ends of bursts included.
    pub(crate) sets: Pauses,
    /// Arithmetic in registers, which took turns with the sets: what it shows is the machine's
    /// doing (interrupts, and the hypervisor, whose time counts as the thread's).
    pub(crate) arithmetic: Pauses,
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

/// Times a kind of work.
struct Clock {
    times: Histogram<u64>,
    total_ns: u64,
}

impl Clock {
    const NS_MAX: u64 = 60_000_000_000;

    fn new() -> Clock {
        Clock {
            times: Histogram::new_with_max(Self::NS_MAX, 3).expect("the bounds are in order"),
            total_ns: 0,
        }
    }

    #[inline]
    fn time<T>(&mut self, work: impl FnOnce() -> T) -> T {
        let before = cpu::of_this_thread();
        let result = work();
        let took = cpu::of_this_thread() - before;
        let took = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.times.saturating_record(took);
        self.total_ns += took;
        result
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

/// Stores the keys below `keys` one burst each in an empty store of `memory` bytes.
pub(crate) fn grow(
    keys: u32,
    sizes: KeySizes,
    values: &Values,
    memory: usize,
) -> Result<Growth, StoreError> {
    let config = Config {
        memory,
        ..Config::default()
    };
    let store = Store::new(config, now())?;
    let mut worker = store.worker(0);
    let (mut sets, mut arithmetic) = (Clock::new(), Clock::new());
    let mut buffer = KeySizes::buffer();
    for number in 0..keys {
        let start = sizes.write(number, &mut buffer);
        let (key, value) = (&buffer[start..], values.of(number));
        sets.time(|| store_one(&store, &mut worker, key, value));
        arithmetic.time(|| multiply(number));
    }
    Ok(Growth {
        keys,
        splits: store.stats().totals.splits,
        sets: sets.pauses(),
        arithmetic: arithmetic.pauses(),
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
