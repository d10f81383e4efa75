//! A whole store and its workers: what becomes of items that one worker changes, moves or kills while
//! others look at them. Segment memory is watched by loom (`memory/tracked.rs`): a read of an item that
//! was not seen published, or whose memory is used again, fails the test.

use super::{check, check_up_to};
use crate::memory::PageState;
use crate::memory::Purpose;
use crate::worker_store::{Rewrite, Rewritten};
use crate::*;
use loom::sync::atomic::AtomicU64;
use loom::thread;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

const NOW: UnixSeconds = UnixSeconds(1000);
const LATER: Expiry = Expiry::at(UnixSeconds(2000));
const KEY: &[u8] = b"key";

/// Accesses are counted by compare-and-swap on words that others store to under a lock. loom does not
/// know that such a store comes behind the swap that it did not see, and shows the swapped value
/// afterwards, which no machine does.
const UNCOUNTED: Access = Access {
    bump: false,
    cas: false,
};

/// A store of so many pages, a multiple of eight: the arena then has no byte more.
fn store(workers: usize, pages: usize) -> Arc<Store> {
    let config = Config {
        workers,
        seed: Some(7),
        ..Config::default()
    };
    Store::tiny(config, pages, NOW)
}

fn set(worker: &mut Worker, key: &[u8], value: &[u8], expiry: Expiry) {
    let mut burst = worker.burst(NOW);
    let key = burst.key(key);
    let stored = burst.store(&key, &Put::set(0, expiry), value);
    assert!(matches!(stored, Stored::Stored { .. }), "{stored:?}");
}

/// The value and expiry of the key.
fn get(worker: &mut Worker, key: &[u8]) -> Result<(Vec<u8>, Expiry), Miss> {
    let burst = worker.burst(NOW);
    let item = burst.get(&burst.key(key), UNCOUNTED)?;
    Ok((item.value().collect::<Vec<_>>().concat(), item.expiry()))
}

/// Moves the key's item, as the cleaner does. False where it was no longer where it was found.
fn rewrite(worker: &mut Worker) -> bool {
    let burst = worker.burst(NOW);
    let local = burst.local;
    let (place, item) = local.find_live(&burst.key(KEY), NOW.into()).unwrap();
    let how = Rewrite {
        purpose: Purpose::Cleaning,
        frequency: Some(0),
        room_for: None,
    };
    match local.rewrite(&mut burst.own.open[1], place, item, &how) {
        Rewritten::Done(_) => true,
        Rewritten::Raced => false,
        Rewritten::NoRoom => panic!("no room"),
    }
}

/// Whether this request wins the token of the stale item.
fn wins(worker: &mut Worker) -> bool {
    let get = MetaGet {
        access: UNCOUNTED,
        vivify: None,
        vivify_cas: None,
        tags: NO_TAGS,
        recache: None,
        touch: None,
        touch_first: false,
    };
    let mut burst = worker.burst(NOW);
    let key = burst.key(KEY);
    burst.meta_get(&key, &get).ok().unwrap().won
}

fn mark_stale(worker: &mut Worker) {
    let mut burst = worker.burst(NOW);
    let key = burst.key(KEY);
    let delete = Delete {
        mark_stale: true,
        ..Delete::default()
    };
    assert_eq!(burst.delete(&key, &delete), Deleted::Done);
}

fn touch(worker: &mut Worker) {
    let mut burst = worker.burst(NOW);
    let key = burst.key(KEY);
    assert!(burst.touch(&key, LATER, UNCOUNTED).is_ok());
}

/// Runs what each worker does beside the others, and returns the workers and what came of it. They
/// are dropped later, so that loom does not try the ways in which that can happen.
fn together<R: 'static, const N: usize>(
    workers: [Worker; N],
    parts: [fn(&mut Worker) -> R; N],
) -> [(Worker, R); N] {
    let mut parts = parts.into_iter();
    let threads = workers.map(|mut worker| {
        let part = parts.next().unwrap();
        thread::spawn(move || {
            let result = part(&mut worker);
            (worker, result)
        })
    });
    threads.map(|thread| thread.join().unwrap())
}

#[test]
fn a_touch_is_not_lost_to_the_cleaner() {
    check(2, 50, || {
        let store = store(2, 16);
        let mut workers = [0, 1].map(|id| store.worker(id));
        set(
            &mut workers[0],
            KEY,
            b"value",
            Expiry::at(UnixSeconds(1500)),
        );
        let [(mut one, _), _other] = together(workers, [touch, |two| assert!(rewrite(two))]);
        assert_eq!(get(&mut one, KEY), Ok((b"value".to_vec(), LATER)));
    });
}

