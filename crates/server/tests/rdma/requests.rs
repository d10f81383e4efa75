//! What clients ask over RDMA is answered as over TCP.

use std::time::Instant;

use super::{Client, Lines, PATIENCE, hit, server, value};

#[test]
pub(super) fn every_kind_of_request_is_answered_as_over_tcp() {
    let Some(server) = server(&[]) else {
        return;
    };
    let mut client = Client::connect(&server);
    for (request, reply) in [
        ("get nothing\r\n", "END\r\n"),
        ("set a 5 0 3\r\nabc\r\n", "STORED\r\n"),
        ("get a\r\n", "VALUE a 5 3\r\nabc\r\nEND\r\n"),
        ("append a 0 0 2\r\nde\r\n", "STORED\r\n"),
        ("prepend a 0 0 1\r\n-\r\n", "STORED\r\n"),
        ("gat 0 a\r\n", "VALUE a 5 6\r\n-abcde\r\nEND\r\n"),
        ("add a 0 0 1\r\nx\r\n", "NOT_STORED\r\n"),
        ("replace b 0 0 1\r\nx\r\n", "NOT_STORED\r\n"),
        ("set n 0 0 2\r\n41\r\n", "STORED\r\n"),
        ("incr n 1\r\n", "42\r\n"),
        ("touch a 100\r\n", "TOUCHED\r\n"),
        (
            "get a b n\r\n",
            "VALUE a 5 6\r\n-abcde\r\nVALUE n 0 2\r\n42\r\nEND\r\n",
        ),
        ("ms m 2 F7 T0\r\nhi\r\n", "HD\r\n"),
        ("mg m v f\r\n", "VA 2 f7\r\nhi\r\n"),
        ("mg nothing v\r\n", "EN\r\n"),
        ("delete a\r\n", "DELETED\r\n"),
        ("get a\r\n", "END\r\n"),
        // Nothing is to be said.
        ("set q 0 0 1 noreply\r\nx\r\n", ""),
        ("get q\r\n", "VALUE q 0 1\r\nx\r\nEND\r\n"),
        // Several in one frame.
        (
            "get q\r\nget nothing\r\nmn\r\n",
            "VALUE q 0 1\r\nx\r\nEND\r\nEND\r\nMN\r\n",
        ),
        ("nonsense\r\n", "ERROR\r\n"),
        // What never becomes a request.
        ("get a", "ERROR\r\n"),
        ("set a 0 0 10\r\nabc\r\n", "ERROR\r\n"),
        // Who comes over RDMA already, or would be sent lines for ever.
        ("rdma\r\n", "SERVER_ERROR no more clients over RDMA\r\n"),
        (
            "watch fetchers\r\n",
            "WATCHER_FAILED failed to add log watcher\r\n",
        ),
    ] {
        assert_eq!(client.ask(request), reply, "{request}");
    }
    // One cache on both.
    let mut lines = Lines::connect(&server);
    assert_eq!(lines.ask("get q\r\n"), "VALUE q 0 1");
}

#[test]
pub(super) fn values_of_every_length_come_and_go() {
    let Some(server) = server(&[]) else {
        return;
    };
    let mut client = Client::connect(&server);
    let lens = [
        1, 500, 512, 513, 1500, 4000, 4096, 4097, 5000, 16_383, 16_384, 16_385, 40_000, 65_536,
        300_000, 1_000_000,
    ];
    for (seed, len) in lens.into_iter().enumerate() {
        let key = format!("k{len}");
        let value = value(len, seed);
        client.set(&key, &value);
        assert!(client.get(&key) == hit(&key, &value), "{len}");
    }
    // Each again after all, some together.
    let some: Vec<String> = lens[..13].iter().map(|len| format!("k{len}")).collect();
    let reply = client.try_ask(
        format!("get {}\r\n", some.join(" ")).as_bytes(),
        None,
        1 << 20,
    );
    let mut expected = Vec::new();
    for (seed, len) in lens[..13].iter().enumerate() {
        let one = hit(&format!("k{len}"), &value(*len, seed));
        expected.extend_from_slice(&one[..one.len() - 5]);
    }
    expected.extend(b"END\r\n");
    assert!(reply.expect("it fits") == expected);
    // Large values from where they lie, short ones copied; long ones fetched.
    client.lines.wait_for("connections", 1);
    client
        .lines
        .wait_until("replies_in_place", |count| count >= 6);
    client.lines.wait_until("values_read", |count| count > 0);
    client.lines.wait_until("bytes_early", |count| count > 0);
    client.lines.wait_for("requests_under_way", 0);
    client.lines.wait_for("staging_bytes", 0);
}

