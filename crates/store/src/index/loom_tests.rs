//! Lookups, inserts, displacements and splits in every interleaving: no key is lost, and none is
//! present twice.

use super::{Index, Inserted, TableId};
use crate::index::slot::Slot;
use crate::key::KeyHash;
use crate::loom_tests::{beside, check, hash_to, index, insert, slot};
use loom::sync::Arc;

/// A hash with first bucket `first`, second bucket `first ^ 3` or `first ^ 1`, and top tag bit
/// `upper`. `n` makes tags differ.
fn hash(first: u64, far: bool, upper: bool, n: u64) -> KeyHash {
    hash_to(first, if far { 3 } else { 1 }, upper, n as usize)
}

fn has(index: &Index, hash: KeyHash) -> bool {
    index
        .find(hash, |found| found.location() == slot(hash).location())
        .is_some()
}

fn remove(index: &Index, hash: KeyHash) {
    let place = index.find(hash, |s| s.location() == slot(hash).location());
    let _ = place.unwrap().lock().unwrap().replace(Slot::EMPTY);
}

/// Which way a key moves when room is made for another.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// From its first bucket, which lookups read first, to its second.
    Forth,
    /// Back to its first.
    Back,
}

/// Fills buckets 0 and 1 so that making room for the second key, of bucket 0, moves the first one
/// from bucket 0 to bucket 3.
fn index_about_to_displace(way: Way) -> (Index, KeyHash, KeyHash) {
    let index = index();
    let key = match way {
        Way::Forth => hash(0, true, false, 0),
        Way::Back => hash(3, true, false, 0),
    };
    // Two other keys fill bucket 3, so that the key goes to bucket 0; then they are removed.
    let others = [hash(3, true, false, 1), hash(3, true, false, 2)];
    for other in others {
        assert!(insert(&index, other));
    }
    assert!(insert(&index, key));
    for other in others {
        remove(&index, other);
    }
    for n in 0..3 {
        assert!(insert(&index, hash(0, false, false, n)));
    }
    let pushy = hash(0, false, false, 3);
    assert!(!insert(&index, pushy));
    (index, key, pushy)
}

fn lookup_against_displacement(way: Way, executions_min: usize) {
    check(3, executions_min, move || {
        let (index, key, pushy) = index_about_to_displace(way);
        let index = Arc::new(index);
        let writer = beside(&index, move |index| {
            index.make_room(pushy);
            assert!(insert(index, pushy));
        });
        let reader = beside(&index, move |index| {
            assert!(has(index, key), "a key that is there is missed");
        });
        writer.join().unwrap();
        reader.join().unwrap();
        assert!(has(&index, key) && has(&index, pushy));
    });
}

/// The reader has passed the bucket that the key moves to.
#[test]
fn a_lookup_never_misses_a_key_that_moves_back() {
    lookup_against_displacement(Way::Back, 50);
}

/// The reader reads the bucket that the key leaves, then the one that it moves to. If it sees the
/// key gone from the first, it has to see it in the second.
#[test]
fn a_lookup_never_misses_a_key_that_moves_forth() {
    lookup_against_displacement(Way::Forth, 50);
}

#[test]
fn a_lookup_never_misses_a_key_whose_table_splits() {
    check(2, 100, || {
        let index = Arc::new(index());
        let (low, high) = (hash(1, false, false, 0), hash(2, false, true, 0));
        assert!(insert(&index, low) && insert(&index, high));
        let splitter = beside(&index, move |index| {
            let mut migration = index.split(low, TableId(1)).unwrap();
            while !index.migrate(&mut migration, 1) {}
        });
        let reader = beside(&index, move |index| {
            assert!(has(index, high));
        });
        splitter.join().unwrap();
        reader.join().unwrap();
        assert!(has(&index, low) && has(&index, high) && index.is_settled(high));
    });
}

