//! `--metrics`: what a scrape reads, what health checks read, and clients that do neither; and `stats latency`.

#[path = "support/mod.rs"]
mod support;

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::time::{Duration, Instant};

use support::{Server, coua_program, free_address};

/// A server and where it answers scrapes.
struct Watched {
    server: Server,
    metrics: SocketAddr,
}

impl Watched {
    fn start() -> Watched {
        let metrics = free_address();
        let flags = ["-m", "64", "-t", "2", "--metrics", &metrics.to_string()];
        let server = Server::coua(&flags);
        Watched { server, metrics }
    }

    /// Sends `request` as it is, and reads to the end.
    fn raw(&self, request: &str) -> String {
        let mut stream = TcpStream::connect(self.metrics).expect("it listens");
        stream
            .set_read_timeout(Some(Duration::from_secs(30)))
            .expect("a timeout can be set");
        stream.write_all(request.as_bytes()).expect("it reads");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("it answers");
        String::from_utf8(answer).expect("text")
    }

    /// The headers and the body of a GET.
    fn get(&self, path: &str, accept: &str) -> (String, String) {
        let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nAccept: {accept}\r\n\r\n");
        let answer = self.raw(&request);
        let (head, body) = answer.split_once("\r\n\r\n").expect("headers");
        let said = format!("Content-Length: {}\r\n", body.len());
        assert!(format!("{head}\r\n").contains(&said), "{head}");
        (head.to_owned(), body.to_owned())
    }

    /// The series of a scrape.
    fn series(&self) -> BTreeMap<String, f64> {
        let (head, body) = self.get("/metrics", "text/plain");
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
        let lines = body.lines().filter(|line| !line.starts_with('#'));
        let mut series = BTreeMap::new();
        for line in lines {
            let (name, value) = line.rsplit_once(' ').expect("a value");
            let value = value.parse().expect("a number");
            assert!(series.insert(name.to_owned(), value).is_none(), "{name}");
        }
        series
    }

    /// Sends requests and waits for the answer to the last one, `mn`.
    fn say(&self, requests: &str) {
        let mut stream = self.server.connect();
        stream
            .write_all(format!("{requests}mn\r\n").as_bytes())
            .expect("it reads");
        let mut answer = Vec::new();
        let mut part = [0; 4096];
        while !answer.ends_with(b"MN\r\n") {
            let len = stream.read(&mut part).expect("it answers");
            assert_ne!(len, 0, "it hangs up");
            answer.extend_from_slice(&part[..len]);
        }
    }
}

#[test]
fn a_scrape_counts_what_clients_did() {
    let watched = Watched::start();
    let before = watched.series();
    watched.say("set a 0 0 1\r\nx\r\nget a\r\nget a b\r\ndelete a\r\nincr n 1\r\n");
    let after = watched.series();
    let risen = |name: &str| after[name] - before[name];
    let command = |command: &str, result: &str| {
        risen(&format!(
            "coua_commands_total{{command=\"{command}\",result=\"{result}\"}}"
        ))
    };
    assert_eq!(
        [
            command("get", "hit"),
            command("get", "miss"),
            command("set", "all"),
            command("delete", "hit"),
            command("incr", "miss"),
            command("decr", "hit"),
        ],
        [2.0, 1.0, 1.0, 1.0, 1.0, 0.0]
    );
    assert_eq!(risen("coua_items_stored_total"), 1.0);
    assert_eq!(after["coua_memory_limit_bytes"], f64::from(64 << 20));
    let memory: f64 = after
        .iter()
        .filter(|(name, _)| name.starts_with("coua_memory_bytes{"))
        .map(|(_, bytes)| bytes)
        .sum();
    assert!(memory <= f64::from(64 << 20) && memory > f64::from(32 << 20));
    let by_workers = |name: &str| -> f64 {
        let of_name = |key: &str| key.starts_with(&format!("{name}{{"));
        let all = after.iter().filter(|(key, _)| of_name(key));
        all.map(|(_, value)| value).sum()
    };
    // The requests by which the test waits for its server are there too.
    assert!(by_workers("coua_worker_requests_total") >= 7.0);
    // Each request is in a histogram. A worker counts a batch behind its answers.
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let now = watched.series();
        let counts = now
            .iter()
            .filter(|(key, _)| key.starts_with("coua_request_duration_seconds_count{"));
        let timed: f64 = counts.map(|(_, count)| count).sum();
        if timed >= 7.0 {
            break;
        }
        assert!(Instant::now() < deadline, "{timed} requests timed");
    }
    let gets = r#"coua_request_duration_seconds_bucket{worker="0",command="get",le="+Inf"}"#;
    assert!(after.contains_key(gets), "{after:?}");
    assert!(after["process_open_fds"] >= 5.0);
    assert!(after["process_resident_memory_bytes"] > 1e6);
}

