//! The store against a map, in so little memory that it cleans and evicts all the time: what is
//! found is right; with evictions off nothing that was stored is missing.
#![no_main]

use coua_store::{
    Access, Arithmetic, ArithmeticResult, Burst, Config, Delete, Deleted, Expiry, Invalidation,
    Item, Mode, NO_TAGS, Put, Refused, Store, Stored, UnixSeconds, Untouched, Upload, Worker,
};
use libfuzzer_sys::fuzz_target;
use std::collections::HashMap;

const START: u32 = 1_000_000;

/// Lengths from nothing to several pieces in several segments.
const LENGTHS: [usize; 8] = [0, 1, 30, 600, 5_000, 16_000, 40_000, 150_000];

/// What a key's item is, where it is there.
struct Expected {
    value: Vec<u8>,
    flags: u32,
    expiry: u32,
    tag: Option<u8>,
}

/// One key after another, so that a step stores many items.
type Name = [u8; 3];

struct Run {
    items: HashMap<Name, Expected>,
    uploads: Vec<(Name, Upload, Vec<u8>, Expected)>,
    evicts: bool,
    now: u32,
}

fuzz_target!(|data: &[u8]| {
    let Some((&setup, mut steps)) = data.split_first() else {
        return;
    };
    let config = Config {
        memory: 8 << 20,
        workers: 2,
        evict: setup & 1 != 0,
        index_bits: Some(0),
        seed: Some(u64::from(setup)),
        ..Config::default()
    };
    let store = Store::new(config, UnixSeconds(START)).expect("8 MiB do for two workers");
    let mut workers = [store.worker(0), store.worker(1)];
    let mut run = Run {
        items: HashMap::new(),
        uploads: Vec::new(),
        evicts: store.evicts(),
        now: START,
    };
    while let Some((&[what, key, how], rest)) = steps.split_first_chunk() {
        steps = rest;
        let worker = &mut workers[usize::from(what >> 7)];
        run.step(worker, what & 15, key, how, what >> 4 & 7);
    }
    for worker in &mut workers {
        let names: Vec<Name> = run.items.keys().copied().collect();
        for name in names {
            run.look(worker, name);
        }
    }
});

impl Run {
    fn step(&mut self, worker: &mut Worker, what: u8, key: u8, how: u8, ends: u8) {
        let now = UnixSeconds(self.now);
        let name = [key & 63, 0, 0];
        let expiry = match how >> 5 {
            0 => Expiry::at(UnixSeconds(self.now + 3)),
            1 => Expiry::at_millis(u64::from(self.now) * 1000 + 2500),
            _ => Expiry::NEVER,
        };
        let len = LENGTHS[usize::from(how & 7)];
        match what {
            0..=2 => self.look(worker, name),
            3 | 4 => self.set(&mut worker.burst(now), name, len, expiry),
            // Many at once, to fill memory.
            5 | 6 => {
                for i in 0..how {
                    let name = [key, 1 + (how >> 6), i];
                    self.set(&mut worker.burst(now), name, len.min(5000), expiry);
                    worker.end(now);
                }
            }
            7 => {
                for i in 0..how {
                    self.delete(&mut worker.burst(now), [key, 1 + (how >> 6), i]);
                }
            }
            8 => self.delete(&mut worker.burst(now), name),
            9 => self.append(&mut worker.burst(now), name, len),
            10 => self.count(&mut worker.burst(now), name),
            11 => self.touch(&mut worker.burst(now), name, expiry),
            12 if how & 1 != 0 => {
                let tag = worker.store().tag(&[how >> 1 & 3]);
                worker.burst(now).invalidate(tag, Invalidation::Gone);
                let dead = Some(how >> 1 & 3);
                self.items.retain(|_, item| item.tag != dead);
            }
            12 => {
                worker.burst(now).flush_all(None);
                self.items.clear();
            }
            13 => self.begin_upload(&mut worker.burst(now), name, len, expiry),
            14 => self.finish_upload(&mut worker.burst(now), how),
            _ if how & 1 == 0 => self.now += u32::from(how >> 1 & 3),
            _ => worker.park(),
        }
        for _ in 0..ends {
            worker.end(now);
        }
    }

