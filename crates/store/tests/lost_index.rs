//! The store while the machine loses pages of the index in the middle of splits and merges: a value is
//! right or missing, what was deleted stays so, and the index grows and shrinks as ever.
//!
//! Pages are lost by `UFFDIO_POISON`. A kernel that cannot do that leaves the test out, and it says
//! so.
#![cfg(not(any(miri, loom)))]
#![allow(clippy::cast_possible_truncation, reason = "small numbers")]

use coua_memory_errors::install_thread;
use coua_store::*;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};

#[path = "support/losses.rs"]
mod losses;
use losses::{NOW, beside_mender, events, get, is_possible, random, value};

const WORKERS: u64 = 2;
const KEYS: u64 = 60_000;
/// Slots of a 4 KiB page.
const SLOTS: u64 = 64 * 7;

/// A worker, its keys, and what they hold.
struct User<'u> {
    worker: Worker,
    own: u64,
    seed: u64,
    map: HashMap<u64, Vec<u8>>,
    missing: u64,
    poisoned: u64,
    /// Splits so far, and pages lost right after one, in this round.
    splits: u64,
    in_splits: u32,
    /// Seconds that have passed, for the thread that looks after the index now and then.
    clock: &'u AtomicU32,
}

impl User<'_> {
    fn now(&self) -> UnixSeconds {
        UnixSeconds(NOW.0 + self.clock.load(SeqCst))
    }

    fn name(&self, number: u64) -> String {
        format!("{}-{number}", self.own)
    }

    fn store(&mut self, number: u64, step: u64) {
        let (name, value) = (self.name(number), value(number, step, 12));
        for _ in 0..10_000 {
            let now = self.now();
            let mut burst = self.worker.burst(now);
            let key = burst.key(name.as_bytes());
            let stored = burst.store(&key, &Put::set(0, Expiry::NEVER), &value);
            burst.close();
            self.worker.end(now);
            if matches!(stored, Stored::Stored { .. }) {
                self.map.insert(number, value);
                return;
            }
            // The buckets of the key are being put in order.
            assert_eq!(stored, Stored::Refused(Refused::Wait));
            self.worker.park();
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        panic!("{name} waits for ever");
    }

    fn delete(&mut self, number: u64) {
        let (name, now) = (self.name(number), self.now());
        let mut burst = self.worker.burst(now);
        let key = burst.key(name.as_bytes());
        let deleted = burst.delete(&key, &Delete::default());
        burst.close();
        self.worker.end(now);
        match (deleted, self.map.remove(&number)) {
            (Deleted::Done, None) => panic!("what was deleted was there"),
            (Deleted::Done, _) | (_, None) => {}
            (_, Some(_)) => self.missing += 1,
        }
    }

    fn read(&mut self, number: u64) {
        let name = self.name(number);
        let found = get(&mut self.worker, name.as_bytes());
        match (found, self.map.get(&number)) {
            (Some(found), Some(right)) => assert!(found == *right, "a wrong value"),
            (Some(_), None) => panic!("what is not there was found"),
            (None, Some(_)) => {
                self.missing += 1;
                self.map.remove(&number);
            }
            (None, None) => {}
        }
    }

    fn poison(&mut self, number: u64) {
        static ONE: Mutex<()> = Mutex::new(());
        let name = self.name(number);
        let burst = self.worker.burst(NOW);
        let key = burst.key(name.as_bytes());
        let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
        let lost = burst.poison(&key, PoisonTarget::Index, PoisonMeans::Userfault);
        self.poisoned += u64::from(lost.expect("it was possible before").is_some());
    }

    /// Goes through the life of an index: it grows by splits, becomes nearly empty, and merges.
    fn live(&mut self) {
        for round in 0..3 {
            for step in 0..KEYS {
                let number = random(&mut self.seed, KEYS);
                self.store(number, step);
                if step % 7 == 0 {
                    let number = random(&mut self.seed, KEYS);
                    self.read(number);
                }
                // A split has begun: its buckets are not filled yet.
                let splits = self.worker.store().stats().totals.splits;
                if splits > self.splits && self.in_splits < 12 {
                    self.in_splits += 1;
                    self.poison(number);
                }
                self.splits = splits;
            }
            for number in 0..KEYS {
                if number % 64 != round {
                    self.delete(number);
                }
            }
            self.in_splits = 0;
            for turn in 0..20_000 {
                let number = random(&mut self.seed, KEYS);
                match random(&mut self.seed, 4) {
                    0 => self.store(number / 64 * 64 + round, turn),
                    1 => self.delete(number),
                    _ => self.read(number),
                }
                if turn % 64 == 0 {
                    self.clock.fetch_add(1, SeqCst);
                }
                // Pairs merge one after the other.
                if turn % 40 == 0 && turn < 4000 {
                    self.poison(number / 64 * 64 + round);
                }
            }
        }
        for number in 0..KEYS {
            self.read(number);
        }
        self.worker.park();
    }
}

#[test]
fn splits_and_merges_go_on_though_pages_of_them_are_lost() {
    let _stack = install_thread().expect("there is memory");
    let mut events = events();
    let config = || Config {
        memory: 64 << 20,
        workers: WORKERS as usize,
        survives_memory_errors: true,
        seed: Some(4),
        index_bits: Some(0),
        ..Config::default()
    };
    let store = Store::new(config(), NOW).expect("there is memory");
    if !is_possible(
        &mut Store::new(config(), NOW)
            .expect("there is memory")
            .worker(0),
    ) {
        #[expect(clippy::print_stderr, reason = "what is left out is told")]
        {
            eprintln!("left out: this kernel has no UFFDIO_POISON");
        }
        return;
    }
    let clock = AtomicU32::new(0);
    beside_mender(&store, &mut events, |told| {
        let users: Vec<User<'_>> = std::thread::scope(|scope| {
            let lives: Vec<_> = (0..WORKERS)
                .map(|own| {
                    let (store, clock): (&Arc<Store>, _) = (&store, &clock);
                    scope.spawn(move || {
                        let _stack = install_thread().expect("there is memory");
                        let mut user = User {
                            worker: store.worker(own as usize),
                            own,
                            seed: own + 1,
                            map: HashMap::new(),
                            missing: 0,
                            poisoned: 0,
                            splits: 0,
                            in_splits: 0,
                            clock,
                        };
                        user.live();
                        user
                    })
                })
                .collect();
            lives
                .into_iter()
                .map(|life| life.join().expect("a user"))
                .collect()
        });
        let missing: u64 = users.iter().map(|user| user.missing).sum();
        let poisoned: u64 = users.iter().map(|user| user.poisoned).sum();
        assert!(poisoned > 50 && told.index.load(SeqCst) > 20, "{poisoned}");
        assert!(
            missing > 0 && missing <= poisoned * SLOTS,
            "{missing} of {poisoned}"
        );
        drop(users);
    });
    let totals = store.stats().totals;
    assert!(totals.splits > 6 && totals.merges > 3, "{totals:?}");
    assert_eq!(totals.evicted, 0);
    // What the index holds is what can be found.
    let mut worker = store.worker(0);
    let mut shown = 0;
    let mut position = Some(ScanPosition::START);
    while let Some(at) = position {
        let burst = worker.burst(NOW);
        position = burst.scan(at, 256, &mut |item| {
            let name = item.key();
            assert!(burst.get(&burst.key(name), Access::default()).is_ok());
            shown += 1;
        });
    }
    assert!(shown > 500, "{shown}");
}
