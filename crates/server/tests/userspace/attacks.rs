//! Those who do what nobody should: forged segments, scans, lies, connections that are never used.
//!
//! All the while a witness, an ordinary client of the kernel's TCP, stores and fetches; no answer
//! may take it longer than [`ANSWER_LIMIT`]. Memory stays within `-m` and [`OUTSIDE_MIB`], what was
//! opened is forgotten, and in the end everything works.

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::Duration;

use coua_tcp::wire::tcp::Flags;
use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};

use crate::forger::{Forger, Heard, Place, SERVER_PORT};
use crate::resident::resident_kib;
use crate::scene::{ADDRESSES, MEMORY_MIB, Scene, ask, exchange};
use crate::witness::Witness;

/// How long the witness may wait for an answer, beyond what the machine takes for an echo.
const ANSWER_LIMIT: Duration = Duration::from_secs(2);
/// What the server may take beside `-m`, in MiB: code, stacks, the worker's constant part, the
/// rings of the card, and the connections of the stack with what waits in them.
const OUTSIDE_MIB: u64 = 48;

/// An address in the clients' network that nobody has.
const NOBODY: [u8; 4] = [10, 77, 0, 66];
/// Bytes of a large value.
const LARGE_LEN: usize = 1_000_000;

/// Bytes of a full segment to a forged connection.
const FULL_LEN: usize = 1460;

/// The window that a connection without scaling is offered at first, about.
const WINDOW: u32 = 60_000;
/// Forged connections with pieces of a window each.
const PIECED: u16 = 8;
/// Connections that answer every answer, and for how many.
const LOOPS: u16 = 4;
const LOOPED: u32 = 20_000;

/// SYNs of a flood.
const SYNS: u32 = 20_000;
/// Forged connections that are never used.
const IDLE: u16 = 300;
/// Clients that ask and never read.
const DEAF: usize = 100;

/// What is attacked, and who looks on.
struct Attack {
    scene: Scene,
    forger: Forger,
    dice: Xoshiro256PlusPlus,
}

/// What is done in one attack.
type Run = fn(&mut Attack);

impl Attack {
    /// Forges until so many connections are open, that of the question included: frames get lost.
    fn insist_on_connections(&mut self, count: usize, forge: impl Fn(&mut Forger)) {
        let forger = &mut self.forger;
        let mut client = self.scene.connect(ADDRESSES[0]);
        let line = format!("STAT curr_connections {count}\r\n");
        self.scene.poll(|| {
            forge(forger);
            forger.heard();
            // Until they have come, or are lost.
            (0..10).find_map(|_| {
                thread::sleep(Duration::from_millis(50));
                ask(&mut client, "stats").contains(&line).then_some(())
            })
        });
    }
}

/// All of it, against a server on a driver.
fn attack(driver: &str) {
    let scene = Scene::open(driver, &[]);
    let witness = Witness::start(scene.connect(ADDRESSES[0]), scene.pid());
    let mut attack = Attack {
        forger: scene.forger(),
        scene,
        dice: Xoshiro256PlusPlus::seed_from_u64(5),
    };
    let attacks: [(&str, Run); 8] = [
        ("a flood of SYNs", flood),
        ("a port scan", scan),
        ("connections that are never used", idle_connections),
        ("clients that never read", deaf_clients),
        ("lies by ICMP", lies),
        ("segments outside of the window", injections),
        ("pieces in descending order", pieces),
        ("answers to answers", answers),
    ];
    for (what, run) in attacks {
        run(&mut attack);
        let resident = resident_kib(attack.scene.pid()) / 1024;
        eprintln!("{driver}, {what}: {resident} MiB resident");
        assert!(
            resident <= MEMORY_MIB + OUTSIDE_MIB,
            "{what}: {resident} MiB resident"
        );
        // The witness and who asks.
        attack.scene.wait_for_connections(2);
    }
    let report = witness.stop();
    assert!(
        report.longest <= ANSWER_LIMIT + report.longest_echo,
        "the witness waited {:?} for one of {} answers, and {:?} for an echo",
        report.longest,
        report.answers,
        report.longest_echo
    );
    crate::conversations(&attack.scene);
    crate::large_values(&attack.scene);
    attack.scene.ping();
}

