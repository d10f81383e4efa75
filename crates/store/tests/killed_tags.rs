//! A process that is killed while it gives the table of tags back.

// Miri has no files that are memory.
#![cfg(not(miri))]

use coua_store::*;
use std::cell::Cell;
use std::path::Path;
use std::rc::Rc;

mod support;
use support::copies::Files;
use support::{NOW, put};

fn config(file: &Path) -> Config {
    Config {
        memory: 32 << 20,
        workers: 2,
        index_bits: Some(0),
        file: Some(file.to_owned()),
        ..Config::default()
    }
}

fn name(prefix: &str, number: usize) -> Vec<u8> {
    format!("{prefix}-{number}").into_bytes()
}

fn set(worker: &mut Worker, key: &[u8], tag: Option<&[u8]>, value: &[u8]) {
    let mut tags = NO_TAGS;
    tags[0] = tag.map(|name| worker.store().tag(name));
    let with = Put {
        tags,
        ..Put::set(0, Expiry::NEVER)
    };
    let stored = put(worker, key, &with, value);
    assert!(matches!(stored, Stored::Stored { .. }), "{stored:?}");
}

fn is_there(worker: &mut Worker, key: &[u8]) -> bool {
    let burst = worker.burst(NOW);
    burst.get(&burst.key(key), Access::default()).is_ok()
}

const TAGS: usize = 2_600;

/// What the next process finds: the items without tags, and nothing that was gone, also not when
/// their tags are used again. Its table works, and is given back too.
fn check(file: &Path, left: &Cell<u64>) {
    let store = Store::new(config(file), NOW).unwrap();
    assert!(
        matches!(store.start(), Start::Warm(_)),
        "{:?}",
        store.start()
    );
    let pages = store.stats().memory_tags / store.stats().segment_len;
    assert!(pages == 0 || pages == 2, "half a table: {pages}");
    left.set(left.get() | 1 << pages);
    let mut worker = store.worker(0);
    assert!(is_there(&mut worker, b"plain"));
    for id in (0..TAGS).step_by(100) {
        set(&mut worker, &name("new", id), Some(&name("tag", id)), b"x");
    }
    for id in (0..TAGS).step_by(100) {
        assert!(!is_there(&mut worker, &name("key", id)), "{id} has risen");
        assert!(is_there(&mut worker, &name("new", id)), "{id} died");
    }
    let tag = store.tag(&name("tag", 100));
    worker.burst(NOW).invalidate(tag, Invalidation::Gone);
    assert!(!is_there(&mut worker, &name("new", 100)));
    assert!(store.stats().memory_tags > 0);
}

/// Before each store while the table goes; then a new one begins.
#[test]
fn while_the_table_is_given_back() {
    let files = Files::new("tags-back");
    let store = Store::new(config(&files.live), NOW).unwrap();
    let kills = Rc::new(Cell::new(0u64));
    let is_armed = Rc::new(Cell::new(false));
    // Numbers of pages that a next process found, as bits.
    let left = Rc::new(Cell::new(0u64));
    let mut worker = store.worker(0);
    set(&mut worker, b"plain", None, b"x");
    for id in 0..TAGS {
        set(&mut worker, &name("key", id), Some(&name("tag", id)), b"x");
    }
    assert_eq!(store.stats().memory_tags, 2 * store.stats().segment_len);
    for id in 0..TAGS {
        if id % 2 == 0 {
            let tag = store.tag(&name("tag", id));
            worker.burst(NOW).invalidate(tag, Invalidation::Gone);
        } else {
            let mut burst = worker.burst(NOW);
            let key = name("key", id);
            let key = burst.key(&key);
            burst.delete(&key, &Delete::default());
            burst.close();
        }
    }
    let (armed, counted, found) = (Rc::clone(&is_armed), Rc::clone(&kills), Rc::clone(&left));
    let mut buffer = Vec::new();
    kill_points::watch(Some(Box::new(move || {
        if !armed.get() {
            return;
        }
        armed.set(false);
        counted.set(counted.get() + 1);
        files.copy(&mut buffer);
        check(&files.copy, &found);
        armed.set(true);
    })));
    let mut now = NOW;
    let mut second = |worker: &mut Worker| {
        // No segment stays open.
        for number in 0..8 {
            set(worker, &name("filler", number), None, &[7; 10_000]);
        }
        set(worker, b"plain", None, b"x");
        now.0 += 1;
        while worker.end(now) {}
    };
    // One item keeps the table until the others' segments are free.
    for _ in 0..300 {
        set(&mut worker, b"holder", Some(b"holder"), b"x");
        second(&mut worker);
    }
    assert!(store.stats().memory_tags > 0);
    let mut burst = worker.burst(NOW);
    let key = burst.key(b"holder");
    burst.delete(&key, &Delete::default());
    burst.close();
    is_armed.set(true);
    for _ in 0..1_000 {
        if store.stats().memory_tags == 0 {
            break;
        }
        second(&mut worker);
    }
    is_armed.set(false);
    assert_eq!(store.stats().memory_tags, 0);
    let while_it_went = kills.get();
    assert!(while_it_went > 20, "{while_it_went} kills");
    assert_eq!(left.get(), 1 | 1 << 2, "before and after");
    kill_points::watch(None);
    set(&mut worker, b"last", Some(b"tag-1"), b"x");
    assert!(is_there(&mut worker, b"last"));
}
