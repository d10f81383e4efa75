//! Merges beside lookups, writers, displacements, splits and walks, in every interleaving: no key is
//! lost, none is present twice, and no table is used again under a reader.

use super::{Drained, Merge};
use crate::epoch::{Epochs, Presence};
use crate::index::slot::{Location, Slot};
use crate::index::{Cell, Index, Inserted, TABLE_BUCKETS, TableId};
use crate::key::KeyHash;
use crate::loom_tests::{beside, check_up_to, hash_to as hash, index_of, insert, slot};
use loom::sync::Arc;

/// Two tables and their locks make many interleavings: so many of them are tried.
const EXECUTIONS_MAX: usize = 20_000;

fn check(preemptions: usize, executions_min: usize, model: impl Fn() + Sync + Send + 'static) {
    check_up_to(Some(EXECUTIONS_MAX), preemptions, executions_min, model);
}

/// Splits the only sub-table, so that the second one takes the upper half of the tags.
fn split(index: &Index, child: u32) {
    let mut migration = index.split(hash(0, 1, false, 0), TableId(child)).unwrap();
    while !index.migrate(&mut migration, TABLE_BUCKETS) {}
}

fn two_tables() -> Index {
    let index = index_of(2, 3);
    split(&index, 1);
    index
}

fn begin(index: &Index) -> Option<Merge> {
    let (entry, start) = index.siblings(0)?;
    index.start_merge(0, entry, start)
}

/// Begins a merge and empties the donor.
fn merge(index: &Index) -> Merge {
    let mut merge = begin(index).unwrap();
    while index.drain(&mut merge, 1) != Drained::Wholly {}
    merge
}

fn has(index: &Index, hash: KeyHash) -> bool {
    let is_it = |found: Slot| found.location() == slot(hash).location();
    index.find(hash, is_it).is_some()
}

/// Removes the key, whichever table it is in. False if it is not there.
fn remove(index: &Index, hash: KeyHash) -> bool {
    loop {
        let is_it = |found: Slot| found.location() == slot(hash).location();
        let Some(place) = index.find(hash, is_it) else {
            return false;
        };
        if let Some(lock) = place.lock() {
            let _ = lock.replace(Slot::EMPTY);
            return true;
        }
    }
}

/// Stores the key as a set does: in place if it is there.
fn store(index: &Index, key: KeyHash) {
    let locked = index.lock(key);
    match locked.find(|found| found.location() == slot(key).location()) {
        Some((spot, _)) => _ = locked.replace(spot, slot(key)),
        None => assert_ne!(locked.insert(slot(key)), Inserted::Full),
    }
}

/// Ends the merge, and makes sure that each key is there once, and no other.
fn is_whole(index: &Index, mut merge: Merge, keys: &[KeyHash]) {
    while index.drain(&mut merge, TABLE_BUCKETS) != Drained::Wholly {}
    assert_eq!(index.settle_merge(&merge), Some(TableId(1)));
    assert!(keys.iter().all(|&key| has(index, key)), "a key is lost");
    let items: usize = (0..TABLE_BUCKETS)
        .map(|number| index.items_in(TableId(0), number))
        .sum();
    assert_eq!(items, keys.len());
}

#[test]
fn a_lookup_never_misses_a_key_whose_table_merges() {
    check(2, 100, || {
        let index = Arc::new(two_tables());
        let (low, high) = (hash(1, 3, false, 0), hash(1, 3, true, 0));
        assert!(insert(&index, low) && insert(&index, high));
        let merger = beside(&index, |index| _ = merge(index));
        let reader = beside(&index, move |index| {
            assert!(has(index, high), "a key that is there is missed");
            assert!(has(index, low), "a key that is there is missed");
        });
        merger.join().unwrap();
        reader.join().unwrap();
    });
}

/// Its bucket is full in the receiver: the key goes to its other bucket there, or another key makes
/// room for it.
#[test]
fn a_lookup_never_misses_a_key_that_finds_its_bucket_full() {
    for others in [2, 3] {
        check(2, 100, move || {
            let index = Arc::new(two_tables());
            let high = hash(0, 1, true, 0);
            assert!(insert(&index, high));
            // These fill bucket 0; of three, one is in bucket 1, and can go nowhere else.
            let low: Vec<KeyHash> = (0..others).map(|n| hash(0, 1, false, n)).collect();
            assert!(low.iter().all(|&key| insert(&index, key)));
            let merger = beside(&index, |index| merge(index));
            let reader = beside(&index, move |index| {
                assert!(has(index, high), "a key that is there is missed");
            });
            let merged = merger.join().unwrap();
            reader.join().unwrap();
            is_whole(&index, merged, &[low, vec![high]].concat());
        });
    }
}