#[test]
fn attacks_on_a_packet_socket() {
    attack("packet");
}

#[test]
fn attacks_on_af_xdp() {
    attack("xdp");
}

/// What is counted under a name in `stats net`, once it is more than `least`: it is shown a few
/// times a second.
fn count_above(scene: &Scene, name: &str, least: u64) -> u64 {
    let mut client = scene.connect(ADDRESSES[0]);
    let mut counts = (0..100).map(|_| {
        thread::sleep(Duration::from_millis(50));
        crate::count(&ask(&mut client, "stats net"), name)
    });
    let count = counts.find(|&count| count > least);
    count.unwrap_or_else(|| panic!("{name} stays at {least} or below"))
}

/// From as many addresses and ports: who is served goes on being served, and others are accepted.
fn flood(attack: &mut Attack) {
    for number in 0..SYNS {
        let [a, b, c, port] = attack.dice.random::<[u8; 4]>();
        let from = ([198, 18 + a % 2, b, c], 1024 + u16::from(port));
        attack.forger.segment(from, Flags::SYN, (number, 0), b"");
        if number % 4000 == 0 {
            attack.forger.flush();
            let mut client = attack.scene.connect(ADDRESSES[0]);
            exchange(&mut client, b"mn\r\n", b"MN\r\n");
        }
    }
    attack.forger.heard();
    count_above(&attack.scene, "cookies_sent", 0);
}

/// Every port, in the four usual ways: only one is open.
fn scan(attack: &mut Attack) {
    let xmas = Flags::FIN.and(Flags::PSH).and(Flags::URG);
    for flags in [Flags::SYN, Flags::default(), Flags::FIN, xmas] {
        for port in 0..=u16::MAX {
            let from = (NOBODY, 40_000);
            attack.forger.segment_to(port, from, flags, (1, 0), b"");
            if port % 1024 == 0 {
                attack.forger.heard().iter().for_each(check_port);
            }
        }
        thread::sleep(Duration::from_millis(50));
        attack.forger.heard().iter().for_each(check_port);
    }
}

fn check_port(heard: &Heard) {
    let opens = heard.header.flags.has(Flags::SYN);
    assert!(
        !opens || heard.header.source == SERVER_PORT,
        "a port is open"
    );
}

/// Connections that are opened, and then nothing, or the beginning of a request.
fn idle_connections(attack: &mut Attack) {
    let ends: Vec<(Place, u32, &[u8])> = (0..IDLE)
        .map(|number| {
            let from = (NOBODY, 10_000 + number);
            let first = attack.forger.ask_for_connection(from, 77).wrapping_add(1);
            let begun: &[u8] = match number % 2 {
                0 => b"",
                _ => b"set a 0 0 1000\r\nabc",
            };
            (from, first, begun)
        })
        .collect();
    attack.insist_on_connections(usize::from(IDLE) + 2, |forger| {
        for (from, first, begun) in &ends {
            forger.segment(*from, Flags::ACK, (78, *first), b"");
            if !begun.is_empty() {
                forger.segment(*from, Flags::ACK, (78, *first), begun);
            }
        }
    });
    attack.insist_on_connections(2, |forger| {
        for (from, _, begun) in &ends {
            let next = 78 + u32::try_from(begun.len()).expect("short");
            forger.segment(*from, Flags::RST, (next, 0), b"");
        }
    });
}

/// They ask for a megabyte again and again.
fn deaf_clients(attack: &mut Attack) {
    let scene = &attack.scene;
    store_large(scene);
    let clients: Vec<TcpStream> = (0..DEAF)
        .map(|_| {
            let mut client = scene.connect(ADDRESSES[0]);
            client
                .write_all(&b"get big\r\n".repeat(20))
                .expect("it is open");
            client
        })
        .collect();
    scene.wait_for_connections(DEAF + 2);
    thread::sleep(Duration::from_secs(1));
    let resident = resident_kib(scene.pid()) / 1024;
    assert!(
        resident <= MEMORY_MIB + OUTSIDE_MIB,
        "{resident} MiB resident"
    );
    // Who is served now gets all of it.
    crate::large_values(scene);
    drop(clients);
}

