//! Clients and servers that die in the middle, and what stays behind: nothing.

use std::io::Read;
use std::time::Instant;

use coua_rdma::libfabric::{Link, LinkError};
use rustix::process::Signal;

use super::{Client, Lines, PATIENCE, hit, server, value};

#[test]
fn nothing_stays_behind_of_a_thousand_clients_that_die() {
    clients_die(1000);
}

/// So many clients connect and die, in one way or another.
pub(super) fn clients_die(count: u64) {
    let Some(server) = server(&[]) else {
        return;
    };
    let mut lines = Lines::connect(&server);
    let large = value(900_000, 1);
    {
        let mut client = Client::connect(&server);
        client.set("large", &large);
    }
    lines.wait_for("connections", 0);
    let registrations = lines.stat("registrations");
    let frames = lines.stat("frames_free");
    for nth in 0..count {
        let mut tcp = Lines::connect(&server);
        let offer = loop {
            let line = tcp.ask("rdma\r\n");
            match coua_rdma::Offer::decode(&line) {
                Some(offer) => break offer,
                // Those before are not all seen to have died yet.
                None => std::thread::sleep(std::time::Duration::from_millis(1)),
            }
        };
        let mut link = Link::connect(&offer, 2 << 20, PATIENCE).expect("it was offered");
        let deadline = Instant::now() + PATIENCE;
        match nth % 4 {
            0 => {}
            1 => {
                link.submit(b"get large\r\n", None, 1 << 20, deadline)
                    .expect("room");
            }
            2 => {
                let command = b"set other 0 0 900000\r\n";
                link.submit(command, Some(&large), 64, deadline)
                    .expect("room");
            }
            _ => {
                let ticket = link
                    .submit(b"get large\r\n", None, 1 << 20, deadline)
                    .expect("room");
                let len = link.wait(ticket, deadline).expect("a reply");
                assert!(link.reply(ticket, len) == hit("large", &large), "{nth}");
            }
        }
        // One of both connections goes first.
        if nth % 3 == 0 {
            drop(tcp);
            std::thread::yield_now();
        }
    }
    lines.wait_until("total_connections", |all| all > count);
    lines.wait_for("connections", 0);
    lines.wait_for("requests_under_way", 0);
    lines.wait_for("staging_bytes", 0);
    assert_eq!(
        (lines.stat("registrations"), lines.stat("frames_free")),
        (registrations, frames)
    );
    assert_eq!(lines.stat("misbehaved"), 0);
    // Others notice nothing.
    let mut client = Client::connect(&server);
    assert!(client.get("large") == hit("large", &large));
}

#[test]
pub(super) fn the_end_of_the_ordinary_connection_ends_the_other() {
    let Some(server) = server(&[]) else {
        return;
    };
    let mut client = Client::connect(&server);
    assert_eq!(client.ask("mn\r\n"), "MN\r\n");
    client.lines = Lines::connect(&server);
    client.lines.wait_for("connections", 0);
    let error = client
        .try_ask(b"mn\r\n", None, 64)
        .expect_err("it has ended");
    assert!(matches!(error, LinkError::Lost), "{error}");
}

#[test]
fn quit_ends_both() {
    let Some(server) = server(&[]) else {
        return;
    };
    let mut client = Client::connect(&server);
    // Whether its empty reply comes before the end is left open.
    let _ = client.try_ask(b"quit\r\n", None, 64);
    assert_eq!(client.lines.0.read(&mut [0; 8]).expect("the end"), 0);
}

#[test]
pub(super) fn a_server_that_stops_ends_its_connections() {
    let Some(server) = server(&[]) else {
        return;
    };
    let mut client = Client::connect(&server);
    client.set("k", &value(100_000, 1));
    assert!(client.get("k").len() > 100_000);
    server.process.signal(Signal::TERM);
    assert_eq!(client.lines.0.read(&mut [0; 8]).expect("the end"), 0);
    let end = server.process.end();
    assert!(end.status.success(), "{end:?}");
    let deadline = Instant::now() + PATIENCE;
    let lost = loop {
        let sent = client.link.submit(b"get k\r\n", None, 1 << 20, deadline);
        match sent.and_then(|ticket| client.link.wait(ticket, deadline)) {
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    assert!(matches!(lost, LinkError::Lost), "{lost}");
}

#[test]
fn a_killed_server_is_seen_as_an_end() {
    let Some(mut server) = server(&[]) else {
        return;
    };
    let mut client = Client::connect(&server);
    client.set("k", &value(1_000_000, 1));
    let deadline = Instant::now() + PATIENCE;
    client
        .link
        .submit(b"get k\r\n", None, 2 << 20, deadline)
        .expect("room");
    server.process.child.kill().expect("it runs");
    let ticket = client.link.submit(b"get k\r\n", None, 2 << 20, deadline);
    let end = ticket.and_then(|ticket| client.link.wait(ticket, deadline));
    // It may have answered both.
    if let Err(error) = end {
        assert!(matches!(error, LinkError::Lost), "{error}");
    }
    let began = Instant::now();
    while !client.link.is_closed() {
        assert!(began.elapsed() < PATIENCE, "its end is not seen");
        let sent = client.link.submit(b"mn\r\n", None, 64, deadline);
        let _ = sent.and_then(|ticket| client.link.wait(ticket, deadline));
    }
}
