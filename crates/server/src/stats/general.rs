//! `stats` without an argument.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use coua_store::HugePages;
use coua_transport::dropped_by_kernel;
use nix::sys::resource::{UsageWho, getrusage};

use super::Stats;
use super::flash::FlashReport;
use crate::clock::Now;
use crate::closing::CloseCause;
use crate::output::Output;
use crate::shared::Shared;
use crate::version::{BUILD, MEMCACHED_VERSION};

/// Descriptors that a worker keeps for itself: its epoll set, its waker, its listeners.
const DESCRIPTORS_PER_WORKER: usize = 4;

/// `stats`: memcached's keys in memcached's order, then coua's own.
///
/// Keys of mechanisms that only memcached has (slab classes, the segmented LRU) are there too, with the values of a memcached in which they have never worked.
pub(super) fn write(shared: &Shared, now: Now, output: &mut Output) {
    let counts = shared.counts();
    let store = shared.store.stats();
    let before = shared.baseline_of_store();
    let since = |total: u64, before: u64| total.wrapping_sub(before);
    let stored = &store.totals;
    let mut stats = Stats::new(output);

    stats.add("pid", std::process::id());
    stats.add("uptime", now.since_start_ms / 1000);
    stats.add("time", now.unix.0);
    stats.add("version", MEMCACHED_VERSION);
    stats.add("libevent", "none");
    stats.add("pointer_size", usize::BITS);
    rusage(&mut stats);
    stats.add("max_connections", shared.registry.open_max());
    stats.add("curr_connections", shared.registry.open());
    stats.add("total_connections", counts.total_connections);
    stats.add("rejected_connections", counts.rejected_connections);
    stats.add("connection_structures", shared.registry.open_most());
    stats.add("response_obj_oom", counts.values_refused);
    stats.add("response_obj_count", 0);
    stats.add("response_obj_bytes", 0);
    let gauges = shared.gauges();
    stats.add("read_buf_count", gauges.buffer_blocks);
    stats.add("read_buf_bytes", store.memory_lent);
    stats.add("read_buf_bytes_free", 0);
    stats.add("read_buf_oom", counts.connections_shed);
    stats.add(
        "reserved_fds",
        DESCRIPTORS_PER_WORKER * shared.settings.workers,
    );
    stats.add("cmd_get", counts.cmd_get);
    stats.add("cmd_set", counts.cmd_set);
    stats.add("cmd_flush", counts.cmd_flush);
    stats.add("cmd_touch", counts.cmd_touch);
    stats.add("cmd_meta", counts.cmd_meta);
    stats.add("get_hits", counts.get_hits);
    stats.add("get_misses", counts.get_misses);
    stats.add("get_expired", counts.get_expired);
    stats.add("get_flushed", counts.get_flushed);
    let flash = FlashReport::of(shared, counts);
    if let Some(flash) = &flash {
        flash.of_lookups(&mut stats);
    }
    stats.add("delete_misses", counts.delete_misses);
    stats.add("delete_hits", counts.delete_hits);
    stats.add("incr_misses", counts.incr_misses);
    stats.add("incr_hits", counts.incr_hits);
    stats.add("decr_misses", counts.decr_misses);
    stats.add("decr_hits", counts.decr_hits);
    stats.add("cas_misses", counts.cas_misses);
    stats.add("cas_hits", counts.cas_hits);
    stats.add("cas_badval", counts.cas_badval);
    stats.add("touch_hits", counts.touch_hits);
    stats.add("touch_misses", counts.touch_misses);
    stats.add("store_too_large", counts.store_too_large);
    stats.add("store_no_memory", counts.store_no_memory);
    stats.add("auth_cmds", counts.auth_cmds);
    stats.add("auth_errors", counts.auth_errors);
    if shared.live.idle_timeout_s() > 0 {
        stats.add("idle_kicks", counts.idle_kicks);
    }
    stats.add("bytes_read", counts.bytes_read);
    stats.add("bytes_written", counts.bytes_written);
    stats.add("limit_maxbytes", shared.memory());
    stats.add("accepting_conns", u8::from(shared.is_accepting()));
    stats.add("listen_disabled_num", counts.listen_disabled);
    stats.add("time_in_listen_disabled_us", counts.listen_disabled_us);
    stats.add("threads", shared.settings.workers);
    stats.add("conn_yields", counts.conn_yields);
    stats.add("hash_power_level", store.slots.max(1).ilog2());
    stats.add("hash_bytes", store.memory_index);
    stats.add("hash_is_expanding", 0);
    stats.add("slab_reassign_rescues", 0);
    stats.add("slab_reassign_chunk_rescues", 0);
    stats.add("slab_reassign_inline_reclaim", 0);
    stats.add("slab_reassign_busy_items", 0);
    stats.add("slab_reassign_busy_deletes", 0);
    stats.add("slab_reassign_busy_nomem", 0);
    stats.add("slab_reassign_last_busy_status", "none");
    stats.add("slab_reassign_running", 0);
    stats.add("slabs_moved", 0);
    stats.add("lru_crawler_running", 0);
    stats.add("lru_crawler_starts", 0);
    stats.add("lru_maintainer_juggles", 0);
    stats.add("malloc_fails", 0);
    let lines = shared.watchers.counts();
    // Lines go to the watchers' queues at once, so none is lost on the way there.
    stats.add("log_worker_dropped", 0);
    stats.add("log_worker_written", lines.written);
    stats.add("log_watcher_skipped", lines.skipped);
    stats.add("log_watcher_sent", lines.sent);
    stats.add("log_watchers", shared.watchers.len());
    if let Some(flash) = &flash {
        flash.of_pages(&mut stats);
    }
    if let Some(settings) = &shared.settings.tls {
        let count = |counter: &AtomicU64| counter.load(Relaxed);
        let events = &settings.tls.events;
        if settings.files.session_cache {
            stats.add("ssl_new_sessions", count(&events.new_sessions));
        }
        stats.add("ssl_handshake_errors", count(&events.handshake_errors));
        stats.add("ssl_proto_errors", count(&events.protocol_errors));
        stats.add("time_since_server_cert_refresh", settings.tls.age_s());
        stats.add("coua_ssl_resumed_sessions", count(&events.resumed_sessions));
    }
    stats.add("unexpected_napi_ids", 0);
    stats.add("round_robin_fallback", 0);
    stats.add("bytes", store.bytes);
    stats.add("curr_items", store.items);
    stats.add("total_items", since(stored.stored, before.stored));
    stats.add("slab_global_page_pool", 0);
    stats.add(
        "expired_unfetched",
        since(stored.expired_unfetched, before.expired_unfetched),
    );
    stats.add(
        "evicted_unfetched",
        since(stored.evicted_unfetched, before.evicted_unfetched),
    );
    stats.add(
        "evicted_active",
        since(stored.evicted_active, before.evicted_active),
    );
    stats.add("evictions", since(stored.evicted, before.evicted));
    stats.add("reclaimed", since(stored.reclaimed, before.reclaimed));
    stats.add(
        "crawler_reclaimed",
        since(stored.crawler_reclaimed, before.crawler_reclaimed),
    );
    stats.add(
        "crawler_items_checked",
        since(stored.crawler_checked, before.crawler_checked),
    );
    stats.add("lrutail_reflocked", 0);
    stats.add("moves_to_cold", 0);
    stats.add("moves_to_warm", 0);
    stats.add("moves_within_lru", 0);
    stats.add("direct_reclaims", 0);
    stats.add("lru_bumps_dropped", 0);

    stats.add("coua_version", BUILD);
    stats.add("coua_requests", counts.requests);
    stats.add("coua_turns", counts.turns);
    stats.add("coua_requests_deferred", counts.requests_deferred);
    stats.add("coua_slow_requests", counts.slow_requests);
    stats.add("coua_connections_shed", counts.connections_shed);
    stats.add("coua_certificate_logins", counts.certificate_logins);
    stats.add("coua_requests_denied", counts.requests_denied);
    let losses = &shared.losses;
    stats.add("coua_memory_errors", losses.losses.load(Relaxed));
    stats.add("coua_memory_error_items", losses.items_lost.load(Relaxed));
    for (cause, name) in CloseCause::ALL {
        stats.add(name, cause.count_in(&counts));
    }
    stats.add("coua_udp_requests", counts.udp_requests);
    stats.add("coua_udp_dropped", counts.udp_dropped);
    if !shared.listening.udp_inodes.is_empty() {
        let dropped = dropped_by_kernel(&shared.listening.udp_inodes);
        stats.add("coua_udp_dropped_by_kernel", dropped);
    }
    stats.add("coua_udp_replies_dropped", counts.udp_replies_dropped);
    let stacks = shared.settings.stacks_memory() as u64;
    let of_flash = shared.settings.flash_memory as u64;
    stats.add("coua_memory", store.memory + stacks + of_flash);
    stats.add("coua_memory_held_back", shared.memory_held_back());
    stats.add("coua_memory_free", store.memory_free);
    stats.add("coua_memory_index", store.memory_index);
    stats.add("coua_memory_tables", store.memory_tables);
    stats.add("coua_memory_tags", store.memory_tags);
    stats.add("coua_memory_connections", store.memory_lent);
    stats.add("coua_memory_stacks", stacks);
    stats.add("coua_memory_flash", of_flash);
    stats.add("coua_memory_uploads", store.memory_uploads);
    stats.add("coua_memory_held", store.memory_held);
    stats.add("coua_memory_per_worker", shared.memory_per_worker);
    stats.flag("coua_huge_pages", store.huge_pages != HugePages::None);
    for node in shared.store.nodes() {
        let mut add =
            |what, value: u64| stats.add(&format!("coua_node{}_{what}", node.number), value);
        add("memory", node.memory);
        add("memory_free", node.memory_free);
        add("pages_near", node.pages_near);
        add("pages_far", node.pages_far);
    }
    stats.add("coua_segment_bytes", store.segment_len);
    stats.add("coua_segments", store.segments);
    stats.add("coua_segments_small", store.segments_small);
    stats.add("coua_segments_main", store.segments_main);
    stats.add(
        "coua_segments_cleaned",
        since(stored.segments_cleaned, before.segments_cleaned),
    );
    stats.add(
        "coua_segments_expired",
        since(stored.segments_expired, before.segments_expired),
    );
    stats.add("coua_index_tables", store.tables);
    stats.add("coua_index_slots", store.slots);
    stats.add("coua_index_splits", since(stored.splits, before.splits));
    stats.add("coua_index_merges", since(stored.merges, before.merges));
    stats.add(
        "coua_index_displacements",
        since(stored.displacements, before.displacements),
    );
    if let Some(flash) = &flash {
        flash.own(shared, &mut stats);
    }
    stats.add("coua_get_invalidated", counts.get_invalidated);
    stats.add(
        "coua_tags_invalidated",
        since(stored.tags_invalidated, before.tags_invalidated),
    );
    stats.add(
        "coua_items_invalidated",
        since(stored.invalidated, before.invalidated),
    );
    stats.add(
        "coua_bytes_appended",
        since(stored.bytes_appended, before.bytes_appended),
    );
    stats.add(
        "coua_bytes_moved",
        since(stored.bytes_moved, before.bytes_moved),
    );
    stats.add(
        "coua_ghost_hits",
        since(stored.ghost_hits, before.ghost_hits),
    );
    stats.add("coua_promoted", since(stored.promoted, before.promoted));
    stats.add("coua_kept", since(stored.kept, before.kept));
    stats.add("coua_compacted", since(stored.compacted, before.compacted));
    stats.add("coua_memory_waits", since(stored.waits, before.waits));
    stats.end();
}

fn rusage(stats: &mut Stats<'_>) {
    let Ok(usage) = getrusage(UsageWho::RUSAGE_SELF) else {
        return;
    };
    let (user, system) = (usage.user_time(), usage.system_time());
    stats.add(
        "rusage_user",
        format_args!("{}.{:06}", user.tv_sec(), user.tv_usec()),
    );
    stats.add(
        "rusage_system",
        format_args!("{}.{:06}", system.tv_sec(), system.tv_usec()),
    );
}
