//! A client that sends requests in UDP datagrams, and what such clients ask.
#![allow(dead_code, reason = "each test takes what it needs")]

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;

use rustix::net::sockopt::set_socket_recv_buffer_size_force;

/// How long a datagram may take.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);

/// How long to wait for an answer that is not to come.
const SILENCE: Duration = Duration::from_millis(500);

/// Bytes that wait for the client to read, more than it asks for at once.
const RECEIVE_BUFFER_LEN: usize = 16 << 20;

/// The id of the request whose reply says that all before it have been answered.
const LAST: u16 = 0xfeed;

/// What is no request, and is not answered.
pub(crate) const NO_REQUESTS: &[&[u8]] = &[
    b"",
    b"\0",
    b"\0\x01\0\0\0\x01\0\0",
    b"\0\x01\0\0\0\x02\0\0get a\r\n",
    b"\0\x01\0\x01\0\x02\0\0get a\r\n",
    b"\0\x01\0\0\0\0\0\0get a\r\n",
    b"get a\r\n",
];

/// One datagram of a reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) request_id: u16,
    pub(crate) number: u16,
    pub(crate) count: u16,
    pub(crate) reserved: u16,
    pub(crate) bytes: Vec<u8>,
}

/// A socket that talks to one server.
pub(crate) struct Client {
    socket: UdpSocket,
    server: SocketAddr,
}

impl Client {
    /// A client at this address, at any port where that is 0.
    pub(crate) fn new(own: impl Into<SocketAddr>, server: SocketAddr) -> Client {
        let socket = UdpSocket::bind(own.into()).expect("a port");
        socket
            .set_read_timeout(Some(ANSWER_LIMIT))
            .expect("a timeout");
        // Without root's rights it stays smaller, which only much at once needs.
        let _ = set_socket_recv_buffer_size_force(&socket, RECEIVE_BUFFER_LEN);
        Client { socket, server }
    }

    /// A client at any port of this address.
    pub(crate) fn at(own: impl Into<IpAddr>, server: SocketAddr) -> Client {
        Client::new((own.into(), 0), server)
    }

    /// Sends a datagram.
    pub(crate) fn send(&self, bytes: &[u8]) {
        let sent = self.socket.send_to(bytes, self.server);
        sent.expect("a datagram leaves");
    }

    /// The next datagram of a reply.
    pub(crate) fn receive(&self) -> Option<Part> {
        let mut room = [0; 1 << 16];
        let (len, from) = self.socket.recv_from(&mut room).ok()?;
        assert_eq!(from, self.server);
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

    /// Sends datagrams, and gives what comes back.
    pub(crate) fn ask(&self, datagrams: &[&[u8]]) -> Vec<Part> {
        for datagram in datagrams {
            self.send(datagram);
        }
        self.send(&request(LAST, b"mn\r\n"));
        let mut parts = Vec::new();
        loop {
            let part = self.receive().expect("a reply");
            if part.request_id == LAST {
                assert_eq!(part.bytes, b"MN\r\n");
                return parts;
            }
            parts.push(part);
        }
    }

    /// Asks the same until no answer comes, and says how many bytes have come.
    pub(crate) fn receive_until_refused(&self, question: &str) -> usize {
        self.socket
            .set_read_timeout(Some(SILENCE))
            .expect("a timeout");
        let mut received = 0;
        for id in 0..1000 {
            self.send(&request(id, question.as_bytes()));
            let mut parts = std::iter::from_fn(|| self.receive());
            let Some(last) = parts.find(|part| {
                received += part.bytes.len();
                part.number + 1 == part.count
            }) else {
                break;
            };
            assert_eq!(last.request_id, id);
        }
        received
    }

    /// Sends a datagram that is to get no answer.
    pub(crate) fn is_refused(&self, bytes: &[u8]) -> bool {
        self.socket
            .set_read_timeout(Some(SILENCE))
            .expect("a timeout");
        self.send(bytes);
        self.receive().is_none()
    }
}

/// A request in its frame.
pub(crate) fn request(id: u16, bytes: &[u8]) -> Vec<u8> {
    [&id.to_be_bytes(), &b"\0\0\0\x01\0\0"[..], bytes].concat()
}

/// The reply that comes in parts.
pub(crate) fn payload(parts: &[Part]) -> Vec<u8> {
    parts.iter().flat_map(|part| part.bytes.clone()).collect()
}

/// Requests one after the other, each to be sent in a datagram of its own. No value of a request is
/// longer than `value_len_max`.
pub(crate) fn conversation(value_len_max: usize) -> Vec<Vec<u8>> {
    let set = |key: &str, len: usize| {
        let head = format!("set {key} 7 0 {len}\r\n");
        [head.as_bytes(), &vec![b'v'; len], b"\r\n"].concat()
    };
    let mut binary_get = vec![0x80, 0x0c, 0, 5, 0, 0, 0, 0, 0, 0, 0, 5, 1, 2, 3, 4];
    binary_get.extend([0; 8]);
    binary_get.extend(b"none\xff");
    let longest = "k".repeat(250);
    let get_longest = format!("get {longest}\r\n");
    let large = set("large", value_len_max.min(5000));
    let huge = set("huge", value_len_max);
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
        b"set a 0 0 2 noreply\r\nhi\r\n",
        b"get a\r\n",
        b"set a 0 0 0\r\n\r\n",
        b"get a\r\n",
        &set(&longest, 3),
        get_longest.as_bytes(),
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
    cases.iter().map(|case| case.to_vec()).collect()
}
