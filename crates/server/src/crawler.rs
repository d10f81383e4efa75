//! What clients have set for memcached's crawler. The store does not need it.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

use crate::flags::Settings;

/// memcached's default pause between two items, in microseconds.
const SLEEP_US: u32 = 100;

/// What clients have set for the crawler. Only the crawler commands read it: the store's own pace
/// stays within any limit that they can set.
pub struct Crawler {
    is_enabled: AtomicBool,
    sleep_us: AtomicU32,
    to_crawl: AtomicU32,
}

impl Crawler {
    /// As the flags say.
    pub fn new(settings: &Settings) -> Crawler {
        let number = |name| settings.given_or(name, "").parse();
        Crawler {
            is_enabled: AtomicBool::new(!settings.is_given("no_lru_crawler")),
            sleep_us: AtomicU32::new(number("lru_crawler_sleep").unwrap_or(SLEEP_US)),
            to_crawl: AtomicU32::new(number("lru_crawler_tocrawl").unwrap_or(0)),
        }
    }

    /// Whether its commands may start anything.
    pub fn is_enabled(&self) -> bool {
        self.is_enabled.load(Relaxed)
    }

    /// Microseconds between two items.
    pub fn sleep_us(&self) -> u32 {
        self.sleep_us.load(Relaxed)
    }

    /// Items that a crawl covers at most; 0 for all.
    pub fn to_crawl(&self) -> u32 {
        self.to_crawl.load(Relaxed)
    }

    /// Permits or forbids its commands to start anything. Returns whether they could before.
    pub fn enable(&self, is_enabled: bool) -> bool {
        self.is_enabled.swap(is_enabled, Relaxed)
    }

    /// Sets the microseconds between two items.
    pub fn set_sleep_us(&self, sleep_us: u32) {
        self.sleep_us.store(sleep_us, Relaxed);
    }

    /// Sets how many items a crawl covers at most; 0 for all.
    pub fn set_to_crawl(&self, items: u32) {
        self.to_crawl.store(items, Relaxed);
    }
}
