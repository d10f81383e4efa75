//! A server in this process whose card is the test: what is sent at once comes in one turn.
#![allow(dead_code, reason = "each test takes what it needs")]

use std::ffi::OsString;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use coua::flags::{self, Invocation};
use coua::server::{Server, Sockets};
use coua_tcp::nic::{BURST_LEN, Features, Frame, Mac, Nic, Offload};
use coua_tcp::wire::checksum::Sum;
use coua_tcp::wire::ethernet::{self, EtherType};
use coua_tcp::wire::ip::{self, Protocol, V4_HEADER_LEN};
use coua_tcp::wire::{Address, udp};
use coua_transport::userspace::{Card, Config, Exchange, OtherCard, Polling, StackSetup};

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(60);

const SERVER_MAC: Mac = Mac([2, 0, 0, 0, 0, 1]);
const CLIENT_MAC: Mac = Mac([2, 0, 0, 0, 0, 2]);
const SERVER: [u8; 4] = [10, 0, 0, 1];
const PORT: u16 = 11211;

/// Bytes of an IP packet at most: enough for values that are not copied.
const MTU: u16 = 32_000;
const SLOT_LEN: usize = MTU as usize + 14;

/// Frames that wait for the test at most.
const REPLIES_MAX: usize = 4096;

/// Bytes of the frame of memcached's protocol.
pub(crate) const FRAME_LEN: usize = 8;

/// Where UDP's header and the payload begin in a frame.
const TRANSPORT_AT: usize = 14 + V4_HEADER_LEN;
const PAYLOAD_AT: usize = TRANSPORT_AT + udp::HEADER_LEN;

/// A server with one worker, and its card.
pub(crate) struct Scene {
    wire: Arc<Wire>,
    /// Until it stops.
    server: Option<Server>,
}

/// One who sends requests: an address and a port of his own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sender(pub(crate) u8);

/// A reply's datagram.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reply {
    /// To whom.
    pub(crate) to: Sender,
    /// With the frame of memcached's protocol.
    pub(crate) payload: Vec<u8>,
}

#[derive(Default)]
struct Wire {
    state: Mutex<State>,
    has_replies: Condvar,
}

#[derive(Default)]
struct State {
    requests: Frames,
    replies: Frames,
}

/// Frames one behind the other.
#[derive(Default)]
struct Frames {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Frames {
    fn with_room(frames: usize) -> Frames {
        Frames {
            bytes: Vec::with_capacity(frames * SLOT_LEN),
            ends: Vec::with_capacity(frames),
        }
    }

    fn push(&mut self, frame: &[u8]) {
        self.bytes.extend_from_slice(frame);
        self.ends.push(self.bytes.len());
    }

    fn frame(&self, at: usize) -> &[u8] {
        let start = if at == 0 { 0 } else { self.ends[at - 1] };
        &self.bytes[start..self.ends[at]]
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }
}

/// The server's end. It has all its memory from the start.
struct End {
    wire: Arc<Wire>,
    requests: Frames,
    slot: Box<[u8; SLOT_LEN]>,
}

impl Wire {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nobody panics with it")
    }
}

impl Nic for End {
    fn features(&self) -> Features {
        Features {
            mac: SERVER_MAC,
            mtu: MTU,
            fills_checksums: false,
            segmentation_len_max: 0,
        }
    }

    fn receive(&mut self) -> usize {
        self.requests.clear();
        std::mem::swap(&mut self.requests, &mut self.wire.lock().requests);
        self.requests.ends.len()
    }

    fn frame(&self, at: usize) -> Frame<'_> {
        Frame {
            bytes: self.requests.frame(at),
            is_verified: false,
        }
    }

    fn release(&mut self) {
        self.requests.clear();
    }

    fn slot(&mut self) -> Option<&mut [u8]> {
        (self.wire.lock().replies.ends.len() < REPLIES_MAX).then_some(&mut self.slot[..])
    }

    fn commit(&mut self, len: usize, _: Offload) {
        self.wire.lock().replies.push(&self.slot[..len]);
    }

    fn flush(&mut self) {
        self.wire.has_replies.notify_all();
    }
}

impl OtherCard for End {}

impl Scene {
    /// Starts it with these flags beside.
    pub(crate) fn start(flags: &[&str]) -> Scene {
        let user: &[&str] = match rustix::process::getuid().is_root() {
            true => &["-u", "root"],
            false => &[],
        };
        let own = "coua -l 127.0.0.1 -p -1 -U 0 -t 1 -m 64".split(' ');
        let words = own.chain(user.iter().chain(flags).copied());
        let Ok(Invocation::Serve(settings)) = flags::read(words.map(OsString::from)) else {
            panic!("the flags are wrong: {flags:?}");
        };
        let mut sockets = Sockets::open(&settings).expect("a port is free");
        let wire = Arc::new(Wire {
            state: Mutex::new(State {
                requests: Frames::with_room(BURST_LEN),
                replies: Frames::with_room(REPLIES_MAX),
            }),
            has_replies: Condvar::new(),
        });
        let end = End {
            wire: Arc::clone(&wire),
            requests: Frames::with_room(BURST_LEN),
            slot: Box::new([0; SLOT_LEN]),
        };
        let exchange = Exchange::between(1).pop().expect("one");
        let address = "10.0.0.1/8".parse().expect("an address");
        let setup = StackSetup {
            card: Card::Other(Box::new(end)),
            config: Config::new(vec![address], [7; 32]),
            ports: vec![PORT],
            datagram_port: Some(PORT),
            polling: Polling::Adaptive,
            exchange,
        };
        sockets.give_setup(0, setup);
        let server = Server::start(*settings, sockets, None).expect("the server starts");
        let server = Some(server);
        Scene { wire, server }
    }

