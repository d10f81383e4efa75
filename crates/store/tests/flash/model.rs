//! Random operations against a plain map, while devices lose, tear, misdirect and fail: an item may be missing, and is
//! missing from then on; it is never another one's, never an older one, and what was deleted stays deleted.

use crate::rig::*;
use coua_flash::simulated::{Faults, Timing};
use coua_store::*;
use std::collections::HashMap;

/// More than memory has room for.
pub(crate) const KEYS: u64 = 12_000;

/// Of these, some are used all the time.
const HOT: u64 = 200;

#[derive(Clone, Debug)]
struct Expected {
    value: Vec<u8>,
    flags: u32,
    /// Milliseconds; 0 for never.
    expiry: u64,
    /// What a client was shown; 0 if none.
    cas: u64,
    has_tag: bool,
}

/// Numbers from a seed.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}

pub(crate) struct World {
    pub(crate) rig: Rig,
    items: HashMap<u64, Expected>,
    random: Random,
    version: u64,
    /// How often an item was missing.
    pub(crate) lost: u64,
    pub(crate) found: u64,
}

/// The number that a value begins with, as `incr` takes it.
fn number_of(value: &[u8]) -> Option<u64> {
    let text = value.split(|&byte| byte == b' ').next()?;
    std::str::from_utf8(text).ok()?.parse().ok()
}

fn at(expiry: u64) -> Expiry {
    match expiry {
        0 => Expiry::NEVER,
        expiry if expiry.is_multiple_of(1000) => {
            Expiry::at(UnixSeconds(u32::try_from(expiry / 1000).unwrap()))
        }
        expiry => Expiry::at_millis(expiry),
    }
}

impl World {
    pub(crate) fn new(rig: Rig, seed: u64) -> World {
        World {
            rig,
            items: HashMap::new(),
            random: Random(seed | 1),
            version: 0,
            lost: 0,
            found: 0,
        }
    }

    fn expire(&mut self) {
        let now = self.rig.now;
        self.items
            .retain(|_, item| item.expiry == 0 || item.expiry > now);
    }

    /// The item is there: what it must be.
    fn there(&mut self, id: u64, what: &str) -> &mut Expected {
        self.found += 1;
        let item = self.items.get_mut(&id);
        item.unwrap_or_else(|| panic!("{what} found {id}, which is not there"))
    }

    /// The item is not there, and is not to come back.
    fn gone(&mut self, id: u64) {
        self.lost += u64::from(self.items.remove(&id).is_some());
    }

    fn fresh(&mut self, id: u64) -> Expected {
        self.version += 1;
        let mut value = if self.version.is_multiple_of(7) {
            // Long enough to go to flash as it is.
            format!("{:<70}", self.version)
        } else {
            format!("{id}.{}:", self.version)
        }
        .into_bytes();
        let len = match self.random.below(40) {
            0 => [17_000, 40_000, 150_000][usize::try_from(self.random.below(3)).unwrap()],
            1..4 => 0,
            _ => self.random.below(4000),
        };
        if !self.version.is_multiple_of(7) {
            let fill = b'a' + u8::try_from(self.version % 26).unwrap();
            value.resize(value.len().max(usize::try_from(len).unwrap()), fill);
        }
        let expiry = match self.random.below(10) {
            0 => self.rig.now + 5000 + self.random.below(100_000),
            1 => (self.rig.now / 1000 + 5 + self.random.below(100)) * 1000,
            _ => 0,
        };
        Expected {
            value,
            flags: u32::try_from(self.random.below(3)).unwrap(),
            expiry,
            cas: 0,
            has_tag: self.random.below(20) == 0,
        }
    }

    fn request(&self, mode: Mode, item: &Expected) -> Put {
        let mut tags = NO_TAGS;
        if item.has_tag {
            tags[0] = Some(self.rig.store.tag(b"tag"));
        }
        Put {
            mode,
            tags,
            ..Put::set(item.flags, at(item.expiry))
        }
    }

    pub(crate) fn check(&mut self, id: u64) {
        let shows_cas = self.random.below(4) == 0;
        let access = Access {
            bump: self.random.below(4) > 0,
            cas: shows_cas,
        };
        let name = id.to_string().into_bytes();
        let got = self.rig.get_value(&name, access, |item, value| {
            assert_eq!(item.key(), &name);
            (value, item.client_flags(), item.expiry(), item.cas())
        });
        let Ok((value, flags, expiry, cas)) = got else {
            return self.gone(id);
        };
        let item = self.there(id, "get");
        assert!(
            value == item.value,
            "{id}: {:?} and not {:?}",
            String::from_utf8_lossy(&value[..value.len().min(20)]),
            String::from_utf8_lossy(&item.value[..item.value.len().min(20)])
        );
        assert_eq!((flags, expiry), (item.flags, at(item.expiry)), "{id}");
        if shows_cas {
            assert!(item.cas == 0 || item.cas == cas, "the CAS of {id} changed");
            item.cas = cas;
        }
    }

