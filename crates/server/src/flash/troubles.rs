//! What devices of flash fail at, told in the log: once, not for each read.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use coua_flash::log::Volume;

use crate::shared::Shared;

/// How often it is looked, and how often a kind of failure is told of at most.
const LOOK: Duration = Duration::from_millis(500);
const AGAIN: Duration = Duration::from_secs(600);

/// What was seen of devices so far.
pub(super) struct Troubles {
    volume: Arc<Volume>,
    names: Vec<String>,
    gone: BTreeSet<usize>,
    looked: Instant,
    reads: Kind,
    damaged: Kind,
    segments: Kind,
    refused: Kind,
}

/// A count that should stay as it is.
#[derive(Default)]
struct Kind {
    told: u64,
    when: Option<Instant>,
}

impl Kind {
    /// How many have come since it was told of last, if it is time to tell of them.
    fn news(&mut self, count: u64, now: Instant) -> Option<u64> {
        let is_early = self.when.is_some_and(|when| now < when + AGAIN);
        if count <= self.told || is_early {
            return None;
        }
        self.when = Some(now);
        Some(count - std::mem::replace(&mut self.told, count))
    }
}

impl Troubles {
    /// None so far. The names are those of the volume's devices, in its order.
    pub(super) fn new(volume: Arc<Volume>, names: Vec<String>) -> Troubles {
        Troubles {
            volume,
            names,
            gone: BTreeSet::new(),
            looked: Instant::now(),
            reads: Kind::default(),
            damaged: Kind::default(),
            segments: Kind::default(),
            refused: Kind::default(),
        }
    }

    /// Tells of what has happened since, if it is time to look.
    pub(super) fn tell(&mut self, shared: &Shared) {
        let now = Instant::now();
        if now < self.looked + LOOK {
            return;
        }
        self.looked = now;
        for device in self.volume.gone_devices() {
            if self.gone.insert(device) {
                let name = self.names.get(device).map_or("a device", String::as_str);
                tracing::error!("flash: {name} is gone; what lay there is a miss");
            }
        }
        let Some(stats) = shared.store.flash_stats() else {
            return;
        };
        if !self.gone.is_empty() {
            // Of what fails because of that, enough is said.
            return;
        }
        if let Some(count) = self.reads.news(stats.failed, now) {
            tracing::warn!("flash: reads have failed ({count}); their items are misses");
        }
        if let Some(count) = self.damaged.news(stats.damaged, now) {
            tracing::warn!(
                "flash: reads have brought what was not written ({count}); their items are misses"
            );
        }
        if let Some(count) = self.segments.news(stats.segments_lost, now) {
            tracing::warn!(
                "flash: segments could not be written ({count}); their items are evicted"
            );
        }
        if let Some(count) = self.refused.news(stats.refused, now) {
            tracing::warn!(
                "flash: devices do not keep up with what memory evicts ({count} items were not written)"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_told_of_seldom() {
        let (mut kind, now) = (Kind::default(), Instant::now());
        assert_eq!(kind.news(0, now), None);
        assert_eq!(kind.news(3, now), Some(3));
        assert_eq!(kind.news(9, now + LOOK), None);
        assert_eq!(kind.news(9, now + AGAIN), Some(6));
        assert_eq!(kind.news(9, now + 3 * AGAIN), None);
    }
}