fn store_large(scene: &Scene) {
    let mut client = scene.connect(ADDRESSES[0]);
    let set = format!("set big 0 0 {LARGE_LEN}\r\n");
    let request = [set.as_bytes(), &vec![b'x'; LARGE_LEN], b"\r\n"].concat();
    exchange(&mut client, &request, b"STORED\r\n");
}

/// Kinds of ICMP that say that something did not arrive, with the word that follows: unreachable
/// in several ways, too long for a path that takes next to nothing, and source quench.
const LIES: [(u8, u8, u32); 9] = [
    (3, 0, 0),
    (3, 1, 0),
    (3, 2, 0),
    (3, 3, 0),
    (3, 13, 0),
    (3, 4, 0),
    (3, 4, 68),
    (3, 4, 1),
    (4, 0, 0),
];

/// About the connection of a client that is served, with numbers that are guessed; and about one
/// that is known, whose segments stay larger than any path's least.
fn lies(attack: &mut Attack) {
    let (mut client, own) = client(&attack.scene);
    for number in 0..2000 {
        let lie = LIES[number % LIES.len()];
        attack.forger.icmp(lie, own, attack.dice.random());
    }
    attack.forger.flush();
    exchange(&mut client, b"mn\r\n", b"MN\r\n");
    store_large(&attack.scene);
    let from = (NOBODY, 20_000);
    let forger = &mut attack.forger;
    let first = forger.ask_for_connection(from, 77).wrapping_add(1);
    let get = |forger: &mut Forger| forger.segment(from, Flags::ACK, (78, first), b"get big\r\n");
    let is_full = |heard: &Heard| heard.to == from && heard.payload_len == FULL_LEN;
    let whole = forger.insist("the value", get, is_full);
    let (seq, next) = (whole.header.seq.0, 78 + 9);
    // What is before it may be in the same burst; all from it on stays on its way.
    forger.segment(from, Flags::ACK, (next, seq), b"");
    forger.heard();
    for lie in LIES {
        forger.icmp(lie, from, seq.wrapping_sub(1));
        forger.icmp(lie, from, seq.wrapping_add(1 << 24));
    }
    forger.heard();
    let is_again = |heard: &Heard| heard.to == from && heard.header.seq.0 == seq;
    let again = forger.wait_for("it once more", is_again);
    assert_eq!(again.payload_len, FULL_LEN, "lies were believed");
    let believed = |forger: &mut Forger| LIES.iter().for_each(|&lie| forger.icmp(lie, from, seq));
    let is_shorter = |heard: &Heard| is_again(heard) && heard.payload_len < FULL_LEN;
    let narrow = forger.insist("shorter segments", believed, is_shorter);
    assert!(narrow.payload_len >= 500, "{} bytes", narrow.payload_len);
    attack.insist_on_connections(3, |forger| {
        forger.segment(from, Flags::RST, (next, 0), b"");
    });
}

/// Somebody who sees a connection's numbers, and does not hit the one that counts (RFC 5961).
fn injections(attack: &mut Attack) {
    let (mut client, own) = client(&attack.scene);
    let forger = &mut attack.forger;
    let mut ask = client.try_clone().expect("a socket can be cloned");
    let is_answer = |heard: &Heard| heard.to == own && heard.payload_len > 0;
    let set = |_: &mut Forger| {
        exchange(&mut ask, b"set victim 0 0 1\r\nv\r\n", b"STORED\r\n");
    };
    let heard = forger.insist("the answer", set, is_answer);
    let (next, acknowledged) = (heard.header.ack.0, heard.header.seq.0);
    let flush: &[u8] = b"flush_all\r\n";
    for distance in [1 << 31, 1 << 24, 1 << 20, u32::MAX - 100_000, u32::MAX] {
        let seq = next.wrapping_add(distance);
        for flags in [
            Flags::RST,
            Flags::RST.and(Flags::ACK),
            Flags::SYN,
            Flags::FIN.and(Flags::ACK),
        ] {
            forger.segment(own, flags, (seq, acknowledged), b"");
        }
        forger.segment(own, Flags::ACK, (seq, acknowledged), flush);
    }
    // In the window, but not the next: a challenge, and no more.
    forger.segment(own, Flags::RST, (next.wrapping_add(1000), 0), b"");
    forger.segment(own, Flags::SYN, (next.wrapping_add(1000), 0), b"");
    // The next, with an acknowledgment of what was never sent, or of long ago.
    for ack in [
        acknowledged.wrapping_add(1 << 28),
        acknowledged.wrapping_sub(1 << 28),
    ] {
        forger.segment(own, Flags::ACK, (next, ack), flush);
    }
    forger.flush();
    exchange(
        &mut client,
        b"get victim\r\n",
        b"VALUE victim 0 1\r\nv\r\nEND\r\n",
    );
    count_above(&attack.scene, "challenges_sent", 0);
    exchange(
        &mut client,
        b"get victim\r\n",
        b"VALUE victim 0 1\r\nv\r\nEND\r\n",
    );
}

