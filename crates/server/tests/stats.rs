//! `stats` and its kin, as dashboards and exporters read them.

mod support;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::thread;
use std::time::Duration;

use support::Server;

/// Every key of a default memcached 1.6.45's `stats`, in its order.
const GENERAL: &str = "pid uptime time version libevent pointer_size rusage_user rusage_system max_connections \
    curr_connections total_connections rejected_connections connection_structures response_obj_oom \
    response_obj_count response_obj_bytes read_buf_count read_buf_bytes read_buf_bytes_free read_buf_oom \
    reserved_fds cmd_get cmd_set cmd_flush cmd_touch cmd_meta get_hits get_misses get_expired \
    get_flushed delete_misses delete_hits incr_misses incr_hits decr_misses decr_hits cas_misses \
    cas_hits cas_badval touch_hits touch_misses store_too_large store_no_memory auth_cmds auth_errors \
    bytes_read bytes_written limit_maxbytes accepting_conns listen_disabled_num \
    time_in_listen_disabled_us threads conn_yields hash_power_level hash_bytes hash_is_expanding \
    slab_reassign_rescues slab_reassign_chunk_rescues slab_reassign_inline_reclaim \
    slab_reassign_busy_items slab_reassign_busy_deletes slab_reassign_busy_nomem \
    slab_reassign_last_busy_status slab_reassign_running slabs_moved lru_crawler_running \
    lru_crawler_starts lru_maintainer_juggles malloc_fails log_worker_dropped log_worker_written \
    log_watcher_skipped log_watcher_sent log_watchers unexpected_napi_ids round_robin_fallback bytes \
    curr_items total_items slab_global_page_pool expired_unfetched evicted_unfetched evicted_active \
    evictions reclaimed crawler_reclaimed crawler_items_checked lrutail_reflocked moves_to_cold \
    moves_to_warm moves_within_lru direct_reclaims lru_bumps_dropped";

/// What exporters read of `stats settings`.
const SETTINGS: &str = "maxbytes maxconns tcpport udpport inter verbosity oldest evictions domain_socket umask \
    num_threads chunk_size item_size_max cas_enabled tcp_backlog lru_crawler flush_enabled";

#[test]
fn every_key_of_memcached_is_there() {
    let server = Server::coua(&["-m", "64"]);
    let stats = ask(&server, "stats");
    for key in GENERAL.split_whitespace() {
        assert!(stats.contains_key(key), "stats has no {key}");
    }
    assert!(
        stats.len() >= 84,
        "memcached has 84 keys, coua {}",
        stats.len()
    );
}

#[test]
fn numbers_are_numbers_and_keys_have_no_colon() {
    let server = Server::coua(&["-m", "64"]);
    for (key, value) in ask(&server, "stats") {
        // An exporter takes what stands before a colon for the number of a slab class.
        assert!(!key.contains(':'), "{key}");
        match key.as_str() {
            "version" | "libevent" | "slab_reassign_last_busy_status" => {}
            "rusage_user" | "rusage_system" => {
                let (seconds, fraction) = value.split_once('.').expect("seconds.microseconds");
                assert!(
                    is_number(seconds) && is_number(fraction) && fraction.len() == 6,
                    "{key} {value}"
                );
            }
            _ if GENERAL.split_whitespace().any(|known| known == key) => {
                assert!(is_number(&value), "{key} {value}")
            }
            _ => assert!(!value.contains(' '), "{key} {value}"),
        }
    }
}

#[test]
fn the_truth_about_this_server() {
    let server = Server::coua(&["-m", "64", "-t", "2", "-c", "200"]);
    let before = ask(&server, "stats");
    assert_eq!(before["pid"], server.child.id().to_string());
    assert_eq!(before["pointer_size"], "64");
    assert_eq!(before["threads"], "2");
    assert_eq!(before["max_connections"], "200");
    assert_eq!(before["limit_maxbytes"], (64 << 20).to_string());
    assert_eq!(before["accepting_conns"], "1");
    assert_eq!(before["curr_items"], "0");

    let value = "x".repeat(1000);
    for number in 0..500 {
        say(
            &server,
            &format!("set key{number} 0 0 1000\r\n{value}\r\n"),
            "STORED",
        );
    }
    let after = ask(&server, "stats");
    assert_eq!(after["curr_items"], "500");
    assert_eq!(
        number(&after, "total_items") - number(&before, "total_items"),
        500
    );
    assert_eq!(number(&after, "cmd_set") - number(&before, "cmd_set"), 500);
    let bytes = number(&after, "bytes") - number(&before, "bytes");
    assert!(
        (500_000..700_000).contains(&bytes),
        "500 items of 1000 bytes are {bytes} bytes"
    );
    let read = number(&after, "bytes_read") - number(&before, "bytes_read");
    assert!(
        (500 * 1020..500 * 1030 + 100).contains(&read),
        "{read} bytes were read"
    );
    let connections = number(&after, "total_connections") - number(&before, "total_connections");
    assert!(connections >= 500, "{connections} connections");
    assert!(number(&after, "bytes_written") > number(&before, "bytes_written"));
    thread::sleep(Duration::from_millis(2100));
    let later = ask(&server, "stats");
    assert!(
        number(&later, "uptime") > number(&before, "uptime"),
        "time passes"
    );
    assert!(
        number(&later, "time") > number(&before, "time"),
        "time passes"
    );
}

