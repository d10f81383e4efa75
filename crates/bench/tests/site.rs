//! The web site and its load times, as people run them, on coua.

mod support;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Stdio};

use serde_json::Value;

use support::{Server, bench, bench_of, count, generator};

/// A site that ends with the test.
struct Site {
    child: Child,
    address: String,
}

impl Site {
    /// One of 50 items, with one thread, so that its pages come in an order.
    fn start(arguments: &str) -> Site {
        let all = format!("site --listen 127.0.0.1:0 --items 50 --threads 1 {arguments}");
        let mut child = generator(&all).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        let said = child.stdout.take().unwrap();
        BufReader::new(said).read_line(&mut line).unwrap();
        let address = line.trim().rsplit('/').nth(1).unwrap().to_owned();
        Site { child, address }
    }

    /// What it answers to these bytes: status line and body.
    fn send(&self, request: &str) -> (String, String) {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.lines().next().unwrap().to_owned(), body.to_owned())
    }

    fn get(&self, path: &str) -> (String, String) {
        self.send(&format!("GET {path} HTTP/1.0\r\n\r\n"))
    }

    fn page(&self) -> String {
        let (status, body) = self.get("/");
        assert_eq!(status, "HTTP/1.1 200 OK", "{body}");
        assert_eq!(body.matches("<tr>").count(), 200);
        body
    }

    fn counters(&self) -> Counters {
        let (_, body) = self.get("/stats");
        let stats: Value = serde_json::from_str(&body).unwrap();
        let number = |name: &str| stats[name].as_u64().unwrap();
        Counters {
            hits: number("cache_hits"),
            reads: number("database_reads"),
            errors: number("cache_errors"),
            wrong: number("wrong_values"),
        }
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Counters {
    hits: u64,
    reads: u64,
    errors: u64,
    wrong: u64,
}

/// The items of the site, as the load generator says it.
const ITEMS: &str = "--keys 50 --key-size 10 --value-size 20";

#[test]
fn a_cold_cache_is_filled_from_the_database() {
    let bare = Site::start("--no-cache");
    let expected: Vec<String> = (0..10).map(|_| bare.page()).collect();
    assert_ne!(expected[0], expected[1]);
    for arguments in ["", "--batch"] {
        let server = Server::at_socket();
        let site = Site::start(&format!("--cache {} {arguments}", server.target()));
        for page in &expected {
            assert_eq!(&site.page(), page);
        }
        let Counters {
            hits,
            reads,
            errors,
            wrong,
        } = site.counters();
        // Keys that a page has twice are missing twice where they are asked for together.
        assert!(hits + reads == 2000 && reads >= 50, "{hits} {reads}");
        assert!(reads == 50 || arguments == "--batch", "{reads}");
        assert_eq!((errors, wrong), (0, 0));
        let verified = server.measure(&format!("verify {ITEMS}"));
        assert_eq!(verified["right"], 50, "{verified}");
        let run = server.measure(&format!("run {ITEMS} --seconds 0.1 --warm-up 0"));
        assert_eq!((count(&run, "misses"), count(&run, "wrong")), (0, 0));
    }
}

#[test]
fn a_warm_cache_spares_the_database() {
    let bare = Site::start("--no-cache");
    let server = Server::at_socket();
    let site = Site::start(&format!("--cache {} --warm", server.target()));
    assert_eq!(site.page(), bare.page());
    let expected = Counters {
        hits: 200,
        reads: 0,
        errors: 0,
        wrong: 0,
    };
    assert_eq!(site.counters(), expected);
}

#[test]
fn without_its_cache_a_site_lives_from_the_database() {
    let bare = Site::start("--no-cache");
    let server = Server::at_port();
    server.measure(&format!("load {ITEMS}"));
    let site = Site::start(&format!("--cache {}", server.target()));
    assert_eq!(site.page(), bare.page());
    drop(server);
    for _ in 0..2 {
        assert_eq!(site.page(), bare.page());
    }
    let counters = site.counters();
    assert_eq!(
        (counters.hits, counters.reads, counters.wrong),
        (200, 400, 0)
    );
    assert_eq!(counters.errors, 2, "one broken connection, one refused");
}

#[test]
fn a_page_with_a_wrong_value_is_an_error() {
    let server = Server::at_port();
    server.measure("load --keys 50 --key-size 10 --value-size 19");
    let site = Site::start(&format!("--cache {}", server.target()));
    let (status, body) = site.get("/");
    assert_eq!(status, "HTTP/1.1 500 Internal Server Error");
    assert!(body.starts_with("200 values"), "{body}");
    assert_eq!(site.counters().wrong, 200);
}

#[test]
fn what_is_no_request_for_a_page_gets_none() {
    let site = Site::start("--no-cache");
    for (request, status) in [
        ("GET /other HTTP/1.0\r\n\r\n", "404"),
        ("HEAD / HTTP/1.1\r\nHost: a\r\n\r\n", "405"),
        ("no request\r\n\r\n", "400"),
    ] {
        let (line, _) = site.send(request);
        assert_eq!(line.split(' ').nth(1), Some(status), "{request}");
    }
    site.page();
}

#[test]
fn wrong_flags_get_one_line() {
    for (arguments, expected) in [
        ("site", "--cache"),
        ("site --no-cache --cache 127.0.0.1:1", "--no-cache"),
        ("site --no-cache --warm", "--warm"),
        ("site --cache nowhere", "HOST:PORT"),
        ("site --no-cache --queries 0", "--queries"),
        ("site --no-cache --database-delay 1s", "--database-delay"),
        ("page-load --pages 99", "--pages"),
        ("page-load redis", "{port}"),
    ] {
        let output = bench(arguments);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments}: {said}");
        assert!(
            said.lines().count() == 1 && said.contains(expected),
            "{arguments}: {said}"
        );
    }
    let output = bench_of(&["site", "--cache", "127.0.0.1:1", "--warm"]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(
        !output.status.success() && said.contains("--warm"),
        "{said}"
    );
}

#[test]
fn load_times_are_compared_where_ab_is() {
    let words = "page-load coua --pages 100 --queries 5 --items 100 --rounds 1 --memory 64 --json";
    let mut arguments: Vec<&str> = words.split(' ').collect();
    let program = std::env::var("COUA_BIN");
    if let Ok(program) = &program {
        arguments.extend(["--coua", program]);
    }
    let output = bench_of(&arguments);
    let said = String::from_utf8_lossy(&output.stderr);
    if said.contains("apache2-utils") {
        assert_eq!(output.status.code(), Some(1));
        return;
    }
    assert!(output.status.success(), "{said}");
    let outcome: Value = serde_json::from_slice(&output.stdout).unwrap();
    for (side, hits) in [(0, 500), (1, 0)] {
        let side = &outcome["sides"][side];
        assert_eq!(side["rounds"][0]["site"]["pages"], 100, "{side}");
        assert_eq!(side["rounds"][0]["site"]["cache_hits"], hits, "{side}");
        assert_eq!(side["percentiles_ms"].as_array().unwrap().len(), 101);
    }
}
