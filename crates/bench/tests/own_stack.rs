//! The load generator on coua's own TCP stack, between network namespaces, which only root may make.

#[path = "../../transport/tests/support/netns.rs"]
mod netns;
mod support;

use std::net::TcpStream;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use netns::{Namespace, Pair};
use support::{bench, coua, count};

const ITEMS: &str = "--keys 500 --value-size 10-3000 --target 10.77.0.1:11211";

/// Says why there is no test where there is none.
#[expect(clippy::print_stderr, reason = "who tests learns what was left out")]
fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        eprintln!("left out: network namespaces need root");
    }
    is_root
}

/// A command in a namespace.
fn inside(namespace: &Namespace, program: &str, arguments: &str) -> Command {
    let mut command = Command::new("ip");
    command.args(["netns", "exec", namespace.name(), program]);
    command.args(arguments.split_whitespace());
    command
}

/// A server that ends with the test.
struct Server(Child);

impl Server {
    /// One in the namespace, that also listens on its loopback.
    fn start(namespace: &Namespace, arguments: &str) -> Server {
        let program = coua().display().to_string();
        let all = format!("-u root -m 64 {arguments}");
        let mut command = inside(namespace, &program, &all);
        let mut server = Server(command.stdout(Stdio::null()).spawn().unwrap());
        let deadline = Instant::now() + Duration::from_secs(60);
        while namespace.enter(|| TcpStream::connect("127.0.0.1:11211").is_err()) {
            let ended = server.0.try_wait().unwrap();
            assert!(ended.is_none() && Instant::now() < deadline, "no server");
            std::thread::sleep(Duration::from_millis(10));
        }
        server
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn bench_in(namespace: &Namespace, arguments: &str) -> Output {
    let program = env!("CARGO_BIN_EXE_coua-bench");
    inside(namespace, program, arguments).output().unwrap()
}

/// The outcome for programs, of a command that must succeed.
fn measure_in(namespace: &Namespace, arguments: &str) -> Value {
    let output = bench_in(namespace, &format!("{arguments} {ITEMS} --json"));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments}: {errors}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Stores, reads and verifies all items, in several dialects and by several threads.
fn put_load(namespace: &Namespace, net: &str) {
    let stored = measure_in(namespace, &format!("load {net} --counters"));
    assert_eq!(stored["stored"], 500);
    for (threads, flags) in [
        (1, "--mix get=8,set=1,incr=1 --connections 600"),
        (2, "--dialect meta --depth 8 --rate 2000"),
        (2, "--dialect binary --keys-per-get 5 --poll busy"),
        (1, "--dialect udp --mix get=8,touch=1 --depth 4"),
        (2, "--dialect udp --rate 2000"),
    ] {
        let flags = format!("run {net} {flags} --threads {threads} --seconds 0.3 --warm-up 0.1");
        let outcome = measure_in(namespace, &flags);
        assert!(count(&outcome, "hits") > 0, "{outcome}");
        for name in ["misses", "errors", "wrong"] {
            assert_eq!(count(&outcome, name), 0, "{flags}: {outcome}");
        }
    }
    let read = measure_in(namespace, &format!("verify {net} --threads 2"));
    assert_eq!((&read["right"], &read["wrong"]), (&500.into(), &0.into()));
    let stored = bench_in(
        namespace,
        &format!("run {net} --dialect udp --mix set {ITEMS}"),
    );
    let error = String::from_utf8_lossy(&stored.stderr);
    assert_eq!(stored.status.code(), Some(1));
    assert!(error.contains("a datagram 1452 at most"), "{error}");
}

/// Both ends are on stacks of their own; to which of two threads' queues an answer comes the kernel's
/// hash decides.
#[test]
fn packet_sockets_carry_a_load() {
    if !is_root() {
        return;
    }
    let pair = Pair::new();
    let _server = Server::start(
        &pair.ours,
        "-t 2 -l 127.0.0.1 -U 11211 --net packet:eth0 --address 10.77.0.1/24",
    );
    put_load(&pair.peers, "--net packet:eth0 --address 10.77.0.2/24");
}

/// The server is on the kernel's TCP, and the load beside the kernel, whose address it has.
#[test]
fn af_xdp_carries_a_load() {
    if !is_root() {
        return;
    }
    let pair = Pair::with_queues(2);
    pair.ours.ip("addr add 10.77.0.1/24 dev eth0");
    pair.peers.ip("addr add 10.77.0.2/24 dev eth0");
    pair.ours.fill_checksums();
    let _server = Server::start(&pair.ours, "-t 1 -U 11211");
    put_load(&pair.peers, "--net xdp:eth0");
    let output = bench_in(
        &pair.peers,
        &format!("load --net xdp:eth0 --threads 3 {ITEMS}"),
    );
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1));
    assert!(error.contains("2 receive queues"), "{error}");
    assert_eq!(error.lines().count(), 1, "{error}");
}

#[test]
fn what_does_not_go_together_is_refused() {
    let stack = "--net packet:eth0 --address 10.77.0.2/24";
    for (flags, status, why) in [
        (
            "--net morse:eth0".to_owned(),
            2,
            "--net morse:eth0: give xdp",
        ),
        (
            "--address 10.77.0.2/24".to_owned(),
            2,
            "--address needs --net",
        ),
        ("--net packet:eth0".to_owned(), 2, "--net needs --address"),
        (format!("{stack} --poll rarely"), 2, "--poll rarely"),
        (format!("{stack} --target unix:/no"), 2, "HOST:PORT"),
        (
            format!("{stack} --agents 127.0.0.1:1"),
            2,
            "--net does not go with --agents",
        ),
        (
            format!("{stack} --connections 70000"),
            1,
            "--connections 70000",
        ),
    ] {
        let output = bench(&format!("run {flags}"));
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{flags}: {error}");
        assert!(error.contains(why), "{flags}: {error}");
        assert_eq!(error.lines().count(), 1, "{flags}: {error}");
    }
}
