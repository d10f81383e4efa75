//! `stats memory_errors`: what the machine has lost of the server's memory, and what followed.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::Stats;
use crate::clock::Now;
use crate::output::Output;
use crate::shared::Shared;

pub(super) fn write(shared: &Shared, _now: Now, output: &mut Output) {
    let mut stats = Stats::new(output);
    let losses = &shared.losses;
    let read = |count: &AtomicU64| count.load(Relaxed);
    let allowed = shared.live.loss_limit();
    stats.add("errors", read(&losses.losses));
    stats.add("errors_in_items", read(&losses.items_pages));
    stats.add("errors_in_index", read(&losses.index_pages));
    stats.add("errors_in_connection_buffers", read(&losses.buffer_pages));
    stats.add("errors_in_flash_buffers", read(&losses.flash_pages));
    stats.add("errors_in_tables", read(&losses.table_pages));
    stats.add("errors_in_free_memory", read(&losses.free_pages));
    stats.add("errors_elsewhere_untouched", read(&losses.elsewhere));
    stats.add("bytes_failed", read(&losses.bytes));
    stats.add("items_lost", read(&losses.items_lost));
    stats.add("item_bytes_lost", read(&losses.item_bytes_lost));
    stats.add("connections_closed", shared.gauges().closed_loss);
    stats.add(
        "unsettled",
        shared
            .store
            .losses_seen()
            .saturating_sub(read(&losses.losses)),
    );
    stats.add("last_recovery_us", read(&losses.last_us));
    stats.add("longest_recovery_us", read(&losses.longest_us));
    stats.add("last_doubtful_us", read(&losses.last_doubtful_us));
    stats.add("longest_doubtful_us", read(&losses.longest_doubtful_us));
    stats.add("limit_errors", allowed.at_most);
    stats.add("limit_seconds", allowed.seconds);
    stats.end();
}
