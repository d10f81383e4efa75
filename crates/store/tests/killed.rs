//! A process that is killed at any moment, and the next one in the same file.
//!
//! One thread drives two workers. Before each of its stores the file is copied, or before some of them: that
//! is what a kill at this moment leaves. A store is opened on the copy, and must have each item with the
//! value that its last operation gave it, or, of the one under way, the value before that.

// Miri has no files that are memory.
#![cfg(not(miri))]
#![allow(
    clippy::cast_possible_truncation,
    reason = "patterns and small numbers"
)]

use coua_store::*;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

mod support;
use support::copies::Files;
use support::{NOW, value_of};

const MEMORY: usize = 8 << 20;

struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (x ^ (x >> 31)) % n
    }
}

fn key(id: u64) -> Vec<u8> {
    format!("key-{id}").into_bytes()
}

/// Every third item has a tag.
fn tag_of(id: u64) -> Option<u64> {
    id.is_multiple_of(3).then_some(id % 5)
}

fn put_of(store: &Store, id: u64) -> Put {
    let mut tags = NO_TAGS;
    tags[0] = tag_of(id).map(|tag| store.tag(&tag.to_le_bytes()));
    Put {
        tags,
        ..Put::set(0, Expiry::NEVER)
    }
}

/// The bytes of a version of an item; each tells which it is.
fn value(id: u64, version: u64) -> Vec<u8> {
    let len = match (id + version) % 11 {
        // The first version is short, for many items.
        _ if version == 0 => 0,
        0 => 40_000,
        1 => 3_000,
        n => n * 20,
    };
    let pattern = (id.wrapping_mul(0x9e37_79b9) ^ version.wrapping_mul(0xc2b2_ae35)).to_le_bytes();
    let mut bytes = version.to_le_bytes().to_vec();
    bytes.extend(pattern.iter().cycle().take(len as usize));
    bytes
}

/// What the next process may find.
#[derive(Default)]
struct Model {
    /// The last version of each item; `None` where it was deleted.
    settled: HashMap<u64, Option<u64>>,
    /// The item of the operation under way, and what it will be.
    under_way: Option<(u64, Option<u64>)>,
    /// A flush is under way: every item may be gone.
    flush: bool,
    /// A tag is being invalidated: each of its items may be gone.
    invalidates: Option<u64>,
    /// There may be items that a flush has killed.
    has_flushed: bool,
    /// Items may be evicted.
    evicts: bool,
}

impl Model {
    /// Whether an item may be there as `found`.
    fn allows(&self, id: u64, found: Option<u64>) -> bool {
        let settled = self.settled.get(&id).copied().flatten();
        let will_be = self.under_way.filter(|(of, _)| *of == id).map(|(_, to)| to);
        let is_of_tag = self.invalidates.is_some() && self.invalidates == tag_of(id);
        let may_be_gone = self.evicts || self.flush || is_of_tag;
        found == settled || Some(found) == will_be || found.is_none() && may_be_gone
    }
}

fn config(file: &Path, evict: bool) -> Config {
    config_of(file, evict, MEMORY)
}

fn config_of(file: &Path, evict: bool, memory: usize) -> Config {
    Config {
        memory,
        workers: 2,
        item_size_max: 256 << 10,
        // One sub-table, so that there are splits.
        index_bits: Some(0),
        evict,
        file: Some(file.to_owned()),
        ..Config::default()
    }
}

/// What the watcher needs at each step.
struct Killer {
    files: Files,
    model: Rc<RefCell<Model>>,
    /// Kills one time in so many steps; 0 for never.
    one_in: Rc<Cell<u64>>,
    random: Random,
    /// Ids that are looked at.
    ids: u64,
    kills: Rc<Cell<u64>>,
    mended: Rc<Cell<u64>>,
    buffer: Vec<u8>,
}

/// What a test and its killer share.
struct Shared {
    model: Rc<RefCell<Model>>,
    one_in: Rc<Cell<u64>>,
    kills: Rc<Cell<u64>>,
    mended: Rc<Cell<u64>>,
}

