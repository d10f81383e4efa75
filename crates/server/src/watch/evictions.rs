//! Tells watchers of the items that the store evicts, or keeps on flash alone.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use coua_store::{ItemView, Observer, RemovalReason};

use super::lines::EvictionLine;
use super::{LogStreams, Watchers, lines};

/// What the store tells of items that are gone; watchers hear of those that were evicted.
pub struct EvictionTeller(pub Arc<Watchers>);

impl Observer for EvictionTeller {
    fn hears_of_stored(&self) -> bool {
        false
    }

    fn stored(&self, _: ItemView<'_>) {}

    fn gone(&self, item: ItemView<'_>, why: RemovalReason) {
        let (is_fetched, idle_s) = match why {
            RemovalReason::Evicted { idle_s } => (true, idle_s),
            RemovalReason::EvictedUnread { idle_s } => (false, idle_s),
            _ => return,
        };
        self.tell(item, is_fetched, idle_s, lines::eviction);
    }

    fn left_for_flash(&self, item: ItemView<'_>, is_fetched: bool, idle_s: u32) {
        self.tell(item, is_fetched, idle_s, lines::written_to_flash);
    }
}

impl EvictionTeller {
    fn tell(
        &self,
        item: ItemView<'_>,
        is_fetched: bool,
        idle_s: u32,
        write: fn(&mut Vec<u8>, &EvictionLine<'_>),
    ) {
        self.0.tell(LogStreams::EVICTIONS, |line| {
            let now = SystemTime::now().duration_since(UNIX_EPOCH);
            let now = now.unwrap_or_default().as_secs().cast_signed();
            let expiry = item.expiry.second();
            let evicted = EvictionLine {
                key: item.key,
                is_fetched,
                ttl: expiry.map_or(-1, |second| i64::from(second.0) - now),
                idle_s,
                value_len: item.value_len,
            };
            write(line, &evicted);
        });
    }
}
