//! Requests in datagrams, beside memcached 1.6.45.

#[path = "support/memcached.rs"]
mod memcached;
#[path = "support/mod.rs"]
mod support;

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use support::Server;

/// How long a datagram may take.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);

/// The id of the request whose reply says that all before it have been answered.
const LAST: u16 = 0xfeed;

/// A server that receives datagrams, and a client.
struct Scene {
    server: Server,
    port: u16,
    client: UdpSocket,
}

/// One datagram of a reply.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Part {
    request_id: u16,
    number: u16,
    count: u16,
    reserved: u16,
    bytes: Vec<u8>,
}

impl Scene {
    fn start(start: impl FnOnce(&[&str]) -> Server, flags: &[&str]) -> Scene {
        let free = UdpSocket::bind("127.0.0.1:0").expect("a port");
        let port = free.local_addr().expect("it is bound").port();
        drop(free);
        let text = port.to_string();
        let flags = [flags, &["-U", &text, "-t", "1"]].concat();
        Scene {
            server: start(&flags),
            port,
            client: client(Ipv4Addr::LOCALHOST),
        }
    }

    fn coua(flags: &[&str]) -> Scene {
        Scene::start(Server::coua, flags)
    }

    fn memcached() -> Scene {
        let program = memcached::memcached_program();
        Scene::start(|flags| Server::start(&program, flags), &[])
    }

    fn send(&self, from: &UdpSocket, bytes: &[u8]) {
        let to = SocketAddr::from((Ipv4Addr::LOCALHOST, self.port));
        from.send_to(bytes, to).expect("a datagram leaves");
    }

    /// Sends datagrams, and gives what comes back.
    fn ask(&self, datagrams: &[&[u8]]) -> Vec<Part> {
        for datagram in datagrams {
            self.send(&self.client, datagram);
        }
        self.send(&self.client, &request(LAST, b"mn\r\n"));
        let mut parts = Vec::new();
        loop {
            let part = receive(&self.client).expect("a reply");
            if part.request_id == LAST {
                assert_eq!(part.bytes, b"MN\r\n");
                return parts;
            }
            parts.push(part);
        }
    }
}

fn client(address: Ipv4Addr) -> UdpSocket {
    let client = UdpSocket::bind((address, 0)).expect("a port");
    client
        .set_read_timeout(Some(ANSWER_LIMIT))
        .expect("a timeout");
    client
}

fn receive(client: &UdpSocket) -> Option<Part> {
    let mut room = [0; 1 << 16];
    let (len, from) = client.recv_from(&mut room).ok()?;
    assert_eq!(from.ip(), IpAddr::from(Ipv4Addr::LOCALHOST));
    assert!((8..=1400).contains(&len), "{len}");
    let number = |at: usize| u16::from_be_bytes([room[at], room[at + 1]]);
    Some(Part {
        request_id: number(0),
        number: number(2),
        count: number(4),
        reserved: number(6),
        bytes: room[8..len].to_vec(),
    })
}

fn request(id: u16, bytes: &[u8]) -> Vec<u8> {
    [&id.to_be_bytes(), &b"\0\0\0\x01\0\0"[..], bytes].concat()
}

fn payload(parts: &[Part]) -> Vec<u8> {
    parts.iter().flat_map(|part| part.bytes.clone()).collect()
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
    let large = [&b"set large 7 0 5000\r\n"[..], &[b'v'; 5000], b"\r\n"].concat();
    let huge = [&b"set huge 0 0 60000\r\n"[..], &[b'h'; 60_000], b"\r\n"].concat();
    let mut binary_get = vec![0x80, 0x0c, 0, 5, 0, 0, 0, 0, 0, 0, 0, 5, 1, 2, 3, 4];
    binary_get.extend([0; 8]);
    binary_get.extend(b"none\xff");
    let cases: &[&[u8]] = &[
        b"get none\r\n",
        b"set a 5 0 3\r\nabc\r\n",
        b"get a\r\n",
        b"gat 100 a\r\n",
        b"append a 0 0 1 noreply\r\nd\r\n",
        b"get a\r\n",
        b"add a 0 0 1\r\nx\r\n",
        b"incr a 1\r\n",
        b"set n 0 0 1\r\n9\r\n",
        b"incr n 1\r\n",
        b"mg n v k\r\n",
        b"ms m 2 T0\r\nhi\r\n",
        b"delete m\r\n",
        b"touch n 0\r\n",
        &large,
        b"get large\r\n",
        &huge,
        b"get huge\r\n",
        b"no such command\r\n",
        b"get\r\n",
        &binary_get,
        b"verbosity 0\r\n",
        b"flush_all\r\n",
        b"get large\r\n",
    ];
    for (id, case) in (1..).zip(cases) {
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
    let datagrams: &[&[u8]] = &[
        b"",
        b"\0",
        b"\0\x01\0\0\0\x01\0\0",
        b"\0\x01\0\0\0\x02\0\0get a\r\n",
        b"\0\x01\0\x01\0\x02\0\0get a\r\n",
        b"\0\x01\0\0\0\0\0\0get a\r\n",
        b"get a\r\n",
    ];
    for scene in [Scene::memcached(), Scene::coua(&[])] {
        assert_eq!(scene.ask(datagrams), []);
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
    let few = Duration::from_millis(500);
    scene.client.set_read_timeout(Some(few)).expect("a timeout");
    let mut received = 0;
    for id in 0..1000 {
        scene.send(&scene.client, &request(id, b"get v\r\n"));
        let mut parts = std::iter::from_fn(|| receive(&scene.client));
        let Some(last) = parts.find(|part| {
            received += part.bytes.len();
            part.number + 1 == part.count
        }) else {
            break;
        };
        assert_eq!(last.request_id, id);
    }
    // A second's worth at the start, and what each second of the test adds.
    assert!((900_000..10_000_000).contains(&received), "{received}");
    let stats = stats(&scene.server);
    assert!(
        stats.contains("STAT coua_udp_replies_dropped 1\r\n"),
        "{stats}"
    );
    // Somebody else is answered all the same.
    let other = client(Ipv4Addr::new(127, 0, 0, 2));
    scene.send(&other, &request(9, b"mn\r\n"));
    assert_eq!(receive(&other).expect("a reply").bytes, b"MN\r\n");
}