impl Killer {
    /// A store in files of its own, and its killer, which does not kill yet.
    fn with_store(name: &str, evicts: bool, ids: u64, seed: u64) -> (Arc<Store>, Killer, Shared) {
        let files = Files::new(name);
        let store = Store::new(config(&files.live, evicts), NOW).unwrap();
        let shared = Shared {
            model: Rc::new(RefCell::new(Model {
                evicts,
                ..Model::default()
            })),
            one_in: Rc::default(),
            kills: Rc::default(),
            mended: Rc::default(),
        };
        let killer = Killer {
            files,
            model: Rc::clone(&shared.model),
            one_in: Rc::clone(&shared.one_in),
            random: Random(seed),
            ids,
            kills: Rc::clone(&shared.kills),
            mended: Rc::clone(&shared.mended),
            buffer: Vec::new(),
        };
        (store, killer, shared)
    }

    fn step(&mut self) {
        let one_in = self.one_in.get();
        if one_in == 0 || self.random.below(one_in) != 0 {
            return;
        }
        self.kills.set(self.kills.get() + 1);
        self.copy();
        let evicts = self.model.borrow().evicts;
        let store = Store::new(config(&self.files.copy, evicts), NOW).unwrap();
        let Start::Warm(warm) = store.start() else {
            panic!("{:?}", store.start());
        };
        assert!(warm.was_killed);
        self.mended.set(self.mended.get() + warm.mended);
        self.check(&store, warm.items);
        if self.kills.get().is_multiple_of(16) {
            drop(store);
            // What is written then is more than has room, where there are many items.
            let evicts = evicts || self.ids > 1000;
            self.live_on(&Store::new(config(&self.files.copy, evicts), NOW).unwrap());
        }
    }

    /// What a kill at this moment leaves.
    fn copy(&mut self) {
        self.files.copy(&mut self.buffer);
    }

    fn check(&self, store: &Arc<Store>, items: u64) {
        let model = self.model.borrow();
        let mut worker = store.worker(0);
        let mut there = 0;
        for id in 0..self.ids {
            let found = version_of(&mut worker, id);
            assert!(
                model.allows(id, found),
                "kill {}: {id} is {found:?}, not {:?} or {:?}",
                self.kills.get(),
                model.settled.get(&id),
                model.under_way
            );
            there += u64::from(found.is_some());
        }
        // No slot more than there are items: none that is in two places, or where nobody looks for it.
        if !model.evicts && !model.has_flushed {
            assert_eq!(items, there, "kill {}", self.kills.get());
        }
    }

    /// The store is used until each segment has been cleaned: whatever is wrong in it shows.
    fn live_on(&self, store: &Arc<Store>) {
        let evicts = store.evicts();
        let mut workers = [store.worker(0), store.worker(1)];
        let mut written = HashMap::new();
        let mut refused = 0;
        for n in 0..(MEMORY / 1000) as u64 {
            let id = n % self.ids;
            let version = 1_000_000 + n;
            let worker = &mut workers[(n % 2) as usize];
            match try_set(worker, id, version) {
                true => _ = written.insert(id, version),
                false => refused += 1,
            }
            worker.end(NOW);
        }
        assert!(refused * 10 < MEMORY / 1000, "{refused} were refused");
        let model = self.model.borrow();
        for id in 0..self.ids {
            let found = version_of(&mut workers[0], id);
            match written.get(&id) {
                Some(version) if found == Some(*version) => {}
                Some(_) => assert!(evicts && found.is_none(), "{id}: {found:?}"),
                None => assert!(evicts && found.is_none() || model.allows(id, found)),
            }
        }
    }
}

/// The version of an item, after checking each byte of it.
fn version_of(worker: &mut Worker, id: u64) -> Option<u64> {
    let burst = worker.burst(NOW);
    let name = key(id);
    let item = burst.get(&burst.key(&name), Access::default()).ok()?;
    let bytes = value_of(&item);
    let version = u64::from_le_bytes(bytes[..8].try_into().unwrap());
    assert!(bytes == value(id, version), "a wrong value of {id}");
    Some(version)
}

fn try_set(worker: &mut Worker, id: u64, version: u64) -> bool {
    let put = put_of(worker.store(), id);
    for _ in 0..1000 {
        let mut burst = worker.burst(NOW);
        let name = key(id);
        let key = burst.key(&name);
        let stored = burst.store(&key, &put, &value(id, version));
        burst.close();
        match stored {
            Stored::Stored { .. } => return true,
            Stored::Refused(Refused::Wait) => _ = worker.end(NOW),
            other => panic!("{other:?}"),
        }
    }
    false
}

