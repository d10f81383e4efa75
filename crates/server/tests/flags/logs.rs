//! What the log says of connections and requests with `-v` and `-vv`.

use std::io::Write;
use std::net::TcpStream;

use crate::process::{Client, Process, coua};

/// A client whose address is known.
fn client(process: &Process) -> (Client, String) {
    let stream = TcpStream::connect(process.address()).expect("the kernel accepts");
    let address = stream.local_addr().expect("it is connected").to_string();
    (Client::new(stream), address)
}

/// Waits for a line with both, of which only one a second is let through for each kind.
fn hears(process: &Process, part: &str, address: &str) {
    let line = process.hear(part);
    assert!(line.contains(address), "no {address}: {line}");
}

#[test]
fn verbose_servers_name_clients_that_are_refused_or_make_mistakes() {
    let process = Process::start(coua(&["-v", "-c", "3"]));
    let (mut large, address) = client(&process);
    large.send(&format!(
        "set big 0 0 2000000\r\n{}\r\n",
        "x".repeat(2_000_000)
    ));
    assert_eq!(large.line(), "SERVER_ERROR object too large for cache");
    hears(&process, "value of 2000000 bytes", &address);
    let (mut long, address) = client(&process);
    assert_eq!(
        long.ask(&format!("get {}\r\n", "k".repeat(251))),
        "CLIENT_ERROR bad command line format"
    );
    hears(
        &process,
        "is answered CLIENT_ERROR bad command line",
        &address,
    );
    let (mut third, _) = client(&process);
    assert_eq!(third.ask("mn\r\n"), "MN");
    let (mut refused, address) = client(&process);
    assert_eq!(refused.line(), "ERROR Too many open connections");
    hears(&process, "refused: 3 are open (-c)", &address);
}

#[test]
fn closed_connections_are_counted_and_logged_by_cause() {
    let process = Process::start(coua(&["-v", "-t", "1"]));
    let (mut witness, _) = client(&process);
    let (mut junk, address) = client(&process);
    junk.send("GET / HTTP/1.1\r\n");
    assert_eq!(junk.line(), "", "it is closed");
    hears(&process, "closed: what it sent is not a request", &address);
    let (mut quits, _) = client(&process);
    assert_eq!(quits.ask("quit\r\n"), "");
    let (mut ends, _) = client(&process);
    assert_eq!(ends.ask("mn\r\n"), "MN");
    drop(ends);
    let mut resets = TcpStream::connect(process.address()).expect("the kernel accepts");
    let address = resets.local_addr().expect("it is connected").to_string();
    resets.write_all(b"mn\r\n").expect("the server reads");
    let mut answer = [0; 1];
    resets.peek(&mut answer).expect("it answers");
    // What has come and is not read has the kernel reset the connection.
    drop(resets);
    hears(&process, "closed: it was reset", &address);
    for cause in ["protocol", "quit", "client", "reset"] {
        let name = format!("coua_close_{cause}");
        crate::process::poll(&name, || {
            (witness.stat("stats", &name) == "1").then_some(())
        });
    }
    for cause in ["idle", "memory", "system"] {
        let name = format!("coua_close_{cause}");
        assert_eq!(witness.stat("stats", &name), "0", "{name}");
    }
}

#[test]
fn very_verbose_servers_show_connections_requests_and_replies() {
    let process = Process::start(coua(&["-vv"]));
    let (mut client, address) = client(&process);
    assert_eq!(client.ask("set a 0 0 1\r\nx\r\n"), "STORED");
    let opened = process.hear("new client connection");
    assert!(opened.contains(&address), "{opened}");
    process.hear(" set a 0 0 1");
    process.hear(" STORED");
    assert_eq!(client.ask("get a\r\n"), "VALUE a 0 1");
    process.hear(" VALUE a 0 1");
    drop(client);
    let closed = process.hear("connection closed");
    assert!(closed.contains(&address), "{closed}");
}
