//! `stats conns`, and what is counted of connections, beside memcached's.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use crate::asking::{ask, ask_on, is_number, number, say};
use crate::memcached::memcached_program;
use crate::support::{Server, coua_program};

/// How long a server may take to get to the state that is expected of it.
const PATIENCE: Duration = Duration::from_secs(20);

/// What a client has sent, and the state in which that leaves its connection.
const STATES: [(&str, &str); 23] = [
    ("", "conn_new_cmd"),
    ("\r\n", "conn_read"),
    ("get ab", "conn_read"),
    ("mn\r\n", "conn_read"),
    ("mn\r\nget ab", "conn_read"),
    ("set a 0 0 10\r\n", "conn_nread"),
    ("set a 0 0 10\r\nabc", "conn_nread"),
    ("set a 0 0 3\r\nabc\r", "conn_nread"),
    ("mn\r\ncas a 0 0 10 1\r\nabc", "conn_nread"),
    ("ms a 10\r\nabc", "conn_nread"),
    ("ms a 3\r\nabc", "conn_nread"),
    ("set a 0 0 100000\r\nx", "conn_nread"),
    ("set a 0 0 3\r\nabc\r\n", "conn_read"),
    ("set a 0 0 10\r\nabc|defghij\r\n", "conn_read"),
    ("set a 0 0 10\r\nabc|defghijklmn\r\n", "conn_read"),
    ("set a 0 0 2000000\r\nx", "conn_swallow"),
    ("set a x 0 10\r\nabc", "conn_swallow"),
    ("ms a 10 S10\r\nabc", "conn_swallow"),
    ("set a x 0 10\r\nabc|defghij\r\n", "conn_read"),
    // A noop; a set of ten bytes without its extras, without its value, and with a part of that.
    (
        "\x00\x0a\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
        "conn_read",
    ),
    (
        "\x00\x01\0\x01\x08\0\0\0\0\0\0\x13\0\0\0\0\0\0\0\0\0\0\0\0",
        "conn_read",
    ),
    (
        "\x00\x01\0\x01\x08\0\0\0\0\0\0\x13\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0k",
        "conn_nread",
    ),
    (
        "\x00\x01\0\x01\x08\0\0\0\0\0\0\x13\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0kabc",
        "conn_nread",
    ),
];

/// A listener and this connection, each with the lines that memcached has for it.
#[test]
fn conns_tells_of_listeners_and_connections() {
    for server in [Server::start(&memcached_program(), &[]), Server::coua(&[])] {
        let mut stream = server.connect();
        let here = format!("tcp:{}", stream.local_addr().expect("an address"));
        let there = format!("tcp:{}", server.address);
        let conns = ask_on(&mut stream, "stats conns");
        let number_of = |address: &str| {
            let found = conns
                .iter()
                .find(|(key, value)| key.ends_with(":addr") && value.as_str() == address);
            found
                .unwrap_or_else(|| panic!("no {address} in {conns:?}"))
                .0
                .trim_end_matches(":addr")
                .to_owned()
        };
        let (listener, own) = (number_of(&there), number_of(&here));
        assert_eq!(conns[&format!("{listener}:state")], "conn_listening");
        assert_eq!(conns[&format!("{own}:listen_addr")], there);
        assert!(conns[&format!("{own}:state")].starts_with("conn_"));
        for number in [listener, own] {
            assert!(is_number(&conns[&format!("{number}:secs_since_last_cmd")]));
        }
    }
}