struct Driver {
    workers: [Worker; 2],
    model: Rc<RefCell<Model>>,
    random: Random,
    ids: u64,
    version: u64,
    upload: Option<(Upload, u64, u64)>,
}

impl Driver {
    /// One operation on an item, told to the model before and after.
    fn operation(&mut self) {
        let id = self.random.below(self.ids);
        let at = self.random.below(2) as usize;
        self.version += 1;
        let version = self.version;
        match self.random.below(20) {
            0..9 => {
                self.model.borrow_mut().under_way = Some((id, Some(version)));
                if try_set(&mut self.workers[at], id, version) {
                    self.settle(id, Some(version));
                }
            }
            9..12 => {
                self.model.borrow_mut().under_way = Some((id, None));
                let mut burst = self.workers[at].burst(NOW);
                let name = key(id);
                let key = burst.key(&name);
                burst.delete(&key, &Delete::default());
                burst.close();
                self.settle(id, None);
            }
            12..14 => {
                // Written anew, and the same: with room for a second, or for milliseconds.
                let millis = u64::from(NOW.0 + 1000) * 1000 + version % 2;
                let mut burst = self.workers[at].burst(NOW);
                let name = key(id);
                let key = burst.key(&name);
                let _ = burst.touch(&key, Expiry::at_millis(millis), Access::default());
            }
            14 => {
                let mut burst = self.workers[at].burst(NOW);
                let name = key(id);
                let key = burst.key(&name);
                let delete = Delete {
                    mark_stale: true,
                    ..Delete::default()
                };
                burst.delete(&key, &delete);
            }
            15 | 16 => self.go_on_with_upload(at, id, version),
            17 if self.random.below(10) == 0 => {
                self.model.borrow_mut().flush = true;
                self.model.borrow_mut().has_flushed = true;
                self.workers[at].burst(NOW).flush_all(None);
                let mut model = self.model.borrow_mut();
                model.settled.clear();
                model.flush = false;
            }
            18 if self.random.below(4) == 0 => self.invalidate(at),
            _ => _ = self.workers[at].end(NOW),
        }
        self.model.borrow_mut().under_way = None;
    }

    /// Makes a tag's items gone, and finds all of them.
    fn invalidate(&mut self, at: usize) {
        let tag = self.random.below(5);
        let has_flushed = {
            let mut model = self.model.borrow_mut();
            model.invalidates = Some(tag);
            std::mem::replace(&mut model.has_flushed, true)
        };
        let worker = &mut self.workers[at];
        let of_store = worker.store().tag(&tag.to_le_bytes());
        worker.burst(NOW).invalidate(of_store, Invalidation::Gone);
        let ids = (0..self.ids).filter(|&id| tag_of(id) == Some(tag));
        for id in ids.clone() {
            self.model.borrow_mut().settled.insert(id, None);
        }
        self.model.borrow_mut().invalidates = None;
        for id in ids {
            assert_eq!(version_of(worker, id), None, "{id}");
        }
        self.model.borrow_mut().has_flushed = has_flushed;
    }

    fn settle(&self, id: u64, to: Option<u64>) {
        let mut model = self.model.borrow_mut();
        model.settled.insert(id, to);
        model.under_way = None;
    }

    /// A value that comes in two parts, with other operations between them.
    fn go_on_with_upload(&mut self, at: usize, id: u64, version: u64) {
        let worker = &mut self.workers[at];
        let Some((mut upload, id, version)) = self.upload.take() else {
            let store = Arc::clone(worker.store());
            let mut burst = worker.burst(NOW);
            let name = key(id);
            let put = put_of(&store, id);
            let begun = burst.begin_upload(&burst.key(&name), &put, value(id, version).len());
            self.upload = begun.ok().map(|upload| (upload, id, version));
            return;
        };
        self.model.borrow_mut().under_way = Some((id, Some(version)));
        let bytes = value(id, version);
        let mut burst = worker.burst(NOW);
        while upload.remaining() > 0 {
            let from = bytes.len() - upload.remaining();
            let Ok(space) = burst.upload_space(&mut upload) else {
                return;
            };
            let n = space.len().min(bytes.len() - from);
            space[..n].copy_from_slice(&bytes[from..from + n]);
            upload.advance(n);
        }
        let stored = burst.finish_upload(upload).is_ok();
        burst.close();
        if stored {
            self.settle(id, Some(version));
        }
    }
}

