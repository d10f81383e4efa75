//! Counts by key prefix: `stats detail`, off unless asked for.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// How many prefixes are told apart; keys of any more are not counted.
const PREFIXES_MAX: usize = 10_000;

/// What happened to a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PrefixEvent {
    /// A lookup found it.
    Hit,
    /// A lookup did not find it.
    Miss,
    /// A value was to be stored.
    Set,
    /// It was to be deleted.
    Delete,
}

/// What has been counted for one prefix.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PrefixCounts {
    /// Lookups.
    pub gets: u64,
    /// Lookups that found the key.
    pub hits: u64,
    /// Store commands.
    pub sets: u64,
    /// Deletes.
    pub deletes: u64,
}

/// The counts of all workers. While they are enabled each request takes a lock.
pub struct Prefixes {
    enabled: AtomicBool,
    delimiter: u8,
    counts: Mutex<BTreeMap<Box<[u8]>, PrefixCounts>>,
}

impl Prefixes {
    /// No counts yet. A prefix is what stands before the first `delimiter` of a key.
    pub fn new(delimiter: u8, enabled: bool) -> Prefixes {
        Prefixes {
            enabled: AtomicBool::new(enabled),
            delimiter,
            counts: Mutex::default(),
        }
    }

    /// Whether anything is counted.
    #[inline]
    pub fn is_enabled(&self) -> bool {
        self.enabled.load(Relaxed)
    }

    /// Counts from now on, or no more.
    pub fn enable(&self, enabled: bool) {
        self.enabled.store(enabled, Relaxed);
    }

    /// Forgets all counts.
    pub fn clear(&self) {
        self.lock().clear();
    }

    /// The prefix of a key, if it has one.
    pub fn prefix_of<'k>(&self, key: &'k [u8]) -> Option<&'k [u8]> {
        let len = key.iter().position(|&byte| byte == self.delimiter)?;
        Some(&key[..len])
    }

    /// Counts an event, where the key has a prefix.
    pub fn count(&self, key: &[u8], event: PrefixEvent) {
        let Some(prefix) = self.prefix_of(key) else {
            return;
        };
        let mut all = self.lock();
        if !all.contains_key(prefix) {
            if all.len() >= PREFIXES_MAX {
                return;
            }
            all.insert(prefix.into(), PrefixCounts::default());
        }
        let Some(counts) = all.get_mut(prefix) else {
            return;
        };
        match event {
            PrefixEvent::Hit => {
                counts.gets += 1;
                counts.hits += 1;
            }
            PrefixEvent::Miss => counts.gets += 1,
            PrefixEvent::Set => counts.sets += 1,
            PrefixEvent::Delete => counts.deletes += 1,
        }
    }

    /// The first prefix behind `after` (the very first for `None`), and its counts.
    pub fn next(&self, after: Option<&[u8]>) -> Option<(Box<[u8]>, PrefixCounts)> {
        use std::ops::Bound::{Excluded, Unbounded};
        let from = after.map_or(Unbounded, Excluded);
        let all = self.lock();
        let (prefix, counts) = all.range::<[u8], _>((from, Unbounded)).next()?;
        Some((prefix.clone(), *counts))
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Box<[u8]>, PrefixCounts>> {
        // Counts are whole after every statement, so a panic elsewhere does not spoil them.
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
