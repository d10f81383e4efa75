//! `stats hotkeys`: which keys are asked for most, and how many bytes of values they move.
//!
//! One request in [`STRIDE`], chosen at random, is looked at. A sketch for each worker counts the
//! keys of those requests by the Space-Saving algorithm (Metwally, Agrawal, El Abbadi, 2005): of
//! [`KEYS_MAX`] counters the lowest goes to a key that has none, which takes its count over and
//! remembers it as the part that may be another's. So no frequent key is missed, and no count is
//! too low by more than chance. All counts halve every [`HALF_LIFE_S`] seconds: what was hot a minute
//! ago fades.
//!
//! # Concurrency
//! A worker writes only to its own sketch. Its lock is contended only while somebody reads
//! statistics, and then the worker leaves a sample out rather than wait.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use coua_protocol::KEY_LEN_MAX;
use coua_store::KeyHash;

/// One request in so many is looked at, on average.
pub const STRIDE: u32 = 64;

/// Keys that are counted at a time by each worker.
const KEYS_MAX: usize = 128;

/// Seconds after which a count is half as large.
const HALF_LIFE_S: u64 = 10;

/// Counters that are compared at a time, without a branch for each.
const AT_ONCE: usize = 8;

/// Bytes of a sketch.
pub const MEMORY: usize = size_of::<Sketch>();

/// The sketches of all workers.
pub struct HotKeys(Box<[Mutex<Sketch>]>);

/// One worker's counts, while it adds to them.
pub struct Counts<'h>(MutexGuard<'h, Sketch>);

impl Counts<'_> {
    /// Counts a request.
    pub fn count(&mut self, sample: &Sample<'_>) {
        self.0.count(sample);
    }
}

/// A key that was asked for often.
#[derive(Clone, Debug, PartialEq)]
pub struct HotKey {
    /// The key.
    pub key: Box<[u8]>,
    /// Requests a second; an estimate.
    pub rate: f64,
    /// By how much that may be too high, because another key had the counter before.
    pub excess: f64,
    /// Bytes of values a second, read and written; an estimate.
    pub bytes: f64,
    /// Its part of all requests with a key, from 0 to 1.
    pub share: f64,
}

/// One worker's counts. A sample compares all hashes, and perhaps all counts, so these lie together.
#[derive(Debug)]
struct Sketch {
    /// Keys that have a counter: the first so many of each list.
    len: usize,
    hashes: [KeyHash; KEYS_MAX],
    counts: [f32; KEYS_MAX],
    /// The counts that keys took over.
    excesses: [f32; KEYS_MAX],
    bytes: [f32; KEYS_MAX],
    keys: [StoredKey; KEYS_MAX],
    /// The lowest count when it was last looked for. No count is lower.
    lowest: f32,
    /// Where to go on looking for a counter that has it.
    look_at: usize,
    /// All requests that were looked at.
    all: f32,
    /// For how many seconds has been counted; it halves as counts do.
    seconds: f32,
    /// The second up to which time is in `seconds` (since the server's start).
    second: u64,
    /// When counts were halved last (likewise).
    halved: u64,
}

#[derive(Clone, Copy, Debug)]
struct StoredKey {
    len: u8,
    bytes: [u8; KEY_LEN_MAX],
}

/// A request that was chosen.
pub struct Sample<'k> {
    /// The hash of its key.
    pub hash: KeyHash,
    /// Its key.
    pub key: &'k [u8],
    /// Bytes of the value that it moves.
    pub value_len: usize,
}

impl HotKeys {
    /// Sketches for so many workers.
    pub fn new(workers: usize) -> HotKeys {
        HotKeys((0..workers).map(|_| Mutex::new(Sketch::new())).collect())
    }

