//! A walk during displacements and splits, in every interleaving: a key that stays is never missed.

use super::Cell;
use crate::index::slot::Slot;
use crate::index::{Index, TableId};
use crate::key::KeyHash;
use crate::loom_tests::{beside, check, check_up_to, hash_to as hash, index, insert, slot};
use loom::sync::Arc;

fn remove(index: &Index, hash: KeyHash) {
    let place = index.find(hash, |found| found.location() == slot(hash).location());
    let _ = place.unwrap().lock().unwrap().replace(Slot::EMPTY);
}

/// How often a walk shows the key.
fn shown(index: &Index, hash: KeyHash) -> usize {
    let mut count = 0;
    let mut cell = Some(Cell::FIRST);
    while let Some(at) = cell {
        cell = index.walk(at, |found| {
            count += usize::from(found.same_item(slot(hash)));
        });
    }
    count
}

/// An index in which making room for the second key moves the first one from its bucket
/// `home ^ 3` to its bucket `home`.
fn about_to_displace(home: u64, upper: bool) -> (Index, KeyHash, KeyHash) {
    let index = index();
    let key = hash(home, 3, upper, 0);
    let others = [hash(home, 3, upper, 1), hash(home, 3, upper, 2)];
    for other in others {
        assert!(insert(&index, other));
    }
    assert!(insert(&index, key));
    for other in others {
        remove(&index, other);
    }
    for n in 0..3 {
        assert!(insert(&index, hash(home ^ 3, 1, upper, n)));
    }
    let pushy = hash(home ^ 3, 1, upper, 3);
    assert!(!insert(&index, pushy));
    (index, key, pushy)
}

/// `home` is even: the key moves from an odd bucket to an even one, which the walk has read before.
#[test]
fn a_key_that_is_displaced_is_shown() {
    for home in [2, 3] {
        check(2, 50, move || {
            let (index, key, pushy) = about_to_displace(home, false);
            let index = Arc::new(index);
            let writer = beside(&index, move |index| {
                index.make_room(pushy);
                assert!(insert(index, pushy));
            });
            let reader = beside(&index, move |index| assert!(shown(index, key) >= 1));
            writer.join().unwrap();
            reader.join().unwrap();
            assert_eq!((shown(&index, key), shown(&index, pushy)), (1, 1));
        });
    }
}

#[test]
fn keys_of_a_table_that_splits_are_shown() {
    check_up_to(Some(400_000), 1, 50, || {
        let index = Arc::new(index());
        let (low, high) = (hash(1, 1, false, 0), hash(2, 1, true, 0));
        assert!(insert(&index, low) && insert(&index, high));
        let splitter = beside(&index, move |index| {
            let mut migration = index.split(low, TableId(1)).unwrap();
            while !index.migrate(&mut migration, 1) {}
        });
        let reader = beside(&index, move |index| assert!(shown(index, high) >= 1));
        splitter.join().unwrap();
        reader.join().unwrap();
        assert_eq!((shown(&index, low), shown(&index, high)), (1, 1));
    });
}

#[test]
fn a_key_that_is_fetched_is_shown() {
    check(1, 50, || {
        let (index, key, pushy) = about_to_displace(2, true);
        let index = Arc::new(index);
        let mut migration = index.split(key, TableId(1)).unwrap();
        let writer = beside(&index, move |index| {
            // The key is fetched on the way.
            assert!(!insert(index, pushy));
        });
        let reader = beside(&index, move |index| assert!(shown(index, key) >= 1));
        writer.join().unwrap();
        reader.join().unwrap();
        while !index.migrate(&mut migration, 1) {}
        assert_eq!(shown(&index, key), 1);
    });
}

/// A displacer that has read the old directory continues in the parent.
#[test]
fn a_key_that_is_displaced_as_the_split_begins_is_shown() {
    check(1, 50, || {
        let (index, key, pushy) = about_to_displace(2, true);
        let index = Arc::new(index);
        let displacer = beside(&index, move |index| {
            index.make_room(pushy);
        });
        let splitter = beside(&index, move |index| {
            index.split(key, TableId(1)).unwrap();
        });
        let reader = beside(&index, move |index| assert!(shown(index, key) >= 1));
        displacer.join().unwrap();
        splitter.join().unwrap();
        reader.join().unwrap();
        assert_eq!(shown(&index, key), 1);
    });
}

/// A position from before a split is still valid after it, and no key is shown twice.
#[test]
fn a_walk_goes_on_across_a_split() {
    check(1, 1, || {
        let index = index();
        let keys: Vec<KeyHash> = (0..4).map(|n| hash(n, 1, n & 2 != 0, n as usize)).collect();
        assert!(keys.iter().all(|&key| insert(&index, key)));
        let mut found = Vec::new();
        let mut cell = index.walk(Cell::FIRST, |slot| found.push(slot));
        let mut migration = index.split(keys[0], TableId(1)).unwrap();
        index.migrate(&mut migration, 1);
        while let Some(at) = cell {
            cell = index.walk(at, |slot| found.push(slot));
        }
        assert_eq!(found.len(), keys.len());
        assert!(keys.iter().all(|&key| found.contains(&slot(key))));
    });
}
