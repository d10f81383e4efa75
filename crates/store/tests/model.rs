//! The store against a plain map, with time, and memory enough that nothing is evicted.
#![allow(
    clippy::cast_possible_truncation,
    reason = "patterns and small numbers"
)]

use coua_store::*;
use proptest::prelude::*;
use std::collections::HashMap;
use std::sync::Arc;

/// Milliseconds.
const START: u64 = 1_000_000_250;

/// The names of tags.
const TAGS: [&[u8]; 3] = [b"one", b"two", b"a third one"];

#[derive(Clone, Debug)]
enum Step {
    Get {
        key: u8,
    },
    Put {
        key: u8,
        mode: Mode,
        compare: Compare,
        len: usize,
        ttl: u8,
        tags: u8,
    },
    Delete {
        key: u8,
        compare: Option<Compare>,
        what: What,
        touch: Option<u8>,
    },
    Count {
        key: u8,
        delta: u64,
        decrement: bool,
        vivify: bool,
        touch: Option<u8>,
        tags: u8,
    },
    Touch {
        key: u8,
        ttl: u8,
    },
    Meta {
        key: u8,
        vivify: Option<u8>,
        recache: Option<u8>,
        touch: Option<u8>,
        touch_first: bool,
        tags: u8,
    },
    Invalidate {
        tag: usize,
        stale: bool,
    },
    Flush {
        delay: u8,
    },
    Upload {
        key: u8,
        len: usize,
        flush_meanwhile: bool,
        tags: u8,
    },
    Wait {
        quarters: u8,
    },
    EndBurst,
}

#[derive(Clone, Copy, Debug)]
enum Compare {
    None,
    Right,
    Wrong,
}

#[derive(Clone, Copy, Debug)]
enum What {
    Remove,
    Clear,
    MarkStale,
}

#[derive(Clone, Debug)]
struct Expected {
    value: Vec<u8>,
    flags: u32,
    expiry: u64,
    stale: bool,
    won: bool,
    cas: u64,
    /// A bit for each of [`TAGS`].
    tags: u8,
}

#[derive(Default)]
struct Model {
    items: HashMap<u8, Expected>,
    flush_at: Option<u64>,
}

impl Model {
    fn advance(&mut self, now: u64) {
        if self.flush_at.is_some_and(|at| at <= now) {
            self.flush_at = None;
            self.items.clear();
        }
        self.items
            .retain(|_, item| item.expiry == 0 || item.expiry > now);
    }
}

fn step() -> impl Strategy<Value = Step> {
    let key = 0..12u8;
    let compare = prop_oneof![
        Just(Compare::None),
        Just(Compare::Right),
        Just(Compare::Wrong)
    ];
    let mode = prop_oneof![
        4 => Just(Mode::Set),
        1 => Just(Mode::Add),
        1 => Just(Mode::Replace),
        2 => Just(Mode::Cas),
        1 => Just(Mode::Append),
        1 => Just(Mode::Prepend),
        1 => Just(Mode::AppendOrSet),
        1 => Just(Mode::PrependOrSet),
    ];
    let len = prop_oneof![6 => 0..40usize, 1 => 15_000..18_000usize, 1 => 60_000..140_000usize];
    let tags = prop_oneof![2 => Just(0), 1 => 0..8u8];
    let what =
        prop_oneof![3 => Just(What::Remove), 1 => Just(What::Clear), 1 => Just(What::MarkStale)];
    prop_oneof![
        6 => key.clone().prop_map(|key| Step::Get { key }),
        8 => (key.clone(), mode, compare.clone(), len.clone(), 0..6u8, tags.clone())
            .prop_map(|(key, mode, compare, len, ttl, tags)| Step::Put {
                key, mode, compare, len, ttl, tags
            }),
        3 => (key.clone(), proptest::option::of(compare), what, proptest::option::of(0..6u8))
            .prop_map(|(key, compare, what, touch)| Step::Delete { key, compare, what, touch }),
        3 => (
            key.clone(),
            any::<u64>(),
            any::<bool>(),
            any::<bool>(),
            proptest::option::of(0..6u8),
            tags.clone()
        )
            .prop_map(|(key, delta, decrement, vivify, touch, tags)| Step::Count {
                key, delta, decrement, vivify, touch, tags
            }),
        2 => (key.clone(), 0..6u8).prop_map(|(key, ttl)| Step::Touch { key, ttl }),
        3 => (
            key.clone(),
            proptest::option::of(0..6u8),
            proptest::option::of(0..6u8),
            proptest::option::of(0..6u8),
            any::<bool>(),
            tags.clone()
        )
            .prop_map(|(key, vivify, recache, touch, touch_first, tags)| Step::Meta {
                key, vivify, recache, touch, touch_first, tags
            }),
        2 => (0..TAGS.len(), any::<bool>()).prop_map(|(tag, stale)| Step::Invalidate { tag, stale }),
        1 => (0..4u8).prop_map(|delay| Step::Flush { delay }),
        2 => (key, len, any::<bool>(), tags).prop_map(|(key, len, flush_meanwhile, tags)| {
            Step::Upload { key, len, flush_meanwhile, tags }
        }),
        2 => (1..13u8).prop_map(|quarters| Step::Wait { quarters }),
        4 => Just(Step::EndBurst),
    ]
}

