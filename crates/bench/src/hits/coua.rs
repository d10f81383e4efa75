//! coua's store as the cache, in this process.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use coua_store::{
    Access, Config, Expiry, Put, Refused, Store, StoreError, Stored, UnixSeconds, Worker,
};

use super::Cache;
use crate::workload::{KeyFormat, Values};

/// The memory of a store, and the size of the values in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sizes {
    /// In MiB.
    pub(crate) memory: u64,
    /// In bytes.
    pub(crate) value_size: usize,
}

impl Sizes {
    /// The keys that all caches get.
    pub(crate) const KEYS: KeyFormat = KeyFormat::TEN;
    const VALUE_MIN: u64 = 8;
    /// Roughly what an item takes besides its value; the search starts here.
    const OVERHEAD: u64 = 40;

    /// The sizes at which a full store holds about `wanted` items (within a per cent where items
    /// are small), and how many it does hold.
    pub(crate) fn for_items(wanted: u32, memory: u64) -> Result<(Sizes, u64), StoreError> {
        let wanted = u64::from(wanted.max(1));
        let memory = memory.max((wanted * (Self::VALUE_MIN + Self::OVERHEAD)).div_ceil(1 << 20));
        let mut item = (memory << 20) / wanted;
        let mut best: Option<(Sizes, u64)> = None;
        for _ in 0..4 {
            let value = item.saturating_sub(Self::OVERHEAD).max(Self::VALUE_MIN);
            let value_size = usize::try_from(value).expect("a value is smaller than memory");
            let sizes = Sizes { memory, value_size };
            let held = Coua::new(sizes, Arc::new(Values::new(value_size)))?.fill();
            if best.is_none_or(|(_, nearest)| held.abs_diff(wanted) < nearest.abs_diff(wanted)) {
                best = Some((sizes, held));
            }
            if held.abs_diff(wanted) * 200 <= wanted {
                break;
            }
            item = item * held / wanted;
        }
        Ok(best.expect("the loop has run"))
    }
}

/// A store with one worker.
pub(crate) struct Coua {
    store: Arc<Store>,
    worker: Worker,
    values: Arc<Values>,
}

impl Coua {
    /// An empty store.
    pub(crate) fn new(sizes: Sizes, values: Arc<Values>) -> Result<Coua, StoreError> {
        let memory = usize::try_from(sizes.memory << 20).unwrap_or(usize::MAX);
        let item_size_max = (sizes.value_size + 1024).max(1 << 20).min(memory / 2);
        let config = Config {
            memory,
            item_size_max,
            ..Config::default()
        };
        let store = Store::new(config, now())?;
        let worker = store.worker(0);
        Ok(Coua {
            store,
            worker,
            values,
        })
    }

    /// How many items the store holds.
    pub(crate) fn items(&self) -> u64 {
        self.store.stats().items
    }

    /// Stores keys that are never asked for, until items are evicted and for a while longer.
    /// Returns how many items the store holds then.
    fn fill(&mut self) -> u64 {
        let mut key = 0;
        while self.store.stats().totals.evicted == 0 {
            for _ in 0..64 {
                self.set(key);
                key += 1;
            }
        }
        // From now on ghosts take their share of the index.
        for key in key..key + key / 2 {
            self.set(key);
        }
        self.items()
    }
}

impl Cache for Coua {
    fn get_or_set(&mut self, key: u32) -> bool {
        let mut bytes = [0; Sizes::KEYS.size()];
        Sizes::KEYS.write(key, &mut bytes);
        let now = now();
        let name = self.store.key(&bytes);
        let hit = self.worker.burst(now).get(&name, Access::default()).is_ok();
        self.worker.end(now);
        if !hit {
            self.set(key);
        }
        hit
    }

    fn set(&mut self, key: u32) {
        let mut bytes = [0; Sizes::KEYS.size()];
        Sizes::KEYS.write(key, &mut bytes);
        let now = now();
        loop {
            let (name, put) = (self.store.key(&bytes), Put::set(0, Expiry::NEVER));
            let stored = self
                .worker
                .burst(now)
                .store(&name, &put, self.values.of(key));
            self.worker.end(now);
            // A refused item will be a miss the next time.
            if !matches!(stored, Stored::Refused(Refused::Wait)) {
                return;
            }
        }
    }
}

/// The wall clock.
pub(crate) fn now() -> UnixSeconds {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    UnixSeconds(u32::try_from(since.as_secs()).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hits::replay;
    use crate::hits::stream::Stream;

    #[test]
    fn what_fits_misses_once() {
        let sizes = Sizes {
            memory: 64,
            value_size: 100,
        };
        let mut coua = Coua::new(sizes, Arc::new(Values::new(100))).unwrap();
        let stream = Stream::new("s", (0..30_000).map(|at| (at % 1000, false)), 0);
        let misses = replay(&stream, &mut coua);
        assert_eq!(
            (misses.gets, misses.misses, coua.items()),
            (30_000, 1000, 1000)
        );
    }

    #[test]
    fn sizes_are_found_for_a_number_of_items() {
        let (sizes, held) = Sizes::for_items(5000, 64).unwrap();
        assert_eq!(sizes.memory, 64);
        assert!(
            (4500..5500).contains(&held),
            "{held} items of {}",
            sizes.value_size
        );
    }
}
