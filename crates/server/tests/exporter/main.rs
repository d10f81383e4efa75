//! What monitoring programs make of the statistics: the Prometheus exporter for memcached (0.16), memcached-tool and
//! damemtop.
//!
//! The exporter is on no package registry, so its reading is told here: `scrape.rs` has its rules, `lines.rs` every line
//! that it reads with what it takes it for. `COUA_BIN=memcached` holds both against memcached.

mod lines;
mod scrape;
mod tools;

#[path = "../support/mod.rs"]
mod support;

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::time::Duration;

use lines::Holds::{self, AtLeast, Exactly, Number, Seconds, Text};
use lines::{GENERAL, ITEMS, SLABS};
use scrape::{Scrape, number, seconds};
use support::Server;

const FLAGS: [&str; 4] = ["-m", "64", "-c", "200"];

/// What every counter of requests is raised by.
const TRAFFIC: &str = "flush_all\r\nset a 0 0 1\r\nx\r\nset b 0 0 4\r\n1000\r\nset n 0 0 1\r\n5\r\nget a\r\nget a b none\r\n\
    gets a\r\ngat 0 a\r\ntouch a 0\r\ntouch none 0\r\nincr n 1\r\nincr n 2\r\nincr none 1\r\ndecr n 1\r\ndecr none 1\r\n\
    cas a 0 0 1 1000000000000\r\ny\r\ncas none 0 0 1 1\r\ny\r\nms e 1 E100\r\nz\r\ncas e 0 0 1 100\r\nw\r\n\
    delete b\r\ndelete none\r\nset big 0 0 2000000\r\n";

#[test]
fn a_scrape_reads_every_line() {
    let server = Server::coua(&FLAGS);
    pass_traffic(&server);
    let scrape = Scrape::read(&answers(&server)).unwrap_or_else(|why| panic!("{why}"));
    for (name, holds) in GENERAL {
        check(name, *holds, &[scrape.general.get(*name)]);
    }
    for (table, classes) in [(SLABS, &scrape.slabs), (ITEMS, &scrape.items)] {
        assert!(!classes.is_empty(), "no class of items");
        for (name, holds) in table {
            let values: Vec<_> = classes.values().map(|class| class.get(*name)).collect();
            check(name, *holds, &values);
        }
    }
    let class_sum = |names: &[&str]| -> f64 {
        let lines = scrape.items.values().flatten();
        let named = lines.filter(|(name, _)| names.contains(&name.as_str()));
        named
            .map(|(_, value)| number(value).expect("it is checked"))
            .sum()
    };
    let hits = class_sum(&[
        "hits_to_hot",
        "hits_to_warm",
        "hits_to_cold",
        "hits_to_temp",
    ]);
    assert!((hits - 4.0).abs() < 0.5, "{hits} hits by queue, of 4");
    let queued = class_sum(&["number_hot", "number_warm", "number_cold"]);
    assert!((queued - 3.0).abs() < 0.5, "{queued} items by queue, of 3");
    check("maxconns", Exactly(200), &[scrape.settings.get("maxconns")]);
    // Each opens a group of lines of which all are read: of mechanisms that a default memcached does not have.
    for opens in ["extstore_limit_maxbytes", "proxy_backend_total"] {
        assert!(!scrape.general.contains_key(opens), "{opens}");
    }
}

#[test]
fn a_server_that_has_seen_nothing_is_up() {
    let server = Server::coua(&FLAGS);
    let scrape = Scrape::read(&answers(&server)).unwrap_or_else(|why| panic!("{why}"));
    check(
        "curr_items",
        Exactly(0),
        &[scrape.general.get("curr_items")],
    );
    check(
        "total_malloced",
        Number,
        &[scrape.general.get("total_malloced")],
    );
    assert!(scrape.items.is_empty(), "a class without items");
}

