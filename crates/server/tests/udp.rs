//! Requests in datagrams, beside memcached 1.6.45.

#[path = "support/datagrams.rs"]
mod datagrams;
#[path = "support/memcached.rs"]
mod memcached;
#[path = "support/mod.rs"]
mod support;

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};

use datagrams::{Client, NO_REQUESTS, Part, conversation, payload, request};
use support::Server;

/// A server that receives datagrams, and a client.
struct Scene {
    server: Server,
    address: SocketAddr,
    client: Client,
}

impl Scene {
    fn start(start: impl FnOnce(&[&str]) -> Server, flags: &[&str]) -> Scene {
        let free = UdpSocket::bind("127.0.0.1:0").expect("a port");
        let address = free.local_addr().expect("it is bound");
        drop(free);
        let text = address.port().to_string();
        let flags = [flags, &["-U", &text, "-t", "1"]].concat();
        Scene {
            server: start(&flags),
            address,
            client: Client::at(Ipv4Addr::LOCALHOST, address),
        }
    }

    fn coua(flags: &[&str]) -> Scene {
        Scene::start(Server::coua, flags)
    }

    fn memcached() -> Scene {
        let program = memcached::memcached_program();
        Scene::start(|flags| Server::start(&program, flags), &[])
    }

    fn ask(&self, datagrams: &[&[u8]]) -> Vec<Part> {
        self.client.ask(datagrams)
    }
}

fn stats(server: &Server) -> String {
    let mut stream = server.connect();
    stream
        .write_all(b"stats\r\nquit\r\n")
        .expect("the server reads");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("statistics");
    text
}

#[test]
fn replies_are_memcacheds() {
    let (theirs, ours) = (Scene::memcached(), Scene::coua(&[]));
    for (id, case) in (1..).zip(&conversation(60_000)) {
        let datagram = request(id, case);
        let (their_parts, our_parts) = (theirs.ask(&[&datagram]), ours.ask(&[&datagram]));
        assert_eq!(
            our_parts,
            their_parts,
            "{}",
            case[..case.len().min(60)].escape_ascii()
        );
    }
}

#[test]
fn what_is_no_request_is_not_answered() {
    for scene in [Scene::memcached(), Scene::coua(&[])] {
        assert_eq!(scene.ask(NO_REQUESTS), []);
    }
    // Memcached goes on with the next datagram as if it were the rest.
    let ours = Scene::coua(&[]);
    let unfinished: &[&[u8]] = &[
        &request(1, b"set a 0 0 100\r\nabc"),
        &request(2, b"get a"),
        &request(3, b"\x80\x0a\0\0"),
        &request(4, &[&b"set a 0 0 60000\r\n"[..], &[b'x'; 40_000]].concat()),
    ];
    let parts = ours.ask(unfinished);
    assert_eq!(payload(&parts), b"", "{parts:?}");
    assert_eq!(payload(&ours.ask(&[&request(5, b"get a\r\n")])), b"END\r\n");
}

/// Memcached sends each answer as a message of its own, all with the same id and number, which no
/// client can put in order. The bytes are the same.
#[test]
fn requests_of_a_datagram_are_answered_in_one_message() {
    let (theirs, ours) = (Scene::memcached(), Scene::coua(&[]));
    let value = [b'x'; 900];
    let mut requests = Vec::new();
    for key in ["a", "b", "c"] {
        requests.extend(format!("set {key} 0 0 900\r\n").into_bytes());
        requests.extend(value);
        requests.extend(b"\r\n");
    }
    requests
        .extend(b"get a none b c\r\nincr none 1\r\nget b\r\nset bad 0 0 3\r\nabcd\r\nget c\r\n");
    let datagram = request(77, &requests);
    let (their_parts, our_parts) = (theirs.ask(&[&datagram]), ours.ask(&[&datagram]));
    assert_eq!(payload(&our_parts), payload(&their_parts));
    let count = u16::try_from(payload(&our_parts).len().div_ceil(1392)).expect("few");
    for (number, part) in (0..).zip(&our_parts) {
        let found = (part.request_id, part.number, part.count, part.reserved);
        assert_eq!(found, (77, number, count, 0));
    }
    assert_eq!(our_parts.len(), usize::from(count));
}

#[test]
fn an_address_is_not_sent_without_end() {
    let scene = Scene::coua(&["--udp-reply-rate", "1", "-m", "64"]);
    let value = vec![b'v'; 20_000];
    let store = [&b"set v 0 0 20000\r\n"[..], &value, b"\r\n"].concat();
    assert_eq!(payload(&scene.ask(&[&request(1, &store)])), b"STORED\r\n");
    let received = scene.client.receive_until_refused("get v\r\n");
    // A second's worth at the start, and what each second of the test adds.
    assert!((900_000..10_000_000).contains(&received), "{received}");
    let stats = stats(&scene.server);
    assert!(
        stats.contains("STAT coua_udp_replies_dropped 1\r\n"),
        "{stats}"
    );
    // Somebody else is answered all the same.
    let other = Client::at(Ipv4Addr::new(127, 0, 0, 2), scene.address);
    assert_eq!(payload(&other.ask(&[])), b"");
}

/// Who sends without waiting for answers is not told of what is lost, so little may be, and it is counted.
#[test]
fn a_burst_waits_for_a_busy_server_and_what_is_lost_is_counted() {
    // Without root's rights the system sets a lower limit.
    let burst: usize = if support::is_root() { 2000 } else { 400 };
    let scene = Scene::coua(&[]);
    let pid = rustix::process::Pid::from_child(&scene.server.child);
    let signal = |signal| rustix::process::kill_process(pid, signal).expect("it is our child");
    signal(rustix::process::Signal::STOP);
    for number in 0..burst {
        let set = format!("set k{number} 0 0 1 noreply\r\nx\r\n");
        scene.client.send(&request(1, set.as_bytes()));
    }
    signal(rustix::process::Signal::CONT);
    let value = |name: &str| -> u64 {
        let text = stats(&scene.server);
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(&format!("STAT {name} ")));
        let number = line.unwrap_or_else(|| panic!("{name} is missing"));
        number.parse().expect("a number")
    };
    // The server has taken what waited once it answers what came behind it.
    scene.ask(&[&request(2, b"mn\r\n")]);
    assert_eq!(value("curr_items"), burst as u64);
    assert_eq!(value("coua_udp_dropped_by_kernel"), 0);
    // More than any queue holds.
    signal(rustix::process::Signal::STOP);
    let large = request(3, &[b'x'; 8000]);
    for _ in 0..8000 {
        scene.client.send(&large);
    }
    signal(rustix::process::Signal::CONT);
    assert!(value("coua_udp_dropped_by_kernel") > 0);
}
