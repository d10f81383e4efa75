//! `stats settings`.

use std::path::PathBuf;

use super::Stats;
use crate::clock::Now;
use crate::flags::{ADMISSIONS, TlsSettings};
use crate::output::Output;
use crate::shared::Shared;

/// memcached's keys in memcached's order, then coua's own.
///
/// Settings of mechanisms that only memcached has are shown as switched off. Their numbers are shown
/// as they were given.
pub(super) fn write(shared: &Shared, _now: Now, output: &mut Output) {
    let (settings, live) = (&shared.settings, &shared.live);
    let permissions = live.permissions();
    let mut stats = Stats::new(output);
    stats.add("maxbytes", shared.memory());
    stats.add("maxconns", shared.registry.open_max());
    stats.add("tcpport", shared.tcp_port());
    stats.add("udpport", shared.udp_port());
    stats.add("inter", settings.listen_text.as_deref().unwrap_or("NULL"));
    stats.add("verbosity", shared.verbosity());
    stats.add("oldest", 0);
    stats.add("evictions", if settings.evict { "on" } else { "off" });
    match &settings.unix_socket {
        Some(socket) => stats.add("domain_socket", socket.path.display()),
        None => stats.add("domain_socket", "NULL"),
    }
    stats.add("umask", format_args!("{:o}", settings.unix_mask));
    stats.flag("shutdown_command", permissions.shutdown);
    let given = |name, default| settings.given_or(name, default);
    stats.add("growth_factor", given("growth_factor", "1.25"));
    stats.add("chunk_size", given("chunk_size", "48"));
    stats.add("num_threads", settings.workers);
    stats.add("num_threads_per_udp", settings.workers);
    stats.add("stat_key_prefix", char::from(settings.prefix_delimiter));
    stats.flag("detail_enabled", shared.prefixes.is_enabled());
    stats.add("reqs_per_event", live.requests_per_turn());
    stats.flag("cas_enabled", settings.limits.cas);
    stats.add("tcp_backlog", settings.backlog);
    stats.add("binding_protocol", settings.protocol_name);
    stats.flag("auth_enabled_sasl", settings.limits.sasl);
    match &settings.auth_file {
        Some(path) => stats.add("auth_enabled_ascii", path.display()),
        None => stats.flag("auth_enabled_ascii", false),
    }
    stats.add("item_size_max", settings.limits.item_size_max);
    stats.flag("maxconns_fast", live.refuses_at_once());
    stats.add("hashpower_init", given("hashpower", "0"));
    stats.flag("slab_reassign", false);
    stats.add("slab_automove", 0);
    let ratio = given("slab_automove_ratio", "0.80");
    stats.add("slab_automove_ratio", ratio);
    stats.add("slab_automove_window", given("slab_automove_window", "10"));
    let chunk_kib: u64 = given("slab_chunk_max", "0").parse().unwrap_or_default();
    stats.add("slab_chunk_max", chunk_kib << 10);
    let crawler = &shared.crawler;
    stats.flag("lru_crawler", crawler.is_enabled());
    stats.add("lru_crawler_sleep", crawler.sleep_us());
    stats.add("lru_crawler_tocrawl", crawler.to_crawl());
    stats.add("tail_repair_time", given("tail_repair_time", "0"));
    stats.flag("flush_enabled", permissions.flush);
    stats.flag("dump_enabled", permissions.dump);
    stats.add("hash_algorithm", "rapidhash");
    stats.flag("lru_maintainer_thread", false);
    stats.flag("lru_segmented", false);
    stats.add("hot_lru_pct", given("hot_lru_pct", "20"));
    stats.add("warm_lru_pct", given("warm_lru_pct", "40"));
    stats.add("hot_max_factor", given("hot_max_factor", "0.20"));
    stats.add("warm_max_factor", given("warm_max_factor", "2.00"));
    stats.flag("temp_lru", false);
    stats.add("temporary_ttl", 61);
    stats.add("idle_timeout", live.idle_timeout_s());
    stats.add("watcher_logbuf_size", settings.watcher_queue);
    stats.add("worker_logbuf_size", 65_536);
    stats.add("read_buf_mem_limit", 0);
    stats.flag("track_sizes", false);
    stats.flag("inline_ascii_response", false);
    stats.flag("drop_privileges", settings.drops_privileges);
    let item_len_min = settings.flash.as_ref().map(|flash| flash.item_len_min);
    stats.add("ext_item_size", item_len_min.unwrap_or(512));
    stats.add("ext_item_age", given("ext_item_age", "4294967295"));
    stats.add("ext_low_ttl", given("ext_low_ttl", "0"));
    stats.add("ext_recache_rate", given("ext_recache_rate", "2000"));
    let buffer_mib: u64 = given("ext_wbuf_size", "4").parse().unwrap_or_default();
    stats.add("ext_wbuf_size", buffer_mib << 20);
    stats.add("ext_compact_under", given("ext_compact_under", "0"));
    stats.add("ext_drop_under", given("ext_drop_under", "0"));
    stats.add("ext_max_sleep", given("ext_max_sleep", "1000000"));
    stats.add("ext_max_frag", given("ext_max_frag", "0.80"));
    let ratio = given("slab_automove_freeratio", "0.010");
    stats.add("slab_automove_freeratio", ratio);
    let drops_unread = settings.is_given("ext_drop_unread");
    stats.flag("ext_drop_unread", drops_unread);
    tls(settings.tls.as_ref(), &mut stats);
    stats.flag("proxy_enabled", false);
    stats.flag("proxy_uring_enabled", false);
    stats.add("num_napi_ids", 0);
    match &settings.memory_file {
        Some(path) => stats.add("memory_file", path.display()),
        None => stats.add("memory_file", "(null)"),
    }
    stats.add("client_flags_size", 4);
    stats.add("coua_drain_timeout", live.drain_timeout_s());
    stats.flag("coua_memory_locked", settings.lock_memory);
    match settings.pressure {
        Some(pressure) => stats.add("coua_memory_pressure", pressure.floor >> 20),
        None => stats.add("coua_memory_pressure", "(null)"),
    }
    if let Some(flash) = &settings.flash {
        let mut rules = ADMISSIONS.iter();
        let rule = rules.find(|(_, admission)| *admission == flash.admission);
        let rule = rule.map_or("", |(name, _)| *name);
        stats.add("ext_item_size_max", flash.item_len_max.unwrap_or(0));
        stats.add("ext_admission", rule);
        stats.add("ext_write_budget", flash.write_budget.unwrap_or(0));
    }
    for place in settings.flash.iter().flat_map(|flash| &flash.places) {
        stats.add("coua_flash", place.name());
    }
    stats.add("coua_cores", settings.cores_text());
    stats.end();
}