    /// The server.
    pub(crate) fn server(&self) -> &Server {
        self.server.as_ref().expect("it stops with the scene")
    }

    /// Sends datagrams that come in one turn, fewer than [`BURST_LEN`], and gives what answers them.
    pub(crate) fn exchange(&self, datagrams: &[(Sender, Vec<u8>)]) -> Vec<Reply> {
        assert!(datagrams.len() < BURST_LEN);
        let mut state = self.wire.lock();
        state.replies.clear();
        for (sender, payload) in datagrams {
            state.requests.push(&frame(*sender, payload));
        }
        // It takes the long way, so its answer is the last.
        let last = Reply {
            to: Sender(255),
            payload: message(0xfeed, b"MN\r\n"),
        };
        let request = message(0xfeed, b"mn\r\n");
        state.requests.push(&frame(last.to, &request));
        let deadline = Instant::now() + PATIENCE;
        let mut replies = Vec::new();
        loop {
            let known = replies.len()..state.replies.ends.len();
            replies.extend(known.map(|at| read(state.replies.frame(at))));
            if replies.last() == Some(&last) {
                replies.pop();
                return replies;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "no answer in {PATIENCE:?}");
            let waited = self.wire.has_replies.wait_timeout(state, left);
            state = waited.expect("nobody panics with it").0;
        }
    }

    /// What `stats` tells that the worker has counted of requests and replies.
    pub(crate) fn counts(&self) -> Vec<(String, u64)> {
        let reply = self.exchange(&[(Sender(254), message(1, b"stats\r\n"))]);
        let parts = reply.iter().map(|part| &part.payload[FRAME_LEN..]);
        let text = String::from_utf8(parts.flatten().copied().collect()).expect("text");
        let all = text.lines().filter_map(|line| {
            let (name, value) = line.strip_prefix("STAT ")?.split_once(' ')?;
            Some((name.to_owned(), value.parse().ok()?))
        });
        const COUNTED: &[&str] = &[
            "cmd_",
            "get_",
            "bytes_read",
            "bytes_written",
            "coua_udp_",
            "total_items",
        ];
        all.filter(|(name, _)| COUNTED.iter().any(|counted| name.starts_with(counted)))
            .collect()
    }
}

/// A request or a reply of one datagram, in the frame of memcached's protocol.
pub(crate) fn message(id: u16, bytes: &[u8]) -> Vec<u8> {
    [&id.to_be_bytes(), &b"\0\0\0\x01\0\0"[..], bytes].concat()
}

impl Drop for Scene {
    fn drop(&mut self) {
        if let Some(server) = self.server.take() {
            server.stop();
        }
    }
}

impl Sender {
    fn address(self) -> Address {
        Address::v4([10, 0, 1, self.0])
    }

    fn port(self) -> u16 {
        40_000 + u16::from(self.0)
    }
}

/// A datagram to the server, in its frame.
fn frame(sender: Sender, payload: &[u8]) -> Vec<u8> {
    let (from, to) = (sender.address(), Address::v4(SERVER));
    let mut frame = vec![0; PAYLOAD_AT];
    frame.extend_from_slice(payload);
    let link = ethernet::Header {
        destination: SERVER_MAC,
        source: CLIENT_MAC,
        vlan: 0,
        ether_type: EtherType::IPV4,
    };
    link.write(&mut frame);
    let len = udp::HEADER_LEN + payload.len();
    ip::Header::new(from, to, Protocol::UDP, len).write(&mut frame[14..], false);
    let header = udp::Header {
        source: sender.port(),
        destination: PORT,
        payload_len: payload.len(),
        checksum: 0,
    };
    header.write(&mut frame[TRANSPORT_AT..]);
    let sum = Sum::pseudo_header(from, to, Protocol::UDP.0, len).with(&frame[TRANSPORT_AT..]);
    frame[TRANSPORT_AT + 6..PAYLOAD_AT].copy_from_slice(&sum.checksum().to_be_bytes());
    frame
}

/// What a frame from the server says, all of whose headers are looked at.
fn read(frame: &[u8]) -> Reply {
    let (link, at) = ethernet::Header::read(frame).expect("a frame");
    let ends = (link.source, link.destination, link.ether_type);
    assert_eq!(ends, (SERVER_MAC, CLIENT_MAC, EtherType::IPV4));
    let (packet, len) = ip::Header::read_v4(&frame[at..], false).expect("a packet");
    let datagram = &frame[at + len..];
    assert_eq!(datagram.len(), packet.payload_len);
    let sum = Sum::pseudo_header(
        packet.source,
        packet.destination,
        Protocol::UDP.0,
        datagram.len(),
    );
    assert!(sum.with(datagram).is_right());
    let header = udp::Header::read(datagram).expect("a datagram");
    assert_eq!((packet.source, header.source), (Address::v4(SERVER), PORT));
    let to = Sender(packet.destination.v4_octets()[3]);
    assert_eq!(
        (to.address(), to.port()),
        (packet.destination, header.destination)
    );
    let payload = datagram[udp::HEADER_LEN..].to_vec();
    Reply { to, payload }
}