#[test]
fn reset_forgets_what_was_counted_and_keeps_what_is() {
    let server = Server::coua(&["-m", "64"]);
    say(&server, "set a 0 0 1\r\nx\r\n", "STORED");
    say(&server, "get none\r\n", "END");
    say(&server, "stats reset\r\n", "RESET");
    let stats = ask(&server, "stats");
    assert_eq!(stats["get_misses"], "0");
    assert_eq!(stats["cmd_set"], "0");
    assert_eq!(stats["curr_items"], "1");
}

#[test]
fn settings_items_slabs_and_conns_answer() {
    let server = Server::coua(&["-m", "64", "-t", "3", "-c", "200"]);
    say(&server, "set a 0 0 1\r\nx\r\n", "STORED");
    let settings = ask(&server, "stats settings");
    for key in SETTINGS.split_whitespace() {
        assert!(settings.contains_key(key), "stats settings has no {key}");
    }
    assert_eq!(settings["maxconns"], "200");
    assert_eq!(settings["num_threads"], "3");
    assert_eq!(settings["maxbytes"], (64 << 20).to_string());
    assert_eq!(settings["tcpport"], server.address.port().to_string());
    if settings["lru_crawler"] == "yes" {
        for key in [
            "lru_crawler_sleep",
            "lru_crawler_tocrawl",
            "lru_maintainer_thread",
            "hot_lru_pct",
            "warm_lru_pct",
        ] {
            assert!(
                settings.contains_key(key),
                "with lru_crawler, exporters read {key}"
            );
        }
    }
    for key in ask(&server, "stats items")
        .keys()
        .chain(ask(&server, "stats slabs").keys())
    {
        let numbered = key.split(':').rev().nth(1).is_none_or(is_number);
        assert!(
            numbered && key.matches(':').count() <= 2,
            "an exporter cannot read the key {key}"
        );
        assert!(
            !key.ends_with(":store_too_large") && !key.ends_with(":store_no_memory"),
            "{key} ends an exporter"
        );
    }
    let conns = ask(&server, "stats conns");
    assert!(
        conns.keys().any(|key| key.ends_with(":addr")),
        "stats conns names no address"
    );
}

#[test]
fn the_version_is_new_enough_for_clients() {
    let server = Server::coua(&["-m", "64"]);
    let answer = line(&server, "version\r\n");
    let version = answer
        .strip_prefix("VERSION ")
        .expect("VERSION and a number");
    let numbers: Vec<u32> = version
        .split([' ', '-'])
        .next()
        .unwrap_or("")
        .split('.')
        .flat_map(str::parse)
        .collect();
    assert!(numbers.as_slice() >= [1, 6, 27].as_slice(), "{version}");
    let stats = ask(&server, "stats");
    assert!(
        version.starts_with(&stats["version"]) || stats["version"].starts_with(version),
        "{version}"
    );
}

fn ask(server: &Server, question: &str) -> BTreeMap<String, String> {
    let mut stream = server.connect();
    stream
        .set_read_timeout(Some(Duration::from_secs(10)))
        .expect("a timeout can be set");
    stream
        .write_all(format!("{question}\r\n").as_bytes())
        .expect("the server reads");
    let mut stats = BTreeMap::new();
    for line in BufReader::new(stream).lines() {
        let line = line.expect("an answer that ends with END");
        if line == "END" {
            return stats;
        }
        let rest = line
            .strip_prefix("STAT ")
            .unwrap_or_else(|| panic!("{question}: {line}"));
        let (key, value) = rest
            .split_once(' ')
            .unwrap_or_else(|| panic!("{question}: {line}"));
        let old = stats.insert(key.to_owned(), value.to_owned());
        assert!(old.is_none(), "{question}: {key} comes twice");
    }
    panic!("{question}: the answer ends without END");
}

fn say(server: &Server, request: &str, answer: &str) {
    assert_eq!(
        line(server, request),
        answer,
        "{}",
        request.lines().next().unwrap_or_default()
    );
}

fn line(server: &Server, request: &str) -> String {
    let mut stream = server.connect();
    stream
        .set_read_timeout(Some(Duration::from_secs(10)))
        .expect("a timeout can be set");
    stream
        .write_all(request.as_bytes())
        .expect("the server reads");
    let mut line = String::new();
    BufReader::new(stream)
        .read_line(&mut line)
        .expect("an answer");
    line.trim_end().to_owned()
}

fn number(stats: &BTreeMap<String, String>, key: &str) -> u64 {
    stats[key].parse().expect("a number")
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}
