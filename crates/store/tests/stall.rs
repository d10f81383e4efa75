//! A worker that is stalled inside a burst: the others do not empty the cache meanwhile.

mod support;

use coua_store::*;
use support::NOW;

const VALUE_LEN: usize = 1000;

/// What may be evicted beyond what is stored: 32 segments of 64 KiB.
const MARGIN: u64 = 32 * (64 << 10) / VALUE_LEN as u64;

/// Stores values of [`VALUE_LEN`] bytes in a burst, until all are stored or one has to wait. Returns how many
/// were stored.
fn store_some(worker: &mut Worker, next: &mut u64, count: u64) -> u64 {
    let mut stored = 0;
    let mut burst = worker.burst(NOW);
    for _ in 0..count {
        let name = next.to_be_bytes();
        let key = burst.key(&name);
        match burst.store(&key, &Put::set(0, Expiry::NEVER), &[7; VALUE_LEN]) {
            Stored::Stored { .. } => stored += 1,
            Stored::Refused(Refused::Wait) => break,
            other => panic!("{other:?}"),
        }
        *next += 1;
    }
    burst.close();
    worker.end(NOW);
    stored
}

#[test]
#[cfg_attr(miri, ignore = "memory full of items")]
fn a_stalled_worker_costs_no_more_items_than_are_stored() {
    let config = Config {
        memory: 64 << 20,
        workers: 2,
        seed: Some(7),
        ..Config::default()
    };
    let store = Store::new(config, NOW).unwrap();
    let (mut working, mut stalled) = (store.worker(0), store.worker(1));
    let mut next = 0;
    while store.stats().totals.evicted == 0 {
        assert_eq!(store_some(&mut working, &mut next, 16), 16, "no room");
    }
    let full = store.stats();
    let burst = stalled.burst(NOW);
    let mut stored = 0;
    loop {
        let count = store_some(&mut working, &mut next, 16);
        stored += count;
        if count < 16 {
            break;
        }
    }
    let evicted = || store.stats().totals.evicted - full.totals.evicted;
    assert!(evicted() <= stored + MARGIN, "{} for {stored}", evicted());
    for _ in 0..50 {
        working.end(NOW);
    }
    assert!(evicted() <= stored + MARGIN, "{} for {stored}", evicted());
    // Once it goes on, so does all else.
    burst.close();
    stalled.end(NOW);
    for _ in 0..64 {
        stalled.end(NOW);
        assert_eq!(store_some(&mut working, &mut next, 16), 16, "no room");
    }
}