    /// Whether the key's item is found; it must be the right one.
    fn look(&mut self, worker: &mut Worker, name: Name) {
        self.forget_expired(name);
        let burst = worker.burst(UnixSeconds(self.now));
        let key = burst.key(&name);
        let found = burst.get(&key, Access::default());
        match (self.items.get(&name), found) {
            (Some(expected), Ok(item)) => expected.check(&item),
            (None, Ok(_)) => panic!("an item rose again"),
            (Some(_), Err(_)) => {
                assert!(self.evicts, "an item is lost");
                self.items.remove(&name);
            }
            (None, Err(_)) => {}
        }
    }

    fn forget_expired(&mut self, name: Name) {
        let now = self.now;
        if self
            .items
            .get(&name)
            .is_some_and(|item| item.expiry != 0 && item.expiry <= now)
        {
            self.items.remove(&name);
        }
    }

    /// A value that no other step stores.
    fn value(&self, name: Name, len: usize, flags: u32) -> Vec<u8> {
        (0..len)
            .map(|i| (i as u8).wrapping_mul(31) ^ name[0] ^ name[2] ^ flags as u8)
            .collect()
    }

    fn set(&mut self, burst: &mut Burst<'_>, name: Name, len: usize, expiry: Expiry) {
        let flags = self.now ^ (len as u32) << 8 ^ self.items.len() as u32;
        let value = self.value(name, len, flags);
        let key = burst.key(&name);
        let (tag, put) = tagged(burst, name, Put::set(flags, expiry));
        match burst.store(&key, &put, &value) {
            Stored::Stored { value_len, .. } => {
                assert_eq!(value_len, len);
                let expected = Expected::new(value, flags, expiry);
                self.items.insert(name, Expected { tag, ..expected });
            }
            Stored::Refused(Refused::Wait | Refused::OutOfMemory) => {}
            other => panic!("{other:?}"),
        }
    }

    fn delete(&mut self, burst: &mut Burst<'_>, name: Name) {
        self.forget_expired(name);
        let key = burst.key(&name);
        let is_there = self.items.remove(&name).is_some();
        match burst.delete(&key, &Delete::default()) {
            Deleted::Done => assert!(is_there, "an item rose again"),
            Deleted::NotFound(_) => assert!(!is_there || self.evicts, "an item is lost"),
            other => panic!("{other:?}"),
        }
    }

    fn append(&mut self, burst: &mut Burst<'_>, name: Name, len: usize) {
        self.forget_expired(name);
        let key = burst.key(&name);
        let more = self.value(name, len, 77);
        let put = Put {
            mode: Mode::Append,
            ..Put::set(0, Expiry::NEVER)
        };
        match (burst.store(&key, &put, &more), self.items.get_mut(&name)) {
            (Stored::Stored { value_len, .. }, Some(item)) => {
                item.value.extend_from_slice(&more);
                assert_eq!(value_len, item.value.len());
            }
            (Stored::Stored { .. }, None) => panic!("an item rose again"),
            (Stored::NotStored, Some(item)) => {
                let is_too_large = item.value.len() + len + name.len() > 1 << 20;
                assert!(is_too_large || self.evicts, "an item is lost");
                if !is_too_large {
                    self.items.remove(&name);
                }
            }
            (Stored::NotStored | Stored::Refused(Refused::Wait | Refused::OutOfMemory), _) => {}
            (other, _) => panic!("{other:?}"),
        }
    }

    fn count(&mut self, burst: &mut Burst<'_>, name: Name) {
        self.forget_expired(name);
        let key = burst.key(&name);
        let request = Arithmetic {
            delta: 1,
            decrement: false,
            compare: 0,
            cas: None,
            return_cas: false,
            vivify: Some((7, Expiry::NEVER)),
            tags: NO_TAGS,
            touch: None,
        };
        match burst.arithmetic(&key, &request) {
            ArithmeticResult::Value {
                number, created, ..
            } => {
                if created {
                    let is_there = self.items.contains_key(&name);
                    assert!(!is_there || self.evicts, "an item is lost");
                    let value = number.to_string().into_bytes();
                    self.items
                        .insert(name, Expected::new(value, 0, Expiry::NEVER));
                } else {
                    let item = self.items.get_mut(&name).expect("an item rose again");
                    let mut value = number.to_string().into_bytes();
                    value.resize(value.len().max(item.value.len()), b' ');
                    item.value = value;
                }
            }
            ArithmeticResult::NotNumeric => assert!(self.items.contains_key(&name)),
            ArithmeticResult::Refused(Refused::Wait | Refused::OutOfMemory) => {}
            other => panic!("{other:?}"),
        }
    }