/// An expiry in milliseconds, of a whole second or not; 0 is never.
fn expiry(now: u64, ttl: u8) -> u64 {
    match ttl {
        0 => 0,
        ttl if ttl.is_multiple_of(2) => (now / 1000 + u64::from(ttl)) * 1000,
        ttl => now + u64::from(ttl) * 350,
    }
}

fn at(expiry: u64) -> Expiry {
    if expiry.is_multiple_of(1000) {
        return Expiry::at(UnixSeconds((expiry / 1000) as u32));
    }
    Expiry::at_millis(expiry)
}

/// The tags whose bits are set.
fn tags(store: &Store, bits: u8) -> Tags {
    let mut tags = NO_TAGS;
    let given = (0..TAGS.len()).filter(|tag| bits >> tag & 1 != 0);
    for (place, tag) in tags.iter_mut().zip(given) {
        *place = Some(store.tag(TAGS[tag]));
    }
    tags
}

struct World {
    worker: Worker,
    model: Model,
    now: u64,
    serial: u32,
}

impl World {
    fn value(&mut self, len: usize) -> Vec<u8> {
        self.serial += 1;
        if self.serial.is_multiple_of(3) && len < 20 {
            return self.serial.to_string().into_bytes();
        }
        // Nothing that could end a number.
        (0..len)
            .map(|i| 0x80 | (i as u32).wrapping_mul(self.serial) as u8)
            .collect()
    }

    fn check(&mut self, id: u8) {
        let name = [b'k', id];
        let store = Arc::clone(self.worker.store());
        let mut burst = self.worker.burst(UnixTime::of_millis(self.now));
        let key = burst.key(&name);
        burst.mark_if_stale(&key).expect("room");
        let found = burst.get(
            &key,
            Access {
                bump: true,
                cas: true,
            },
        );
        match (self.model.items.get_mut(&id), found) {
            (None, Err(_)) => {}
            (Some(expected), Ok(item)) => {
                let value: Vec<u8> = item.value().flatten().copied().collect();
                assert!(value == expected.value, "another value of {id}");
                assert_eq!(item.client_flags(), expected.flags);
                assert_eq!(item.expiry(), at(expected.expiry));
                let tags = tags(&store, expected.tags);
                assert!(
                    item.tags()
                        .eq(tags.iter().flatten().map(|tag| tag.number()))
                );
                if expected.cas != 0 {
                    assert_eq!(
                        item.cas(),
                        expected.cas,
                        "the CAS of {id} changed by itself"
                    );
                }
                expected.cas = item.cas();
            }
            (expected, found) => panic!("{id}: {expected:?}, but {:?}", found.err()),
        }
    }

    fn run(&mut self, step: Step) {
        self.model.advance(self.now);
        let now = self.now;
        match step {
            Step::Get { key } => self.check(key),
            Step::Put {
                key,
                mode,
                compare,
                len,
                ttl,
                tags,
            } => self.put(key, mode, compare, len, ttl, tags),
            Step::Delete {
                key,
                compare,
                what,
                touch,
            } => self.delete(key, compare, what, touch),
            Step::Count {
                key,
                delta,
                decrement,
                vivify,
                touch,
                tags,
            } => {
                self.count(key, delta, decrement, vivify, touch, tags);
            }
            Step::Invalidate { tag, stale } => self.invalidate(tag, stale),
            Step::Touch { key, ttl } => {
                let until = expiry(now, ttl);
                let name = [b'k', key];
                let mut burst = self.worker.burst(UnixTime::of_millis(now));
                let found = burst
                    .touch(&burst.key(&name), at(until), Access::default())
                    .is_ok();
                assert_eq!(found, self.model.items.contains_key(&key));
                if let Some(item) = self.model.items.get_mut(&key) {
                    item.expiry = until;
                }
            }
            Step::Meta {
                key,
                vivify,
                recache,
                touch,
                touch_first,
                tags,
            } => {
                self.meta(key, vivify, recache, touch, touch_first, tags);
            }
            Step::Flush { delay } => self.flush(delay),
            Step::Upload {
                key,
                len,
                flush_meanwhile,
                tags,
            } => self.upload(key, len, flush_meanwhile, tags),
            Step::Wait { quarters } => self.now += 250 * u64::from(quarters),
            Step::EndBurst => {
                self.worker.end(UnixTime::of_millis(now));
            }
        }
    }