/// A splitter loses its core while the directory changes: no other thread waits for it.
#[test]
fn a_split_that_stands_still_holds_nobody_up() {
    check(2, 1, || {
        let index = index();
        let (low, high) = (hash(1, false, false, 0), hash(2, false, true, 0));
        let newer = [hash(1, false, false, 1), hash(2, false, true, 1)];
        assert!(insert(&index, low) && insert(&index, high));
        index.split_half_way(low, TableId(1));
        assert!(newer.into_iter().all(|key| insert(&index, key)));
        assert!(
            [low, high]
                .into_iter()
                .chain(newer)
                .all(|key| has(&index, key))
        );
    });
}

#[test]
fn inserts_and_splits_do_not_lose_each_other() {
    check(2, 100, || {
        let index = Arc::new(index());
        let (low, high) = (hash(1, false, false, 0), hash(2, false, true, 0));
        assert!(insert(&index, low));
        let splitter = beside(&index, move |index| {
            let mut migration = index.split(low, TableId(1)).unwrap();
            while !index.migrate(&mut migration, 4) {}
        });
        let writer = beside(&index, move |index| {
            assert!(insert(index, high));
            assert!(has(index, high) && has(index, low));
        });
        splitter.join().unwrap();
        writer.join().unwrap();
        assert!(has(&index, low) && has(&index, high));
    });
}

#[test]
fn displacement_and_splits_do_not_lose_each_other() {
    for way in [Way::Back, Way::Forth] {
        check(2, 100, move || {
            let (index, key, pushy) = index_about_to_displace(way);
            let index = Arc::new(index);
            let splitter = beside(&index, move |index| {
                let mut migration = index.split(key, TableId(1)).unwrap();
                while !index.migrate(&mut migration, 4) {}
            });
            let displacer = beside(&index, move |index| {
                index.make_room(pushy);
                assert!(has(index, key));
            });
            splitter.join().unwrap();
            displacer.join().unwrap();
            assert!(has(&index, key));
        });
    }
}

#[test]
fn two_workers_do_not_insert_one_key_twice() {
    check(3, 5, || {
        let index = Arc::new(index());
        let key = hash(1, false, false, 0);
        let store = move |index: &Index| {
            let locked = index.lock(key);
            match locked.find(|found| found.location() == slot(key).location()) {
                Some((spot, _)) => _ = locked.replace(spot, slot(key)),
                None => assert_ne!(locked.insert(slot(key)), Inserted::Full),
            }
        };
        let stores = [beside(&index, store), beside(&index, store)];
        for store in stores {
            store.join().unwrap();
        }
        let place = index.find(key, |_| true).unwrap();
        let _ = place.lock().unwrap().replace(Slot::EMPTY);
        assert!(!has(&index, key));
    });
}

/// Moves the key of `index_about_to_displace` by hand, counting the move in one of its two buckets
/// or in none.
fn displaced_by_hand(counts_in: Option<u32>) {
    check(3, 50, move || {
        let (index, key, _) = index_about_to_displace(Way::Back);
        let index = Arc::new(index);
        let mover = beside(&index, move |index| {
            let (from, to) = (index.bucket(TableId(0), 0), index.bucket(TableId(0), 3));
            from.lock();
            to.lock();
            let at = (0..2).find(|&i| from.peek(i).same_item(slot(key))).unwrap();
            to.put(0, from.peek(at));
            if let Some(number) = counts_in {
                index.bucket(TableId(0), number).count_move();
            }
            from.put(at, Slot::EMPTY);
            to.unlock();
            from.unlock();
        });
        let reader = beside(&index, move |index| {
            assert!(has(index, key), "the key is missed");
        });
        mover.join().unwrap();
        reader.join().unwrap();
    });
}

#[test]
fn counting_moves_at_the_destination_is_right() {
    displaced_by_hand(Some(3));
}

#[test]
#[should_panic(expected = "the key is missed")]
fn counting_moves_at_the_source_is_wrong() {
    displaced_by_hand(Some(0));
}

#[test]
#[should_panic(expected = "the key is missed")]
fn not_counting_moves_is_wrong() {
    displaced_by_hand(None);
}