#[test]
pub(super) fn values_come_by_append_and_by_meta_too() {
    let Some(server) = server(&[]) else {
        return;
    };
    let mut client = Client::connect(&server);
    let (one, two) = (value(30_000, 1), value(70_000, 2));
    client.set("a", &one);
    let reply = client.try_ask(b"append a 0 0 70000\r\n", Some(&two), 64);
    assert_eq!(reply.expect("room"), b"STORED\r\n");
    assert!(client.get("a") == hit("a", &[&one[..], &two[..]].concat()));
    let reply = client
        .try_ask(b"ms m 70000 T0 F9 c\r\n", Some(&two), 64)
        .expect("room");
    assert!(reply.starts_with(b"HD c"), "{}", reply.escape_ascii());
    let reply = client.try_ask(b"mg m s f\r\n", None, 64).expect("room");
    assert_eq!(reply, b"HD s70000 f9\r\n");
    // A value of another length than the command says is no request, and stores nothing.
    let reply = client
        .try_ask(b"set b 0 0 70001\r\n", Some(&two), 64)
        .expect("room");
    assert_eq!(reply, b"ERROR\r\n");
    // What is left of it is requests, as over TCP.
    let reply = client
        .try_ask(b"set b 0 0 60000\r\n", Some(&two), 64 << 10)
        .expect("room");
    assert!(
        reply.starts_with(b"CLIENT_ERROR bad data chunk"),
        "{}",
        reply.escape_ascii()
    );
    assert_eq!(client.ask("get b\r\n"), "END\r\n");
    client.lines.wait_for("staging_bytes", 0);
}

#[test]
pub(super) fn a_reply_without_room_says_how_much_it_needs() {
    let Some(server) = server(&[]) else {
        return;
    };
    let mut client = Client::connect(&server);
    let value = value(50_000, 3);
    client.set("k", &value);
    let error = client
        .try_ask(b"get k\r\n", None, 1000)
        .expect_err("no room");
    let needs = hit("k", &value).len();
    assert_eq!(
        error.to_string(),
        format!("a reply of {needs} bytes, for which there was no room")
    );
    assert!(client.get("k") == hit("k", &value));
}

#[test]
pub(super) fn many_requests_are_under_way_at_once() {
    let Some(server) = server(&["-t", "2"]) else {
        return;
    };
    let mut client = Client::connect(&server);
    for nth in 0..20 {
        client.set(&format!("k{nth}"), &value(100 + nth * 997, nth));
    }
    let deadline = Instant::now() + PATIENCE;
    for round in 0..50 {
        let tickets: Vec<_> = (0..20)
            .map(|nth| {
                let command = format!("get k{nth}\r\n");
                let ticket = client
                    .link
                    .submit(command.as_bytes(), None, 32 << 10, deadline);
                ticket.expect("room")
            })
            .collect();
        for (nth, ticket) in tickets.into_iter().enumerate().rev() {
            let len = client.link.wait(ticket, deadline).expect("a reply");
            let expected = hit(&format!("k{nth}"), &value(100 + nth * 997, nth));
            assert!(client.link.reply(ticket, len) == expected, "{round} {nth}");
            client.link.release(ticket);
        }
    }
}
