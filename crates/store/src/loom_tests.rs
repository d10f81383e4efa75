//! Every interleaving, as far as loom's bounds go, of what the index and the grace periods do
//! between threads. `RUSTFLAGS="--cfg loom" cargo test --release -p coua-store loom_tests`.
//!
//! The index under test is the real one, with sub-tables of four buckets of two slots.

use crate::epoch::Epochs;
use crate::index::slot::{Location, Slot};
use crate::index::{Bucket, Directory, Index, Inserted, TABLE_BUCKETS, TableId};
use crate::key::KeyHash;
use crate::sync::{AtomicU64, Ordering};
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

/// Runs `model` with at most `preemptions` forced switches, and makes sure that it was run in
/// `executions_min` ways at least. A model whose threads turn out not to meet is tried in one way,
/// and shows nothing. For that reason all threads that are to meet are spawned ones: what the first
/// thread does beside them is hardly ever tried in another order.
pub(crate) fn check(
    preemptions: usize,
    executions_min: usize,
    model: impl Fn() + Sync + Send + 'static,
) {
    let executions = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counted = std::sync::Arc::clone(&executions);
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 100_000;
    builder.check(move || {
        counted.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        model();
    });
    let executions = executions.load(std::sync::atomic::Ordering::Relaxed);
    println!("{executions} executions");
    assert!(
        executions >= executions_min,
        "loom tried {executions} executions, fewer than {executions_min}"
    );
}

/// Runs `part` on a thread of its own.
pub(crate) fn beside<T: Send + Sync + 'static>(
    shared: &Arc<T>,
    part: impl FnOnce(&T) + Send + 'static,
) -> thread::JoinHandle<()> {
    let shared = Arc::clone(shared);
    thread::spawn(move || part(&shared))
}

/// An index of one sub-table that can split once, and room for the second.
pub(crate) fn index() -> Index {
    let words: Box<[AtomicU64]> = (0..2).map(|_| AtomicU64::new(0)).collect();
    let buckets: Box<[Bucket]> = (0..2 * TABLE_BUCKETS).map(|_| Bucket::default()).collect();
    let index = Index::new(Directory::new(words, 0), buckets);
    index.adopt_first_tables(|| TableId(0));
    index
}

/// A hash whose first bucket is `first`, whose second is `first ^ 3` or `first ^ 1`, and whose top
/// tag bit is `upper`: tags are told apart by `n`.
fn hash(first: u64, far: bool, upper: bool, n: u64) -> KeyHash {
    hash_to(first, if far { 3 } else { 1 }, upper, n as usize)
}

/// As that, with `first ^ flip` for the second bucket.
pub(crate) fn hash_to(first: u64, flip: u32, upper: bool, n: usize) -> KeyHash {
    let tag = (0..1u64 << 15)
        .map(|tag| tag | u64::from(upper) << 15)
        .filter(|&tag| ((tag as u32).wrapping_mul(0x5bd1_e995) | 1) & 3 == flip)
        .nth(n)
        .unwrap();
    KeyHash(tag << 48 | first)
}

pub(crate) fn slot(hash: KeyHash) -> Slot {
    Slot::item(
        hash.tag(),
        Location::of_offset(((hash.0 >> 45) as usize & !7) + 8),
        64,
    )
}

pub(crate) fn insert(index: &Index, hash: KeyHash) -> bool {
    let locked = index.lock(hash);
    locked.insert(slot(hash)) != Inserted::Full
}

fn has(index: &Index, hash: KeyHash) -> bool {
    index
        .find(hash, |found| found.location() == slot(hash).location())
        .is_some()
}

fn remove(index: &Index, hash: KeyHash) {
    let place = index.find(hash, |s| s.location() == slot(hash).location());
    place.unwrap().lock().unwrap().replace(Slot::EMPTY);
}

/// Which way a key moves when room is made for another.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// From its first bucket, which lookups read first, to its second.
    Forth,
    /// Back to its first.
    Back,
}