    /// The counts of a worker, or `None` while somebody reads them.
    pub fn of_worker(&self, worker: usize, since_start_ms: u64) -> Option<Counts<'_>> {
        let mut sketch = self.0[worker].try_lock().ok()?;
        sketch.pass(since_start_ms / 1000);
        Some(Counts(sketch))
    }

    /// The keys that were asked for most, the first first, and at most `count` of them.
    pub fn hottest(&self, since_start_ms: u64, count: usize) -> Vec<HotKey> {
        let mut by_key: HashMap<Box<[u8]>, [f64; 3]> = HashMap::new();
        let (mut all, mut seconds) = (0.0, 0.0);
        for sketch in &self.0 {
            let mut sketch = sketch.lock().unwrap_or_else(PoisonError::into_inner);
            sketch.pass(since_start_ms / 1000);
            all += f64::from(sketch.all);
            seconds = f64::max(seconds, sketch.seconds.into());
            for at in 0..sketch.len {
                let sums = by_key.entry(sketch.keys[at].get().into()).or_default();
                sums[0] += f64::from(sketch.counts[at]);
                sums[1] += f64::from(sketch.excesses[at]);
                sums[2] += f64::from(sketch.bytes[at]);
            }
        }
        let a_second = f64::from(STRIDE) / f64::max(seconds, 1.0);
        let mut keys: Vec<HotKey> = by_key
            .into_iter()
            .map(|(key, [requests, excess, bytes])| HotKey {
                key,
                rate: requests * a_second,
                excess: excess * a_second,
                bytes: bytes * a_second,
                share: requests / f64::max(all, 1.0),
            })
            .collect();
        // What another key may have had the count of is no proof of anything.
        keys.sort_by(|a, b| (b.rate - b.excess).total_cmp(&(a.rate - a.excess)));
        keys.retain(|key| key.rate > key.excess);
        keys.truncate(count);
        keys
    }

    /// Forgets all.
    pub fn clear(&self) {
        for sketch in &self.0 {
            let mut sketch = sketch.lock().unwrap_or_else(PoisonError::into_inner);
            sketch.clear();
        }
    }
}

impl StoredKey {
    const NONE: StoredKey = StoredKey {
        len: 0,
        bytes: [0; KEY_LEN_MAX],
    };

    fn get(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }

    fn set(&mut self, key: &[u8]) {
        let len = key.len().min(KEY_LEN_MAX);
        self.bytes[..len].copy_from_slice(&key[..len]);
        self.len = u8::try_from(len).unwrap_or(u8::MAX);
    }
}

impl Sketch {
    fn new() -> Sketch {
        Sketch {
            len: 0,
            hashes: [KeyHash::default(); KEYS_MAX],
            counts: [0.0; KEYS_MAX],
            excesses: [0.0; KEYS_MAX],
            bytes: [0.0; KEYS_MAX],
            keys: [StoredKey::NONE; KEYS_MAX],
            lowest: 0.0,
            look_at: 0,
            all: 0.0,
            seconds: 0.0,
            second: 0,
            halved: 0,
        }
    }

    /// Brings the counts to this second since the server's start.
    fn pass(&mut self, second: u64) {
        while self.halved + HALF_LIFE_S <= second {
            self.add_time(self.halved + HALF_LIFE_S);
            self.halved += HALF_LIFE_S;
            if self.all < 0.01 {
                // Nothing is left to fade, however long it was.
                self.clear();
                (self.halved, self.second) = (second, second);
                return;
            }
            self.all /= 2.0;
            self.seconds /= 2.0;
            self.lowest /= 2.0;
            for list in [&mut self.counts, &mut self.excesses, &mut self.bytes] {
                list.iter_mut().for_each(|value| *value /= 2.0);
            }
        }
        self.add_time(second);
    }

    #[expect(clippy::cast_precision_loss, reason = "it is at most a half-life")]
    fn add_time(&mut self, second: u64) {
        self.seconds += second.saturating_sub(self.second) as f32;
        self.second = self.second.max(second);
    }

    #[expect(clippy::cast_precision_loss, reason = "estimates")]
    fn count(&mut self, sample: &Sample<'_>) {
        let value_len = sample.value_len as f32;
        self.all += 1.0;
        if let Some(at) = self.find(sample) {
            self.counts[at] += 1.0;
            self.bytes[at] += value_len;
            return;
        }
        let (at, lowest) = match self.len < KEYS_MAX {
            true => (self.len, 0.0),
            false => (self.take_lowest(), self.lowest),
        };
        self.len = self.len.max(at + 1);
        self.hashes[at] = sample.hash;
        self.excesses[at] = lowest;
        self.counts[at] = lowest + 1.0;
        self.bytes[at] = value_len;
        self.keys[at].set(sample.key);
    }

