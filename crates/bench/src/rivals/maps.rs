//! Two maps under locks. They evict nothing and expire nothing: what a map alone can do.

use std::sync::{PoisonError, RwLock};

use dashmap::DashMap;
use hashbrown::{DefaultHashBuilder, HashMap};

use super::{KeySizes, Operation, Rival, Work};
use crate::workload::Values;

type Bytes = Box<[u8]>;

/// hashbrown under one lock for reading and writing.
pub(crate) struct HashbrownRival(RwLock<HashMap<Bytes, Bytes>>);

impl HashbrownRival {
    /// Holds the keys below `keys`.
    pub(crate) fn filled(keys: u32, sizes: KeySizes, values: &Values) -> HashbrownRival {
        let mut map = HashMap::with_capacity(keys as usize);
        let mut buffer = KeySizes::buffer();
        for number in 0..keys {
            let start = sizes.write(number, &mut buffer);
            map.insert(buffer[start..].into(), values.of(number).into());
        }
        HashbrownRival(RwLock::new(map))
    }
}

impl Rival for HashbrownRival {
    fn name(&self) -> &'static str {
        "RwLock<hashbrown>"
    }

    fn run(&self, _thread: usize, operation: Operation, _batch: usize, work: &mut Work<'_>) {
        match operation {
            Operation::Get => work.one_by_one(|work, request| {
                let map = self.0.read().unwrap_or_else(PoisonError::into_inner);
                if let Some(value) = map.get(request.key()) {
                    work.reply(value);
                }
            }),
            Operation::Set => work.one_by_one(|work, request| {
                let value = work.values.of(request.number);
                let mut map = self.0.write().unwrap_or_else(PoisonError::into_inner);
                match map.get_mut(request.key()) {
                    Some(old) => overwrite(old, value),
                    None => drop(map.insert(request.key().into(), value.into())),
                }
                work.succeeded += 1;
            }),
        }
    }
}

/// dashmap: hashbrown in shards, each with its own lock.
pub(crate) struct DashMapRival(DashMap<Bytes, Bytes, DefaultHashBuilder>);

impl DashMapRival {
    const SHARDS: usize = 256;

    /// Holds the keys below `keys`.
    pub(crate) fn filled(keys: u32, sizes: KeySizes, values: &Values) -> DashMapRival {
        let hasher = DefaultHashBuilder::default();
        let map =
            DashMap::with_capacity_and_hasher_and_shard_amount(keys as usize, hasher, Self::SHARDS);
        let mut buffer = KeySizes::buffer();
        for number in 0..keys {
            let start = sizes.write(number, &mut buffer);
            map.insert(buffer[start..].into(), values.of(number).into());
        }
        DashMapRival(map)
    }
}

impl Rival for DashMapRival {
    fn name(&self) -> &'static str {
        "dashmap"
    }

    fn run(&self, _thread: usize, operation: Operation, _batch: usize, work: &mut Work<'_>) {
        match operation {
            Operation::Get => work.one_by_one(|work, request| {
                if let Some(value) = self.0.get(request.key()) {
                    work.reply(&value);
                }
            }),
            Operation::Set => work.one_by_one(|work, request| {
                let value = work.values.of(request.number);
                match self.0.get_mut(request.key()) {
                    Some(mut old) => overwrite(&mut old, value),
                    None => drop(self.0.insert(request.key().into(), value.into())),
                }
                work.succeeded += 1;
            }),
        }
    }
}

/// Overwrites in place if the length is the same: that is the least that a map can do.
fn overwrite(old: &mut Bytes, value: &[u8]) {
    if old.len() == value.len() {
        old.copy_from_slice(value);
    } else {
        *old = value.into();
    }
}