/// Fills bucket 0 and 1 so that making room for the second key, of bucket 0, moves the first one from
/// bucket 0 to bucket 3.
fn index_about_to_displace(way: Way) -> (Index, KeyHash, KeyHash) {
    let index = index();
    let key = match way {
        Way::Forth => hash(0, true, false, 0),
        Way::Back => hash(3, true, false, 0),
    };
    // Two others take bucket 3, so that it goes to bucket 0; then they leave.
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

/// The reader has passed the bucket that the key comes to.
#[test]
fn a_lookup_never_misses_a_key_that_moves_back() {
    lookup_against_displacement(Way::Back, 50);
}

/// The reader comes to the bucket that the key moves to after the one that it leaves. Whoever sees it
/// gone from there has to see it here.
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
                Some((spot, _)) => locked.replace(spot, slot(key)),
                None => assert_ne!(locked.insert(slot(key)), Inserted::Full),
            }
        };
        let stores = [beside(&index, store), beside(&index, store)];
        for store in stores {
            store.join().unwrap();
        }
        let place = index.find(key, |_| true).unwrap();
        place.lock().unwrap().replace(Slot::EMPTY);
        assert!(!has(&index, key));
    });
}

/// A segment of one word, a slot that points to it, and the epochs that guard its reuse.
struct Reused {
    slot: AtomicU64,
    segment: UnsafeCell<u64>,
    epochs: Epochs,
}

// SAFETY: what the tests below check: nobody writes the segment while another reads it.
#[expect(unsafe_code, reason = "loom's cell stands for segment memory")]
unsafe impl Sync for Reused {}
// SAFETY: as above.
#[expect(unsafe_code, reason = "loom's cell stands for segment memory")]
unsafe impl Send for Reused {}

impl Reused {
    #[expect(unsafe_code, reason = "loom's cell stands for segment memory")]
    fn write(&self, value: u64) {
        // SAFETY: loom fails the test where another thread accesses the cell meanwhile.
        self.segment.with_mut(|word| unsafe { *word = value });
    }

    #[expect(unsafe_code, reason = "loom's cell stands for segment memory")]
    fn read(&self) -> u64 {
        // SAFETY: as above.
        self.segment.with(|word| unsafe { *word })
    }

    fn new() -> Arc<Reused> {
        let reused = Reused {
            slot: AtomicU64::new(0),
            segment: UnsafeCell::new(0),
            epochs: Epochs::new(1),
        };
        reused.write(1);
        reused.slot.store(1, Ordering::Release);
        Arc::new(reused)
    }

    /// Unlinks the item, and uses its segment again if the grace period is over.
    fn clean(&self, waits: bool) {
        self.slot.store(0, Ordering::Release);
        let epoch = self.epochs.advance();
        if !waits || self.epochs.is_over(epoch) {
            self.write(2);
        }
    }

    fn look(&self) {
        if self.slot.load(Ordering::Acquire) == 1 {
            assert_eq!(self.read(), 1);
        }
    }
}

fn reader_against_cleaner(waits: bool) {
    check(3, 5, move || {
        let reused = Reused::new();
        reused.epochs.come_back(0);
        let cleaner = beside(&reused, move |reused| reused.clean(waits));
        let reader = beside(&reused, |reused| {
            for _ in 0..2 {
                reused.epochs.announce(0);
                reused.look();
            }
        });
        cleaner.join().unwrap();
        reader.join().unwrap();
    });
}