    /// The counter of a key.
    fn find(&self, sample: &Sample<'_>) -> Option<usize> {
        for (nth, hashes) in self.hashes.chunks_exact(AT_ONCE).enumerate() {
            let is_there = |any, hash: &KeyHash| any | (*hash == sample.hash);
            if !hashes.iter().fold(false, is_there) {
                continue;
            }
            let from = nth * AT_ONCE;
            let mut places = from..(from + AT_ONCE).min(self.len);
            let is_it =
                |&at: &usize| self.hashes[at] == sample.hash && self.keys[at].get() == sample.key;
            if let Some(at) = places.find(is_it) {
                return Some(at);
            }
        }
        None
    }

    /// A counter with the lowest count, while all are in use. Counts only rise, so one search for the
    /// lowest count serves until no counter has it any more.
    fn take_lowest(&mut self) -> usize {
        if let Some(at) = self.next_lowest() {
            return at;
        }
        let lower = |lowest, count: &f32| if *count < lowest { *count } else { lowest };
        self.lowest = self.counts.iter().fold(f32::MAX, lower);
        self.look_at = 0;
        self.next_lowest().unwrap_or(0)
    }

    fn next_lowest(&mut self) -> Option<usize> {
        let lowest = self.lowest;
        while self.look_at < KEYS_MAX {
            let counts = &self.counts[self.look_at..self.look_at + AT_ONCE];
            let is_there = |any, count: &f32| any | (*count <= lowest);
            if counts.iter().fold(false, is_there) {
                let nth = counts.iter().position(|count| *count <= lowest)?;
                return Some(self.look_at + nth);
            }
            self.look_at += AT_ONCE;
        }
        None
    }

    /// Forgets all that was counted.
    fn clear(&mut self) {
        (self.len, self.all, self.seconds) = (0, 0.0, 0.0);
        (self.lowest, self.look_at) = (0.0, KEYS_MAX);
    }
}

/// Chooses one request in [`STRIDE`] at random, so that no pattern of requests escapes it.
#[derive(Debug)]
pub struct Chooser {
    state: u32,
    /// Requests before the next one that is chosen.
    left: usize,
}

impl Chooser {
    /// Chooses for a worker, whose number makes it different from the others.
    pub fn new(worker: usize) -> Chooser {
        let mut chooser = Chooser {
            state: u32::try_from(worker).unwrap_or(0).wrapping_mul(0x9e37_79b9) | 1,
            left: 0,
        };
        chooser.left = chooser.gap();
        chooser
    }

    /// The places of those that are chosen among the next `len` requests.
    #[inline]
    pub fn choose(&mut self, len: usize) -> Option<Chosen<'_>> {
        if self.left >= len {
            self.left -= len;
            return None;
        }
        Some(Chosen { chooser: self, len })
    }

    /// From 1 to twice the stride less one, each as likely.
    fn gap(&mut self) -> usize {
        // Xorshift (Marsaglia, 2003).
        self.state ^= self.state << 13;
        self.state ^= self.state >> 17;
        self.state ^= self.state << 5;
        (self.state % (2 * STRIDE - 1)) as usize + 1
    }
}

/// The places among some requests of those that are chosen.
pub struct Chosen<'c> {
    chooser: &'c mut Chooser,
    len: usize,
}

