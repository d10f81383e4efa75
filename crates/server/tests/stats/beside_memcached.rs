//! The same traffic to memcached and to coua, and the answers side by side.

use crate::asking::{ask, is_number, lines, number, pass_traffic, say};
use crate::memcached::memcached_program;
use crate::support::Server;

/// Lines that coua always has, and memcached only where a flag or its build asks for what they tell of.
const UNASKED: [&str; 2] = ["rejected_connections", "drop_privileges"];

/// How lines begin that are lowered by other things than a reset.
const RISE_AND_FALL: [&str; 5] = [
    "curr_",
    "response_obj_",
    "read_buf_",
    "slab_",
    "lru_crawler_",
];

#[test]
fn every_key_of_memcached_is_there() {
    let servers = [Server::start(&memcached_program(), &[]), Server::coua(&[])];
    for server in &servers {
        pass_traffic(server);
    }
    for question in ["stats", "stats settings"] {
        let [theirs, ours] = servers.each_ref().map(|server| lines(server, question));
        assert!(theirs.len() > 70, "{question} has {} lines", theirs.len());
        let shared: Vec<_> = ours
            .iter()
            .filter(|(key, _)| {
                // An exporter takes what stands before a colon for the number of a slab class.
                assert!(!key.contains(':'), "{question}: {key}");
                let known = theirs.iter().any(|(their_key, _)| their_key == key);
                assert!(
                    known || key.starts_with("coua_") || UNASKED.contains(&key.as_str()),
                    "{question}: {key} is ours"
                );
                known
            })
            .collect();
        let keys = |lines: &[&(String, String)]| {
            lines.iter().map(|(key, _)| key.clone()).collect::<Vec<_>>()
        };
        let wanted: Vec<_> = theirs.iter().collect();
        assert_eq!(
            keys(&shared),
            keys(&wanted),
            "{question}: the keys in their order"
        );
        for ((key, theirs), (_, ours)) in wanted.into_iter().zip(shared) {
            assert_eq!(
                kind(ours),
                kind(theirs),
                "{question}: {key} is {ours}, memcached has {theirs}"
            );
        }
    }
}

/// Classes have the same lines, and together counted the same; coua has one of them.
#[test]
fn classes_are_memcacheds() {
    let servers = [Server::start(&memcached_program(), &[]), Server::coua(&[])];
    for server in &servers {
        pass_traffic(server);
    }
    for question in ["stats slabs", "stats items"] {
        let [theirs, ours] = servers.each_ref().map(|server| lines(server, question));
        // With and without the number of the class.
        let parted = |lines: &[(String, String)]| -> Vec<(String, String, u64)> {
            let parted = lines.iter().filter_map(|(key, value)| {
                let (class, name) = key.rsplit_once(':')?;
                Some((
                    class.to_owned(),
                    name.to_owned(),
                    value.parse().expect("a number"),
                ))
            });
            parted.collect()
        };
        let (theirs, ours) = (parted(&theirs), parted(&ours));
        let of_first = |lines: &[(String, String, u64)]| -> Vec<String> {
            let first = lines.iter().filter(|(class, ..)| *class == lines[0].0);
            first.map(|(_, name, _)| name.clone()).collect()
        };
        assert!(
            theirs.len() > of_first(&theirs).len(),
            "the traffic fills one class only"
        );
        assert_eq!(of_first(&ours), of_first(&theirs), "{question}");
        assert_eq!(
            of_first(&ours).len(),
            ours.len(),
            "{question}: coua has one class"
        );
        let sum = |lines: &[(String, String, u64)], wanted: &str| -> u64 {
            lines
                .iter()
                .filter(|(_, name, _)| name == wanted)
                .map(|(.., value)| value)
                .sum()
        };
        for name in [
            "get_hits",
            "cmd_set",
            "delete_hits",
            "incr_hits",
            "decr_hits",
            "cas_hits",
            "cas_badval",
            "touch_hits",
            "number",
            "evicted",
            "evicted_nonzero",
            "outofmemory",
            "tailrepairs",
        ] {
            assert_eq!(sum(&ours, name), sum(&theirs, name), "{question}: {name}");
        }
    }

    let slabs = ask(&servers[1], "stats slabs");
    let of = |key: &str| number(&slabs, key);
    assert_eq!(
        of("1:chunk_size") * of("1:used_chunks"),
        number(&ask(&servers[1], "stats"), "bytes")
    );
    assert_eq!(
        of("1:chunks_per_page") * of("1:total_pages"),
        of("1:total_chunks")
    );
    assert_eq!(
        of("1:used_chunks") + of("1:free_chunks"),
        of("1:total_chunks")
    );
    assert_eq!(
        of("1:chunk_size") * of("1:total_chunks"),
        of("total_malloced")
    );
    assert!(
        of("total_malloced") < of("1:chunk_size") * of("1:used_chunks") * 2,
        "what is set aside is what is used"
    );
    assert_eq!(slabs["active_slabs"], "1");
}

/// What memcached counts from zero again behind `stats reset`, coua does too.
#[test]
fn reset_forgets_what_was_counted_and_keeps_what_is() {
    let servers = [Server::start(&memcached_program(), &[]), Server::coua(&[])];
    let [theirs, ours] = servers.each_ref().map(|server| {
        pass_traffic(server);
        let before = ask(server, "stats");
        say(server, "stats reset\r\n", "RESET");
        (before, ask(server, "stats"))
    });
    let mut fallen = 0;
    for (key, after) in &theirs.1 {
        if RISE_AND_FALL.iter().any(|start| key.starts_with(start)) {
            continue;
        }
        let (Ok(before), Ok(after)) = (theirs.0[key].parse::<u64>(), after.parse::<u64>()) else {
            continue;
        };
        if after < before && number(&ours.0, key) > 0 {
            let (before, after) = (number(&ours.0, key), number(&ours.1, key));
            assert!(after < before, "{key} was {before} and is {after}");
            fallen += 1;
        }
    }
    assert!(fallen > 20, "reset concerns {fallen} lines");
    for key in [
        "curr_items",
        "bytes",
        "limit_maxbytes",
        "hash_bytes",
        "threads",
    ] {
        assert_eq!(ours.0[key], ours.1[key], "{key}");
    }
}

/// The settings that a client has changed.
#[test]
fn settings_are_memcacheds() {
    for program in [memcached_program(), crate::support::coua_program()] {
        let flags = [
            "-t",
            "1",
            "-f",
            "1.08",
            "-n",
            "72",
            "-o",
            "slab_chunk_max=256",
        ];
        let server = Server::start(&program, &flags);
        say(&server, "lru_crawler sleep 50\r\n", "OK");
        say(&server, "lru_crawler tocrawl 7\r\n", "OK");
        let settings = ask(&server, "stats settings");
        for (name, value) in [
            ("growth_factor", "1.08"),
            ("chunk_size", "72"),
            ("slab_chunk_max", "262144"),
            ("lru_crawler_sleep", "50"),
            ("lru_crawler_tocrawl", "7"),
        ] {
            assert_eq!(settings[name], value, "{}: {name}", program.display());
        }
    }
}

fn kind(value: &str) -> String {
    match value.split_once('.') {
        _ if is_number(value) => "a number".to_owned(),
        Some((whole, fraction)) if is_number(whole) && is_number(fraction) => {
            format!("a number with {} decimals", fraction.len())
        }
        _ if ["yes", "no", "on", "off"].contains(&value) => "a switch".to_owned(),
        _ => "a text".to_owned(),
    }
}
