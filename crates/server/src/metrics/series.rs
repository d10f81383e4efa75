//! The series themselves: what is measured, under which name.
//!
//! Counts begin at the start of the process; `stats reset` does not touch them, since Prometheus
//! takes a count that falls for a restart.

use std::fs;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use coua_store::HugePages;

use super::exposition::{Exposition, Format};
use crate::closing::CloseCause;
use crate::counters::Totals;
use crate::latency::{KINDS, Latencies};
use crate::process;
use crate::shared::Shared;
use crate::version::{BUILD, MEMCACHED_VERSION};

/// All series.
pub(super) fn write(shared: &Shared, format: Format) -> String {
    let mut all = Exposition::new(format);
    all.gauge("coua_build_info", "1, with what was built.").add(
        &[
            ("version", &BUILD),
            ("memcached_version", &MEMCACHED_VERSION),
        ],
        1,
    );
    of_process(shared, &mut all);
    let counts = shared.totals();
    commands(&counts, &mut all);
    connections(shared, &counts, &mut all);
    workers(shared, &mut all);
    latencies(shared, &mut all);
    store(shared, &mut all);
    flash(shared, &counts, &mut all);
    memory_errors(shared, &mut all);
    stacks(shared, &mut all);
    all.finish()
}

/// What Prometheus' own client libraries say of a process, under the same names.
fn of_process(shared: &Shared, all: &mut Exposition) {
    let started = shared.clock.started().0;
    all.gauge(
        "process_start_time_seconds",
        "When the process started, in seconds of Unix time.",
    )
    .add(&[], started);
    all.counter(
        "process_cpu_seconds_total",
        "CPU time of the process, in seconds.",
    )
    .add(&[], process::cpu_seconds());
    if let Some(bytes) = process::resident_bytes() {
        all.gauge(
            "process_resident_memory_bytes",
            "Memory of the process that is in RAM, in bytes.",
        )
        .add(&[], bytes);
    }
    if let Ok(open) = fs::read_dir("/proc/self/fd") {
        all.gauge("process_open_fds", "Open file descriptors.")
            .add(&[], open.count());
    }
}

fn commands(counts: &Totals, all: &mut Exposition) {
    let mut commands = all.counter(
        "coua_commands_total",
        "Commands by name and result; a get of several keys counts each key.",
    );
    for (command, result, count) in [
        ("get", "hit", counts.get_hits),
        ("get", "miss", counts.get_misses),
        ("set", "all", counts.cmd_set),
        ("touch", "hit", counts.touch_hits),
        ("touch", "miss", counts.touch_misses),
        ("delete", "hit", counts.delete_hits),
        ("delete", "miss", counts.delete_misses),
        ("incr", "hit", counts.incr_hits),
        ("incr", "miss", counts.incr_misses),
        ("decr", "hit", counts.decr_hits),
        ("decr", "miss", counts.decr_misses),
        ("cas", "hit", counts.cas_hits),
        ("cas", "miss", counts.cas_misses),
        ("cas", "badval", counts.cas_badval),
        ("flush", "all", counts.cmd_flush),
        ("meta", "all", counts.cmd_meta),
    ] {
        commands.add(&[("command", &command), ("result", &result)], count);
    }
    let mut misses = all.counter(
        "coua_get_misses_total",
        "Misses whose item was there, but was dead.",
    );
    misses.add(&[("reason", &"expired")], counts.get_expired);
    misses.add(&[("reason", &"flushed")], counts.get_flushed);
    let mut refused = all.counter(
        "coua_values_refused_total",
        "Values that were not stored, or not sent.",
    );
    refused.add(&[("reason", &"too_large")], counts.store_too_large);
    refused.add(&[("reason", &"no_memory")], counts.store_no_memory);
    refused.add(&[("reason", &"no_memory_to_send")], counts.values_refused);
    all.counter(
        "coua_requests_deferred_total",
        "Requests that were put off to a later turn because memory was being cleaned.",
    )
    .add(&[], counts.requests_deferred);
    all.counter(
        "coua_slow_requests_total",
        "Requests that took as long as -o slow_us says, or longer.",
    )
    .add(&[], counts.slow_requests);
    let mut logins = all.counter("coua_logins_total", "Attempts to log in.");
    let succeeded = counts.auth_cmds.saturating_sub(counts.auth_errors);
    logins.add(&[("result", &"success")], succeeded);
    logins.add(&[("result", &"failure")], counts.auth_errors);
    all.counter(
        "coua_certificate_logins_total",
        "Connections that a certificate of TLS has logged in.",
    )
    .add(&[], counts.certificate_logins);
    all.counter(
        "coua_requests_denied_total",
        "Requests that their users may not make.",
    )
    .add(&[], counts.requests_denied);
    let mut datagrams = all.counter(
        "coua_datagrams_total",
        "UDP datagrams by what became of them.",
    );
    datagrams.add(&[("result", &"request")], counts.udp_requests);
    datagrams.add(&[("result", &"dropped")], counts.udp_dropped);
    datagrams.add(&[("result", &"reply_dropped")], counts.udp_replies_dropped);
}

