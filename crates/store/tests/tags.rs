//! Tags on whole stores: many of them, restarts, lost memory, the crawler, several threads.

#![cfg(not(miri))]
#![allow(
    clippy::cast_possible_truncation,
    reason = "patterns and small numbers"
)]

use coua_store::*;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

mod support;
use support::{NOW, put, value_of};

fn store(memory: usize, file: Option<PathBuf>) -> Arc<Store> {
    let config = Config {
        memory,
        workers: 2,
        seed: Some(5),
        file,
        ..Config::default()
    };
    Store::new(config, NOW).unwrap()
}

fn tags(worker: &Worker, names: &[&[u8]]) -> Tags {
    let mut tags = NO_TAGS;
    for (tag, name) in tags.iter_mut().zip(names) {
        *tag = Some(worker.store().tag(name));
    }
    tags
}

fn set(worker: &mut Worker, key: &[u8], names: &[&[u8]], value: &[u8]) {
    let with = Put {
        tags: tags(worker, names),
        ..Put::set(0, Expiry::NEVER)
    };
    let stored = put(worker, key, &with, value);
    assert!(matches!(stored, Stored::Stored { .. }), "{stored:?}");
}

fn get(worker: &mut Worker, key: &[u8]) -> Result<Vec<u8>, Miss> {
    let burst = worker.burst(NOW);
    let item = burst.get(&burst.key(key), Access::default())?;
    Ok(value_of(&item))
}

fn invalidate(worker: &mut Worker, name: &[u8], how: Invalidation) {
    let tag = worker.store().tag(name);
    worker.burst(NOW).invalidate(tag, how);
}

fn name(prefix: &str, number: usize) -> Vec<u8> {
    format!("{prefix}-{number}").into_bytes()
}

/// Items keep their standing while the table grows under them; few others die with a tag.
#[test]
fn the_table_grows_with_the_tags() {
    const TAGS: usize = 12_000;
    let store = store(64 << 20, None);
    let mut worker = store.worker(0);
    assert_eq!(store.stats().memory_tags, 0);
    for number in 0..TAGS {
        let tag = name("tag", number);
        set(&mut worker, &name("key", number), &[&tag], b"value");
        // Some die while the table is small.
        if number % 100 == 7 {
            invalidate(&mut worker, &tag, Invalidation::Gone);
        }
    }
    let stats = store.stats();
    let (pages, most) = (stats.memory_tags / stats.segment_len, stats.memory / 128);
    assert!(pages >= 4, "{pages} pages");
    assert!(stats.memory_tags <= most, "{} of {most}", stats.memory_tags);
    for number in (0..TAGS).filter(|number| number % 100 == 9) {
        invalidate(&mut worker, &name("tag", number), Invalidation::Gone);
    }
    let mut by_chance = 0;
    for number in 0..TAGS {
        let found = get(&mut worker, &name("key", number));
        match number % 100 {
            7 | 9 => assert_eq!(found, Err(Miss::Invalidated), "{number}"),
            _ => by_chance += usize::from(found.is_err()),
        }
    }
    // 240 were invalidated, in a table a quarter of which is used at most, but for the first ones.
    assert!(by_chance < 240, "{by_chance} others died");
}

/// What a test looks at after a restart.
struct Left {
    path: PathBuf,
}

impl Drop for Left {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

impl Left {
    /// A file with items of three tags: fresh, stale and gone.
    fn new(test: &str) -> Left {
        let path = format!("/dev/shm/coua-tags-{test}-{}", std::process::id());
        let left = Left { path: path.into() };
        let _ = std::fs::remove_file(&left.path);
        let store = left.open();
        let mut worker = store.worker(0);
        for key in ["fresh", "stale", "gone"] {
            set(&mut worker, key.as_bytes(), &[b"all", key.as_bytes()], b"x");
        }
        // More tags than one page is for.
        for number in 0..3_000 {
            set(
                &mut worker,
                &name("key", number),
                &[&name("tag", number)],
                b"x",
            );
        }
        invalidate(&mut worker, b"stale", Invalidation::Stale);
        invalidate(&mut worker, b"gone", Invalidation::Gone);
        assert!(store.stats().memory_tags > store.stats().segment_len);
        left
    }