fn tls(tls: Option<&TlsSettings>, stats: &mut Stats<'_>) {
    let files = tls.map(|tls| &tls.files);
    let path = |path: Option<&PathBuf>, none: &'static str| match path {
        Some(path) => path.display().to_string(),
        None => none.to_owned(),
    };
    stats.flag("ssl_enabled", tls.is_some());
    let chain = files.map(|files| &files.chain);
    stats.add("ssl_chain_cert", path(chain, "(null)"));
    stats.add("ssl_key", path(files.map(|files| &files.key), "(null)"));
    stats.add("ssl_verify_mode", tls.map_or(0, |tls| tls.verify_mode));
    stats.add("ssl_keyformat", 1);
    let suites = files.and_then(|files| files.suites.as_deref());
    stats.add("ssl_ciphers", suites.unwrap_or("NULL"));
    let authorities = files.and_then(|files| files.authorities.as_ref());
    stats.add("ssl_ca_cert", path(authorities, "NULL"));
    stats.add(
        "ssl_wbuf_size",
        files.map_or(16_384, |files| files.unsent_max),
    );
    stats.flag(
        "ssl_session_cache",
        files.is_some_and(|files| files.session_cache),
    );
    stats.flag("ssl_kernel_tls", false);
    let oldest = match files.is_some_and(|files| files.only_tls13) {
        true => "tlsv1.3",
        false => "tlsv1.2",
    };
    stats.add("ssl_min_version", oldest);
}