#[test]
fn a_lookup_never_misses_a_key_when_the_merge_ends() {
    check(3, 10, || {
        let index = Arc::new(two_tables());
        let (low, high) = (hash(1, 3, false, 0), hash(1, 3, true, 0));
        assert!(insert(&index, low) && insert(&index, high));
        let merged = merge(&index);
        let merger = beside(&index, move |index| _ = index.settle_merge(&merged));
        let reader = beside(&index, move |index| {
            assert!(has(index, high) && has(index, low));
        });
        merger.join().unwrap();
        reader.join().unwrap();
    });
}

#[test]
fn inserts_and_merges_do_not_lose_each_other() {
    check(2, 100, || {
        let index = Arc::new(two_tables());
        let (low, high) = (hash(1, 3, false, 0), hash(1, 3, true, 0));
        assert!(insert(&index, high));
        let newer = hash(1, 3, true, 1);
        let merger = beside(&index, |index| merge(index));
        let writer = beside(&index, move |index| {
            store(index, newer);
            store(index, low);
            assert!(has(index, newer) && has(index, low) && has(index, high));
        });
        let merged = merger.join().unwrap();
        writer.join().unwrap();
        is_whole(&index, merged, &[low, high, newer]);
    });
}

#[test]
fn a_key_is_stored_and_removed_where_it_stands() {
    check(2, 100, || {
        let index = Arc::new(two_tables());
        let (key, other) = (hash(1, 3, true, 0), hash(2, 3, true, 1));
        assert!(insert(&index, key) && insert(&index, other));
        let merger = beside(&index, |index| merge(index));
        let writer = beside(&index, move |index| {
            store(index, other);
            assert!(remove(index, key), "a key that is there is missed");
            assert!(!has(index, key), "a key that is gone comes back");
        });
        let merged = merger.join().unwrap();
        writer.join().unwrap();
        is_whole(&index, merged, &[other]);
    });
}

#[test]
fn two_workers_do_not_insert_one_key_twice_during_a_merge() {
    check(2, 1000, || {
        let index = Arc::new(two_tables());
        let key = hash(1, 3, true, 0);
        let merger = beside(&index, |index| merge(index));
        let writers = [0, 1].map(|_| beside(&index, move |index| store(index, key)));
        let merged = merger.join().unwrap();
        for writer in writers {
            writer.join().unwrap();
        }
        is_whole(&index, merged, &[key]);
    });
}

/// A displacer that has read the old directory continues in the donor.
#[test]
fn displacement_and_merges_do_not_lose_each_other() {
    check(2, 100, || {
        let index = two_tables();
        // Bucket 3 is full while the key is inserted, so that it goes to bucket 0; making room for
        // another key there moves it back.
        let key = hash(3, 3, true, 0);
        let others = [hash(3, 3, true, 1), hash(3, 3, true, 2)];
        assert!(others.iter().all(|&other| insert(&index, other)));
        assert!(insert(&index, key));
        assert!(others.iter().all(|&other| remove(&index, other)));
        let neighbours: Vec<KeyHash> = (0..3).map(|n| hash(0, 1, true, n)).collect();
        assert!(neighbours.iter().all(|&key| insert(&index, key)));
        let index = Arc::new(index);
        let merger = beside(&index, |index| merge(index));
        let displacer = beside(&index, move |index| {
            index.make_room(hash(0, 1, true, 3));
            assert!(has(index, key), "a key that is there is missed");
        });
        let merged = merger.join().unwrap();
        displacer.join().unwrap();
        is_whole(&index, merged, &[neighbours, vec![key]].concat());
    });
}

/// Either the tables merge, or one of them splits. They hardly meet: both hold the lock meanwhile.
#[test]
fn merges_and_splits_do_not_meet() {
    check(2, 50, || {
        let index = index_of(4, 3);
        split(&index, 1);
        let (low, high) = (hash(1, 3, false, 0), hash(1, 3, true, 0));
        assert!(insert(&index, low) && insert(&index, high));
        let index = Arc::new(index);
        let merger = beside(&index, |index| {
            let merge = begin(index)?;
            Some(merge)
                .inspect(|&(mut merge)| while index.drain(&mut merge, 4) != Drained::Wholly {})
        });
        let splitter = beside(&index, move |index| {
            let mut split = index.split(high, TableId(2))?;
            while !index.migrate(&mut split, TABLE_BUCKETS) {}
            Some(())
        });
        let (merged, split) = (merger.join().unwrap(), splitter.join().unwrap());
        assert!(merged.is_some() != split.is_some());
        assert!(has(&index, low) && has(&index, high));
    });
}

