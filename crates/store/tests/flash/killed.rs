//! A process that is killed before any of its stores, and the next one with its file and devices: each item has the version
//! that its last operation gave it, or, of the one under way, the version before that; or it is missing, which is only
//! allowed as long as nothing older takes its place.

use crate::restart::Files;
use crate::rig::*;
use crate::{name, value};
use coua_store::*;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

const KEYS: usize = 10_000;

/// The version of each key; `None` where it was deleted.
type Versions = HashMap<usize, Option<usize>>;

#[derive(Default)]
struct Model {
    settled: Versions,
    under_way: Option<(usize, Option<usize>)>,
    is_flushing: bool,
}

impl Model {
    fn allows(&self, key: usize, found: Option<usize>) -> bool {
        let settled = self.settled.get(&key).copied().flatten();
        let becomes = self.under_way.filter(|(of, _)| *of == key);
        found.is_none() || found == settled || becomes.is_some_and(|(_, it)| it == found)
    }
}

/// The version of a value, after checking each byte of it.
fn version_of(key: usize, bytes: &[u8]) -> usize {
    let text = bytes.split(|&byte| byte == b':').next().unwrap();
    let text = std::str::from_utf8(text).unwrap();
    let (of, version) = text.split_once('.').unwrap();
    let version = version.parse().unwrap();
    assert_eq!(of.parse::<usize>().unwrap(), key, "another key's value");
    assert!(bytes == value(key, version), "a wrong value of {key}");
    version
}

struct Killer {
    files: Files,
    devices: Devices,
    model: Rc<RefCell<Model>>,
    now_ns: Rc<Cell<u64>>,
    /// Steps until the next kill; 0 for never.
    in_steps: Rc<Cell<u64>>,
    random: u64,
    kills: Rc<Cell<u64>>,
    hits: Rc<Cell<u64>>,
}

impl Killer {
    fn step(&mut self) {
        match self.in_steps.get() {
            0 => return,
            1 => {}
            steps => return self.in_steps.set(steps - 1),
        }
        self.random = self
            .random
            .wrapping_mul(0x5851_f42d_4c95_7f2d)
            .wrapping_add(1);
        self.in_steps.set(1 + (self.random >> 33) % 20_000);
        self.kills.set(self.kills.get() + 1);
        let live = self.files.generation();
        self.files.copy();
        let mut devices = self.devices.fork();
        devices.now_ns = self.now_ns.get();
        let mut rig = Rig::with(devices, self.files.config(), 12);
        assert!(matches!(rig.store.start(), Start::Warm(warm) if warm.was_killed));
        self.check(&mut rig);
        // It lives on: what is wrong in it shows.
        let mut newer = Versions::new();
        for n in (0..KEYS).step_by(3) {
            match n % 2 {
                0 => rig.set(&name(n), &value(n, 1_000_000)),
                _ => _ = rig.delete(&name(n)),
            }
            newer.insert(n, (n % 2 == 0).then_some(1_000_000));
        }
        rig.settle();
        for n in 0..KEYS {
            let found = rig.value(&name(n)).map(|bytes| version_of(n, &bytes));
            match newer.get(&n) {
                Some(&version) => assert!(found.is_none() || found == version, "{n}: {found:?}"),
                None => assert!(self.model.borrow().allows(n, found), "{n}: {found:?}"),
            }
        }
        self.hits.set(self.hits.get() + rig.stats().hits);
        drop(rig);
        self.files.go_back(live);
    }

    fn check(&self, rig: &mut Rig) {
        let model = self.model.borrow();
        for n in 0..KEYS {
            let found = rig.value(&name(n)).map(|bytes| version_of(n, &bytes));
            assert!(
                model.allows(n, found),
                "kill {}: {n} is {found:?}, not {:?} or {:?}",
                self.kills.get(),
                model.settled.get(&n),
                model.under_way
            );
        }
        // Nothing is in two places.
        let all = (0..KEYS).filter(|&n| rig.value(&name(n)).is_some()).count();
        if !model.is_flushing {
            assert!(rig.store.stats().items <= all as u64 + 2);
        }
    }
}

#[test]
fn at_any_moment() {
    let files = Files::new("killed");
    let devices = Devices::new(&[24], 41);
    let mut rig = Rig::with(devices, files.config(), 11);
    let model: Rc<RefCell<Model>> = Rc::default();
    let (now_ns, in_steps) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
    let (kills, hits) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
    let mut killer = Killer {
        files,
        devices: rig.devices.clone(),
        model: Rc::clone(&model),
        now_ns: Rc::clone(&now_ns),
        in_steps: Rc::clone(&in_steps),
        random: 5,
        kills: Rc::clone(&kills),
        hits: Rc::clone(&hits),
    };
    kill_points::watch(Some(Box::new(move || killer.step())));
    let mut random = 77u64;
    for version in 0..60_000 {
        if version == 12_000 {
            in_steps.set(1);
        }
        if kills.get() >= 60 {
            break;
        }
        now_ns.set(rig.devices.now_ns);
        random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(99);
        let key = usize::try_from(random >> 33).unwrap() % KEYS;
        let what = if version < 10_000 {
            0
        } else {
            (random >> 20) % 8
        };
        let key = if version < 10_000 { version } else { key };
        match what {
            0..4 => {
                model.borrow_mut().under_way = Some((key, Some(version)));
                rig.set(&name(key), &value(key, version));
                model.borrow_mut().settled.insert(key, Some(version));
            }
            4 => {
                model.borrow_mut().under_way = Some((key, None));
                rig.delete(&name(key));
                model.borrow_mut().settled.insert(key, None);
            }
            5 if random >> 40 & 1023 == 0 => {
                model.borrow_mut().is_flushing = true;
                let now = rig.time();
                rig.worker.burst(now).flush_all(None);
                model.borrow_mut().settled.clear();
            }
            5 => {
                // In memory, it is still the same.
                let until = Expiry::at(UnixSeconds(2_000_000));
                rig.run(&name(key), |burst, key| {
                    match burst.touch(key, until, Access::default()) {
                        Err(Untouched::Miss(Miss::OnFlash(place))) => Err(Again::OnFlash(place)),
                        Err(Untouched::Refused(Refused::Wait)) => Err(Again::Wait),
                        _ => Ok(()),
                    }
                });
            }
            _ => {
                let found = rig.value(&name(key)).map(|bytes| version_of(key, &bytes));
                assert!(model.borrow().allows(key, found));
                if found.is_none() {
                    model.borrow_mut().settled.remove(&key);
                }
            }
        }
        model.borrow_mut().under_way = None;
    }
    kill_points::watch(None);
    assert!(kills.get() >= 40, "{}", kills.get());
    assert!(hits.get() > 10_000, "{}", hits.get());
}
