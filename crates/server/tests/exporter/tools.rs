//! memcached-tool and damemtop, which ask and read as here.

use std::collections::BTreeMap;
use std::io::Write;

use crate::scrape::pairs;
use crate::support::Server;
use crate::{FLAGS, ask, connect, pass_traffic, read_line};

#[test]
fn memcached_tool_shows_the_classes() {
    let server = Server::coua(&FLAGS);
    pass_traffic(&server);
    // `display`, and `move`, which has come to be the same.
    let mut rows: BTreeMap<u64, BTreeMap<String, u64>> = BTreeMap::new();
    for question in ["stats items", "stats slabs"] {
        for (name, value) in pairs(&ask(&server, &[question])[0]) {
            let name = name.strip_prefix("items:").unwrap_or(&name);
            let (Some((class, name)), Ok(value)) = (name.split_once(':'), value.parse()) else {
                continue;
            };
            let class = class.parse().expect("the number of a class");
            rows.entry(class)
                .or_default()
                .insert(name.to_owned(), value);
        }
    }
    let filled: Vec<_> = rows.values().filter(|row| row["total_pages"] > 0).collect();
    assert!(!filled.is_empty(), "no row");
    for row in filled {
        for column in [
            "chunk_size",
            "age",
            "evicted",
            "evicted_time",
            "outofmemory",
        ] {
            assert!(row.contains_key(column), "no {column}");
        }
        assert!(
            row["chunk_size"] > 0 && row["number"] > 0 && row["used_chunks"] < row["total_chunks"]
        );
    }

    for (question, line) in [
        ("stats", ("curr_items", "3")),
        ("stats settings", ("maxconns", "200")),
        ("stats sizes", ("sizes_status", "disabled")),
    ] {
        let pairs = pairs(&ask(&server, &[question])[0]);
        let found = pairs.iter().find(|(name, _)| name == line.0);
        assert_eq!(
            found.map(|(_, value)| value.as_str()),
            Some(line.1),
            "{question}"
        );
    }
}

/// `dump` and `keys` read to the line `END`; without a crawler there is one line, which is no `END` to wait for.
#[test]
fn memcached_tool_is_told_what_there_is_to_dump() {
    let server = Server::coua(&FLAGS);
    pass_traffic(&server);
    let mut stream = connect(&server);
    stream
        .get_mut()
        .write_all(b"lru_crawler metadump all\r\n")
        .expect("the server reads");
    let mut keys = Vec::new();
    loop {
        let line = read_line(&mut stream);
        if line == "END" {
            assert_eq!(keys.len(), 3, "{keys:?}");
            break;
        }
        if line == "CLIENT_ERROR lru crawler disabled" {
            assert!(keys.is_empty(), "some keys and an error");
            break;
        }
        if line == "OK" {
            continue;
        }
        let Some((key, rest)) = line
            .strip_prefix("key=")
            .and_then(|line| line.split_once(" exp="))
        else {
            panic!("{line}");
        };
        let expiry: Option<i64> = rest.split(' ').next().and_then(|word| word.parse().ok());
        assert!(expiry.is_some(), "{line}");
        keys.push(key.to_owned());
    }
}

/// It asks in one packet, with bare newlines, and ends where a line has no third word.
#[test]
fn damemtop_shows_its_columns() {
    let server = Server::coua(&FLAGS);
    pass_traffic(&server);
    let parts = ask(&server, &["stats ", "stats items", "stats slabs"]);
    let mut columns = BTreeMap::new();
    for line in parts
        .iter()
        .flat_map(|part| part.lines())
        .filter(|line| *line != "END")
    {
        let words: Vec<&str> = line.split_whitespace().collect();
        assert!(words.len() >= 3, "{line}");
        columns.insert(words[1].to_owned(), words[2].to_owned());
    }
    for column in [
        "version",
        "evictions",
        "bytes_written",
        "bytes",
        "limit_maxbytes",
        "get_hits",
        "get_misses",
    ] {
        assert!(columns.contains_key(column), "no {column}");
    }
}