/// The thread that merges loses its core while the directory changes: no other waits for it.
#[test]
fn a_merge_that_stands_still_holds_nobody_up() {
    for upper in [false, true] {
        check(2, 1, move || {
            let index = two_tables();
            let keys = [
                hash(1, 3, false, 0),
                hash(1, 3, true, 0),
                hash(2, 3, false, 1),
                hash(2, 3, true, 1),
            ];
            assert!(insert(&index, keys[0]) && insert(&index, keys[1]));
            index.merge_half_way(upper);
            assert!(insert(&index, keys[2]) && insert(&index, keys[3]));
            assert!(keys.iter().all(|&key| has(&index, key)));
        });
    }
}

/// What finds no room stays where it is, and is found there; later there is room.
#[test]
fn a_merge_without_room_waits_for_it() {
    check(2, 1, || {
        let index = two_tables();
        let low: Vec<KeyHash> = (0..4).map(|n| hash(0, 1, false, n)).collect();
        let high: Vec<KeyHash> = (0..4).map(|n| hash(0, 1, true, n)).collect();
        assert!(low.iter().chain(&high).all(|&key| insert(&index, key)));
        let mut merge = begin(&index).unwrap();
        assert_eq!(index.drain(&mut merge, TABLE_BUCKETS), Drained::NoRoom);
        assert!(low.iter().chain(&high).all(|&key| has(&index, key)));
        assert!(!index.finish_draining(high[0]));
        // A key in the donor is replaced there, and there is no room for another.
        store(&index, high[3]);
        assert!(!insert(&index, hash(0, 1, true, 5)));
        assert!(low.iter().all(|&key| remove(&index, key)));
        is_whole(&index, merge, &high);
    });
}

/// A worker keeps the record of a split that others complete. The tables merge and split again, the
/// same way, before it goes on.
#[test]
fn a_record_of_an_earlier_split_completes_no_later_one() {
    check(2, 1, || {
        let index = index_of(2, 3);
        let key = hash(0, 1, true, 0);
        assert!(insert(&index, key));
        let mut kept = index.split(key, TableId(1)).unwrap();
        index.migrate(&mut kept, TABLE_BUCKETS / 2);
        let mut other = index.split_of(key).unwrap();
        while !index.migrate(&mut other, TABLE_BUCKETS) {}
        is_whole(&index, merge(&index), &[key]);
        let mut later = index.split(key, TableId(1)).unwrap();
        while !index.migrate(&mut kept, TABLE_BUCKETS) {}
        assert!(
            has(&index, key),
            "a split is over before its buckets are filled"
        );
        assert!(index.migrate(&mut later, 1));
        // Where nothing of the kind is under way, nothing is touched.
        is_whole(&index, merge(&index), &[key]);
        assert!(index.migrate(&mut other, TABLE_BUCKETS));
        assert!(has(&index, key));
    });
}

