//! Load from agents, as people run it, on coua.

mod support;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStderr, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use support::{Server, bench, count, generator};

/// An agent that ends with the test.
struct Agent {
    child: Child,
    address: String,
    news: BufReader<ChildStderr>,
}

impl Agent {
    fn start() -> Agent {
        let mut command = generator("agent --listen 127.0.0.1:0");
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut news = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        news.read_line(&mut line).unwrap();
        let address = line.trim().rsplit(' ').next().unwrap().to_owned();
        Agent {
            child,
            address,
            news,
        }
    }

    fn connect(&self) -> TcpStream {
        TcpStream::connect(&self.address).unwrap()
    }

    /// The next thing that it tells people.
    fn news(&mut self) -> String {
        let mut line = String::new();
        self.news.read_line(&mut line).unwrap();
        line
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A number of the server's statistics.
fn stat(server: &Server, name: &str) -> u64 {
    let mut client = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
    client.write_all(b"stats\r\nquit\r\n").unwrap();
    let mut text = String::new();
    client.read_to_string(&mut text).unwrap();
    let prefix = format!("STAT {name} ");
    let line = text.lines().find_map(|line| line.strip_prefix(&prefix));
    line.unwrap().parse().unwrap()
}

fn sum(run: &Value, name: &str) -> u64 {
    let repetitions = run["repetitions"].as_array().unwrap();
    repetitions
        .iter()
        .map(|one| one[name].as_u64().unwrap())
        .sum()
}

const ITEMS: &str = "--keys 501 --key-size 10-40 --value-size 0-900";

#[test]
fn counts_of_all_machines_are_the_servers_own() {
    let server = Server::at_port();
    let (one, two) = (Agent::start(), Agent::start());
    let agents = format!("--agents {},{} --connections 10", one.address, two.address);
    let loaded = server.measure(&format!("load {ITEMS} {agents}"));
    assert_eq!(loaded["stored"], 501);
    assert_eq!(stat(&server, "cmd_set"), 501);
    let verified = server.measure(&format!("verify {ITEMS} {agents} --keys-per-get 1"));
    assert_eq!(verified["right"], 501);
    let before = stat(&server, "cmd_get");
    assert_eq!(before, 501);
    // An open loop of no time, the warm-up, asks nothing.
    let run = server.measure(&format!(
        "run {ITEMS} {agents} --rate 900 --seconds 0.5 --warm-up 0 --repetitions 2 --threads 2 \
         --popularity zipf:0.9"
    ));
    let after = stat(&server, "cmd_get");
    assert_eq!(sum(&run, "requests"), after - before, "{run}");
    assert_eq!(
        (sum(&run, "hits"), sum(&run, "misses")),
        (after - before, 0)
    );
    let due = sum(&run, "requests") + sum(&run, "unsent");
    // Four deviations of a Poisson count.
    assert!(due.abs_diff(900) < 120, "{run}");
    let busy = run["repetitions"][0]["agents_busy"].as_object().unwrap();
    assert_eq!(busy.len(), 2, "{run}");
    // A closed loop of no time asks one burst a connection.
    let run = server.measure(&format!(
        "run {ITEMS} {agents} --depth 3 --seconds 0.3 --warm-up 0"
    ));
    let asked = stat(&server, "cmd_get") - after;
    assert_eq!(sum(&run, "requests"), asked - 10 * 3, "{run}");
}

#[test]
fn every_workload_reaches_the_agents() {
    let server = Server::at_socket();
    let agent = Agent::start();
    let agents = format!("--agents {} --connections 4", agent.address);
    let trace = std::env::temp_dir().join(format!("coua-bench-trace-{}", std::process::id()));
    std::fs::write(&trace, "1\n2\n3\n2\n").unwrap();
    let traced = format!("--keys 10 --trace {}", trace.display());
    for (load, dialect) in [
        ("--keys 2000 --workload etc", "text"),
        ("--keys 200 --workload twitter52", "meta"),
        (
            "--keys 100 --mix get=8,set=1,incr=1 --ttl 60=1,0=1 --popularity hot:0.1:0.9",
            "binary",
        ),
        (traced.as_str(), "text"),
    ] {
        let items: Vec<&str> = load
            .split(" --mix")
            .next()
            .unwrap()
            .split(" --trace")
            .collect();
        let items = format!("{} --dialect {dialect} {agents}", items[0]);
        server.measure(&format!("load {items} --counters"));
        let run = server.measure(&format!(
            "run {load} --dialect {dialect} {agents} --seconds 0.3 --warm-up 0"
        ));
        for name in ["wrong", "errors", "misses"] {
            assert_eq!(count(&run, name), 0, "{load}: {run}");
        }
        assert!(count(&run, "hits") > 0, "{load}: {run}");
    }
    std::fs::remove_file(trace).unwrap();
}

#[test]
fn an_agent_that_dies_ends_the_run() {
    let server = Server::at_port();
    let (mut one, mut two) = (Agent::start(), Agent::start());
    let mut command = generator(&format!(
        "run --target {} --agents {},{} --rate 1000 --seconds 600 --warm-up 0",
        server.target(),
        one.address,
        two.address
    ));
    command.stderr(Stdio::piped()).stdout(Stdio::null());
    let driver = command.spawn().unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    while stat(&server, "cmd_get") < 100 {
        assert!(Instant::now() < deadline, "no load comes");
        std::thread::sleep(Duration::from_millis(20));
    }
    one.child.kill().unwrap();
    let output = driver.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr);
    let expected = format!(
        "coua-bench: agent {}: the connection has ended\n",
        one.address
    );
    assert!(
        said.ends_with(&expected) && !said.contains("rror"),
        "{said}"
    );
    // The other one waits for the next driver, and no more load comes.
    assert!(two.news().contains("has come"));
    assert!(two.news().contains("has left"));
    let before = stat(&server, "cmd_get");
    let loaded = server.measure(&format!("load --keys 100 --agents {}", two.address));
    assert_eq!(loaded["stored"], 100);
    assert_eq!(stat(&server, "cmd_get"), before);
}

#[test]
fn what_is_no_driver_is_refused_in_one_line() {
    let server = Server::at_port();
    let agent = Agent::start();
    let long = format!("{{\"hello\":\"{}\"}}\n", "x".repeat(200_000));
    for (words, expected) in [
        ("{\"hello\":{\"version\":999}}\n", "version 2"),
        (&long, "64 KiB"),
        ("GET / HTTP/1.1\r\n\r\n", "GET / HTTP/1.1"),
        ("{\"order\":\"finish\"}\n", "hello"),
    ] {
        let mut stream = agent.connect();
        stream.write_all(words.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("{\"failed\":"), "{answer}");
        assert!(
            answer.lines().count() == 1 && answer.contains(expected),
            "{answer}"
        );
    }
    let loaded = server.measure(&format!("load --keys 100 --agents {}", agent.address));
    assert_eq!(loaded["stored"], 100);
}

#[test]
fn one_driver_is_served_at_a_time() {
    let agent = Agent::start();
    let server = Server::at_port();
    let mut first = agent.connect();
    first.write_all(b"{\"hello\":{\"version\":2}}\n").unwrap();
    let mut answer = String::new();
    BufReader::new(&first).read_line(&mut answer).unwrap();
    assert!(answer.contains("hello"), "{answer}");
    let refused = server.bench(&format!("load --keys 100 --agents {}", agent.address));
    let said = String::from_utf8_lossy(&refused.stderr);
    let expected = format!(
        "coua-bench: agent {}: it serves another driver\n",
        agent.address
    );
    assert_eq!(
        (refused.status.code(), said.as_ref()),
        (Some(1), expected.as_str())
    );
    drop(first);
    let loaded = server.measure(&format!("load --keys 100 --agents {}", agent.address));
    assert_eq!(loaded["stored"], 100);
}

#[test]
fn flags_that_agents_cannot_follow_are_refused() {
    let server = Server::at_socket();
    let nobody = format!("run --target {} --agents 127.0.0.1:1", server.target());
    for (arguments, expected) in [
        (
            "run --agents 192.0.2.1:11411",
            "--target 127.0.0.1:11211 means another server to agent",
        ),
        (
            "run --agents 127.0.0.1:1,127.0.0.1:2 --threads 2 --connections 5",
            "needs --connections 6 or more",
        ),
        (&nobody, "agent 127.0.0.1:1: Connection refused"),
    ] {
        let output = bench(arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{arguments}");
        assert!(
            said.lines().count() == 1 && said.contains(expected),
            "{said}"
        );
    }
}
