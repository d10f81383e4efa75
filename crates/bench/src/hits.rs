//! Miss ratios: streams of requests, and caches that they are replayed on.
//!
//! A get that misses stores the key; a stream may also overwrite keys. Only gets count.

pub(crate) mod coua;
pub(crate) mod lru;
pub(crate) mod memcached;
pub(crate) mod queue;
pub(crate) mod s3fifo;
pub(crate) mod stream;
pub(crate) mod synthetic;
pub(crate) mod tier;
pub(crate) mod trace;

use stream::Stream;

/// A cache that runs in this process.
pub(crate) trait Cache {
    /// Asks for a key, and stores it if it is missing; returns whether it was there.
    fn get_or_set(&mut self, key: u32) -> bool;

    /// Stores a key, whether or not it is there.
    fn set(&mut self, key: u32);
}

/// Gets after the warm-up, and how many of them found nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Misses {
    /// All gets.
    pub(crate) gets: u64,
    /// Those that missed.
    pub(crate) misses: u64,
}

impl Misses {
    /// Counts one get.
    pub(crate) fn count(&mut self, hit: bool) {
        self.gets += 1;
        self.misses += u64::from(!hit);
    }

    /// Misses per get.
    pub(crate) fn ratio(self) -> f64 {
        self.misses as f64 / self.gets.max(1) as f64
    }
}

/// Replays a stream; requests of its warm-up are not counted.
pub(crate) fn replay(stream: &Stream, cache: &mut impl Cache) -> Misses {
    let mut misses = Misses::default();
    for (index, request) in stream.requests.iter().enumerate() {
        if request.set {
            cache.set(request.key);
        } else {
            let hit = cache.get_or_set(request.key);
            if index >= stream.warm_up {
                misses.count(hit);
            }
        }
    }
    misses
}