/// A byte at every second number of a window, from its end to its beginning, on several connections:
/// what they hold must not be what others need.
fn pieces(attack: &mut Attack) {
    let mut opened = Vec::new();
    for number in 0..PIECED {
        let from = (NOBODY, 30_000 + number);
        let first = attack.forger.ask_for_connection(from, 77).wrapping_add(1);
        attack.forger.segment(from, Flags::ACK, (78, first), b"");
        opened.push((from, first));
    }
    attack.insist_on_connections(usize::from(PIECED) + 2, |forger| {
        for (from, first) in &opened {
            forger.segment(*from, Flags::ACK, (78, *first), b"");
        }
    });
    for (number, (from, first)) in opened.iter().enumerate() {
        for place in (1..WINDOW / 2).rev() {
            let seq = 78 + 2 * place;
            attack
                .forger
                .segment(*from, Flags::ACK, (seq, *first), b"g");
            if place % 64 == 0 {
                attack.forger.heard();
            }
        }
        // Who asks is answered, and who comes is let in, each with more than a segment.
        crate::large_values(&attack.scene);
        let resident = resident_kib(attack.scene.pid()) / 1024;
        assert!(
            resident <= MEMORY_MIB + OUTSIDE_MIB,
            "{resident} MiB resident after {number} windows"
        );
    }
    attack.insist_on_connections(2, |forger| {
        for (from, _) in &opened {
            forger.segment(*from, Flags::RST, (78, 0), b"");
        }
    });
}

/// Connections whose ends disagree about numbers: each answers what it takes for wrong, which the
/// other takes for wrong too.
fn answers(attack: &mut Attack) {
    let mut opened = Vec::new();
    for number in 0..LOOPS {
        let from = (NOBODY, 31_000 + number);
        let first = attack.forger.ask_for_connection(from, 77).wrapping_add(1);
        opened.push((from, first));
    }
    attack.insist_on_connections(usize::from(LOOPS) + 2, |forger| {
        for (from, first) in &opened {
            forger.segment(*from, Flags::ACK, (78, *first), b"");
        }
    });
    let mut answered = 0;
    for _ in 0..LOOPED {
        for (from, first) in &opened {
            let lost = 78_u32.wrapping_sub(1 << 20);
            attack
                .forger
                .segment(*from, Flags::ACK, (lost, *first), b"");
        }
        answered += u32::try_from(attack.forger.heard().len()).expect("a few");
    }
    thread::sleep(Duration::from_millis(50));
    answered += u32::try_from(attack.forger.heard().len()).expect("a few");
    assert!(answered > 0, "it says where it is");
    assert!(answered < LOOPED / 10, "{answered} answers");
    attack.insist_on_connections(2, |forger| {
        for (from, _) in &opened {
            forger.segment(*from, Flags::RST, (78, 0), b"");
        }
    });
}

/// An ordinary client, and where it is.
fn client(scene: &Scene) -> (TcpStream, Place) {
    let client = scene.connect(ADDRESSES[0]);
    match client.local_addr().expect("it is open") {
        SocketAddr::V4(own) => (client, (own.ip().octets(), own.port())),
        SocketAddr::V6(own) => panic!("{own} is not of IPv4"),
    }
}
