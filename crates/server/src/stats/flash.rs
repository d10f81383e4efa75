//! What `stats` says of flash: extstore's keys, and coua's own. Without flash there is none of them, as in memcached.
//!
//! extstore's pages are coua's segments, and its objects are items.

use coua_store::FlashStats;

use super::Stats;
use crate::counters::Totals;
use crate::shared::Shared;

/// What was counted since the last reset, and what there is now.
pub(super) struct FlashReport {
    stats: FlashStats,
    counts: Totals,
    gauges: Totals,
}

impl FlashReport {
    /// `None` without flash.
    pub(super) fn of(shared: &Shared, counts: Totals) -> Option<FlashReport> {
        let now = shared.store.flash_stats()?;
        let before = shared.baseline_of_flash();
        let since = |of: fn(&FlashStats) -> u64| of(&now).wrapping_sub(of(&before));
        let stats = FlashStats {
            appended: since(|it| it.appended),
            bytes_appended: since(|it| it.bytes_appended),
            written: since(|it| it.written),
            segments_written: since(|it| it.segments_written),
            segments_lost: since(|it| it.segments_lost),
            refused: since(|it| it.refused),
            rejected: since(|it| it.rejected),
            reads: since(|it| it.reads),
            hits: since(|it| it.hits),
            false_matches: since(|it| it.false_matches),
            brought_back: since(|it| it.brought_back),
            dropped: since(|it| it.dropped),
            damaged: since(|it| it.damaged),
            failed: since(|it| it.failed),
            ..now
        };
        Some(FlashReport {
            stats,
            counts,
            gauges: shared.gauges(),
        })
    }

    /// The keys that memcached has among those of lookups.
    pub(super) fn of_lookups(&self, stats: &mut Stats<'_>) {
        stats.add("get_extstore", self.counts.get_flash_hits);
        stats.add("get_aborted_extstore", 0);
        stats.add("get_oom_extstore", self.counts.flash_given_up);
        stats.add("recache_from_extstore", self.stats.brought_back);
        stats.add("miss_from_extstore", self.stats.failed);
        stats.add("badcrc_from_extstore", self.stats.damaged);
    }

    /// The keys that begin with `extstore_`.
    pub(super) fn of_pages(&self, stats: &mut Stats<'_>) {
        let it = &self.stats;
        let used = it.segments.saturating_sub(it.segments_free);
        let bytes_used = used * it.segment_len;
        stats.add("extstore_memory_pressure", "0.00");
        stats.add("extstore_compact_lost", 0);
        stats.add("extstore_compact_rescues", 0);
        stats.add("extstore_compact_resc_cold", 0);
        stats.add("extstore_compact_resc_old", 0);
        stats.add("extstore_compact_skipped", 0);
        stats.add(
            "extstore_page_allocs",
            it.segments_written + it.segments_lost,
        );
        let evictions = it.segments_written.saturating_sub(used);
        stats.add("extstore_page_evictions", evictions);
        stats.add("extstore_page_reclaims", 0);
        stats.add("extstore_pages_free", it.segments_free);
        stats.add("extstore_pages_used", used);
        stats.add("extstore_objects_evicted", it.dropped);
        stats.add("extstore_objects_read", it.reads);
        stats.add("extstore_objects_written", it.written);
        stats.add("extstore_objects_used", it.items);
        stats.add("extstore_bytes_evicted", evictions * it.segment_len);
        stats.add("extstore_bytes_written", it.bytes_appended);
        stats.add("extstore_bytes_read", self.counts.flash_bytes_read);
        let live = bytes_used.min(it.items * mean_len(it));
        stats.add("extstore_bytes_used", live);
        stats.add("extstore_bytes_fragmented", bytes_used - live);
        stats.add("extstore_limit_maxbytes", it.segments * it.segment_len);
        stats.add("extstore_io_queue", self.gauges.flash_reads_under_way);
    }

    /// coua's own keys.
    pub(super) fn own(&self, shared: &Shared, stats: &mut Stats<'_>) {
        let it = &self.stats;
        stats.add("coua_flash_items", it.items);
        stats.add("coua_flash_segments", it.segments);
        stats.add("coua_flash_segments_free", it.segments_free);
        stats.add("coua_flash_segment_bytes", it.segment_len);
        stats.add("coua_flash_segments_written", it.segments_written);
        stats.add("coua_flash_segments_lost", it.segments_lost);
        stats.add("coua_flash_items_appended", it.appended);
        stats.add("coua_flash_items_refused", it.refused);
        stats.add("coua_flash_items_rejected", it.rejected);
        stats.add("coua_flash_items_brought_back", it.brought_back);
        stats.add("coua_flash_items_dropped", it.dropped);
        stats.add("coua_flash_false_matches", it.false_matches);
        stats.add("coua_flash_reads_damaged", it.damaged);
        stats.add("coua_flash_reads_failed", it.failed);
        stats.add("coua_flash_requests_waited", self.counts.flash_waits);
        stats.add("coua_flash_devices", shared.flash_devices().len());
        stats.add("coua_flash_devices_gone", shared.flash_devices_gone());
    }
}

/// Bytes of a record in the mean.
fn mean_len(stats: &FlashStats) -> u64 {
    stats.bytes_appended / stats.appended.max(1)
}