fn connections(shared: &Shared, counts: &Totals, all: &mut Exposition) {
    if let Some(settings) = &shared.settings.tls {
        let events = &settings.tls.events;
        let count = |counter: &AtomicU64| counter.load(Relaxed);
        let mut handshakes = all.counter("coua_tls_handshakes_total", "Handshakes of TLS.");
        handshakes.add(&[("result", &"full")], count(&events.new_sessions));
        handshakes.add(&[("result", &"resumed")], count(&events.resumed_sessions));
        handshakes.add(&[("result", &"failure")], count(&events.handshake_errors));
        all.gauge(
            "coua_tls_certificates_age_seconds",
            "Seconds since the certificates were read.",
        )
        .add(&[], settings.tls.age_s());
    }
    all.gauge("coua_connections", "Open connections.")
        .add(&[], shared.registry.open());
    all.gauge(
        "coua_connections_max",
        "Connections that may be open at a time (-c).",
    )
    .add(&[], shared.registry.open_max());
    all.counter("coua_connections_accepted_total", "Connections accepted.")
        .add(&[], counts.total_connections);
    all.counter(
        "coua_connections_rejected_total",
        "Connections refused because there were too many.",
    )
    .add(&[], counts.rejected_connections);
    let mut closed = all.counter(
        "coua_connections_closed_total",
        "Connections closed, by what decided it.",
    );
    for (cause, name) in CloseCause::ALL {
        let reason = name.strip_prefix("coua_close_").unwrap_or(name);
        closed.add(&[("reason", &reason)], cause.count_in(counts));
    }
    all.counter(
        "coua_accept_pauses_total",
        "Times that accepting was paused, for lack of descriptors or of room below -c.",
    )
    .add(&[], counts.listen_disabled);
}

