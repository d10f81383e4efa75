//! Two workers that store under one key at the same time: what one has written it publishes, however often the
//! other was faster.

mod support;

use coua_store::*;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread;
use support::{NOW, cas_of, put, value_of};

const MEMORY: usize = 64 << 20;

fn store() -> Arc<Store> {
    let config = Config {
        memory: MEMORY,
        workers: 2,
        seed: Some(7),
        ..Config::default()
    };
    Store::new(config, NOW).unwrap()
}

/// Bytes that the small item takes: header, key, value, and a CAS that is written out.
const SMALL_LEN: u64 = 8 + 3 + 5 + 8;

/// Stores `value` under one key `times` times and more, a few to a burst, while another worker stores small values
/// under it. Returns how many bytes were written for each `value`, in hundredths of its length.
fn race(store: &Arc<Store>, value: &[u8], times: u64) -> u64 {
    let set = Put::set(0, Expiry::NEVER);
    let before = store.stats().totals.bytes_appended;
    let (stop, small) = (AtomicBool::new(false), AtomicU64::new(0));
    let stored = thread::scope(|scope| {
        scope.spawn(|| {
            let mut worker = store.worker(1);
            while !stop.load(Ordering::Relaxed) {
                let mut burst = worker.burst(NOW);
                let key = burst.key(b"key");
                for _ in 0..64 {
                    let stored = burst.store(&key, &set, b"small");
                    if matches!(stored, Stored::Stored { .. }) {
                        small.fetch_add(1, Ordering::Relaxed);
                    }
                }
                burst.close();
                worker.end(NOW);
            }
        });
        let mut worker = store.worker(0);
        let mut stored = 0;
        while stored < times || small.load(Ordering::Relaxed) < 4 * times {
            let mut burst = worker.burst(NOW);
            let key = burst.key(b"key");
            for _ in 0..4 {
                match burst.store(&key, &set, value) {
                    Stored::Stored { .. } => stored += 1,
                    Stored::Refused(Refused::Wait) => {}
                    other => panic!("{other:?}"),
                }
                if let Ok(item) = burst.get(&key, Access::default()) {
                    let found = value_of(&item);
                    assert!(found == value || found == b"small", "a value of neither");
                }
            }
            burst.close();
            worker.end(NOW);
        }
        stop.store(true, Ordering::Relaxed);
        stored
    });
    let written = store.stats().totals.bytes_appended - before;
    let small = small.load(Ordering::Relaxed) * SMALL_LEN;
    written.saturating_sub(small) * 100 / (stored * value.len() as u64)
}

/// Has another worker store when an item is found to have expired: after a set has looked for an old item, and
/// before it publishes the new one.
struct Racer {
    goes: SyncSender<()>,
    has_stored: Mutex<Receiver<()>>,
}

impl Observer for Racer {
    fn stored(&self, _: ItemView<'_>) {}

    fn gone(&self, _: ItemView<'_>, why: RemovalReason) {
        if why == RemovalReason::Expired {
            self.goes.send(()).unwrap();
            self.has_stored.lock().unwrap().recv().unwrap();
        }
    }
}

/// Stores `value` and loses one race meanwhile, against a small value of a worker whose CASs are above or not. Returns
/// the bytes that were written for `value`.
fn lose_a_race(value: &[u8], other_is_above: bool) -> u64 {
    let ((goes, may_go), (tells, has_stored)) = (sync_channel(0), sync_channel(0));
    let config = Config {
        memory: MEMORY,
        workers: 2,
        seed: Some(7),
        observer: Some(Box::new(Racer {
            goes,
            has_stored: Mutex::new(has_stored),
        })),
        ..Config::default()
    };
    let store = Store::new(config, NOW).unwrap();
    let (mut worker, mut other) = (store.worker(0), store.worker(1));
    let set = Put::set(0, Expiry::NEVER);
    // Who opens its segment later has the higher CASs.
    let [first, second] = match other_is_above {
        true => [&mut worker, &mut other],
        false => [&mut other, &mut worker],
    };
    put(first, b"first", &set, b"");
    put(second, b"second", &set, b"");
    let mortal = Put::set(0, Expiry::at(UnixSeconds(NOW.0 + 1)));
    put(&mut worker, b"key", &mortal, b"old");
    let before = store.stats().totals.bytes_appended;
    let small_cas = thread::scope(|scope| {
        let other = scope.spawn(move || {
            may_go.recv().unwrap();
            put(&mut other, b"key", &set, b"small");
            let cas = cas_of(&mut other, b"key");
            tells.send(()).unwrap();
            cas
        });
        let mut burst = worker.burst(UnixSeconds(NOW.0 + 9));
        let key = burst.key(b"key");
        let stored = burst.store(&key, &set, value);
        assert!(matches!(stored, Stored::Stored { .. }), "{stored:?}");
        assert!(value_of(&burst.get(&key, Access::default()).unwrap()) == value);
        other.join().unwrap()
    });
    assert!(cas_of(&mut worker, b"key") > small_cas, "a CAS fell");
    store.stats().totals.bytes_appended - before - SMALL_LEN
}

#[test]
fn what_was_written_is_published_although_it_lost_a_race() {
    for len in [10, 12_000, 200_000, 1_000_000] {
        let written = lose_a_race(&vec![9; len], false);
        assert!(
            written < len as u64 * 101 / 100 + 100,
            "{written} bytes for {len}"
        );
    }
}

/// The new item's CAS must be above that of the item that was faster; its pieces are as good as before.
#[test]
fn only_the_head_is_written_again_for_a_higher_cas() {
    for len in [200_000, 1_000_000] {
        let written = lose_a_race(&vec![9; len], true);
        assert!(
            written < len as u64 * 102 / 100 + 100,
            "{written} bytes for {len}"
        );
    }
    let whole = lose_a_race(&[9; 10_000], true);
    assert!(whole < 2 * 10_100, "{whole}");
}

/// A copy that has lost a race is published all the same, so that hardly more is written than is stored.
#[test]
#[cfg_attr(miri, ignore = "many large values")]
fn racing_sets_write_their_values_about_once() {
    for (len, times, most) in [
        (12_000, 20_000, 150),
        (200_000, 5000, 110),
        (1_000_000, 1000, 110),
    ] {
        let percent = race(&store(), &vec![9; len], times);
        assert!(percent < most, "{percent} % of {len} bytes each");
    }
}

/// The same in a full memory: copies that lose races are no reason to evict.
#[test]
#[cfg_attr(miri, ignore = "memory full of items")]
fn racing_sets_evict_no_more_than_they_store() {
    let store = store();
    let mut worker = store.worker(0);
    let set = Put::set(0, Expiry::NEVER);
    let mut number = 0_u64;
    while store.stats().totals.evicted == 0 {
        let mut burst = worker.burst(NOW);
        for _ in 0..64 {
            let _ = burst.store(&burst.key(&number.to_be_bytes()), &set, &[1; 1000]);
            number += 1;
        }
        burst.close();
        worker.end(NOW);
    }
    drop(worker);
    let before = store.stats().totals;
    let percent = race(&store, &vec![9; 500_000], 40);
    assert!(percent < 110, "{percent} %");
    let after = store.stats().totals;
    let evicted = (after.evicted - before.evicted) * 1000;
    let written = after.bytes_appended - before.bytes_appended;
    assert!(
        evicted < written + MEMORY as u64 / 16,
        "{evicted} bytes for {written}"
    );
}