/// Drives a store of `ids` items for `operations`, and kills it before one store in `one_in`, after `calm`
/// operations without. Returns the kills and what the next processes had to mend.
fn drive(
    name: &str,
    evicts: bool,
    ids: u64,
    calm: u32,
    operations: u32,
    one_in: u64,
) -> (u64, u64) {
    let (store, mut killer, shared) = Killer::with_store(name, evicts, ids, 7);
    let Shared {
        model,
        one_in: chance,
        kills,
        mended,
    } = shared;
    kill_points::watch(Some(Box::new(move || killer.step())));
    let mut driver = Driver {
        workers: [store.worker(0), store.worker(1)],
        model,
        random: Random(1),
        ids,
        version: 0,
        upload: None,
    };
    for n in 0..calm + operations {
        if n == calm {
            chance.set(one_in);
        }
        driver.operation();
    }
    kill_points::watch(None);
    (kills.get(), mended.get())
}

/// Every store of some operations.
#[test]
fn at_every_step() {
    let (kills, mended) = drive("steps", false, 40, 200, 140, 1);
    assert!(kills >= 1000 && mended > 0, "{kills} {mended}");
}

/// While segments are emptied to make room, and items go.
#[test]
fn while_items_are_evicted() {
    let (kills, mended) = drive("evict", true, 3000, 12_000, 3_000, 130);
    assert!(kills >= 200 && mended > 0, "{kills} {mended}");
}

/// While sub-tables split, and slots are displaced.
#[test]
fn while_the_index_grows() {
    let ids = 30_000;
    let (store, mut killer, shared) = Killer::with_store("grow", false, 0, 11);
    let Shared {
        model,
        one_in: chance,
        kills,
        mended,
    } = shared;
    let stored = Rc::new(Cell::new(0));
    let seen = Rc::clone(&stored);
    kill_points::watch(Some(Box::new(move || {
        killer.ids = seen.get() + 1;
        killer.step();
    })));
    let mut worker = store.worker(0);
    let mut other = store.worker(1);
    let (mut splits_seen, mut split_at) = (0, 0);
    for id in 0..ids {
        // Near the fill at which a sub-table splits, and through the split.
        let splits = store.stats().totals.splits;
        if splits > splits_seen {
            (splits_seen, split_at) = (splits, id);
        }
        chance.set(match id % 6_700 {
            _ if id < split_at + 12 => 250,
            6_300.. => 1_000,
            _ => 0,
        });
        let worker = if id % 3 == 0 { &mut other } else { &mut worker };
        model.borrow_mut().under_way = Some((id, Some(0)));
        let mut burst = worker.burst(NOW);
        let name = key(id);
        let key = burst.key(&name);
        let put = Put::set(0, Expiry::NEVER);
        let outcome = burst.store(&key, &put, &value(id, 0));
        assert!(matches!(outcome, Stored::Stored { .. }), "{outcome:?}");
        burst.close();
        model.borrow_mut().settled.insert(id, Some(0));
        model.borrow_mut().under_way = None;
        stored.set(id + 1);
        worker.end(NOW);
    }
    kill_points::watch(None);
    let totals = store.stats().totals;
    assert!(totals.splits >= 3 && totals.displacements > 100);
    let (kills, mended) = (kills.get(), mended.get());
    assert!(kills >= 100 && mended > kills, "{kills} {mended}");
}