impl Iterator for Chosen<'_> {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        let at = self.chooser.left;
        if at >= self.len {
            self.chooser.left -= self.len;
            self.len = 0;
            return None;
        }
        self.chooser.left += self.chooser.gap();
        Some(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All have the same hash, so that the keys decide.
    fn sample(key: &[u8]) -> Sample<'_> {
        Sample {
            hash: KeyHash::default(),
            key,
            value_len: 10,
        }
    }

    #[test]
    fn one_request_in_a_stride_is_chosen() {
        let mut chooser = Chooser::new(3);
        let (mut chosen, mut all) = (0, 0);
        for len in (0..100_000).map(|number| number % 7) {
            all += len;
            if let Some(places) = chooser.choose(len) {
                for place in places {
                    assert!(place < len);
                    chosen += 1;
                }
            }
        }
        let expected = all / STRIDE as usize;
        assert!(
            (expected * 9 / 10..expected * 11 / 10).contains(&chosen),
            "{chosen} of {all}"
        );
    }

    /// Two hot keys among a stream in which every other key is new.
    #[test]
    fn hot_keys_are_found_among_many() {
        let keys = HotKeys::new(2);
        for second in 0..30_u64 {
            for number in 0..1000_u64 {
                let rare = format!("rare-{second}-{number}");
                let key = match number % 4 {
                    0 => "hot".to_owned(),
                    1 if number % 8 == 1 => "warm".to_owned(),
                    _ => rare,
                };
                let worker = (number / 8 % 2) as usize;
                let mut counts = keys.of_worker(worker, second * 1000).expect("alone");
                counts.count(&sample(key.as_bytes()));
            }
        }
        let found = keys.hottest(30_000, 10);
        assert_eq!(*found[0].key, *b"hot");
        assert_eq!(*found[1].key, *b"warm");
        let near = |value: f64, expected: f64| (value / expected - 1.0).abs() < 0.2;
        assert!(near(found[0].rate, 250.0 * f64::from(STRIDE)), "{found:?}");
        assert!(near(found[0].share, 0.25), "{found:?}");
        assert!(
            near(found[0].bytes, 2500.0 * f64::from(STRIDE)),
            "{found:?}"
        );
        assert!(found.len() <= 10);
        keys.clear();
        assert_eq!(keys.hottest(30_000, 10), []);
    }

    /// Each step does what the algorithm says: the key's own counter rises, or the lowest is taken over.
    #[test]
    fn the_lowest_counter_goes_to_a_new_key() {
        let mut sketch = Sketch::new();
        let (mut state, mut taken_over) = (1_u32, 0);
        for number in 0..20_000_u64 {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            // Few keys often, many keys rarely.
            let key = format!("{}", (state >> 8) % (1 << ((state >> 4) % 10)));
            sketch.pass(number / 500);
            let before: Vec<f32> = sketch.counts[..sketch.len].to_vec();
            let place = |sketch: &Sketch| {
                let mut keys = sketch.keys[..sketch.len].iter();
                keys.position(|stored| stored.get() == key.as_bytes())
            };
            let place_before = place(&sketch);
            sketch.count(&sample(key.as_bytes()));
            let at = place(&sketch).expect("it has a counter");
            let lowest = before.iter().copied().fold(f32::MAX, f32::min);
            match place_before {
                Some(place) => assert_eq!((at, sketch.counts[at]), (place, before[at] + 1.0)),
                None if before.len() < KEYS_MAX => assert_eq!(sketch.counts[at], 1.0),
                None => {
                    assert_eq!((before[at], sketch.counts[at]), (lowest, lowest + 1.0));
                    assert_eq!(sketch.excesses[at], lowest);
                    taken_over += 1;
                }
            }
            for (other, count) in before.iter().enumerate().filter(|(other, _)| *other != at) {
                assert_eq!(sketch.counts[other], *count);
            }
        }
        assert!(taken_over > 1000, "{taken_over}");
    }

    #[test]
    fn what_was_hot_fades() {
        let keys = HotKeys::new(1);
        for _ in 0..100 {
            let mut counts = keys.of_worker(0, 0).expect("alone");
            counts.count(&sample(b"old"));
        }
        assert_eq!(keys.hottest(9_000, 1).len(), 1);
        let later = keys.hottest(60_000, 1);
        assert!(later.is_empty() || later[0].rate < 20.0 * f64::from(STRIDE) / 10.0);
        assert_eq!(keys.hottest(1_000_000, 1), []);
    }
}
