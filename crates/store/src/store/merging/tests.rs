//! Merges that find no room, since more keys have the same two buckets than these have slots.

use crate::index::SLOTS;
use crate::request::{Access, Delete, Deleted, Put, Stored};
use crate::time::{Expiry, UnixSeconds};
use crate::worker::Worker;
use crate::{Config, Store};
use std::sync::Arc;

const NOW: UnixSeconds = UnixSeconds(1_000_000);

/// Names of keys of the same two buckets, as many of either half as two buckets have slots.
fn colliding(store: &Arc<Store>) -> Vec<String> {
    let pair = |name: &str| {
        let hash = store.hasher.hash(name.as_bytes());
        let first = store.index.first_number(hash);
        let other = store.index.other_number(hash, first);
        let is_upper = hash.tag().0 >> 15 == 1;
        ((first.min(other) & 1023, first.max(other) & 1023), is_upper)
    };
    let wanted = pair("c0").0;
    let mut halves = [Vec::new(), Vec::new()];
    for name in (0..).map(|n| format!("c{n}")) {
        let (buckets, is_upper) = pair(&name);
        let half = &mut halves[usize::from(is_upper)];
        if buckets == wanted && half.len() < 2 * SLOTS {
            half.push(name);
        }
        if halves.iter().all(|half| half.len() == 2 * SLOTS) {
            return halves.concat();
        }
    }
    unreachable!("there are names without end");
}

fn put(worker: &mut Worker, name: &str) {
    let mut burst = worker.burst(NOW);
    let key = burst.key(name.as_bytes());
    let stored = burst.store(&key, &Put::set(0, Expiry::NEVER), b"value");
    assert!(matches!(stored, Stored::Stored { .. }), "{stored:?}");
    burst.close();
    worker.end(NOW);
}

fn delete(worker: &mut Worker, name: &str) {
    let mut burst = worker.burst(NOW);
    let key = burst.key(name.as_bytes());
    assert_eq!(burst.delete(&key, &Delete::default()), Deleted::Done);
}

fn are_there(worker: &mut Worker, names: &[String]) -> usize {
    let burst = worker.burst(NOW);
    let is_there = |name: &&String| {
        let key = burst.key(name.as_bytes());
        burst.get(&key, Access::default()).is_ok()
    };
    names.iter().filter(is_there).count()
}

/// Turns of some minutes, `after` so many seconds.
fn wait(worker: &mut Worker, after: u32) {
    for turn in 0..20_000 {
        let now = UnixSeconds(NOW.0 + after + turn / 100);
        worker.burst(now).close();
        worker.end(now);
    }
}

/// Two nearly empty sub-tables, and keys for which one of them has no room.
fn stuck(evict: bool) -> (Worker, Vec<String>) {
    let config = Config {
        memory: 16 << 20,
        seed: Some(6),
        index_bits: Some(0),
        evict,
        ..Config::default()
    };
    let store = Store::new(config, NOW).unwrap();
    let mut worker = store.worker(0);
    let mut fillers = Vec::new();
    while store.stats().totals.splits == 0 {
        fillers.push(format!("filler{}", fillers.len()));
        put(&mut worker, &fillers[fillers.len() - 1]);
    }
    wait(&mut worker, 0);
    fillers.iter().for_each(|name| delete(&mut worker, name));
    // So few are there that the two would merge, if there were a moment between.
    let names = colliding(&store);
    names.iter().for_each(|name| put(&mut worker, name));
    assert_eq!(are_there(&mut worker, &names), 4 * SLOTS);
    wait(&mut worker, 1000);
    (worker, names)
}

#[test]
fn what_finds_no_room_is_evicted_and_the_merge_ends() {
    let (mut worker, names) = stuck(true);
    let totals = worker.store().stats().totals;
    assert_eq!(totals.merges, 1);
    assert_eq!(totals.evicted_index_full, 2 * SLOTS as u64);
    assert_eq!(are_there(&mut worker, &names), 2 * SLOTS);
    assert_eq!(worker.store().stats().items, 2 * SLOTS as u64);
}

#[test]
fn a_merge_waits_for_room_where_nothing_is_evicted() {
    let (mut worker, names) = stuck(false);
    assert_eq!(worker.store().stats().totals.merges, 0);
    assert_eq!(are_there(&mut worker, &names), 4 * SLOTS);
    let (gone, left) = names.split_at(2 * SLOTS);
    gone.iter().for_each(|name| delete(&mut worker, name));
    wait(&mut worker, 2000);
    assert_eq!(worker.store().stats().totals.merges, 1);
    assert_eq!(are_there(&mut worker, left), 2 * SLOTS);
}