#[test]
fn keys_of_tables_that_merge_are_shown() {
    for (low, high) in [
        (hash(1, 1, false, 0), hash(2, 1, true, 0)),
        (hash(2, 3, false, 0), hash(3, 3, true, 0)),
    ] {
        check(1, 50, move || {
            let index = Arc::new(two_tables());
            assert!(insert(&index, low) && insert(&index, high));
            let merger = beside(&index, |index| merge(index));
            let reader = beside(&index, move |index| {
                assert!(shown(index, high) >= 1 && shown(index, low) >= 1);
            });
            let merged = merger.join().unwrap();
            reader.join().unwrap();
            assert_eq!((shown(&index, low), shown(&index, high)), (1, 1));
            is_whole(&index, merged, &[low, high]);
            assert_eq!((shown(&index, low), shown(&index, high)), (1, 1));
        });
    }
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

/// A position from before a merge is still valid after it, and no key is shown twice.
#[test]
fn a_walk_goes_on_across_a_merge() {
    check(1, 1, || {
        let index = two_tables();
        let keys: Vec<KeyHash> = (0..3).map(|n| hash(n, 1, n & 1 != 0, n as usize)).collect();
        assert!(keys.iter().all(|&key| insert(&index, key)));
        let mut found = Vec::new();
        let mut cell = index.walk(Cell::FIRST, |slot| found.push(slot));
        let merged = merge(&index);
        cell = cell.and_then(|at| index.walk(at, |slot| found.push(slot)));
        is_whole(&index, merged, &keys);
        while let Some(at) = cell {
            cell = index.walk(at, |slot| found.push(slot));
        }
        assert_eq!(found.len(), keys.len());
        assert!(keys.iter().all(|&key| found.contains(&slot(key))));
    });
}

/// An index, and the epochs of two workers.
struct Watched {
    index: Index,
    epochs: Epochs,
}

/// One worker merges two tables and uses the donor again, for what is no table, while another looks
/// and writes in two bursts.
fn uses_the_donor_again(waits: bool) {
    check(2, 100, move || {
        let watched = Arc::new(Watched {
            index: two_tables(),
            epochs: Epochs::new(1),
        });
        let (low, high) = (hash(1, 3, false, 0), hash(1, 3, true, 0));
        assert!(insert(&watched.index, low) && insert(&watched.index, high));
        let mut presence = Presence::new(0);
        presence.announce(&watched.epochs);
        let merger = beside(&watched, move |watched| {
            let (index, epochs) = (&watched.index, &watched.epochs);
            let merge = merge(index);
            if waits && !epochs.is_over(epochs.advance()) {
                return;
            }
            let donor = index.settle_merge(&merge).unwrap();
            if waits && !epochs.is_over(epochs.advance()) {
                return;
            }
            // Bytes of items: nobody may take them for slots, and nobody may change them.
            let value = Slot::item(high.tag(), Location::of_offset(1 << 20), 64);
            for number in 0..TABLE_BUCKETS {
                let bucket = index.bucket(donor, number);
                bucket.reset(false);
                (0..2).for_each(|at| bucket.put(at, value));
            }
        });
        let reader = beside(&watched, move |watched| {
            for _ in 0..2 {
                presence.announce(&watched.epochs);
                let found = watched.index.find(high, |_| true).expect("a key is missed");
                assert!(found.slot.same_item(slot(high)), "no slot of the index");
            }
            presence.leave(&watched.epochs);
        });
        merger.join().unwrap();
        reader.join().unwrap();
        assert!(has(&watched.index, low) && has(&watched.index, high));
    });
}

#[test]
fn a_table_is_used_again_after_a_grace_period() {
    uses_the_donor_again(true);
}

#[test]
#[should_panic(expected = "no slot of the index")]
fn a_table_that_is_used_again_at_once_is_mistaken() {
    uses_the_donor_again(false);
}

/// One worker merges two tables and splits them again; another stores meanwhile, and may complete the
/// words of the merge at any time in its burst.
#[test]
fn old_words_come_back_after_a_grace_period() {
    check(2, 100, || {
        let watched = Arc::new(Watched {
            index: two_tables(),
            epochs: Epochs::new(1),
        });
        let low = hash(1, 3, false, 0);
        let mut presence = Presence::new(0);
        presence.announce(&watched.epochs);
        let writer = beside(&watched, move |watched| {
            store(&watched.index, low);
            presence.leave(&watched.epochs);
        });
        let changer = beside(&watched, move |watched| {
            let (index, epochs) = (&watched.index, &watched.epochs);
            let merge = merge(index);
            if epochs.is_over(epochs.advance()) {
                index.settle_merge(&merge).unwrap();
                split(index, 2);
            }
        });
        writer.join().unwrap();
        changer.join().unwrap();
        let words = [0, 1].map(|word| watched.index.directory.entry_at(word));
        assert_eq!(words[0].is_merging(), words[1].is_merging());
        assert!(has(&watched.index, low));
    });
}

/// What a worker would do without that grace period, if it lost its core while it completed the words.
#[test]
fn old_words_that_come_back_at_once_are_mistaken() {
    check(1, 1, || {
        let index = two_tables();
        let (entry, start) = index.siblings(0).unwrap();
        let merged = merge(&index);
        index.settle_merge(&merged).unwrap();
        split(&index, 2);
        index.publish_merge(entry, start);
        let words = [0, 1].map(|word| index.directory.entry_at(word));
        assert!(words[0].is_merging() && !words[1].is_merging());
    });
}
