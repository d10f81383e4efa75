//! A machine with two nodes of memory, which the system knows nothing of: whose pages are taken.
#![cfg(not(any(miri, loom)))]

use std::cell::Cell;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use coua_store::{
    Access, Config, Expiry, NodeStats, Put, Store, Stored, Topology, UnixSeconds, Worker,
};

const NOW: UnixSeconds = UnixSeconds(1_700_000_000);
const MEMORY: usize = 32 << 20;

thread_local! {
    /// The core that this thread believes to be on. Cores 0 to 3 are of node 0, 4 to 7 of node 1.
    static CORE: Cell<usize> = const { Cell::new(0) };
}

/// What `/sys/devices/system/node` would say.
fn topology() -> Topology {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let name = format!(
        "coua-numa-{}-{}",
        std::process::id(),
        NEXT.fetch_add(1, Relaxed)
    );
    let folder: PathBuf = std::env::temp_dir().join(name);
    let write = |file: &str, text: &str| std::fs::write(folder.join(file), text).expect("a file");
    for (number, cores) in [(0, "0-3"), (1, "4-7")] {
        let node = format!("node{number}");
        std::fs::create_dir_all(folder.join(&node)).expect("a folder");
        write(&format!("{node}/cpulist"), cores);
        write(
            &format!("{node}/meminfo"),
            &format!("Node {number} MemTotal: 1000 kB\n"),
        );
        write(
            &format!("{node}/distance"),
            if number == 0 { "10 20" } else { "20 10" },
        );
    }
    write("online", "0-1\n");
    write("has_memory", "0-1\n");
    let topology = Topology::read(&folder, None, || CORE.get()).expect("a topology");
    std::fs::remove_dir_all(folder).expect("it is there");
    topology
}

fn store(config: Config) -> Arc<Store> {
    let config = Config {
        memory: MEMORY,
        topology: topology(),
        ..config
    };
    Store::new(config, NOW).expect("a store")
}

fn two_workers() -> Config {
    Config {
        workers: 2,
        ..Config::default()
    }
}

fn value_of(number: u32) -> Vec<u8> {
    number.to_le_bytes().repeat(250)
}

fn end_turns(workers: &mut [Worker]) {
    for worker in workers {
        worker.end(NOW);
    }
}

/// Stores items as the worker with that number, which is on that core; the others go on with their turns.
fn fill(workers: &mut [Worker], (id, core): (usize, usize), numbers: std::ops::Range<u32>) {
    for number in numbers {
        let stored = (0..1000).any(|_| {
            CORE.set(core);
            let worker = &mut workers[id];
            let mut burst = worker.burst(NOW);
            let name = number.to_string();
            let key = burst.key(name.as_bytes());
            let stored = burst.store(&key, &Put::set(0, Expiry::NEVER), &value_of(number));
            burst.close();
            end_turns(workers);
            matches!(stored, Stored::Stored { .. })
        });
        assert!(stored, "{number} is never stored");
    }
}

/// The first worker, on a core of the first node, and the second on one of the second.
const NEAR: [(usize, usize); 2] = [(0, 1), (1, 6)];

fn hits(worker: &mut Worker, numbers: std::ops::Range<u32>) -> usize {
    let burst = worker.burst(NOW);
    let is_hit = |number: &u32| {
        let name = number.to_string();
        let item = burst.get(&burst.key(name.as_bytes()), Access::default());
        item.is_ok_and(|item| {
            assert_eq!(item.as_slice(), Some(&value_of(*number)[..]));
            true
        })
    };
    numbers.filter(is_hit).count()
}

fn nodes(store: &Store) -> [NodeStats; 2] {
    store.nodes().try_into().expect("two nodes")
}

#[test]
fn memory_is_divided_and_the_index_is_everybodys() {
    let store = store(Config {
        // Index pages for half of what memory has.
        index_bits: Some(2),
        ..Config::default()
    });
    let [first, second] = nodes(&store);
    assert_eq!([first.number, second.number], [0, 1]);
    let all = store.stats().segments * store.stats().segment_len;
    assert_eq!(first.memory + second.memory, all);
    assert!(first.memory.abs_diff(second.memory) <= 4 << 20);
    // Nothing is stored yet, and half of the index is the second node's.
    let index = store.stats().memory_index;
    assert_eq!(second.memory - second.memory_free, index / 2);
    assert_eq!([first.pages_near, second.pages_near], [0, 0]);
}