    fn put(&mut self, id: u64, mode: Mode) {
        let (fresh, name) = (self.fresh(id), id.to_string());
        let mut put = self.request(mode, &fresh);
        if mode == Mode::Cas {
            self.check(id);
            let known = self.items.get(&id).map_or(77, |item| item.cas.max(1));
            put.compare = known;
        }
        let stored = self.rig.put(name.as_bytes(), &put, &fresh.value);
        match (mode, stored) {
            (_, Stored::Stored { .. }) => match mode {
                Mode::Set | Mode::Add => {
                    self.items.insert(id, fresh);
                }
                Mode::Replace => *self.there(id, "replace") = fresh,
                Mode::Cas => {
                    let item = self.there(id, "cas");
                    assert_eq!(item.cas, put.compare);
                    *item = fresh;
                }
                Mode::Append => {
                    let item = self.there(id, "append");
                    item.value.extend_from_slice(&fresh.value);
                    item.cas = 0;
                }
                _ => match self.items.get_mut(&id) {
                    Some(item) => {
                        // It may have been lost, which only the whole item tells.
                        item.value = [&fresh.value[..], &item.value].concat();
                        item.cas = 0;
                        let unseen = Access::default();
                        let got = self.rig.get_value(name.as_bytes(), unseen, |item, value| {
                            (value, item.client_flags(), item.expiry())
                        });
                        if got != Ok((item.value.clone(), item.flags, at(item.expiry))) {
                            self.items.insert(id, fresh);
                        }
                    }
                    None => _ = self.items.insert(id, fresh),
                },
            },
            (Mode::Add, Stored::NotStored) => _ = self.there(id, "add"),
            (Mode::Cas, Stored::Exists) => {
                let item = self.there(id, "cas");
                assert_ne!(item.cas, put.compare, "the CAS of {id} changed");
            }
            (Mode::Replace | Mode::Append, Stored::NotStored) | (Mode::Cas, Stored::NotFound) => {
                self.gone(id);
            }
            (mode, stored) => panic!("{mode:?} of {id}: {stored:?}"),
        }
    }

    fn count(&mut self, id: u64) {
        let request = Arithmetic {
            delta: 5,
            decrement: false,
            compare: 0,
            cas: None,
            return_cas: false,
            vivify: None,
            tags: NO_TAGS,
            touch: None,
        };
        let name = id.to_string();
        let counted = self.rig.run(name.as_bytes(), |burst, key| {
            match burst.arithmetic(key, &request) {
                ArithmeticResult::NotFound(Miss::OnFlash(place)) => Err(Again::OnFlash(place)),
                ArithmeticResult::Refused(Refused::Wait) => Err(Again::Wait),
                counted => Ok(counted),
            }
        });
        match counted {
            ArithmeticResult::NotFound(_) => self.gone(id),
            ArithmeticResult::NotNumeric => {
                let value = &self.there(id, "incr").value;
                // A large value, which lies in pieces, is never a number.
                assert!(value.len() > 16_000 || number_of(value).is_none());
            }
            ArithmeticResult::Value { number, .. } => {
                let item = self.there(id, "incr");
                let text = String::from_utf8_lossy(&item.value);
                assert_eq!(
                    number_of(&item.value),
                    Some(number - 5),
                    "{id}: {text:.100}"
                );
                // In place, and padded with spaces.
                let len = item.value.len();
                item.value = number.to_string().into_bytes();
                item.value.resize(len.max(item.value.len()), b' ');
                item.cas = 0;
            }
            other => panic!("{other:?}"),
        }
    }

    fn touch(&mut self, id: u64) {
        let (until, name) = (self.fresh(id).expiry, id.to_string());
        let found = self.rig.run(name.as_bytes(), |burst, key| {
            match burst.touch(key, at(until), Access::default()) {
                Ok(_) => Ok(true),
                Err(Untouched::Miss(Miss::OnFlash(place))) => Err(Again::OnFlash(place)),
                Err(Untouched::Refused(Refused::Wait)) => Err(Again::Wait),
                Err(_) => Ok(false),
            }
        });
        match found {
            true => self.there(id, "touch").expiry = until,
            false => self.gone(id),
        }
    }

    fn vivify(&mut self, id: u64) {
        let get = MetaGet {
            access: Access::default(),
            vivify: Some(Expiry::NEVER),
            vivify_cas: None,
            tags: NO_TAGS,
            recache: None,
            touch: None,
            touch_first: false,
        };
        let name = id.to_string();
        let created = self.rig.run(name.as_bytes(), |burst, key| {
            match burst.meta_get(key, &get) {
                Ok(hit) => Ok(hit.created),
                Err(MetaMiss::Miss(Miss::OnFlash(place))) => Err(Again::OnFlash(place)),
                Err(_) => Err(Again::Wait),
            }
        });
        if !created {
            self.there(id, "mg");
            return;
        }
        let empty = Expected {
            value: Vec::new(),
            flags: 0,
            expiry: 0,
            cas: 0,
            has_tag: false,
        };
        self.items.insert(id, empty);
    }

