//! Every interleaving, as far as loom's bounds go, of what the store does between threads.
//! `RUSTFLAGS="--cfg loom" cargo test --release -p coua-store loom_tests`.
//!
//! What is under test is the real store, with sub-tables of four buckets of two slots and segments of
//! 512 bytes. Tests of one module stand beside it; `items` has those that take a whole store.

use crate::index::slot::{Location, Slot};
use crate::index::{Directory, Index, Inserted, TABLE_BUCKETS, TableId};
use crate::key::KeyHash;
use crate::memory::{Doubled, Mapping, Slice};
use loom::sync::Arc;
use loom::thread;

mod items;

/// Runs `model` with at most `preemptions` forced switches, and makes sure that it was run in
/// `executions_min` ways at least. A model whose threads turn out not to meet is tried in one way,
/// and shows nothing. For that reason all threads that are to meet are spawned ones: what the first
/// thread does beside them is hardly ever tried in another order.
pub(crate) fn check(
    preemptions: usize,
    executions_min: usize,
    model: impl Fn() + Sync + Send + 'static,
) {
    check_up_to(None, preemptions, executions_min, model);
}

/// As [`check`], for a model that has more executions than there is time for: so many are tried.
pub(crate) fn check_up_to(
    executions_max: Option<usize>,
    preemptions: usize,
    executions_min: usize,
    model: impl Fn() + Sync + Send + 'static,
) {
    let executions = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counted = std::sync::Arc::clone(&executions);
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 100_000;
    builder.max_permutations = executions_max;
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
pub(crate) fn beside<T: Send + Sync + 'static, R: 'static>(
    shared: &Arc<T>,
    part: impl FnOnce(&T) -> R + Send + 'static,
) -> thread::JoinHandle<R> {
    let shared = Arc::clone(shared);
    thread::spawn(move || part(&shared))
}

/// An index of one sub-table that can split once, and room for the second.
pub(crate) fn index() -> Index {
    index_of(2, 2)
}

/// An index of one sub-table, with a directory of so many words and room for so many sub-tables.
pub(crate) fn index_of(words: usize, tables: usize) -> Index {
    let memory = Mapping::reserve(1).unwrap();
    let words = Doubled::new(&memory, (0, 0), words);
    let buckets = Slice::new(&memory, 0, tables * TABLE_BUCKETS as usize);
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