    fn compare(&mut self, id: u8, compare: Compare) -> u64 {
        if matches!(compare, Compare::None) {
            return 0;
        }
        self.check(id);
        let cas = self.model.items.get(&id).map_or(77, |item| item.cas);
        if matches!(compare, Compare::Right) {
            cas
        } else {
            cas + 1
        }
    }

    fn invalidate(&mut self, tag: usize, stale: bool) {
        let how = if stale {
            Invalidation::Stale
        } else {
            Invalidation::Gone
        };
        let tag_of_store = self.worker.store().tag(TAGS[tag]);
        let mut burst = self.worker.burst(UnixTime::of_millis(self.now));
        burst.invalidate(tag_of_store, how);
        let has_it = |item: &Expected| item.tags >> tag & 1 != 0;
        if !stale {
            self.model.items.retain(|_, item| !has_it(item));
        }
        for item in self.model.items.values_mut().filter(|item| has_it(item)) {
            (item.stale, item.won, item.cas) = (true, false, 0);
        }
    }

    fn put(&mut self, id: u8, mode: Mode, compare: Compare, len: usize, ttl: u8, bits: u8) {
        let (value, compare) = (self.value(len), self.compare(id, compare));
        let fresh = Expected {
            value: value.clone(),
            flags: len as u32 % 3 * 1000,
            expiry: expiry(self.now, ttl),
            stale: false,
            won: false,
            cas: 0,
            tags: bits,
        };
        let put = Put {
            mode,
            compare,
            tags: tags(self.worker.store(), bits),
            ..Put::set(fresh.flags, at(fresh.expiry))
        };
        let name = [b'k', id];
        let mut burst = self.worker.burst(UnixTime::of_millis(self.now));
        let key = burst.key(&name);
        let mut ahead = Ahead::NONE;
        if len.is_multiple_of(2) {
            ahead = burst.prefetch(key.hash, Intent::Write);
            ahead = burst.look(key.hash, Intent::Write, ahead);
            ahead = burst.look_again(key.hash, Intent::Write, ahead);
        }
        let stored = burst.store_ahead(&key, ahead, &put, &value);
        let old = self.model.items.get(&id).cloned();
        let expected = match (mode, old) {
            (Mode::Set | Mode::Add, None) | (Mode::AppendOrSet | Mode::PrependOrSet, None) => {
                Ok(fresh)
            }
            (Mode::Set | Mode::Replace, Some(_)) => Ok(fresh),
            (Mode::Cas, None) => Err(Stored::NotFound),
            (Mode::Cas, Some(old)) if compare != 0 && compare == old.cas => Ok(fresh),
            (Mode::Cas, Some(_)) => Err(Stored::Exists),
            (Mode::Add, Some(_)) | (Mode::Replace | Mode::Append | Mode::Prepend, None) => {
                Err(Stored::NotStored)
            }
            (_, Some(old)) if compare != 0 && compare != old.cas => Err(Stored::Exists),
            (_, Some(old)) => {
                let parts = if matches!(mode, Mode::Append | Mode::AppendOrSet) {
                    [&old.value[..], &value]
                } else {
                    [&value[..], &old.value]
                };
                let joined = parts.concat();
                if joined.len() + 2 > ITEM_SIZE_MAX {
                    Err(Stored::NotStored)
                } else {
                    Ok(Expected {
                        value: joined,
                        flags: old.flags,
                        expiry: old.expiry,
                        tags: old.tags,
                        ..fresh
                    })
                }
            }
        };
        match expected {
            Ok(item) => {
                let value_len = item.value.len();
                assert_eq!(
                    stored,
                    Stored::Stored {
                        cas: 0,
                        value_len,
                        over_newer: false
                    }
                );
                self.model.items.insert(id, item);
            }
            Err(outcome) => assert_eq!(stored, outcome),
        }
    }

