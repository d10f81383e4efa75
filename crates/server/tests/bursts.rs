//! Datagrams that come in one turn: answered as if each were alone, and those of one sender in the order in
//! which they came, whichever way they take.

#[path = "support/bursts.rs"]
mod bursts;

use bursts::{FRAME_LEN, Reply, Scene, Sender, message};
use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};

/// Bytes of a value that is answered from where it lies, which is unusual.
const LONG: usize = 17_000;

fn set(key: &str, value: &[u8], ending: &str) -> Vec<u8> {
    let line = format!("set {key} 0 0 {}{ending}\r\n", value.len());
    [line.as_bytes(), value, b"\r\n"].concat()
}

fn value(key: &str, value: &[u8]) -> Vec<u8> {
    let line = format!("VALUE {key} 0 {}\r\n", value.len());
    [line.as_bytes(), value, b"\r\n"].concat()
}

/// Replies to one sender: the number of each request and its whole answer. Parts are in order.
fn told(replies: &[Reply], to: Sender) -> Vec<(u16, Vec<u8>)> {
    let mut told: Vec<(u16, Vec<u8>)> = Vec::new();
    for reply in replies.iter().filter(|reply| reply.to == to) {
        let number = |at: usize| u16::from_be_bytes([reply.payload[at], reply.payload[at + 1]]);
        let (id, part, parts) = (number(0), number(2), number(4));
        assert!(part < parts && reply.payload.len() <= 1400);
        assert_eq!(number(6), 0);
        match told.last_mut() {
            Some((last, bytes)) if part > 0 => {
                assert_eq!((*last, bytes.len()), (id, usize::from(part) * 1392));
                bytes.extend_from_slice(&reply.payload[FRAME_LEN..]);
            }
            _ => {
                assert_eq!(part, 0);
                told.push((id, reply.payload[FRAME_LEN..].to_vec()));
            }
        }
    }
    told
}

/// Requests of one sender, and the answers that are due, in this order.
fn plays(scene: &Scene, script: &[(Vec<u8>, Vec<u8>)]) {
    let numbered = || (1u16..).zip(script);
    let requests: Vec<_> = numbered()
        .map(|(id, (request, _))| (Sender(1), message(id, request)))
        .collect();
    let replies = told(&scene.exchange(&requests), Sender(1));
    let due: Vec<_> = numbered()
        .filter(|(_, (_, answer))| !answer.is_empty())
        .map(|(id, (_, answer))| (id, answer.clone()))
        .collect();
    for (reply, due) in replies.iter().zip(&due) {
        assert_eq!(reply.0, due.0);
        assert!(
            reply.1 == due.1,
            "{}: {}",
            due.0,
            reply.1[..reply.1.len().min(80)].escape_ascii()
        );
    }
    assert_eq!(replies.len(), due.len());
}

#[test]
fn what_one_sends_in_a_turn_is_done_in_its_order() {
    let scene = Scene::start(&[]);
    let long = [b'l'; LONG];
    let ends = |bytes: Vec<u8>| [bytes, b"END\r\n".to_vec()].concat();
    let line = |text: &str| text.as_bytes().to_vec();
    let (get, stored) = (line("get k\r\n"), line("STORED\r\n"));
    plays(
        &scene,
        &[
            (get.clone(), line("END\r\n")),
            (set("k", b"a", ""), stored.clone()),
            (get.clone(), ends(value("k", b"a"))),
            // What takes the long way holds those behind it up.
            (line("append k 0 0 1 noreply\r\nb\r\n"), Vec::new()),
            (get.clone(), ends(value("k", b"ab"))),
            (set("k", b"c", " noreply"), Vec::new()),
            (get.clone(), ends(value("k", b"c"))),
            (line("delete k\r\n"), line("DELETED\r\n")),
            (get.clone(), line("END\r\n")),
            (set("k", b"d", ""), stored.clone()),
        ],
    );
    plays(
        &scene,
        &[
            (set("k", &long, ""), stored.clone()),
            // Found to be unusual when it is executed.
            (get.clone(), ends(value("k", &long))),
            (set("k", b"e", ""), stored.clone()),
            (get.clone(), ends(value("k", b"e"))),
            // The first key takes the fast path, the second does not.
            (set("long", &long, ""), stored.clone()),
            (
                line("get k long k\r\n"),
                ends([value("k", b"e"), value("long", &long), value("k", b"e")].concat()),
            ),
            (set("k", b"f", " noreply"), Vec::new()),
            (
                line("get k none k\r\n"),
                ends([value("k", b"f"), value("k", b"f")].concat()),
            ),
        ],
    );
}