#[test]
fn latencies_are_in_stats_until_they_are_reset() {
    let watched = Watched::start();
    watched.say("set a 0 0 1\r\nx\r\nget a\r\nget a\r\n");
    let ask = |question: &str, end: &str| {
        let mut stream = watched.server.connect();
        let text = format!("{question}\r\n");
        stream.write_all(text.as_bytes()).expect("it reads");
        let mut answer = String::new();
        let mut part = [0; 4096];
        while !answer.ends_with(end) {
            let len = stream.read(&mut part).expect("it answers");
            assert_ne!(len, 0, "{answer}");
            answer += std::str::from_utf8(&part[..len]).expect("text");
        }
        answer
    };
    // A worker counts a batch behind its answers, so another worker may be asked too early.
    let deadline = Instant::now() + Duration::from_secs(10);
    let told = loop {
        let told = ask("stats latency", "END\r\n");
        if told.contains("STAT get_count 2\r\n") && told.contains("STAT set_count 1\r\n") {
            break told;
        }
        assert!(Instant::now() < deadline, "{told}");
    };
    let value = |name: &str| -> f64 {
        let line = told
            .lines()
            .find_map(|line| line.strip_prefix(&format!("STAT {name} ")));
        let line = line.unwrap_or_else(|| panic!("{name} in {told}"));
        line.parse().expect("a number")
    };
    assert!(value("get_p50_us") > 0.0 && value("get_p50_us") <= value("get_longest_us"));
    assert!(value("get_mean_us") <= value("get_longest_us"));
    let of_workers = value("worker:0:get_count") + value("worker:1:get_count");
    assert_eq!(of_workers, 2.0);
    assert_eq!(ask("stats reset", "\r\n"), "RESET\r\n");
    let told = ask("stats latency", "END\r\n");
    assert!(told.contains("STAT get_count 0\r\n"), "{told}");
}

#[test]
fn the_format_is_the_one_asked_for() {
    let watched = Watched::start();
    let (head, body) = watched.get("/metrics", "application/openmetrics-text; version=1.0.0");
    assert!(head.contains("Content-Type: application/openmetrics-text; version=1.0.0"));
    assert!(body.ends_with("# EOF\n") && body.contains("# TYPE coua_commands counter\n"));
    let (head, body) = watched.get("/metrics?a=b", "*/*");
    assert!(head.contains("Content-Type: text/plain; version=0.0.4"));
    assert!(body.contains("# TYPE coua_commands_total counter\n"));
}

#[test]
fn health_and_everything_else() {
    let watched = Watched::start();
    for path in ["/healthz", "/readyz"] {
        assert_eq!(watched.get(path, "").1, "ok\n");
    }
    let (head, _) = watched.get("/nothing", "");
    assert!(head.starts_with("HTTP/1.1 404 "), "{head}");
    let refused = watched.raw("POST /metrics HTTP/1.1\r\nContent-Length: 0\r\n\r\n");
    assert!(refused.starts_with("HTTP/1.1 405 "), "{refused}");
    let refused = watched.raw("stats\r\n\r\n");
    assert!(refused.starts_with("HTTP/1.1 400 "), "{refused}");
    let head = watched.raw("HEAD /metrics HTTP/1.1\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 200 ") && head.ends_with("\r\n\r\n"));
}

#[test]
fn the_status_is_what_a_page_and_a_terminal_show() {
    let watched = Watched::start();
    watched.say("set a 0 0 1\r\nx\r\nget a b\r\n");
    let (head, body) = watched.get("/status.json", "");
    assert!(
        head.contains("Content-Type: application/json\r\n"),
        "{head}"
    );
    let status: coua::metrics::status::Status = serde_json::from_str(&body).expect("it is one");
    assert_eq!(
        (status.commands.get_hits, status.commands.get_misses),
        (1, 1)
    );
    assert_eq!(
        (status.workers.len(), status.items, status.commands.sets),
        (2, 1, 1)
    );
    assert_eq!(status.memory_limit, 64 << 20);
    assert_eq!(status.latency.le_ns.len(), status.latency.counts.len());
    assert!(status.hot_keys.is_some() && !status.stopping);
    let (head, page) = watched.get("/", "");
    assert!(
        head.contains("Content-Type: text/html; charset=utf-8\r\n"),
        "{head}"
    );
    assert!(
        head.contains("Content-Security-Policy: base-uri 'none';"),
        "{head}"
    );
    assert!(page.contains("status.json") && !page.contains("https://"));
}

/// Whoever reaches the listener may read it: it must not name keys that clients may not list.
#[test]
fn hot_keys_are_not_shown_where_keys_may_not_be_listed() {
    let metrics = free_address();
    let flags = ["-m", "64", "-X", "--metrics", &metrics.to_string()];
    let server = Server::coua(&flags);
    let watched = Watched { server, metrics };
    watched.say(&"get secret-key\r\n".repeat(5000));
    let (_, body) = watched.get("/status.json", "");
    assert!(
        body.contains("\"hot_keys\":null") && !body.contains("secret-key"),
        "{body}"
    );
}

/// Connections that say nothing, and one that never stops, leave scrapes and clients alone.
#[test]
fn who_never_asks_is_no_burden() {
    let watched = Watched::start();
    let silent: Vec<TcpStream> = (0..4)
        .map(|_| TcpStream::connect(watched.metrics).expect("it listens"))
        .collect();
    let mut endless = TcpStream::connect(watched.metrics).expect("it listens");
    endless
        .set_write_timeout(Some(Duration::from_secs(30)))
        .expect("a timeout can be set");
    let line = [b'a'; 64 << 10];
    let sent = (0..1024).take_while(|_| endless.write_all(&line).is_ok());
    assert!(sent.count() < 1024, "a head of 64 MiB is read");
    assert_eq!(watched.get("/healthz", "").1, "ok\n");
    watched.say("get a\r\n");
    drop(silent);
}

#[test]
fn an_address_in_use_is_named() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("its address").to_string();
    for (value, says) in [
        (address.as_str(), "--metrics: cannot listen on 127.0.0.1:"),
        ("9150", "--metrics cannot be '9150'"),
    ] {
        let output = Command::new(coua_program())
            .args(["-p", "-1", "-u", "root", "--metrics", value])
            .output()
            .expect("the program starts");
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success());
        assert!(error.contains(says), "{error}");
    }
}