/// A touch that has the item written anew first, while the cleaner moves it and another wins, in either
/// order.
#[test]
fn a_first_expiry_is_not_lost_and_loses_nothing() {
    let others: [fn(&mut Worker); 2] = [
        |other| {
            // It may have been written anew meanwhile: then it is not in the cleaner's segment any more.
            let _ = rewrite(other);
            assert!(wins(other));
        },
        |other| {
            assert!(wins(other));
            let _ = rewrite(other);
        },
    ];
    for other in others {
        check(1, 50, move || {
            let store = store(2, 16);
            let mut workers = [0, 1].map(|id| store.worker(id));
            set(&mut workers[0], KEY, b"value", Expiry::NEVER);
            mark_stale(&mut workers[0]);
            let [(mut one, _), _other] = together(workers, [touch, other]);
            assert_eq!(get(&mut one, KEY), Ok((b"value".to_vec(), LATER)));
            assert!(!wins(&mut one));
        });
    }
}

#[test]
fn exactly_one_wins_whatever_the_cleaner_does() {
    check(1, 50, || {
        let store = store(3, 16);
        let mut workers = [0, 1, 2].map(|id| store.worker(id));
        set(&mut workers[0], KEY, b"value", LATER);
        mark_stale(&mut workers[0]);
        let cleans = |three: &mut Worker| {
            assert!(rewrite(three));
            false
        };
        let done = together(workers, [wins, wins, cleans]);
        assert_eq!(done.iter().filter(|(_, won)| *won).count(), 1);
    });
}

/// The worker that looks has been in a burst before, so that it is waited for.
fn present(mut worker: Worker) -> Worker {
    drop(worker.burst(NOW));
    worker
}

/// How often in a model the segment of the first item was used again while others could look.
fn reuses(preemptions: usize, model: impl Fn(Arc<AtomicUsize>) + Send + Sync + 'static) {
    let reused = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&reused);
    check(preemptions, 50, move || model(Arc::clone(&counted)));
    let reused = reused.load(Ordering::Relaxed);
    println!("the segment was used again in {reused}");
    assert!(reused > 0, "no segment was used again");
}

/// Stores the key, and ends the segment that it is in.
fn set_and_seal(worker: &mut Worker) {
    set(worker, KEY, b"value", Expiry::NEVER);
    let burst = worker.burst(NOW);
    burst.local.shared.log.seal(&mut burst.own.open[0]);
}

/// The segment that the key's item is in.
fn segment_of_key(worker: &mut Worker) -> u32 {
    let burst = worker.burst(NOW);
    let (place, _) = burst.local.find_live(&burst.key(KEY), NOW.into()).unwrap();
    burst.local.shared.log.segment_of(place.slot.location())
}

/// Ends a turn, with its cleaning, and stores something else. Counts where that comes to lie where the
/// key was.
fn clean_and_store(worker: &mut Worker, segment: u32, reused: &AtomicUsize) {
    worker.end(NOW);
    let burst = worker.burst(NOW);
    burst.local.shared.log.seal(&mut burst.own.open[0]);
    worker.end(NOW);
    set(worker, b"other", b"something longer", Expiry::NEVER);
    let entry = worker.store().log.entry(segment);
    if entry.state() == PageState::Open {
        reused.fetch_add(1, Ordering::Relaxed);
    }
}

/// One worker deletes the only item of a segment, another sums up and frees the segment without a look,
/// a third one looks the item up.
#[test]
fn a_segment_of_the_dead_is_not_used_again_under_a_reader() {
    reuses(1, |reused| {
        let store = store(3, 16);
        let [mut one, two, three] = [0, 1, 2].map(|id| store.worker(id));
        set_and_seal(&mut one);
        let segment = segment_of_key(&mut one);
        let (mut two, mut three) = (present(two), present(three));
        let deleter = thread::spawn(move || {
            let mut burst = one.burst(NOW);
            let key = burst.key(KEY);
            assert_eq!(burst.delete(&key, &Delete::default()), Deleted::Done);
            burst.close();
            one.park();
            one
        });
        let reader = thread::spawn(move || {
            let found = get(&mut three, KEY);
            assert!(found.is_err() || found == Ok((b"value".to_vec(), Expiry::NEVER)));
            three
        });
        let cleaner = thread::spawn(move || {
            clean_and_store(&mut two, segment, &reused);
            two
        });
        let _workers = [cleaner, deleter, reader].map(|thread| thread.join().unwrap());
    });
}

/// The cleaner moves the item to another segment, retires its own and uses it again.
#[test]
fn a_segment_that_is_cleaned_is_not_used_again_under_a_reader() {
    reuses(1, |reused| {
        let store = store(2, 8);
        let (mut one, two) = (store.worker(0), store.worker(1));
        set_and_seal(&mut one);
        let segment = segment_of_key(&mut one);
        let mut two = present(two);
        set(&mut one, b"more", b"makes the cleaner work", Expiry::NEVER);
        let cleaner = thread::spawn(move || {
            clean_and_store(&mut one, segment, &reused);
            one
        });
        let reader = thread::spawn(move || {
            for _ in 0..2 {
                assert_eq!(get(&mut two, KEY), Ok((b"value".to_vec(), Expiry::NEVER)));
            }
            two
        });
        let _workers = [cleaner, reader].map(|thread| thread.join().unwrap());
    });
}

