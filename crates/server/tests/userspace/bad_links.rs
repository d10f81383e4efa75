//! The kernel's TCP as the client over links that lose, delay, reorder and repeat frames, each way:
//! every byte that is stored and fetched is right, and what was lost is sent again.
//!
//! netem spoils what leaves the client, and what comes to it before its TCP sees any of it:
//!
//! ```text
//! ┌ server ───┐             ┌ client ────────────────────────────┐
//! │      eth0 ├──── veth ───┤ eth0 ◀── netem ─────────────── TCP │
//! │           │             │  └─ ingress ─▶ ifb0 ── netem ─▶ TCP │
//! └───────────┘             └────────────────────────────────────┘
//! ```
//!
//! It needs a kernel with netem, which most test machines lack: `cargo xtask test lab` boots one.

use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use crate::large::byte;
use crate::scene::{ADDRESSES, Scene, ask, count, exchange};

/// Connections at once.
const CONNECTIONS: usize = 8;
/// Values that they store and fetch, all together.
const VALUES: usize = 200;
/// Bytes of the longest value.
const LEN_MAX: usize = 1_000_000;
/// How long a client waits for its next bytes, while a lost segment is sent for the fifth time.
const PATIENCE: Duration = Duration::from_secs(120);

/// What happens to the frames of a link, both ways.
#[derive(Clone, Copy)]
struct Link {
    /// Milliseconds that a frame is on its way.
    delay_ms: u64,
    /// Per cent that are lost.
    loss: u8,
    /// Per cent that overtake those before them; it takes a delay.
    reordering: u8,
    /// Per cent that come twice.
    duplication: u8,
}

impl Link {
    const NONE: Link = Link {
        delay_ms: 0,
        loss: 0,
        reordering: 0,
        duplication: 0,
    };
}

const LINKS: [(&str, Link); 5] = [
    (
        "loss",
        Link {
            loss: 2,
            ..Link::NONE
        },
    ),
    (
        "delay",
        Link {
            delay_ms: 10,
            ..Link::NONE
        },
    ),
    (
        "reordering",
        Link {
            delay_ms: 10,
            reordering: 5,
            ..Link::NONE
        },
    ),
    (
        "duplication",
        Link {
            duplication: 1,
            ..Link::NONE
        },
    ),
    (
        "all of it",
        Link {
            delay_ms: 10,
            loss: 2,
            reordering: 5,
            duplication: 1,
        },
    ),
];

impl Link {
    /// In netem's words, with a queue that is never full by itself.
    fn netem(self) -> String {
        let mut words = "netem limit 20000".to_owned();
        for (name, value, unit) in [
            ("delay", self.delay_ms, "ms"),
            ("reorder", u64::from(self.reordering), "%"),
            ("loss", u64::from(self.loss), "%"),
            ("duplicate", u64::from(self.duplication), "%"),
        ] {
            if value > 0 {
                words.push_str(&format!(" {name} {value}{unit}"));
            }
        }
        words
    }

    /// Spoils both ways, on the clients' side.
    fn lay(self, scene: &Scene) {
        let netem = self.netem();
        let steps = [
            ("ip", "link add ifb0 type ifb"),
            ("ip", "link set ifb0 up"),
            ("tc", "qdisc add dev eth0 handle ffff: ingress"),
            (
                "tc",
                "filter add dev eth0 parent ffff: matchall action mirred egress redirect dev ifb0",
            ),
            ("tc", &format!("qdisc add dev ifb0 root {netem}")),
            ("tc", &format!("qdisc add dev eth0 root {netem}")),
        ];
        for (program, words) in steps {
            scene.pair.peers.run(program, words);
        }
    }
}

/// Lengths from 1 byte to [`LEN_MAX`], each a sixteenth longer than the one before.
fn lengths() -> Vec<usize> {
    let next = |len: &usize| Some((len + len.div_ceil(16)).min(LEN_MAX));
    let lengths: Vec<usize> = std::iter::successors(Some(1), next).take(VALUES).collect();
    assert_eq!(lengths.last(), Some(&LEN_MAX));
    lengths
}

/// The values of one client, with their numbers.
struct Values(Vec<(usize, Vec<u8>)>);