    fn open(&self) -> Arc<Store> {
        store(64 << 20, Some(self.path.clone()))
    }
}

fn mg(worker: &mut Worker, key: &[u8]) -> Option<(bool, bool)> {
    let get = MetaGet {
        access: Access::default(),
        vivify: None,
        vivify_cas: None,
        tags: NO_TAGS,
        recache: None,
        touch: None,
        touch_first: false,
    };
    let mut burst = worker.burst(NOW);
    let hit = burst.meta_get(&burst.key(key), &get).ok()?;
    Some((hit.stale, hit.won))
}

#[test]
fn generations_outlive_the_process() {
    let left = Left::new("restart");
    let store = left.open();
    assert!(
        matches!(store.start(), Start::Warm(_)),
        "{:?}",
        store.start()
    );
    let mut worker = store.worker(0);
    assert_eq!(get(&mut worker, b"gone"), Err(Miss::Invalidated));
    assert_eq!(mg(&mut worker, b"fresh"), Some((false, false)));
    assert_eq!(mg(&mut worker, b"stale"), Some((true, true)));
    assert_eq!(mg(&mut worker, b"stale"), Some((true, false)));
    invalidate(&mut worker, &name("tag", 5), Invalidation::Gone);
    assert_eq!(get(&mut worker, &name("key", 5)), Err(Miss::Invalidated));
    let lost = (0..3_000).filter(|&number| get(&mut worker, &name("key", number)).is_err());
    assert!(lost.count() < 10);
    // The table still grows.
    let before = store.stats().memory_tags;
    for number in 3_000..9_000 {
        set(
            &mut worker,
            &name("key", number),
            &[&name("tag", number)],
            b"x",
        );
    }
    assert!(store.stats().memory_tags > before);
    invalidate(&mut worker, b"all", Invalidation::Gone);
    assert_eq!(mg(&mut worker, b"fresh"), None);
}

/// Zeros in the table lose items and raise none, also those that were gone before.
#[test]
fn what_is_lost_of_the_table_is_gone() {
    let left = Left::new("lost");
    let segment_len = left.open().stats().segment_len;
    let file = File::options()
        .read(true)
        .write(true)
        .open(&left.path)
        .unwrap();
    // A page of the table is found by its slots: all have the same number in both halves, but for
    // the marks.
    let pages = (64 << 20) / segment_len;
    let mut wiped = 0;
    for page in 1..pages {
        let mut bytes = vec![0; segment_len as usize];
        file.read_exact_at(&mut bytes, page * segment_len).unwrap();
        let slots = bytes
            .chunks_exact(8)
            .map(|slot| u64::from_ne_bytes(slot.try_into().unwrap()));
        let is_slot = |slot: u64| slot == 0 || slot >> 32 == slot & 0x7fff_ffff;
        let (used, other) = slots
            .filter(|&slot| slot != 0)
            .fold((0, 0), |(used, other), slot| {
                (used + 1, other + u32::from(!is_slot(slot)))
            });
        if used > 100 && other < 5 {
            file.write_all_at(&vec![0; segment_len as usize], page * segment_len)
                .unwrap();
            wiped += 1;
        }
    }
    assert!(wiped >= 2, "{wiped} pages of the table");
    let store = left.open();
    let mut worker = store.worker(0);
    assert!(
        matches!(store.start(), Start::Warm(_)),
        "{:?}",
        store.start()
    );
    for number in 0..3_000 {
        // Whoever stores with the tag again starts its generations anew.
        set(&mut worker, b"another", &[&name("tag", number)], b"x");
        assert_eq!(
            get(&mut worker, &name("key", number)),
            Err(Miss::Invalidated)
        );
    }
    for key in ["fresh", "stale", "gone"] {
        set(&mut worker, b"another", &[b"all", key.as_bytes()], b"x");
        assert_eq!(get(&mut worker, key.as_bytes()), Err(Miss::Invalidated));
    }
    assert_eq!(get(&mut worker, b"another").as_deref(), Ok(&b"x"[..]));
}

/// Items that nobody asks for any more are found by the crawler.
#[test]
fn the_crawler_finds_what_is_gone() {
    let store = store(16 << 20, None);
    let mut worker = store.worker(0);
    for number in 0..5_000 {
        set(&mut worker, &name("key", number), &[b"tag"], &[7; 100]);
    }
    invalidate(&mut worker, b"tag", Invalidation::Gone);
    let left = |store: &Store| store.stats().items;
    let mut now = NOW;
    for _ in 0..2_000 {
        if left(&store) < 1_000 {
            break;
        }
        now.0 += 1;
        while worker.end(now) {}
    }
    // Those in open segments stay.
    assert!(left(&store) < 1_000, "{} items are left", left(&store));
    assert!(store.stats().totals.crawler_reclaimed > 4_000);
}

/// An item of 10 and 10 bytes: eight bytes a tag, and four for an expiry in milliseconds.
#[test]
fn bytes_of_an_item() {
    let store = store(16 << 20, None);
    let mut worker = store.worker(0);
    let len = |worker: &mut Worker, put: &Put| {
        let stored = support::put(worker, b"0123456789", put, b"0123456789");
        assert!(matches!(stored, Stored::Stored { .. }));
        let burst = worker.burst(NOW);
        let key = burst.key(b"0123456789");
        burst.get(&key, Access::default()).unwrap().stored_len()
    };
    let names: [&[u8]; 4] = [b"a", b"b", b"c", b"d"];
    for count in 0..=4 {
        let with = Put {
            tags: tags(&worker, &names[..count]),
            ..Put::set(0, Expiry::NEVER)
        };
        assert_eq!(len(&mut worker, &with), 32 + 8 * count);
    }
    let second = Expiry::at(UnixSeconds(NOW.0 + 9));
    let fine = Expiry::at_millis(u64::from(NOW.0 + 9) * 1000 + 1);
    assert_eq!(len(&mut worker, &Put::set(0, second)), 32);
    assert_eq!(len(&mut worker, &Put::set(0, fine)), 40);
}

/// One thread invalidates; whatever another has stored before that began is never seen after it ended.
#[test]
fn nothing_stored_before_an_invalidation_is_seen_after_it() {
    /// So many times the two have to meet.
    const MEETINGS: u64 = 2_000;
    let store = store(16 << 20, None);
    let begun = AtomicU64::new(0);
    let ended = AtomicU64::new(0);
    let (mut one, mut two) = (store.worker(0), store.worker(1));
    let dead = AtomicU64::new(0);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut round = 0;
            while dead.load(Ordering::SeqCst) < MEETINGS {
                round += 1;
                begun.store(round, Ordering::SeqCst);
                invalidate(&mut two, b"tag", Invalidation::Gone);
                ended.store(round, Ordering::SeqCst);
                two.end(NOW);
                thread::yield_now();
            }
            two.park();
        });
        scope.spawn(|| {
            let _ends = EndsOther(&dead, MEETINGS);
            let mut serial = 0u64;
            // How many invalidations had begun when each was stored.
            let mut stored_by = vec![0];
            while dead.load(Ordering::SeqCst) < MEETINGS {
                serial += 1;
                let key = name("key", (serial % 7) as usize);
                let before = ended.load(Ordering::SeqCst);
                let mode = if serial.is_multiple_of(3) {
                    Mode::AppendOrSet
                } else {
                    Mode::Set
                };
                let with = Put {
                    mode,
                    tags: tags(&one, &[b"tag"]),
                    ..Put::set(0, Expiry::NEVER)
                };
                let stored = put(&mut one, &key, &with, &serial.to_le_bytes());
                assert!(matches!(stored, Stored::Stored { .. }), "{stored:?}");
                if serial.is_multiple_of(5) {
                    thread::yield_now();
                }
                stored_by.push(begun.load(Ordering::SeqCst));
                let ended_by = ended.load(Ordering::SeqCst);
                let found = get(&mut one, &key);
                let looked_by = begun.load(Ordering::SeqCst);
                dead.fetch_add(u64::from(found.is_err()), Ordering::SeqCst);
                for part in found.as_deref().unwrap_or_default().chunks_exact(8) {
                    let part = u64::from_le_bytes(part.try_into().unwrap());
                    let by = stored_by[part as usize];
                    assert!(
                        by >= ended_by,
                        "{part} of {serial} is seen after {ended_by} ended"
                    );
                }
                if looked_by == before {
                    assert!(found.is_ok(), "dead without an invalidation");
                    let last = found.unwrap();
                    assert!(last.ends_with(&serial.to_le_bytes()));
                }
            }
            one.park();
        });
    });
}

/// Ends the other thread's loop, also when this one panics.
struct EndsOther<'a>(&'a AtomicU64, u64);

impl Drop for EndsOther<'_> {
    fn drop(&mut self) {
        self.0.store(self.1, Ordering::SeqCst);
    }
}