#[test]
fn what_is_no_usual_request_is_answered_as_ever() {
    let scene = Scene::start(&[]);
    let line = |text: &str| text.as_bytes().to_vec();
    let (longest, too_long) = ("k".repeat(250), "k".repeat(251));
    let client_error = line("CLIENT_ERROR bad command line format\r\n");
    let mut binary = [&b"\x80\x0a\0\0"[..], &[0; 20]].concat();
    binary[12] = 9;
    let mut answer = binary.clone();
    answer[0] = 0x81;
    plays(
        &scene,
        &[
            (line(&format!("get {too_long}\r\n")), client_error.clone()),
            (line(&format!("get a {too_long}\r\n")), client_error.clone()),
            (set(&longest, b"v", ""), line("STORED\r\n")),
            (
                line(&format!("get {longest}\r\n")),
                [value(&longest, b"v"), line("END\r\n")].concat(),
            ),
            (set(&too_long, b"v", ""), client_error),
            // Two requests, and more than one key, in one datagram.
            (
                [
                    set("a", b"1", ""),
                    set("b", b"2", " noreply"),
                    line("get a b\r\n"),
                ]
                .concat(),
                [
                    line("STORED\r\n"),
                    value("a", b"1"),
                    value("b", b"2"),
                    line("END\r\n"),
                ]
                .concat(),
            ),
            (set("a", b"3", " noreply"), Vec::new()),
            // The first is whole; the second has less than it says and is dropped with its datagram.
            (
                [line("get a\r\n"), line("set a 0 0 100\r\nabc")].concat(),
                [value("a", b"3"), line("END\r\n")].concat(),
            ),
            (line("set a 0 0 100\r\nabc"), Vec::new()),
            (line("get a"), Vec::new()),
            // More than it says.
            (
                line("set a 0 0 3\r\nabcd\r\n"),
                line("CLIENT_ERROR bad data chunk\r\nCLIENT_ERROR bad command line format\r\n"),
            ),
            (binary, answer),
            (
                line("get a\r\n"),
                [value("a", b"3"), line("END\r\n")].concat(),
            ),
        ],
    );
    let mut two_parts = message(1, b"get a\r\n");
    two_parts[5] = 2;
    let sent = [
        two_parts,
        message(2, b""),
        Vec::new(),
        b"get a\r\n".to_vec(),
        message(3, b"mn\r\n"),
    ];
    let sent = sent.map(|payload| (Sender(1), payload));
    assert_eq!(
        told(&scene.exchange(&sent), Sender(1)),
        [(3, b"MN\r\n".to_vec())]
    );
    let counts = scene.counts();
    let count = |name: &str| {
        counts
            .iter()
            .find(|(found, _)| found == name)
            .expect("it is counted")
            .1
    };
    assert_eq!(count("coua_udp_dropped"), 4);
    assert_eq!(count("coua_udp_replies_dropped"), 0);
}

/// A request of any kind, most of them such as the fast path takes, on keys that nobody else has.
fn request(dice: &mut Xoshiro256PlusPlus, sender: Sender) -> Vec<u8> {
    let key = |dice: &mut Xoshiro256PlusPlus| format!("{}-{}", sender.0, dice.random_range(0..6));
    let name = key(dice);
    let len = [0, 1, 30, 1000, 1380, 3000, LONG][dice.random_range(0..7)];
    let value = vec![b'a' + dice.random_range(0..26); len];
    match dice.random_range(0..20) {
        0..6 => format!("get {name}\r\n").into_bytes(),
        6 => format!("gets {name}\r\n").into_bytes(),
        7..11 => set(&name, &value, ""),
        11 => set(&name, &value, " noreply"),
        12 => format!("get {name} {} {}\r\n", key(dice), key(dice)).into_bytes(),
        13 => [
            set(&name, &value, ""),
            format!("get {}\r\n", key(dice)).into_bytes(),
        ]
        .concat(),
        14 => [
            format!("ms {name} {} T0\r\n", value.len()).as_bytes(),
            &value,
            b"\r\n",
        ]
        .concat(),
        15 => format!("mg {name} v t\r\n").into_bytes(),
        16 => format!("delete {name} noreply\r\n").into_bytes(),
        17 => [
            format!("append {name} 0 0 {}\r\n", value.len()).as_bytes(),
            &value,
            b"\r\n",
        ]
        .concat(),
        18 => format!("touch {name} 100\r\n").into_bytes(),
        _ => [&set(&name, &value, "")[..], b"get "].concat(),
    }
}

/// A server that counts by prefix has no fast path. Both answer the same, and count the same.
#[test]
fn the_fast_path_does_what_the_general_path_does() {
    let (fast, general) = (Scene::start(&[]), Scene::start(&["-D", ":"]));
    let mut dice = Xoshiro256PlusPlus::seed_from_u64(1);
    for burst in 0..400 {
        let senders = dice.random_range(1..=8);
        let len = dice.random_range(1..=63);
        let sent: Vec<_> = (1..=len)
            .map(|id| {
                let sender = Sender(dice.random_range(1..=senders));
                (sender, message(id, &request(&mut dice, sender)))
            })
            .collect();
        let replies = [&fast, &general].map(|scene| scene.exchange(&sent));
        for sender in (1..=senders).map(Sender) {
            let [here, there] = replies.each_ref().map(|replies| told(replies, sender));
            for (here, there) in here.iter().zip(&there) {
                assert_eq!(here.0, there.0, "burst {burst}, {sender:?}");
                // The CAS is an item's place, which differs.
                let is_gets = sent[usize::from(here.0) - 1].1[FRAME_LEN..].starts_with(b"gets");
                assert!(
                    is_gets || here.1 == there.1,
                    "burst {burst}, {sender:?}, {}",
                    here.0
                );
            }
            assert_eq!(here.len(), there.len(), "burst {burst}, {sender:?}");
        }
    }
    let counts = [&fast, &general].map(Scene::counts);
    assert_eq!(counts[0], counts[1]);
}
