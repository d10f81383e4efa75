//! memcached-tool and damemtop, which ask and read as here.

use std::collections::BTreeMap;
use std::io::{BufReader, Write};
use std::net::TcpStream;

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

/// `keys` prints what it reads up to the line `END`; `dump` then asks for the keys of it, on the same connection.
#[test]
fn memcached_tool_dumps_keys_and_values() {
    let server = Server::coua(&FLAGS);
    pass_traffic(&server);
    let mut stream = connect(&server);
    let send = |stream: &mut BufReader<TcpStream>, request: &str| {
        stream
            .get_mut()
            .write_all(request.as_bytes())
            .expect("the server reads");
    };
    send(&mut stream, "set odd/key% 7 100 2\r\nhi\r\n");
    assert_eq!(read_line(&mut stream), "STORED");
    send(&mut stream, "lru_crawler metadump all\r\n");
    let mut keys = BTreeMap::new();
    loop {
        let line = read_line(&mut stream);
        if line.starts_with("END") {
            break;
        }
        // /^key=(\S+) exp=(-?\d+) .*/, and what does not match is passed over.
        let words = line.strip_prefix("key=");
        let Some((key, rest)) = words.and_then(|words| words.split_once(" exp=")) else {
            assert_eq!(line, "OK");
            continue;
        };
        let (expiry, rest) = rest.split_once(' ').expect("more words");
        assert!(!key.contains(' ') && rest.starts_with("la="), "{line}");
        let expiry: i64 = expiry.parse().expect("a number");
        keys.insert(key.replace("%2F", "/").replace("%25", "%"), expiry);
    }
    let never: Vec<_> = keys.iter().filter(|(_, expiry)| **expiry == -1).collect();
    assert_eq!((keys.len(), never.len()), (4, 3), "{keys:?}");
    assert!(keys["odd/key%"] > 0, "{keys:?}");
    for key in keys.keys() {
        send(&mut stream, &format!("get {key}\r\n"));
        let line = read_line(&mut stream);
        assert!(line.starts_with(&format!("VALUE {key} ")), "{line}");
        let value = read_line(&mut stream);
        assert!(line.ends_with(&format!(" {}", value.len())), "{line}");
        assert_eq!(read_line(&mut stream), "END");
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
