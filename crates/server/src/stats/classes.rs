//! `stats items` and `stats slabs`: all items as one slab class.
//!
//! coua has one log of segments where memcached has slab classes. Dashboards and tools read
//! classes, so the log is shown as class 1 and nothing else:
//!
//! | memcached | here |
//! |---|---|
//! | page | segment |
//! | chunk | the 8 bytes that an item's memory is a multiple of |
//! | used chunks | what items take; the rest is free, or dead until its segment is cleaned |
//! | counts of the class | counts of the server |
//! | COLD queue | all items: memcached shows those of an unsegmented LRU there |
//!
//! So `used_chunks * chunk_size` is what items take, and `total_malloced` what is set aside for
//! them, as in memcached. Neither has the memory of the index or of connections in it.
//!
//! # Invariants
//! A key of a class names class 1 and only what exporters can read there: `store_too_large` and
//! `store_no_memory`, or `mem_requested` in both answers, would end a scrape.

use super::Stats;
use crate::clock::Now;
use crate::output::Output;
use crate::shared::Shared;

/// Items take a multiple of this.
const CHUNK_BYTES: u64 = 8;

/// `stats items`: the class as long as it has items.
///
/// `age` is how many seconds ago the oldest segment was opened: what was stored before that, and has
/// not been moved since because it was read, is gone.
pub(super) fn write_items(shared: &Shared, now: Now, output: &mut Output) {
    let store = shared.store.stats();
    let before = shared.baseline_of_store();
    let since = |total: u64, before: u64| total.wrapping_sub(before);
    let stored = &store.totals;
    let counts = shared.counts();
    let mut class = Class {
        stats: Stats::new(output),
        prefix: "items:1",
    };
    if store.items > 0 {
        class.add("number", store.items);
        class.add("number_hot", 0);
        class.add("number_warm", 0);
        class.add("number_cold", store.items);
        class.add("age_hot", 0);
        class.add("age_warm", 0);
        let oldest = store.oldest_segment.unwrap_or(now.unix);
        class.add("age", now.unix.0.saturating_sub(oldest.0).into());
        class.add("mem_requested", store.bytes);
        class.add("evicted", since(stored.evicted, before.evicted));
        class.add(
            "evicted_nonzero",
            since(stored.evicted_nonzero, before.evicted_nonzero),
        );
        class.add("evicted_time", store.evicted_idle_s);
        class.add("outofmemory", counts.store_no_memory);
        class.add("tailrepairs", 0);
        class.add("reclaimed", since(stored.reclaimed, before.reclaimed));
        class.add(
            "expired_unfetched",
            since(stored.expired_unfetched, before.expired_unfetched),
        );
        class.add(
            "evicted_unfetched",
            since(stored.evicted_unfetched, before.evicted_unfetched),
        );
        class.add(
            "evicted_active",
            since(stored.evicted_active, before.evicted_active),
        );
        class.add(
            "crawler_reclaimed",
            since(stored.crawler_reclaimed, before.crawler_reclaimed),
        );
        class.add(
            "crawler_items_checked",
            since(stored.crawler_checked, before.crawler_checked),
        );
        class.add("lrutail_reflocked", 0);
        class.add("moves_to_cold", 0);
        class.add("moves_to_warm", 0);
        class.add("moves_within_lru", 0);
        class.add("direct_reclaims", 0);
        class.add("hits_to_hot", 0);
        class.add("hits_to_warm", 0);
        class.add("hits_to_cold", counts.get_hits);
        class.add("hits_to_temp", 0);
    }
    class.stats.end();
}

/// `stats slabs`: the class as long as it has segments.
pub(super) fn write_slabs(shared: &Shared, _now: Now, output: &mut Output) {
    let store = shared.store.stats();
    let counts = shared.counts();
    let segments = segments_of_items(&store);
    let mut class = Class {
        stats: Stats::new(output),
        prefix: "1",
    };
    if segments > 0 {
        let per_page = store.segment_len / CHUNK_BYTES;
        let chunks = segments * per_page;
        // Memory is read before items are, so items may have grown meanwhile.
        let used = (store.bytes / CHUNK_BYTES).min(chunks);
        class.add("chunk_size", CHUNK_BYTES);
        class.add("chunks_per_page", per_page);
        class.add("total_pages", segments);
        class.add("total_chunks", chunks);
        class.add("used_chunks", used);
        class.add("free_chunks", chunks - used);
        class.add("free_chunks_end", 0);
        class.add("get_hits", counts.get_hits);
        class.add("cmd_set", counts.cmd_set);
        class.add("delete_hits", counts.delete_hits);
        class.add("incr_hits", counts.incr_hits);
        class.add("decr_hits", counts.decr_hits);
        class.add("cas_hits", counts.cas_hits);
        class.add("cas_badval", counts.cas_badval);
        class.add("touch_hits", counts.touch_hits);
    }
    let mut stats = class.stats;
    stats.add("active_slabs", u8::from(segments > 0));
    stats.add("total_malloced", segments * store.segment_len);
    stats.end();
}

/// Pages that have become segments: those that are neither free nor have another use.
fn segments_of_items(store: &coua_store::Stats) -> u64 {
    let others = store.memory_free + store.memory_index + store.memory_tags + store.memory_lent;
    let pages = store.memory.saturating_sub(others) / store.segment_len;
    pages.saturating_sub(store.memory_tables.div_ceil(store.segment_len))
}

/// Statistics whose names begin alike.
struct Class<'o> {
    stats: Stats<'o>,
    prefix: &'static str,
}

impl Class<'_> {
    fn add(&mut self, name: &str, value: u64) {
        self.stats.add(&format!("{}:{name}", self.prefix), value);
    }
}