impl Values {
    fn of(client: usize) -> Values {
        let own = lengths().into_iter().enumerate().skip(client);
        let values = own.step_by(CONNECTIONS).map(|(number, len)| {
            let bytes = (0..len).map(|at| byte(number, at)).collect();
            (number, bytes)
        });
        Values(values.collect())
    }

    /// One after the other.
    fn store(&self, stream: &mut TcpStream) {
        for (number, value) in &self.0 {
            let head = format!("set k{number} 0 0 {}\r\n", value.len());
            let request = [head.as_bytes(), value, b"\r\n"].concat();
            exchange(stream, &request, b"STORED\r\n");
        }
    }

    /// All at once.
    fn fetch(&self, stream: &mut TcpStream) {
        let (mut requests, mut answers) = (String::new(), Vec::new());
        for (number, value) in &self.0 {
            requests.push_str(&format!("get k{number}\r\n"));
            let head = format!("VALUE k{number} 0 {}\r\n", value.len());
            answers.extend([head.as_bytes(), value, b"\r\nEND\r\n"].concat());
        }
        exchange(stream, requests.as_bytes(), &answers);
    }

    /// There and back at the same time, so that acknowledgments ride on data.
    fn exchange(&self, stream: &mut TcpStream) {
        let (mut requests, mut answers) = (Vec::new(), Vec::new());
        for (number, value) in &self.0 {
            let head = format!("ms k{number} {}\r\n", value.len());
            let get = format!("\r\nmg k{number} v\r\n");
            requests.extend([head.as_bytes(), value, get.as_bytes()].concat());
            let head = format!("HD\r\nVA {}\r\n", value.len());
            answers.extend([head.as_bytes(), value, b"\r\n"].concat());
        }
        exchange(stream, &requests, &answers);
    }
}

/// Each client stores its values, fetches another's, and then does both at once.
fn play(scene: &Scene) {
    let mut streams: Vec<TcpStream> = (0..CONNECTIONS)
        .map(|_| {
            let stream = scene.connect(ADDRESSES[0]);
            stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
            stream
        })
        .collect();
    let values: Vec<Values> = (0..CONNECTIONS).map(Values::of).collect();
    type Act = fn(&Values, &mut TcpStream);
    let acts: [(Act, usize); 3] = [
        (Values::store, 0),
        (Values::fetch, 1),
        (Values::exchange, 0),
    ];
    for (act, distance) in acts {
        thread::scope(|scope| {
            for (number, stream) in streams.iter_mut().enumerate() {
                let values = &values[(number + distance) % CONNECTIONS];
                scope.spawn(move || act(values, stream));
            }
        });
    }
}

fn over(driver: &str, what: &str, link: Link) {
    // An eighth of it may wait to be sent from where it lies: all values that are asked for at once,
    // in pieces that lie among those of others. With less, clients are shed.
    let scene = Scene::open(driver, &["-m", "512"]);
    link.lay(&scene);
    let mut client = scene.connect(ADDRESSES[0]);
    client.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let start = Instant::now();
    exchange(&mut client, b"mn\r\n", b"MN\r\n");
    if link.reordering == 0 {
        let there_and_back = Duration::from_millis(2 * link.delay_ms);
        assert!(start.elapsed() >= there_and_back, "the link delays nothing");
    }
    let start = Instant::now();
    play(&scene);
    let took = start.elapsed();
    // Statistics are shown a few times a second.
    let wanted = u64::from(link.loss > 0);
    let text = scene.poll(|| {
        let text = ask(&mut client, "stats net");
        (count(&text, "segments_retransmitted") >= wanted).then_some(text)
    });
    let counts = [
        "segments_sent",
        "segments_retransmitted",
        "segments_received",
    ];
    let [sent, again, received] = counts.map(|name| count(&text, name));
    eprintln!(
        "{driver}, {what}: {took:.1?}, {sent} segments sent, {again} of them again, {received} received"
    );
    assert_eq!(count(&text, "dropped_checksum"), 0, "{text}");
    scene.stop();
}

fn over_all(driver: &str) {
    for (what, link) in LINKS {
        over(driver, what, link);
    }
}

#[test]
fn over_bad_links_on_a_packet_socket() {
    over_all("packet");
}

#[test]
fn over_bad_links_on_af_xdp() {
    over_all("xdp");
}
