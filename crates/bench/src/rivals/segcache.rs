//! The segcache crate, with its default features.

use std::time::Duration;

use segcache::{Policy, Segcache, Value};

use super::{KeySizes, Operation, Rival, Work};
use crate::workload::Values;

/// Segcache with FIFO eviction and segments of 1 MiB.
pub(crate) struct SegcacheRival(Segcache);

impl SegcacheRival {
    const SEGMENT: i32 = 1 << 20;

    /// The largest load factor of its index, unless another is asked for. Keys whose bucket is full
    /// are refused; with half of the slots in use, that happens to one key in a thousand.
    pub(crate) const LOAD: f64 = 0.4;

    /// Holds the keys below `keys`, in `memory` bytes of segments. Its index comes on top; at most
    /// the fraction `load` of its slots is used.
    pub(crate) fn filled(
        keys: u32,
        sizes: KeySizes,
        values: &Values,
        memory: usize,
        load: f64,
    ) -> SegcacheRival {
        let power = (f64::from(keys) / load).log2().ceil().max(10.0);
        let cache = Segcache::builder()
            .heap_size(memory.next_multiple_of(1 << 20))
            .segment_size(Self::SEGMENT)
            .hash_power(whole(power))
            .eviction(Policy::Fifo)
            .build()
            .expect("memory for as many segments can be had");
        let mut buffer = KeySizes::buffer();
        for number in 0..keys {
            let start = sizes.write(number, &mut buffer);
            // A key that is refused shows as a miss in the measurement.
            let _ = cache.insert(&buffer[start..], values.of(number), None, Duration::ZERO);
        }
        SegcacheRival(cache)
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "the logarithm of a 32-bit number"
)]
fn whole(power: f64) -> u8 {
    power as u8
}

impl Rival for SegcacheRival {
    fn name(&self) -> &'static str {
        "segcache"
    }

    fn run(&self, _thread: usize, operation: Operation, _batch: usize, work: &mut Work<'_>) {
        match operation {
            Operation::Get => work.one_by_one(|work, request| {
                if let Some(item) = self.0.get(request.key())
                    && let Value::Bytes(value) = item.value()
                {
                    work.reply(value);
                }
            }),
            Operation::Set => work.one_by_one(|work, request| {
                let value = work.values.of(request.number);
                work.succeeded += u64::from(
                    self.0
                        .insert(request.key(), value, None, Duration::ZERO)
                        .is_ok(),
                );
            }),
        }
    }
}
