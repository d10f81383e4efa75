//! `stats` and its kin: keys, types and counts beside memcached's, and the truth about this server.

mod asking;
mod beside_memcached;
mod binary;
mod conns;

#[path = "../support/memcached.rs"]
mod memcached;
#[path = "../support/mod.rs"]
mod support;

use std::io::{BufRead, BufReader, Write};
use std::thread;
use std::time::Duration;

use asking::{ask, line, number, say};
use support::Server;

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

/// Gets of what has expired are misses of a kind of their own, whatever command asks, and whichever path it
/// takes.
#[test]
fn gets_of_expired_items_are_counted() {
    let server = Server::coua(&["-m", "64"]);
    for number in 0..24 {
        let exptime = u32::from(number < 20);
        say(
            &server,
            &format!("set e{number} 0 {exptime} 1\r\nx\r\n"),
            "STORED",
        );
    }
    thread::sleep(Duration::from_millis(2100));
    for number in 0..8 {
        say(&server, &format!("get e{number}\r\n"), "END");
        say(&server, &format!("gets e{}\r\n", 8 + number), "END");
    }
    say(&server, "get e16 e17 absent\r\n", "END");
    say(&server, "mg e18 v\r\n", "EN");
    say(&server, "gat 10 e19\r\n", "END");
    let stats = ask(&server, "stats");
    assert_eq!(number(&stats, "get_expired"), 20);
    assert_eq!(number(&stats, "get_hits"), 0);
}

