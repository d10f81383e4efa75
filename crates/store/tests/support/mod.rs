//! One worker's operations, each in a burst of its own.
#![allow(dead_code, reason = "each test takes what it needs")]

use coua_store::*;

pub(crate) mod copies;

/// The time of all that does not say another.
pub(crate) const NOW: UnixSeconds = UnixSeconds(1_000_000);

/// Stores `value` once, and has the worker do what is due at the end of a turn.
pub(crate) fn put(worker: &mut Worker, key: &[u8], put: &Put, value: &[u8]) -> Stored {
    let mut burst = worker.burst(NOW);
    let key = burst.key(key);
    let stored = burst.store(&key, put, value);
    burst.close();
    worker.end(NOW);
    stored
}

/// The value, whole, though it may lie in pieces.
pub(crate) fn value_of(item: &Item<'_>) -> Vec<u8> {
    item.value().collect::<Vec<_>>().concat()
}

/// The CAS of an item that is there, as a client asks for it.
pub(crate) fn cas_of(worker: &mut Worker, key: &[u8]) -> u64 {
    let burst = worker.burst(NOW);
    let key = burst.key(key);
    let access = Access {
        bump: false,
        cas: true,
    };
    burst.get(&key, access).unwrap().cas()
}