/// Each connection is in the state that memcached names, whatever its client has sent or left unread.
#[test]
fn states_are_memcacheds() {
    for program in both() {
        let server = Server::start(&program, &["-t", "1"]);
        let mut asker = server.connect();
        let mut clients: Vec<(TcpStream, &str, &str)> = STATES
            .iter()
            .map(|&(sent, state)| {
                let mut client = server.connect();
                for (number, part) in sent.split('|').enumerate() {
                    if number > 0 {
                        let before = ["conn_nread", "conn_swallow"];
                        await_states(&mut asker, &[&client], |states| {
                            before.contains(&states[0].as_str())
                        });
                    }
                    let mut part = part.as_bytes().to_vec();
                    if part.first() == Some(&0) {
                        part[0] = 0x80;
                    }
                    client.write_all(&part).expect("the server reads");
                }
                (client, sent, state)
            })
            .collect();

        let value = "x".repeat(500_000);
        let set = format!("set large 0 0 500000\r\n{value}\r\n");
        say(&server, &set, "STORED");
        let mut client = server.connect();
        // More than the buffers of two sockets hold.
        let gets = "get large\r\n".repeat(60) + "quit\r\n";
        client.write_all(gets.as_bytes()).expect("the server reads");
        clients.push((client, "much that is not read", "conn_mwrite"));

        let streams: Vec<&TcpStream> = clients.iter().map(|(stream, ..)| stream).collect();
        let expected: Vec<&str> = clients.iter().map(|(.., state)| *state).collect();
        let states = await_states(&mut asker, &streams, |states| states == expected);
        for ((_, sent, expected), state) in clients.iter().zip(&states) {
            assert_eq!(state, expected, "{}: {sent:?}", program.display());
        }
        let this = asker.try_clone().expect("a second handle");
        let own = await_states(&mut asker, &[&this], |_| true);
        assert_eq!(own, ["conn_parse_cmd"]);
    }
}

/// Sockets of UDP have memcached's lines.
#[test]
fn sockets_of_udp_are_told_of() {
    for program in both() {
        let free = UdpSocket::bind("127.0.0.1:0").and_then(|socket| socket.local_addr());
        let port = free.expect("a free port").port().to_string();
        let server = Server::start(&program, &["-t", "1", "-U", &port]);
        let conns = ask(&server, "stats conns");
        let of_udp = |name: &str| {
            let lines = conns.iter().filter(|(key, _)| key.ends_with(":UDP"));
            let numbers = lines.map(|(key, value)| {
                assert_eq!(value, "UDP");
                key.trim_end_matches(":UDP").to_owned()
            });
            let values = numbers.map(|number| conns[&format!("{number}:{name}")].clone());
            values.collect::<Vec<_>>()
        };
        assert_eq!(of_udp("addr"), [format!("udp:127.0.0.1:{port}")]);
        assert_eq!(of_udp("state"), ["conn_read"], "{}", program.display());
    }
}

/// A connection that sends more than its share of a turn yields, whether or not it is alone. memcached's
/// share is what `-R` says; coua gives a lone connection a whole batch.
#[test]
fn a_lone_connection_that_pipelines_yields() {
    for program in both() {
        let server = Server::start(&program, &["-t", "1", "-R", "20"]);
        assert_eq!(number(&ask(&server, "stats"), "conn_yields"), 0);
        let mut client = server.connect();
        let requests = 100_000;
        let mut writer = client.try_clone().expect("a second handle");
        thread::scope(|scope| {
            scope.spawn(move || {
                let text = "mn\r\n".repeat(requests);
                writer.write_all(text.as_bytes()).expect("the server reads");
            });
            let mut answers = vec![0; 4 * requests];
            client.read_exact(&mut answers).expect("all answers");
        });
        let yields = number(&ask(&server, "stats"), "conn_yields");
        let at_most = requests as u64 / 20;
        assert!(
            (1..=at_most).contains(&yields),
            "{}: {yields}",
            program.display()
        );
    }
}

fn both() -> [std::path::PathBuf; 2] {
    [memcached_program(), coua_program()]
}

/// The states of the clients' connections, as soon as they are as wanted, or else when patience ends.
fn await_states(
    asker: &mut TcpStream,
    clients: &[&TcpStream],
    are_wanted: impl Fn(&[String]) -> bool,
) -> Vec<String> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let conns = ask_on(asker, "stats conns");
        let states: Vec<_> = clients.iter().map(|c| state_of(c, &conns)).collect();
        if are_wanted(&states) || Instant::now() > deadline {
            return states;
        }
        thread::sleep(Duration::from_millis(10));
    }
}

fn state_of(client: &TcpStream, conns: &BTreeMap<String, String>) -> String {
    let address = format!("tcp:{}", client.local_addr().expect("it is connected"));
    let found = conns
        .iter()
        .find(|(key, value)| key.ends_with(":addr") && **value == address);
    match found {
        Some((key, _)) => conns[&format!("{}:state", key.trim_end_matches(":addr"))].clone(),
        None => "none".to_owned(),
    }
}