/// Each count of a worker that tells whether work is spread evenly.
fn workers(shared: &Shared, all: &mut Exposition) {
    type Count = fn(&crate::counters::Counters) -> u64;
    let counted: [(&'static str, &str, Count); 5] = [
        ("coua_worker_requests_total", "Requests executed.", |it| {
            it.requests.value()
        }),
        (
            "coua_worker_turns_total",
            "Turns of the worker's loop.",
            |it| it.turns.value(),
        ),
        (
            "coua_worker_received_bytes_total",
            "Bytes received, in bytes.",
            |it| it.bytes_read.value(),
        ),
        (
            "coua_worker_sent_bytes_total",
            "Bytes sent, in bytes.",
            |it| it.bytes_written.value(),
        ),
        (
            "coua_worker_yields_total",
            "Times that a connection had used up its share of a turn, with requests left.",
            |it| it.conn_yields.value(),
        ),
    ];
    for (name, help, count) in counted {
        let mut family = all.counter(name, help);
        for worker in 0..shared.settings.workers {
            family.add(&[("worker", &worker)], count(shared.counters(worker)));
        }
    }
    let mut open = all.gauge("coua_worker_connections", "Open connections of the worker.");
    for worker in 0..shared.settings.workers {
        open.add(&[("worker", &worker)], shared.registry.share(worker));
    }
}

fn latencies(shared: &Shared, all: &mut Exposition) {
    let mut family = all.histogram(
        "coua_request_duration_seconds",
        "Time from when a worker found a request ready until its batch was answered, in seconds.",
    );
    for worker in 0..shared.settings.workers {
        let mut own = Latencies::default();
        own.add(shared.latency(worker));
        for (kind, command) in KINDS.into_iter().enumerate() {
            let buckets = own.by_powers_of_four(kind);
            family.add_histogram(
                &[("worker", &worker), ("command", &command)],
                buckets.map(|(end_ns, count)| (end_ns as f64 / 1e9, count)),
                own.count(kind),
                own.sum_ns(kind) as f64 / 1e9,
            );
        }
    }
}

fn store(shared: &Shared, all: &mut Exposition) {
    let store = shared.store.stats();
    let totals = &store.totals;
    all.gauge("coua_items", "Items stored.")
        .add(&[], store.items);
    all.gauge(
        "coua_items_bytes",
        "Memory of live items, headers and keys included, in bytes.",
    )
    .add(&[], store.bytes);
    all.counter("coua_items_stored_total", "Items stored since the start.")
        .add(&[], totals.stored);
    let mut gone = all.counter(
        "coua_items_removed_total",
        "Items that the server removed by itself, by reason.",
    );
    gone.add(&[("reason", &"evicted")], totals.evicted);
    gone.add(&[("reason", &"reclaimed")], totals.reclaimed);
    gone.add(&[("reason", &"crawled")], totals.crawler_reclaimed);
    all.counter(
        "coua_evicted_unread_total",
        "Evicted items that had never been read.",
    )
    .add(&[], totals.evicted_unfetched);
    all.gauge(
        "coua_evicted_idle_seconds",
        "How long the item that was evicted last had not been read, in seconds.",
    )
    .add(&[], store.evicted_idle_s);
    let stacks = shared.settings.stacks_memory() as u64;
    all.gauge(
        "coua_memory_limit_bytes",
        "Memory for all that is kept (-m, cache_memlimit), in bytes.",
    )
    .add(&[], shared.memory());
    all.gauge(
        "coua_memory_held_back_bytes",
        "Part of that which is not used because of memory pressure, in bytes.",
    )
    .add(&[], shared.memory_held_back());
    let mut memory = all.gauge(
        "coua_memory_bytes",
        "That memory by what it is used for, in bytes.",
    );
    let segments = (store.segments_small + store.segments_main) * store.segment_len;
    for (state, bytes) in [
        ("segments", segments),
        ("free", store.memory_free),
        ("index", store.memory_index),
        ("tables", store.memory_tables),
        ("connections", store.memory_lent),
        ("stacks", stacks),
        ("flash", shared.settings.flash_memory as u64),
    ] {
        memory.add(&[("state", &state)], bytes);
    }
    all.gauge(
        "coua_memory_held_bytes",
        "Segments that are kept for values being sent or received, in bytes.",
    )
    .add(&[], store.memory_held);
    all.gauge(
        "coua_huge_pages",
        "1 if the kernel gives memory in huge pages.",
    )
    .add(&[], u8::from(store.huge_pages != HugePages::None));
    for (name, help, value) in [
        (
            "coua_appended_bytes_total",
            "Written to segments, in bytes.",
            totals.bytes_appended,
        ),
        (
            "coua_moved_bytes_total",
            "Moved by the cleaner, in bytes.",
            totals.bytes_moved,
        ),
        (
            "coua_segments_cleaned_total",
            "Segments that the cleaner has emptied.",
            totals.segments_cleaned,
        ),
        (
            "coua_ghost_hits_total",
            "Items stored again soon after they were evicted.",
            totals.ghost_hits,
        ),
        (
            "coua_memory_waits_total",
            "Times that a request waited for memory.",
            totals.waits,
        ),
    ] {
        all.counter(name, help).add(&[], value);
    }
}

/// What is on flash.
fn flash(shared: &Shared, counts: &Totals, all: &mut Exposition) {
    let Some(stats) = shared.store.flash_stats() else {
        return;
    };
    all.gauge("coua_flash_items", "Items on flash.")
        .add(&[], stats.items);
    let mut segments = all.gauge("coua_flash_segments", "Segments of flash by state.");
    let used = stats.segments.saturating_sub(stats.segments_free);
    segments.add(&[("state", &"used")], used);
    segments.add(&[("state", &"free")], stats.segments_free);
    all.gauge(
        "coua_flash_segment_bytes",
        "The length of a segment, in bytes.",
    )
    .add(&[], stats.segment_len);
    let mut devices = all.gauge("coua_flash_device_bytes", "Devices of flash, in bytes.");
    for device in shared.flash_devices() {
        let labels: [(&str, &dyn std::fmt::Display); 2] =
            [("device", &device.name), ("driver", &device.driver)];
        devices.add(&labels, device.len);
    }
    all.gauge(
        "coua_flash_devices_gone",
        "Devices of flash that have failed or were removed.",
    )
    .add(&[], shared.flash_devices_gone());
    let mut items = all.counter(
        "coua_flash_items_total",
        "Items by what became of them on flash.",
    );
    for (event, count) in [
        ("written", stats.written),
        ("refused", stats.refused),
        ("rejected", stats.rejected),
        ("hit", counts.get_flash_hits),
        ("brought_back", stats.brought_back),
        ("dropped", stats.dropped),
    ] {
        items.add(&[("event", &event)], count);
    }
    let mut reads = all.counter("coua_flash_reads_total", "Reads of flash by result.");
    let bad = stats.damaged + stats.failed + stats.false_matches;
    reads.add(&[("result", &"good")], stats.reads.saturating_sub(bad));
    reads.add(&[("result", &"other_key")], stats.false_matches);
    reads.add(&[("result", &"damaged")], stats.damaged);
    reads.add(&[("result", &"failed")], stats.failed);
    all.gauge(
        "coua_flash_reads_under_way",
        "Reads of flash that are under way.",
    )
    .add(&[], shared.gauges().flash_reads_under_way);
    let mut bytes = all.counter(
        "coua_flash_bytes_total",
        "Bytes of items read from and written to flash.",
    );
    bytes.add(&[("direction", &"read")], counts.flash_bytes_read);
    bytes.add(&[("direction", &"written")], stats.bytes_appended);
    let mut written = all.counter(
        "coua_flash_segments_total",
        "Segments by what became of writing them.",
    );
    written.add(&[("result", &"written")], stats.segments_written);
    written.add(&[("result", &"lost")], stats.segments_lost);
}

/// What the machine has lost of the server's memory.
fn memory_errors(shared: &Shared, all: &mut Exposition) {
    let lost = &shared.losses;
    let mut errors = all.counter(
        "coua_memory_errors_total",
        "Pages of memory that the machine has lost, by what they held.",
    );
    for (held, count) in [
        ("items", &lost.items_pages),
        ("index", &lost.index_pages),
        ("connections", &lost.buffer_pages),
        ("flash", &lost.flash_pages),
        ("tables", &lost.table_pages),
        ("nothing", &lost.free_pages),
        ("elsewhere", &lost.elsewhere),
    ] {
        errors.add(&[("held", &held)], count.load(Relaxed));
    }
    all.counter(
        "coua_memory_errors_items_total",
        "Items that were lost with these pages.",
    )
    .add(&[], lost.items_lost.load(Relaxed));
}

/// What the server's own stacks count (`--net`), the card's drops among it.
fn stacks(shared: &Shared, all: &mut Exposition) {
    let workers: Vec<_> = shared.net_counters().collect();
    if workers.is_empty() {
        return;
    }
    let mut family = all.counter(
        "coua_net_events_total",
        "What the stack of --net counts, by the names of stats net.",
    );
    for (worker, counters) in &workers {
        for (event, count) in counters.stack.all() {
            family.add(&[("worker", worker), ("event", &event)], count);
        }
    }
    let mut busy = all.counter(
        "coua_net_seconds_total",
        "Time of a worker's turns on its card, with and without frames, in seconds.",
    );
    for (worker, counters) in &workers {
        for (state, time) in [
            ("busy", counters.turns.busy_time),
            ("idle", counters.turns.idle_time),
        ] {
            busy.add(&[("worker", worker), ("state", &state)], time.as_secs_f64());
        }
    }
}
