//! Every interleaving, as far as loom's bounds go, of what the index and the grace periods do
//! between threads. `RUSTFLAGS="--cfg loom" cargo test --release -p coua-store loom_tests`.
//!
//! The index under test is the real one, with sub-tables of four buckets of two slots.

use crate::index::slot::{Location, Slot};
use crate::index::{Bucket, Directory, Index, Inserted, TABLE_BUCKETS, TableId};
use crate::key::KeyHash;
use crate::sync::{AtomicU64, Ordering};
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

/// A hash whose first bucket is `first`, whose second is `first ^ flip`, and whose top tag bit is
/// `upper`: tags are told apart by `n`.
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
        hash_to(1, 1, false, 0)
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
        let Some(lock) = place.lock() else {
            return false;
        };
        let from = Moving::at(lock.slot);
        for words in [&self.expiry, &self.marks] {
            words[to].store(words[from].load(Ordering::Relaxed), Ordering::Relaxed);
        }
        let tag = Moving::key().tag();
        let _ = lock.replace(Slot::item(tag, Moving::location(to), 64));
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