    fn touch(&mut self, burst: &mut Burst<'_>, name: Name, expiry: Expiry) {
        self.forget_expired(name);
        let key = burst.key(&name);
        match (
            burst.touch(&key, expiry, Access::default()),
            self.items.get_mut(&name),
        ) {
            (Ok(item), Some(expected)) => {
                expected.expiry = expiry.second().map_or(0, |at| at.0);
                expected.check(&item);
            }
            (Ok(_), None) => panic!("an item rose again"),
            (Err(Untouched::Miss(_)), Some(_)) => {
                assert!(self.evicts, "an item is lost");
                self.items.remove(&name);
            }
            // It stays as it was.
            (Err(Untouched::Refused(Refused::Wait | Refused::OutOfMemory)), _) => {}
            (Err(_), _) => {}
        }
    }

    fn begin_upload(&mut self, burst: &mut Burst<'_>, name: Name, len: usize, expiry: Expiry) {
        let flags = self.now ^ 0xffff;
        let key = burst.key(&name);
        let (tag, put) = tagged(burst, name, Put::set(flags, expiry));
        match burst.begin_upload(&key, &put, len) {
            Ok(upload) if self.uploads.len() < 8 => {
                let value = self.value(name, len, flags);
                let expected = Expected::new(value.clone(), flags, expiry);
                let expected = Expected { tag, ..expected };
                self.uploads.push((name, upload, value, expected));
            }
            Ok(_) | Err(Refused::Wait | Refused::OutOfMemory) => {}
            Err(other) => panic!("{other:?}"),
        }
    }

    /// Goes on with an upload, ends it, or gives it up.
    fn finish_upload(&mut self, burst: &mut Burst<'_>, how: u8) {
        if self.uploads.is_empty() {
            return;
        }
        let at = usize::from(how >> 3) % self.uploads.len();
        let (name, mut upload, value, expected) = self.uploads.swap_remove(at);
        let mut parts = how & 7;
        while upload.remaining() > 0 && parts > 0 {
            parts -= 1;
            let from = value.len() - upload.remaining();
            let Ok(space) = burst.upload_space(&mut upload) else {
                break;
            };
            let n = space.len().min(value.len() - from);
            space[..n].copy_from_slice(&value[from..from + n]);
            upload.advance(n);
        }
        if upload.remaining() > 0 {
            if how & 7 != 0 {
                self.uploads.push((name, upload, value, expected));
            }
            return;
        }
        match burst.finish_upload(upload) {
            Ok(Stored::Stored { .. }) => _ = self.items.insert(name, expected),
            Ok(Stored::Refused(Refused::OutOfMemory)) => {}
            Ok(other) => panic!("{other:?}"),
            Err(upload) => self.uploads.push((name, upload, value, expected)),
        }
    }
}

/// Gives every other key one of four tags.
fn tagged(burst: &Burst<'_>, name: Name, put: Put) -> (Option<u8>, Put) {
    let tag = (name[0] & 1 != 0).then_some(name[0] >> 1 & 3);
    let mut tags = NO_TAGS;
    tags[0] = tag.map(|tag| burst.tag(&[tag]));
    (tag, Put { tags, ..put })
}

impl Expected {
    fn new(value: Vec<u8>, flags: u32, expiry: Expiry) -> Expected {
        Expected {
            value,
            flags,
            expiry: expiry.second().map_or(0, |at| at.0),
            tag: None,
        }
    }

    fn check(&self, item: &Item<'_>) {
        let found: Vec<u8> = item.value().flatten().copied().collect();
        assert!(found == self.value, "a wrong value");
        assert_eq!(item.client_flags(), self.flags);
        assert_eq!(item.expiry().second().map_or(0, |at| at.0), self.expiry);
    }
}