/// While sub-tables merge, and items come and go.
#[test]
fn while_the_index_shrinks() {
    let ids = 30_000;
    let (store, mut killer, shared) = Killer::with_store("shrink", false, ids, 13);
    let Shared {
        model,
        one_in: chance,
        kills,
        mended,
    } = shared;
    kill_points::watch(Some(Box::new(move || killer.step())));
    let mut worker = store.worker(0);
    let mut random = Random(5);
    for id in 0..ids {
        assert!(try_set(&mut worker, id, 0));
        worker.end(NOW);
    }
    // One in forty stays: then all sub-tables merge into one.
    for id in 0..ids {
        let settled = (id % 40 == 0).then_some(0);
        if settled.is_none() {
            let mut burst = worker.burst(NOW);
            let name = key(id);
            burst.delete(&burst.key(&name), &Delete::default());
            burst.close();
        }
        model.borrow_mut().settled.insert(id, settled);
        if id % 100 == 0 {
            worker.end(NOW);
        }
    }
    let before = store.stats();
    assert!(before.tables >= 4 && before.totals.merges == 0);
    chance.set(60);
    let mut now = NOW;
    for turn in 0..200 {
        now = UnixSeconds(NOW.0 + 1 + turn);
        if store.stats().tables == 1 {
            break;
        }
        // Some items come and go between the parts of a merge.
        for _ in 0..2 {
            let id = random.below(ids);
            let to = (random.below(2) == 0).then_some(0);
            model.borrow_mut().under_way = Some((id, to));
            if to.is_some() {
                assert!(try_set(&mut worker, id, 0));
            } else {
                let mut burst = worker.burst(NOW);
                let name = key(id);
                burst.delete(&burst.key(&name), &Delete::default());
                burst.close();
            }
            model.borrow_mut().settled.insert(id, to);
            model.borrow_mut().under_way = None;
        }
        worker.end(now);
    }
    chance.set(0);
    kill_points::watch(None);
    let after = store.stats();
    assert_eq!((after.tables, after.totals.merges), (1, before.tables - 1));
    assert!(now > NOW);
    let (kills, mended) = (kills.get(), mended.get());
    assert!(kills >= 100 && mended > kills, "{kills} {mended}");
}

/// While the first page of the table of tags is made, and while it splits: no item dies of that, and none
/// that was gone rises.
#[test]
fn while_the_table_of_tags_grows() {
    const TAGS: u64 = 2_600;
    let files = Files::new("tags");
    let config = |file: &Path| config_of(file, false, 20 << 20);
    let store = Store::new(config(&files.live), NOW).unwrap();
    let copy = files.copy.clone();
    // Whether each item must be there, or the item is under way.
    let must_be = Rc::new(RefCell::new(Vec::<Option<bool>>::new()));
    let one_in = Rc::new(Cell::new(0));
    let kills = Rc::new(Cell::new(0u64));
    let name = |id: usize| (id as u64).to_le_bytes();
    let there = move |worker: &mut Worker, id: usize| {
        let burst = worker.burst(NOW);
        burst.get(&burst.key(&name(id)), Access::default()).is_ok()
    };
    let (expected, chance, counted) = (Rc::clone(&must_be), Rc::clone(&one_in), Rc::clone(&kills));
    let (mut random, mut buffer) = (Random(3), Vec::new());
    kill_points::watch(Some(Box::new(move || {
        if chance.get() == 0 || random.below(chance.get()) != 0 {
            return;
        }
        counted.set(counted.get() + 1);
        files.copy(&mut buffer);
        let store = Store::new(config(&copy), NOW).unwrap();
        assert!(
            matches!(store.start(), Start::Warm(_)),
            "{:?}",
            store.start()
        );
        let mut worker = store.worker(0);
        for (id, expected) in expected.borrow().iter().enumerate() {
            let found = there(&mut worker, id);
            assert!(
                expected.is_none_or(|expected| expected == found),
                "{id}: {found}"
            );
        }
    })));
    let mut worker = store.worker(0);
    let set = |worker: &mut Worker, id: usize| {
        must_be.borrow_mut().push(None);
        let mut tags = NO_TAGS;
        tags[0] = Some(worker.store().tag(&name(id)));
        let put = Put {
            tags,
            ..Put::set(0, Expiry::NEVER)
        };
        let stored = support::put(worker, &name(id), &put, b"x");
        assert!(matches!(stored, Stored::Stored { .. }), "{stored:?}");
        must_be.borrow_mut()[id] = Some(true);
    };
    let ids = TAGS as usize;
    for id in 0..ids {
        // The first page is zeroed store by store.
        one_in.set(match id {
            0 => 200,
            _ => 0,
        });
        if id == ids * 3 / 4 {
            break;
        }
        set(&mut worker, id);
        if id % 10 == 9 {
            let tag = store.tag(&name(id));
            worker.burst(NOW).invalidate(tag, Invalidation::Gone);
        }
    }
    let stored = must_be.borrow().len();
    for id in 0..stored {
        let found = there(&mut worker, id);
        assert!(!found || id % 10 != 9);
        must_be.borrow_mut()[id] = Some(found);
    }
    one_in.set(300);
    for id in stored..ids {
        set(&mut worker, id);
    }
    kill_points::watch(None);
    assert_eq!(store.stats().memory_tags, 2 * store.stats().segment_len);
    assert!(kills.get() > 60, "{kills:?}");
}
