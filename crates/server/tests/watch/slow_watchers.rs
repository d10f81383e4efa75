//! Watchers that do not read, send what is not answered, or go: nobody else notices.

use std::thread;

use rustix::process::Signal;

use crate::process::{Client, Process, coua};
use crate::support::Server;
use crate::{Reader, await_that, stat};

/// Lines of 850 bytes, many more than sockets hold.
fn ask_much(client: &mut Reader) {
    let keys = vec!["#".repeat(250); 100].join(" ");
    for _ in 0..600 {
        assert_eq!(client.ask(&format!("get {keys}")), "END");
    }
}

#[test]
fn who_does_not_read_loses_lines_and_hears_how_many() {
    let server = Server::coua(&["-t", "2", "-o", "watcher_logbuf_size=8"]);
    let mut lazy: Vec<Reader> = (0..3).map(|_| Reader::watch(&server, "fetchers")).collect();
    let mut client = Reader::new(server.connect());
    ask_much(&mut client);
    let (written, skipped, sent) = (
        stat(&mut client, "log_worker_written"),
        stat(&mut client, "log_watcher_skipped"),
        stat(&mut client, "log_watcher_sent"),
    );
    assert!(written >= 60_000, "{written} lines");
    assert_eq!(
        skipped + sent,
        3 * written,
        "each line was sent or left out"
    );
    assert!(skipped > 0, "no socket holds so much");
    assert_eq!(stat(&mut client, "log_worker_dropped"), 0);
    // One begins to read, and new lines come: it hears of those that are missing.
    let reader = &mut lazy[0];
    let mut lines = 0;
    let missing = loop {
        if lines % 100 == 0 {
            assert_eq!(client.ask("get more"), "END");
        }
        let line = reader.line();
        match line.strip_prefix("skipped=") {
            Some(count) => break count.parse::<u64>().expect("a number"),
            None => lines += 1,
        }
    };
    assert!((1..=skipped).contains(&missing), "{missing} of {skipped}");
    assert!(reader.line().starts_with("ts="));
    // The others still do not read, and go.
    drop(lazy);
    await_that("the count", || stat(&mut client, "log_watchers") == 0);
    assert_eq!(client.ask("set a 0 0 1\r\nx"), "STORED");
}

/// Whoever watches is told everything while it reads, whichever worker serves the request.
#[test]
fn who_reads_gets_every_line_of_all_workers() {
    let server = Server::coua(&["-t", "4", "-o", "watcher_logbuf_size=4096"]);
    let mut watcher = Reader::watch(&server, "mutations");
    let counted = thread::scope(|scope| {
        for number in 0..4 {
            let mut client = Reader::new(server.connect());
            scope.spawn(move || {
                for _ in 0..2000 {
                    assert_eq!(client.ask(&format!("set key{number} 0 0 1\r\nx")), "STORED");
                }
            });
        }
        let mut last = 0;
        (0..8000).fold([0; 4], |mut counted, _| {
            let line = watcher.line();
            let gid = line.split(' ').find_map(|word| word.strip_prefix("gid="));
            let gid: u64 = gid.expect("a number").parse().expect("a number");
            assert!(gid > last, "{gid} behind {last}");
            last = gid;
            let key = line.split_once("key=key").expect("a key").1;
            counted[usize::from(key.as_bytes()[0] - b'0')] += 1;
            counted
        })
    });
    assert_eq!(counted, [2000; 4]);
}

/// What a watcher sends is not executed, and its end is noticed although that was never read.
#[test]
fn a_watcher_sends_in_vain() {
    let server = Server::coua(&["-t", "1"]);
    let mut watcher = Reader::new(server.connect());
    watcher.send("watch mutations\r\nset a 0 0 1\r\nx\r\n");
    assert_eq!(watcher.line(), "OK");
    watcher.send("set a 0 0 1\r\nx\r\n");
    let mut client = Reader::new(server.connect());
    assert_eq!(client.ask("get a"), "END");
    client.send("stats conns\r\n");
    let conns = client.lines_up_to("END");
    assert!(
        conns.iter().any(|line| line.ends_with(":state conn_watch")),
        "{conns:?}"
    );
    drop(watcher);
    await_that("the count", || stat(&mut client, "log_watchers") == 0);
}

/// A client that has ended its output with the request itself is gone, as for memcached.
#[test]
fn who_has_ended_its_output_does_not_watch() {
    let server = Server::coua(&["-t", "1"]);
    let mut watcher = Reader::new(server.connect());
    watcher.send("watch\r\n");
    let end = watcher.0.get_ref().shutdown(std::net::Shutdown::Write);
    end.expect("it is connected");
    let mut client = Reader::new(server.connect());
    await_that("the count", || stat(&mut client, "log_watchers") == 0);
}

/// Who watches is not idle, and does not keep a server that stops.
#[test]
fn a_watcher_neither_is_idle_nor_delays_the_end() {
    let server = Process::start(coua(&[
        "-o",
        "idle_timeout=1,drain_timeout=600,watcher_logbuf_size=8",
    ]));
    let address = server.address();
    let mut idle = Client::connect(address);
    assert_eq!(idle.ask("mn\r\n"), "MN");
    let mut watchers: Vec<Client> = (0..2)
        .map(|_| {
            let mut watcher = Client::connect(address);
            assert_eq!(watcher.ask("watch connevents\r\n"), "OK");
            watcher
        })
        .collect();
    // The first two lines tell of later connections or of the idle one.
    while !watchers[0].line().contains("reason=idle_timeout") {}
    let mut client = Client::connect(address);
    assert_eq!(client.stat("stats", "log_watchers"), "2");
    server.signal(Signal::TERM);
    let end = server.end();
    assert!(end.status.success(), "{}", end.said);
}
