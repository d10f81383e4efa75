//! `-o slow_us`: which requests are told of as slow, where, and how they are counted.

use crate::process::{Client, Process, coua};
use crate::support::Server;
use crate::{Reader, await_that, stat};

/// Every request takes a microsecond, with the system call that receives it.
#[test]
fn slow_requests_are_counted_watched_and_logged() {
    let server = Process::start(coua(&["-o", "slow_us=1"]));
    let address = server.address();
    let mut watcher = Client::connect(address);
    assert_eq!(watcher.ask("watch slowreqs\r\n"), "OK");
    assert!(watcher.line().contains("key= cmd=watch "));
    let mut client = Client::connect(address);
    for (request, answer, told) in [
        ("set a/b 0 0 1\r\nx\r\n", "STORED", "key=a%2Fb cmd=set"),
        ("get none\r\n", "END", "key=none cmd=get"),
        ("mg a/b\r\n", "HD", "key=a%2Fb cmd=mg"),
        ("mg YS9i b\r\n", "HD", "key=a%2Fb cmd=mg"),
        ("delete none\r\n", "NOT_FOUND", "key=none cmd=delete"),
        (
            "append none 0 0 1\r\nx\r\n",
            "NOT_STORED",
            "key=none cmd=append",
        ),
        ("version\r\n", "VERSION 1.6.45", "key= cmd=version"),
    ] {
        assert!(client.ask(request).starts_with(answer), "{request}");
        let line = watcher.line();
        let (head, tail) = line.split_once(" elapsed=").expect(&line);
        assert!(head.starts_with("ts=") && head.contains(" gid="), "{line}");
        assert!(
            head.ends_with(&format!(" type=slow_request {told}")),
            "{line}"
        );
        let (elapsed, tail) = tail.split_once(" own=").expect(&line);
        let (own, descriptor) = tail.split_once(" cfd=").expect(&line);
        let elapsed: u64 = elapsed.parse().expect("a number");
        let own: u64 = own.parse().expect("a number");
        assert!(elapsed >= own.max(1), "{line}");
        assert!(descriptor.parse::<u32>().is_ok(), "{line}");
    }
    let logged = server.hear("slow request (-o slow_us): ");
    assert!(logged.contains(" from tcp:127.0.0.1:"), "{logged}");
    let counted: u64 = client
        .stat("stats", "coua_slow_requests")
        .parse()
        .expect("a number");
    assert!(counted >= 8, "{counted}");
    // One line in each second, however many there are.
    let before = std::time::Instant::now();
    for _ in 0..500 {
        assert_eq!(client.ask("get none\r\n"), "END");
    }
    let seconds = before.elapsed().as_secs() + 2;
    let lines = server.said().matches("slow request").count() as u64;
    // Those before began another second at most for each request.
    assert!(lines <= seconds + 12, "{lines} lines in {seconds} s");
}

#[test]
fn requests_below_the_limit_are_not() {
    for flags in [&["-o", "slow_us=60000000"][..], &[]] {
        let server = Server::coua(flags);
        let mut watcher = Reader::watch(&server, "slowreqs deletions");
        let mut client = Reader::new(server.connect());
        assert_eq!(client.ask("set a 0 0 1\r\nx"), "STORED");
        assert_eq!(client.ask("delete a"), "DELETED");
        assert!(watcher.line().contains("type=deleted key=a"));
        await_that("the count", || stat(&mut client, "coua_slow_requests") == 0);
    }
}