#[test]
fn workers_take_what_is_near() {
    let store = store(two_workers());
    let mut workers = [0, 1].map(|id| store.worker(id));
    fill(&mut workers, NEAR[0], 0..5_000);
    let [first, second] = nodes(&store);
    assert!(first.pages_near > 50, "{first:?}");
    assert_eq!(
        (first.pages_far, second.pages_near, second.pages_far),
        (0, 0, 0)
    );
    fill(&mut workers, NEAR[1], 5_000..8_000);
    let [same, second] = nodes(&store);
    assert_eq!((same.pages_near, same.pages_far), (first.pages_near, 0));
    assert!(
        second.pages_near > 30 && second.pages_far == 0,
        "{second:?}"
    );
    assert_eq!(hits(&mut workers[0], 0..8_000), 8_000);
}

#[test]
fn far_memory_is_better_than_an_eviction() {
    let store = store(Config::default());
    let mut workers = [store.worker(0)];
    // A core of the second node, whose memory holds half of that.
    fill(&mut workers, (0, 4), 0..24_000);
    let [first, second] = nodes(&store);
    assert!(second.pages_far > 100, "{second:?}");
    assert_eq!(first.pages_near + first.pages_far, 0);
    assert_eq!(store.stats().totals.evicted, 0);
    assert_eq!(hits(&mut workers[0], 0..24_000), 24_000);
    // A core that nobody has heard of is of the first node.
    fill(&mut workers, (0, 1000), 24_000..24_500);
    assert!(nodes(&store)[0].pages_near > 0);
}

#[test]
fn near_segments_are_emptied_first() {
    let store = store(two_workers());
    let mut workers = [0, 1].map(|id| store.worker(id));
    // Both nodes fill at the same pace, until something has to go soon.
    let mut number = 0;
    while store.stats().memory_free > 16 * store.stats().segment_len {
        for side in NEAR {
            fill(&mut workers, side, number..number + 60);
            number += 60;
        }
    }
    assert_eq!(store.stats().totals.evicted, 0);
    // Now only the second node's worker stores, until it has emptied a segment or two.
    for from in (200_000..210_000).step_by(20) {
        fill(&mut workers, NEAR[1], from..from + 20);
        if store.stats().totals.evicted > 0 {
            break;
        }
    }
    let missing = |workers: &mut [Worker; 2], side: u32| {
        let blocks = (0..number / 120).map(|block| block * 120 + side * 60);
        blocks
            .map(|from| 60 - hits(&mut workers[0], from..from + 60))
            .sum::<usize>()
    };
    let missing = [0, 1].map(|side| missing(&mut workers, side));
    assert!(missing[0] == 0 && missing[1] > 0, "{missing:?}");
}

#[test]
fn a_lower_limit_withholds_of_both() {
    let store = store(two_workers());
    let mut workers = [0, 1].map(|id| store.worker(id));
    for from in (0..24_000).step_by(60) {
        fill(&mut workers, NEAR[from as usize / 60 % 2], from..from + 60);
    }
    store
        .set_memory_limit(MEMORY / 2)
        .expect("it can be lowered");
    let in_use = |store: &Store| store.stats().memory;
    for round in 0..100_000 {
        if in_use(&store) <= MEMORY as u64 / 2 {
            break;
        }
        assert!(round < 99_999, "{} bytes are in use", in_use(&store));
        end_turns(&mut workers);
    }
    let before = nodes(&store);
    for from in (100_000..124_000).step_by(60) {
        fill(&mut workers, NEAR[from as usize / 60 % 2], from..from + 60);
    }
    // Each has about as much left as its own worker needs.
    for (now, before) in nodes(&store).iter().zip(before) {
        let near = now.pages_near - before.pages_near;
        let far = now.pages_far - before.pages_far;
        assert!(near > 100 && near > 4 * far, "{near} near, {far} far");
    }
    store.set_memory_limit(MEMORY).expect("it can be raised");
    fill(&mut workers, NEAR[0], 50_000..62_000);
    fill(&mut workers, NEAR[1], 62_000..74_000);
    assert!(in_use(&store) > MEMORY as u64 / 4 * 3);
    let there = hits(&mut workers[0], 50_000..74_000);
    assert!(there > 20_000, "{there}");
}

#[test]
fn one_node_says_nothing() {
    let config = Config {
        memory: MEMORY,
        ..Config::default()
    };
    let store = Store::new(config, NOW).expect("a store");
    assert!(store.nodes().is_empty());
    // This machine's own, whatever it has: a store begins and serves.
    let config = Config {
        memory: MEMORY,
        topology: Topology::of_machine(),
        ..Config::default()
    };
    let store = Store::new(config, NOW).expect("a store");
    let mut workers = [store.worker(0)];
    fill(&mut workers, (0, 0), 0..1000);
    assert_eq!(hits(&mut workers[0], 0..1000), 1000);
}