#[test]
fn settings_are_what_the_flags_say() {
    let server = Server::coua(&[
        "-m",
        "64",
        "-t",
        "3",
        "-c",
        "200",
        "-M",
        "-F",
        "-C",
        "-D",
        "/",
        "-I",
        "2m",
        "-R",
        "50",
        "-b",
        "99",
        "-o",
        "idle_timeout=30,no_maxconns_fast",
    ]);
    let settings = ask(&server, "stats settings");
    for (key, value) in [
        ("maxbytes", "67108864"),
        ("maxconns", "200"),
        ("num_threads", "3"),
        ("evictions", "off"),
        ("flush_enabled", "no"),
        ("cas_enabled", "no"),
        ("stat_key_prefix", "/"),
        ("detail_enabled", "yes"),
        ("item_size_max", "2097152"),
        ("reqs_per_event", "50"),
        ("tcp_backlog", "99"),
        ("idle_timeout", "30"),
        ("maxconns_fast", "no"),
        ("inter", "127.0.0.1"),
        ("verbosity", "0"),
        ("dump_enabled", "yes"),
    ] {
        assert_eq!(settings[key], value, "{key}");
    }
    assert_eq!(settings["tcpport"], server.address.port().to_string());
    assert!(
        ask(&server, "stats").contains_key("idle_kicks"),
        "idle_timeout is on"
    );
    say(&server, "stats detail off\r\n", "OK");
    say(&server, "verbosity 1\r\n", "OK");
    let settings = ask(&server, "stats settings");
    assert_eq!(
        (
            settings["detail_enabled"].as_str(),
            settings["verbosity"].as_str()
        ),
        ("no", "1")
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

#[test]
fn a_set_that_finds_no_memory_is_counted_once() {
    let server = Server::coua(&["-m", "64", "-t", "1", "-M"]);
    let mut stream = server.connect();
    let mut answers = BufReader::new(stream.try_clone().expect("a second handle"));
    let value = "x".repeat(8000);
    let (mut refused, mut answer) = (0, String::new());
    for number in 0..100_000 {
        // Whole and alone, so that it is tried on the short way first.
        let request = format!("set key{number} 0 0 8000\r\n{value}\r\n");
        stream
            .write_all(request.as_bytes())
            .expect("the server reads");
        answer.clear();
        answers.read_line(&mut answer).expect("an answer");
        refused += u64::from(answer == "SERVER_ERROR out of memory storing object\r\n");
        assert!(refused > 0 || answer == "STORED\r\n", "{answer}");
        if refused == 10 {
            break;
        }
    }
    assert_eq!(refused, 10, "64 MB hold 800 MB");
    let stats = ask(&server, "stats");
    assert_eq!(number(&stats, "store_no_memory"), refused);
    assert_eq!(number(&stats, "coua_memory_waits"), refused);
}

/// One request in 64 is looked at, so what is asked for often is named, and what is not is not.
#[test]
fn hot_keys_are_named() {
    let server = Server::coua(&["-m", "64", "-t", "1"]);
    let value = "x".repeat(100);
    say(
        &server,
        &format!("set hot%1 0 0 100\r\n{value}\r\n"),
        "STORED",
    );
    let mut stream = server.connect();
    for round in 0..40 {
        let mut requests = String::new();
        for number in 0..500 {
            requests += "mg hot%1 v q\r\n";
            requests += &format!("mg none-{round}-{number} v q\r\n");
        }
        requests += "mn\r\n";
        stream
            .write_all(requests.as_bytes())
            .expect("the server reads");
        let answer = BufReader::new(stream.try_clone().expect("a second handle"));
        let last = answer.lines().map(|line| line.expect("an answer"));
        assert!(last.into_iter().any(|line| line == "MN"));
    }
    let hot = ask(&server, "stats hotkeys");
    assert_eq!(hot["1:key"], "hot%251");
    let share: f64 = hot["1:share"].parse().expect("a number");
    assert!((0.3..0.7).contains(&share), "{hot:?}");
    let per_request = number(&hot, "1:bytes_rate") / number(&hot, "1:rate").max(1);
    assert!((90..=110).contains(&per_request), "{hot:?}");
    assert_eq!(line(&server, "stats reset\r\n"), "RESET");
    assert!(ask(&server, "stats hotkeys").is_empty());
}

/// Prefixes whose keys are missed are named, those whose keys are found are not.
#[test]
fn misses_are_named_by_prefix() {
    let server = Server::coua(&["-m", "64", "-t", "1"]);
    say(&server, "set found:1 0 0 1\r\nx\r\n", "STORED");
    let mut stream = server.connect();
    for round in 0..40 {
        let mut requests = String::new();
        for number in 0..500 {
            requests += "get found:1\r\n";
            requests += &format!("get a%b:{round}:{number}\r\n");
            if number % 4 == 0 {
                requests += &format!("mg none-{round}-{number} v\r\n");
            }
            // Who stores does not miss.
            requests += &format!("delete gone:{number}\r\n");
        }
        requests += "mn\r\n";
        stream
            .write_all(requests.as_bytes())
            .expect("the server reads");
        let answer = BufReader::new(stream.try_clone().expect("a second handle"));
        let last = answer.lines().map(|line| line.expect("an answer"));
        assert!(last.into_iter().any(|line| line == "MN"));
    }
    let missed = ask(&server, "stats misses");
    assert_eq!(missed["1:prefix"], "a%25b");
    assert_eq!(missed["2:prefix"], "(none)");
    assert!(!missed.contains_key("3:prefix"), "{missed:?}");
    let share: f64 = missed["1:share"].parse().expect("a number");
    assert!((0.6..0.95).contains(&share), "{missed:?}");
    assert!(number(&missed, "1:rate") > number(&missed, "2:rate"));
    assert_eq!(line(&server, "stats reset\r\n"), "RESET");
    assert!(ask(&server, "stats misses").is_empty());
}

/// The twenty largest values of all, the largest first.
#[test]
fn big_keys_are_named() {
    let server = Server::coua(&["-m", "64", "-t", "2"]);
    assert!(ask(&server, "stats bigkeys").is_empty());
    for number in 0..2000 {
        let len = number % 40 * 1000 + number / 40;
        let value = "x".repeat(len);
        let set = format!("set key/{number} 0 1000 {len}\r\n{value}\r\n");
        say(&server, &set, "STORED");
    }
    say(&server, "set key/1999 0 0 3\r\nabc\r\n", "STORED");
    let value = "x".repeat(700_000);
    say(
        &server,
        &format!("set % 0 0 700000\r\n{value}\r\n"),
        "STORED",
    );
    let big = ask(&server, "stats bigkeys");
    assert_eq!(big.len(), 3 * 20, "{big:?}");
    let shown = |rank: usize| {
        let key = big[&format!("{rank}:key")].clone();
        let ttl: i64 = big[&format!("{rank}:ttl")].parse().expect("a number");
        (key, number(&big, &format!("{rank}:bytes")), ttl)
    };
    assert_eq!(shown(1), ("%25".to_owned(), 700_000, -1));
    for rank in 2..=20 {
        // Behind 39,049, which was replaced: 39,048 and so on.
        let number = 1959 - (rank - 2) * 40;
        let (key, len, ttl) = shown(rank);
        assert_eq!(key, format!("key%2F{number}"), "{rank}");
        assert_eq!(len, 39_000 + number as u64 / 40, "{rank}");
        assert!((900..=1000).contains(&ttl), "{rank}: {ttl}");
    }
    let guarded = Server::coua(&["-X"]);
    assert_eq!(
        line(&guarded, "stats bigkeys\r\n"),
        "CLIENT_ERROR stats bigkeys not allowed"
    );
}