    fn delete(&mut self, id: u8, compare: Option<Compare>, what: What, touch: Option<u8>) {
        let compare = compare
            .map(|compare| self.compare(id, compare))
            .filter(|&cas| cas != 0);
        let request = Delete {
            compare,
            clear_value: matches!(what, What::Clear).then_some((7, Expiry::NEVER)),
            mark_stale: matches!(what, What::MarkStale),
            expiry: touch.map(|ttl| at(expiry(self.now, ttl))),
            ..Delete::default()
        };
        let name = [b'k', id];
        let mut burst = self.worker.burst(UnixTime::of_millis(self.now));
        let deleted = burst.delete(&burst.key(&name), &request);
        let Some(item) = self.model.items.get_mut(&id) else {
            assert!(matches!(deleted, Deleted::NotFound(_)), "{deleted:?}");
            return;
        };
        if compare.is_some_and(|compare| compare != item.cas) {
            assert_eq!(deleted, Deleted::Exists);
            return;
        }
        assert_eq!(deleted, Deleted::Done);
        match what {
            What::Remove => _ = self.model.items.remove(&id),
            What::Clear => {
                item.value.clear();
                (item.flags, item.expiry, item.stale, item.won) = (7, 0, false, false);
            }
            What::MarkStale => {
                (item.stale, item.won, item.cas) = (true, false, 0);
                item.expiry = request.expiry.map_or(item.expiry, raw);
            }
        }
    }

    fn count(
        &mut self,
        id: u8,
        delta: u64,
        decrement: bool,
        vivify: bool,
        touch: Option<u8>,
        bits: u8,
    ) {
        let request = Arithmetic {
            delta,
            decrement,
            compare: 0,
            cas: None,
            return_cas: false,
            vivify: vivify.then_some((5, Expiry::NEVER)),
            tags: tags(self.worker.store(), bits),
            touch: touch.map(|ttl| at(expiry(self.now, ttl))),
        };
        let name = [b'k', id];
        let mut burst = self.worker.burst(UnixTime::of_millis(self.now));
        let counted = burst.arithmetic(&burst.key(&name), &request);
        let in_pieces = burst
            .get(&burst.key(&name), Access::default())
            .is_ok_and(|item| item.as_slice().is_none());
        let Some(item) = self.model.items.get_mut(&id) else {
            if vivify {
                assert!(matches!(
                    counted,
                    ArithmeticResult::Value {
                        number: 5,
                        created: true,
                        ..
                    }
                ));
                let item = Expected {
                    value: b"5".into(),
                    flags: 0,
                    expiry: 0,
                    stale: false,
                    won: false,
                    cas: 0,
                    tags: bits,
                };
                self.model.items.insert(id, item);
            } else {
                assert!(matches!(counted, ArithmeticResult::NotFound(_)));
            }
            return;
        };
        let text = String::from_utf8_lossy(&item.value).into_owned();
        // A value in pieces is no number, whatever it begins with.
        let number = text
            .split(' ')
            .next()
            .and_then(|digits| digits.parse::<u64>().ok());
        let Some(old) = number.filter(|_| !in_pieces) else {
            assert_eq!(counted, ArithmeticResult::NotNumeric, "{text:?}");
            return;
        };
        let new = if decrement {
            old.saturating_sub(delta)
        } else {
            old.wrapping_add(delta)
        };
        assert!(
            matches!(counted, ArithmeticResult::Value { number, created: false, .. } if number == new)
        );
        let digits = new.to_string();
        if digits.len() > item.value.len() {
            (item.stale, item.won) = (false, false);
        }
        item.value = format!("{digits:<width$}", width = item.value.len()).into_bytes();
        item.expiry = request.touch.map_or(item.expiry, raw);
        item.cas = 0;
    }