/// The reading above refuses what has been seen to break the exporter.
#[test]
fn what_breaks_a_scrape_is_found() {
    let server = Server::coua(&FLAGS);
    pass_traffic(&server);
    let whole = answers(&server);
    assert!(Scrape::read(&whole).is_ok(), "it is whole to begin with");
    for (answer, from, to) in [
        (0, "STAT cmd_set 7\r\n", ""),
        (0, "STAT cas_misses 1\r\n", ""),
        (0, "STAT evictions 0\r\n", "STAT evictions none\r\n"),
        (
            0,
            "STAT evictions 0\r\n",
            "STAT evictions 0\r\nSTAT log:segments 1\r\n",
        ),
        (0, "STAT cmd_set 7\r\n", "STAT cmd_set 2\r\n"),
        (1, ":cas_badval 1\r\n", ":cas_worse 1\r\n"),
        (
            1,
            "STAT active_slabs",
            "STAT 1:mem_requested 1\r\nSTAT active_slabs",
        ),
        (
            2,
            ":hits_to_temp 0\r\n",
            ":hits_to_temp 0\r\nSTAT items:1:store_no_memory 0\r\n",
        ),
        (2, "STAT items:", "STAT items:log:number 1\r\nSTAT items:"),
        (2, "END\r\n", "ERROR\r\n"),
        (3, "STAT maxconns 200\r\n", "STAT maxconns many\r\n"),
        (
            3,
            "STAT lru_maintainer_thread ",
            "STAT lru_crawler yes\r\nSTAT lru_maintainer_thread 1\r\nSTAT was ",
        ),
    ] {
        let mut broken = whole.clone();
        broken[answer] = whole[answer].replacen(from, to, 1);
        assert_ne!(
            broken[answer], whole[answer],
            "{from} is not there to be changed"
        );
        assert!(
            Scrape::read(&broken).is_err(),
            "{to} in place of {from} is not found"
        );
    }
}

fn check(name: &str, holds: Holds, values: &[Option<&String>]) {
    let texts: Vec<&String> = values
        .iter()
        .map(|value| value.unwrap_or_else(|| panic!("no {name}")))
        .collect();
    let sum = || -> u64 {
        texts
            .iter()
            .map(|text| {
                text.parse::<u64>()
                    .unwrap_or_else(|_| panic!("{name} {text}"))
            })
            .sum()
    };
    match holds {
        Text => assert!(!texts[0].is_empty()),
        Seconds => seconds(texts[0]).unwrap_or_else(|why| panic!("{name}: {why}")),
        Number => _ = sum(),
        Exactly(number) => assert_eq!(sum(), number, "{name}"),
        AtLeast(number) => assert!(sum() >= number, "{name} is {}", sum()),
    }
}

fn answers(server: &Server) -> Vec<String> {
    ask(
        server,
        &["stats", "stats slabs", "stats items", "stats settings"],
    )
}

/// The answers to questions that are sent at once, each to its `END`.
fn ask(server: &Server, questions: &[&str]) -> Vec<String> {
    let mut stream = connect(server);
    stream
        .get_mut()
        .write_all((questions.join("\n") + "\n").as_bytes())
        .expect("the server reads");
    let answer = |_| {
        let mut answer = String::new();
        while !answer.ends_with("END\r\n") {
            let line = read_line(&mut stream);
            assert!(line == "END" || line.starts_with("STAT "), "{line}");
            answer = answer + &line + "\r\n";
        }
        answer
    };
    questions.iter().map(answer).collect()
}

fn pass_traffic(server: &Server) {
    let mut stream = connect(server);
    let too_large = "x".repeat(2_000_000);
    let traffic = format!("{TRAFFIC}{too_large}\r\nmn\r\n");
    stream
        .get_mut()
        .write_all(traffic.as_bytes())
        .expect("the server reads");
    while read_line(&mut stream) != "MN" {}
}

fn connect(server: &Server) -> BufReader<TcpStream> {
    let stream = server.connect();
    stream
        .set_read_timeout(Some(Duration::from_secs(10)))
        .expect("a timeout can be set");
    BufReader::new(stream)
}

fn read_line(stream: &mut BufReader<TcpStream>) -> String {
    let mut line = String::new();
    stream.read_line(&mut line).expect("an answer");
    assert!(line.ends_with('\n'), "the server hangs up behind {line:?}");
    line.trim_end().to_owned()
}