    fn delete(&mut self, id: u64) {
        let name = id.to_string();
        let deleted = self.rig.delete(name.as_bytes());
        assert!(matches!(deleted, Deleted::Done | Deleted::NotFound(_)));
        self.items.remove(&id);
    }

    /// A step that is done now and then.
    fn rare(&mut self) {
        let now = self.rig.time();
        match self.random.below(6) {
            0 => {
                self.rig.worker.burst(now).flush_all(None);
                self.items.clear();
            }
            1..3 => {
                let tag = self.rig.store.tag(b"tag");
                let mut burst = self.rig.worker.burst(now);
                burst.invalidate(tag, Invalidation::Gone);
                self.items.retain(|_, item| !item.has_tag);
            }
            3 => self.rig.settle(),
            _ => self.rig.now += 1 + self.random.below(20_000),
        }
        self.expire();
    }

    pub(crate) fn step(&mut self) {
        let id = match self.random.below(3) {
            0 => self.random.below(HOT),
            _ => self.random.below(KEYS),
        };
        match self.random.below(40) {
            0..14 => self.check(id),
            14..26 => self.put(id, Mode::Set),
            26 | 27 => self.put(id, Mode::Add),
            28 => self.put(id, Mode::Replace),
            29 => self.put(id, Mode::Append),
            30 => self.put(id, Mode::PrependOrSet),
            31 | 32 => self.put(id, Mode::Cas),
            33 | 34 => self.count(id),
            35 => self.touch(id),
            36 => self.vivify(id),
            37 | 38 => self.delete(id),
            _ if self.random.below(150) == 0 => self.rare(),
            _ => self.rig.turn(),
        }
    }

    pub(crate) fn fill(&mut self) {
        (0..KEYS).for_each(|id| self.put(id, Mode::Set));
    }

    /// The same expectations of another process.
    pub(crate) fn over(self, next: impl FnOnce(Rig) -> Rig) -> World {
        World {
            rig: next(self.rig),
            ..self
        }
    }

    pub(crate) fn check_all(&mut self) {
        for id in 0..KEYS {
            self.check(id);
        }
    }
}

fn world(seed: u64, mib: &[usize]) -> World {
    let rig = Rig::new(Devices::new(mib, seed));
    let mut world = World::new(rig, seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    world.fill();
    world
}

#[test]
fn without_faults_nothing_is_wrong_and_little_is_lost() {
    for seed in 1..4 {
        let mut world = world(seed, &[120, 90]);
        (0..40_000).for_each(|_| world.step());
        world.check_all();
        let stats = world.rig.stats();
        assert!(
            stats.written > 3_000 && stats.brought_back > 300,
            "{stats:?}"
        );
        // What is too short or too long for flash is evicted; a plain set or delete may drop another key's slot.
        let evicted = world.rig.store.stats().totals.evicted;
        assert!(
            world.lost < evicted + 30,
            "{} {evicted} {stats:?}",
            world.lost
        );
        assert_eq!(stats.damaged + stats.failed + stats.segments_lost, 0);
    }
}

#[test]
fn a_small_volume_drops_and_is_never_wrong() {
    for seed in 11..14 {
        let mut world = world(seed, &[8]);
        (0..40_000).for_each(|_| world.step());
        world.check_all();
        let stats = world.rig.stats();
        assert!(stats.dropped > 1_000, "{stats:?}");
    }
}

#[test]
fn faults_are_misses_and_never_wrong() {
    for seed in 21..25 {
        let mut world = world(seed, &[12, 9]);
        let all = [0.01, 0.05];
        for (round, rate) in all.into_iter().cycle().take(4).enumerate() {
            let faults = Faults {
                read_errors: rate,
                misdirected_reads: rate,
                write_errors: rate,
                lost_writes: rate,
                torn_writes: rate,
                misdirected_writes: rate,
                timeouts: rate / 10.0,
                ..Faults::default()
            };
            for device in &world.rig.devices.devices {
                device.set_faults(if round == 2 {
                    Faults::default()
                } else {
                    faults
                });
                device.set_timing(Timing {
                    write_ns: 15_000 << (round * 3),
                    ..Timing::default()
                });
            }
            (0..8_000).for_each(|_| world.step());
        }
        world.rig.devices.devices[0].remove();
        (0..5_000).for_each(|_| world.step());
        world.check_all();
        let stats = world.rig.stats();
        assert!(stats.damaged > 0 && stats.failed > 0, "{stats:?}");
        assert!(world.found > 5_000, "{} {stats:?}", world.found);
    }
}