    fn meta(
        &mut self,
        id: u8,
        vivify: Option<u8>,
        recache: Option<u8>,
        touch: Option<u8>,
        touch_first: bool,
        bits: u8,
    ) {
        let now = self.now;
        let request = MetaGet {
            access: Access::default(),
            vivify: vivify.map(|ttl| at(expiry(now, ttl))),
            vivify_cas: None,
            tags: tags(self.worker.store(), bits),
            recache: recache.map(|ttl| at(expiry(now, ttl))),
            touch: touch.map(|ttl| at(expiry(now, ttl))),
            touch_first,
        };
        let name = [b'k', id];
        let mut burst = self.worker.burst(UnixTime::of_millis(now));
        let hit = burst.meta_get(&burst.key(&name), &request);
        let Some(item) = self.model.items.get_mut(&id) else {
            match (vivify, hit) {
                (None, Err(MetaMiss::Miss(_))) => {}
                (Some(ttl), Ok(hit)) => {
                    assert!(hit.created && hit.won && !hit.token_sent);
                    let item = Expected {
                        value: Vec::new(),
                        flags: 0,
                        expiry: expiry(now, ttl),
                        stale: false,
                        won: true,
                        cas: 0,
                        tags: bits,
                    };
                    self.model.items.insert(id, item);
                }
                _ => panic!("neither a miss nor a new item"),
            }
            return;
        };
        let Ok(hit) = hit else {
            panic!("the item is there")
        };
        let before = item.expiry;
        let seen = if touch_first {
            request.touch.map_or(before, raw)
        } else {
            before
        };
        let is_due = request
            .recache
            .map(raw)
            .is_some_and(|due| seen != 0 && seen < due);
        let wins = !item.won && (is_due || item.stale);
        assert_eq!(
            (hit.won, hit.token_sent, hit.stale),
            (wins, item.won, item.stale)
        );
        assert_eq!(hit.expiry_before, at(before));
        item.won |= wins;
        if let Some(touch) = request.touch {
            item.expiry = raw(touch);
        }
    }

    fn flush(&mut self, delay: u8) {
        let second = self.now / 1000 + u64::from(delay);
        let mut burst = self.worker.burst(UnixTime::of_millis(self.now));
        burst.flush_all((delay > 0).then_some(UnixSeconds(second as u32)));
        self.model.flush_at = (delay > 0).then_some(second * 1000);
        if delay == 0 {
            self.model.items.clear();
        }
    }

    fn upload(&mut self, id: u8, len: usize, flush_meanwhile: bool, bits: u8) {
        let value = self.value(len);
        let put = Put {
            tags: tags(self.worker.store(), bits),
            ..Put::set(3, Expiry::NEVER)
        };
        let name = [b'k', id];
        let now = UnixTime::of_millis(self.now);
        let mut burst = self.worker.burst(now);
        let mut upload = burst
            .begin_upload(&burst.key(&name), &put, value.len())
            .expect("room");
        burst.close();
        let mut flushed = false;
        while upload.remaining() > 0 {
            let done = value.len() - upload.remaining();
            let mut burst = self.worker.burst(now);
            let space = burst.upload_space(&mut upload).expect("room");
            let n = space.len().min(9_999);
            space[..n].copy_from_slice(&value[done..done + n]);
            upload.advance(n);
            burst.close();
            if flush_meanwhile && !flushed {
                flushed = true;
                if len.is_multiple_of(2) {
                    self.flush(0);
                } else {
                    for tag in 0..TAGS.len() {
                        self.invalidate(tag, tag == 0);
                    }
                }
            }
            self.worker.end(now);
        }
        let mut burst = self.worker.burst(now);
        let stored = burst.finish_upload(upload).ok().expect("room");
        assert!(matches!(stored, Stored::Stored { .. }));
        let item = Expected {
            value,
            flags: 3,
            expiry: 0,
            stale: false,
            won: false,
            cas: 0,
            tags: bits,
        };
        self.model.items.insert(id, item);
    }
}

fn raw(expiry: Expiry) -> u64 {
    expiry.millis().unwrap_or(0)
}

const ITEM_SIZE_MAX: usize = 1 << 20;

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, max_shrink_iters: 4096, ..ProptestConfig::default() })]

    #[test]
    fn the_store_does_what_a_map_would(steps in proptest::collection::vec(step(), 1..120)) {
        let config = Config {
            memory: 64 << 20,
            item_size_max: ITEM_SIZE_MAX,
            seed: Some(1),
            ..Config::default()
        };
        let store = Store::new(config, UnixSeconds((START / 1000) as u32)).unwrap();
        let worker = store.worker(0);
        let mut world = World { worker, model: Model::default(), now: START, serial: 0 };
        for step in steps {
            world.run(step);
        }
        world.model.advance(world.now);
        for id in 0..12 {
            world.check(id);
        }
    }
}