#[test]
fn a_segment_is_not_used_again_under_a_reader() {
    reader_against_cleaner(true);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn without_a_grace_period_it_is() {
    reader_against_cleaner(false);
}

fn parked_against_cleaner(comes_back_with_fence: bool) {
    check(3, 5, move || {
        let reused = Reused::new();
        let cleaner = beside(&reused, |reused| reused.clean(true));
        let reader = beside(&reused, move |reused| {
            if comes_back_with_fence {
                reused.epochs.come_back(0);
            } else {
                reused.epochs.announce(0);
            }
            reused.look();
        });
        cleaner.join().unwrap();
        reader.join().unwrap();
    });
}

#[test]
fn a_parked_worker_comes_back_safely() {
    parked_against_cleaner(true);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_parked_worker_needs_the_fence() {
    parked_against_cleaner(false);
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

/// An item's changing words at the places that it may come to, and the slot that says which is meant:
/// each step as in `WorkerStore::rewrite`, `operations/touch.rs` and `operations/meta.rs`, under the bucket's
/// real lock, with loom's atomics in place of the items' words.
struct Moving {
    index: Index,
    expiry: [AtomicU64; 3],
    marks: [AtomicU64; 3],
}

/// Where the cleaner moves the item, and where a touch writes it anew.
const CLEANED: usize = 1;
const TOUCHED: usize = 2;

impl Moving {
    fn key() -> KeyHash {
        hash(1, false, false, 0)
    }

    fn new() -> Arc<Moving> {
        let index = index();
        assert!(insert(&index, Moving::key()));
        let words = || std::array::from_fn(|_| AtomicU64::new(0));
        Arc::new(Moving {
            index,
            expiry: words(),
            marks: words(),
        })
    }

    /// Where the copy is that a slot means.
    fn at(slot: Slot) -> usize {
        let places = [CLEANED, TOUCHED].into_iter();
        let is_it = |at: &usize| slot.location() == Moving::location(*at);
        places.filter(is_it).sum()
    }

    fn location(at: usize) -> Location {
        Location::of_offset(at << 20)
    }

    /// Which copy of the item is the current one, while `f` runs.
    fn locked<R>(&self, f: impl FnOnce(usize) -> R) -> R {
        loop {
            let place = self.index.find(Moving::key(), |_| true).unwrap();
            if let Some(lock) = place.lock() {
                return f(Moving::at(lock.slot));
            }
        }
    }

    /// Writes the item anew at `to`. False where it is no longer where it was found.
    fn rewrite(&self, to: usize) -> bool {
        let place = self.index.find(Moving::key(), |_| true).unwrap();
        let Some(mut lock) = place.lock() else {
            return false;
        };
        let from = Moving::at(lock.slot);
        for words in [&self.expiry, &self.marks] {
            words[to].store(words[from].load(Ordering::Relaxed), Ordering::Relaxed);
        }
        let tag = Moving::key().tag();
        lock.replace(Slot::item(tag, Moving::location(to), 64));
        true
    }

    fn win(&self) -> bool {
        self.locked(|at| {
            let won = self.marks[at].load(Ordering::Relaxed) == 0;
            self.marks[at].store(1, Ordering::Relaxed);
            won
        })
    }
}

#[test]
fn a_touch_is_not_lost_to_the_cleaner() {
    check(3, 2, || {
        let moving = Moving::new();
        let cleaner = {
            let moving = Arc::clone(&moving);
            thread::spawn(move || assert!(moving.rewrite(CLEANED)))
        };
        moving.locked(|at| moving.expiry[at].store(77, Ordering::Relaxed));
        cleaner.join().unwrap();
        assert_eq!(moving.expiry[CLEANED].load(Ordering::Relaxed), 77);
    });
}

/// A touch that has the item written anew first, while the cleaner moves it and another wins.
#[test]
fn a_first_expiry_is_not_lost_and_loses_nothing() {
    check(1, 2, || {
        let moving = Moving::new();
        let others = [false, true].map(|cleans| {
            let moving = Arc::clone(&moving);
            thread::spawn(move || match cleans {
                // It has been written anew meanwhile: then it is not in the cleaner's segment any more.
                true => _ = moving.rewrite(CLEANED),
                false => assert!(moving.win()),
            })
        });
        let _ = moving.rewrite(TOUCHED);
        moving.locked(|at| moving.expiry[at].store(77, Ordering::Relaxed));
        for other in others {
            other.join().unwrap();
        }
        let now = moving.locked(|at| {
            [&moving.expiry, &moving.marks].map(|words| words[at].load(Ordering::Relaxed))
        });
        assert_eq!(now, [77, 1]);
    });
}

#[test]
fn exactly_one_wins_whatever_the_cleaner_does() {
    check(1, 2, || {
        let moving = Moving::new();
        let threads: Vec<_> = [false, true]
            .map(|cleans| {
                let moving = Arc::clone(&moving);
                thread::spawn(move || {
                    if cleans {
                        assert!(moving.rewrite(CLEANED));
                        return false;
                    }
                    moving.win()
                })
            })
            .into_iter()
            .collect();
        let mine = moving.win();
        let others: Vec<bool> = threads.into_iter().map(|t| t.join().unwrap()).collect();
        assert_eq!(
            u32::from(mine) + others.into_iter().map(u32::from).sum::<u32>(),
            1
        );
    });
}