/// The cleaner moves the pieces of a large value one by one.
#[test]
fn a_value_whose_pieces_move_is_read_whole() {
    let moved = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&moved);
    check(1, 50, move || {
        let store = store(2, 8);
        let (mut one, two) = (store.worker(0), store.worker(1));
        let value = [b'v'; 200];
        set(&mut one, KEY, &value, Expiry::NEVER);
        let burst = one.burst(NOW);
        burst.local.shared.log.seal(&mut burst.own.open[0]);
        set(&mut one, b"more", b"makes the cleaner work", Expiry::NEVER);
        let mut two = present(two);
        let cleaner = thread::spawn(move || {
            one.end(NOW);
            one
        });
        let reader = thread::spawn(move || {
            let burst = two.burst(NOW);
            let item = burst.get(&burst.key(KEY), UNCOUNTED).unwrap();
            assert!(item.stored_len() > value.len());
            assert_eq!(item.value().collect::<Vec<_>>().concat(), value);
            burst.close();
            two
        });
        let _workers = [cleaner, reader].map(|thread| thread.join().unwrap());
        let compacted = store.stats().totals.compacted;
        counted.fetch_max(usize::try_from(compacted).unwrap(), Ordering::Relaxed);
    });
    // The head and its pieces.
    assert!(moved.load(Ordering::Relaxed) >= 3, "{moved:?} items moved");
}

/// What is stored before a flush is gone for whoever hears of the flush, what is stored after it is not.
#[test]
fn a_flush_parts_what_is_stored_before_from_what_is_stored_after() {
    check(2, 50, || {
        let store = store(2, 16);
        let (mut one, mut other) = (store.worker(0), store.worker(1));
        set(&mut one, KEY, b"old", Expiry::NEVER);
        set(&mut other, b"another", b"old", Expiry::NEVER);
        let answered = loom::sync::Arc::new(AtomicU64::new(0));
        let heard = loom::sync::Arc::clone(&answered);
        let flusher = thread::spawn(move || {
            one.burst(NOW).flush_all(None);
            answered.store(1, Ordering::Release);
        });
        let writer = thread::spawn(move || {
            let is_after = heard.load(Ordering::Acquire) == 1;
            if is_after {
                assert_eq!(get(&mut other, KEY), Err(Miss::Flushed));
            }
            set(&mut other, b"another", b"new", Expiry::NEVER);
            (is_after, other)
        });
        flusher.join().unwrap();
        let (is_after, mut other) = writer.join().unwrap();
        let found = get(&mut other, b"another");
        let new = Ok((b"new".to_vec(), Expiry::NEVER));
        assert!(
            found == new || !is_after && found == Err(Miss::Flushed),
            "{found:?}"
        );
        assert!(get(&mut other, KEY).is_err());
    });
}

/// Stores the key with a tag.
fn set_with_tag(worker: &mut Worker, mode: Mode, value: &[u8]) {
    let mut tags = NO_TAGS;
    tags[0] = Some(worker.store().tag(b"tag"));
    let put = Put {
        mode,
        tags,
        ..Put::set(0, Expiry::NEVER)
    };
    let mut burst = worker.burst(NOW);
    let key = burst.key(KEY);
    let stored = burst.store(&key, &put, value);
    assert!(matches!(stored, Stored::Stored { .. }), "{stored:?}");
}

fn invalidate(worker: &mut Worker, how: Invalidation) {
    let mut burst = worker.burst(NOW);
    let tag = burst.tag(b"tag");
    burst.invalidate(tag, how);
}

/// Either the append comes first, and dies, or it finds nothing to append to.
#[test]
fn what_is_made_from_an_item_dies_with_its_tag() {
    check(2, 20, || {
        let store = store(2, 16);
        let mut workers = [0, 1].map(|id| store.worker(id));
        set_with_tag(&mut workers[0], Mode::Set, b"old");
        let [(mut one, ()), _other] = together(
            workers,
            [
                |one| set_with_tag(one, Mode::AppendOrSet, b"new"),
                |other| invalidate(other, Invalidation::Gone),
            ],
        );
        let found = get(&mut one, KEY);
        let new = Ok((b"new".to_vec(), Expiry::NEVER));
        assert!(found == new || found.is_err(), "{found:?}");
    });
}

/// However many meet an item that its tag has made stale, and while it moves: one wins.
#[test]
fn exactly_one_wins_what_a_tag_has_made_stale() {
    check_up_to(Some(5_000), 1, 50, || {
        let store = store(3, 16);
        let mut workers = [0, 1, 2].map(|id| store.worker(id));
        set_with_tag(&mut workers[0], Mode::Set, b"value");
        invalidate(&mut workers[0], Invalidation::Stale);
        let cleans = |three: &mut Worker| {
            // It may be marked, and so be elsewhere.
            let _ = rewrite(three);
            false
        };
        let done = together(workers, [wins, wins, cleans]);
        assert_eq!(done.iter().filter(|(_, won)| *won).count(), 1);
    });
}
