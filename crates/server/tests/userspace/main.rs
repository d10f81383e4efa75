//! The server on a TCP/IP stack of its own, with the kernel's TCP as the client, over a veth pair
//! between two network namespaces.
//!
//! # Not here
//! What the stack does with single segments: the tests of `coua-tcp`. Rings and filters of the
//! drivers: those of `coua-transport`.

#![expect(clippy::print_stderr, reason = "tests tell what they saw")]

mod attacks;
#[cfg(feature = "lab")]
mod bad_links;
mod bridge;
#[cfg(feature = "lab")]
mod cards;
mod datagrams;
mod flash;
mod forger;
mod large;
mod lost_frames;
mod memory;
mod moving;
#[cfg(feature = "dpdk")]
mod queues;
mod scene;
mod stopping;
mod trace;

#[path = "../support/datagrams.rs"]
mod client;
#[cfg(feature = "dpdk")]
#[path = "../../../transport/tests/dpdk/huge_pages.rs"]
#[expect(dead_code, reason = "it takes what it needs")]
mod huge_pages;
#[cfg(feature = "dpdk")]
#[path = "../../../transport/tests/dpdk/links.rs"]
mod links;

#[path = "../support/certificates.rs"]
#[expect(dead_code, reason = "it takes what it needs")]
mod certificates;
#[path = "../../../transport/tests/support/netns.rs"]
mod netns;
#[path = "../support/process.rs"]
#[expect(dead_code, reason = "it takes the folder alone")]
mod process;
#[path = "../support/resident.rs"]
mod resident;
#[path = "../support/mod.rs"]
#[expect(dead_code, reason = "the process wants it")]
mod support;
#[path = "../hostile/witness.rs"]
mod witness;

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::thread;
use std::time::Duration;

use coua_tcp::wire::tcp::Flags;
use forger::Heard;
use rustix::process::Signal;
use scene::{ADDRESSES, Scene, ask, count, exchange, find_count};

/// What every driver does alike.
fn conversations(scene: &Scene) {
    for address in scene.addresses() {
        let mut client = scene.connect(address);
        exchange(&mut client, b"set a 5 0 3\r\nabc\r\n", b"STORED\r\n");
        exchange(
            &mut client,
            b"get a b\r\n",
            b"VALUE a 5 3\r\nabc\r\nEND\r\n",
        );
        exchange(&mut client, b"mg a v\r\n", b"VA 3\r\nabc\r\n");
        // Many requests in one segment, and one byte a segment.
        let burst = b"incr n 1\r\n".repeat(500);
        exchange(&mut client, b"set n 0 0 1\r\n0\r\n", b"STORED\r\n");
        let counted: String = (1..=500).map(|number| format!("{number}\r\n")).collect();
        exchange(&mut client, &burst, counted.as_bytes());
        for &byte in b"delete n\r" {
            client.write_all(&[byte]).expect("it is open");
        }
        exchange(&mut client, b"\n", b"DELETED\r\n");
        exchange(&mut client, b"flush_all\r\n", b"OK\r\n");
    }
}

/// A value of nearly a megabyte there and back, more than windows and buffers hold.
fn large_values(scene: &Scene) {
    let mut client = scene.connect(ADDRESSES[0]);
    let value: Vec<u8> = (0..1_000_000u32).map(|at| (at * 7 % 251) as u8).collect();
    let head = format!("set big 0 0 {}\r\n", value.len());
    exchange(
        &mut client,
        &[head.as_bytes(), &value, b"\r\n"].concat(),
        b"STORED\r\n",
    );
    let head = format!("VALUE big 0 {}\r\n", value.len());
    let answer = [head.as_bytes(), &value, b"\r\nEND\r\n"].concat();
    exchange(&mut client, b"get big\r\n", &answer);
    // A client that asks for ten of them and reads slowly.
    client
        .write_all(&b"get big\r\n".repeat(10))
        .expect("it is open");
    for _ in 0..10 {
        thread::sleep(Duration::from_millis(20));
        exchange(&mut client, b"", &answer);
    }
}

fn a_thousand_connections(scene: &Scene) {
    let mut clients: Vec<TcpStream> = (0..1000).map(|_| scene.connect(ADDRESSES[0])).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        let text = number.to_string();
        let set = format!("set k{number} 0 0 {}\r\n{text}\r\n", text.len());
        client.write_all(set.as_bytes()).expect("it is open");
    }
    for client in &mut clients {
        exchange(client, b"", b"STORED\r\n");
    }
    // All are stored, also those whose segments a full ring has dropped once.
    for (number, client) in clients.iter_mut().enumerate() {
        let (key, text) = (
            number.wrapping_mul(7) % 1000,
            (number * 7 % 1000).to_string(),
        );
        let answer = format!("VALUE k{key} 0 {}\r\n{text}\r\nEND\r\n", text.len());
        exchange(
            client,
            format!("get k{key}\r\n").as_bytes(),
            answer.as_bytes(),
        );
    }
    drop(clients);
    scene.wait_for_connections(1);
}

/// Who ends first and how: the server sees it and forgets the connection.
fn ends(scene: &Scene) {
    // Everything may have come before the server takes the connection.
    for _ in 0..300 {
        let mut client = scene.connect(ADDRESSES[0]);
        client.write_all(b"mn\r\n").expect("it is open");
        client.shutdown(Shutdown::Write).expect("it is open");
        let mut rest = Vec::new();
        client.read_to_end(&mut rest).expect("the rest");
        assert_eq!(rest, b"MN\r\n");
    }
    let mut client = scene.connect(ADDRESSES[0]);
    client.write_all(b"mn\r\nquit\r\n").expect("it is open");
    let mut rest = Vec::new();
    client.read_to_end(&mut rest).expect("the rest");
    assert_eq!(rest, b"MN\r\n");
    // In the middle of a value, with unread answers.
    let mut client = scene.connect(ADDRESSES[0]);
    client
        .write_all(b"mn\r\nset a 0 0 100000\r\nabc")
        .expect("it is open");
    drop(client);
    scene.wait_for_connections(1);
}

/// `stats net` counts what has gone over the cable, `stats conns` shows who is connected.
fn statistics(scene: &Scene) {
    let mut client = scene.connect(ADDRESSES[0]);
    // They are shown a few times a second.
    let mut answers = (0..100).map(|_| {
        thread::sleep(Duration::from_millis(20));
        ask(&mut client, "stats net")
    });
    let has_come = |text: &String| {
        let names = [
            "segments_received",
            "segments_sent",
            "worker:0:frames_received",
            "worker:0:frames_sent",
            "worker:0:turns_idle",
            "worker:0:bursts",
            "worker:0:idle_us",
            "worker:0:busy_us",
        ];
        names.iter().all(|name| count(text, name) > 10) && count(text, "accepted") > 0
    };
    let text = answers
        .find(has_come)
        .expect("what has gone over the cable is counted");
    drop(answers);
    assert_eq!(count(&text, "dropped_checksum"), 0, "{text}");
    // Each worker tells by reasons what it drops.
    let drops = |of: &str| {
        let names = text.lines().filter_map(|line| line.split(' ').nth(1));
        let reasons = names.filter_map(|name| name.strip_prefix(of)?.strip_prefix("dropped_"));
        reasons.map(str::to_owned).collect::<Vec<_>>()
    };
    assert!(
        drops("").len() > 5 && drops("") == drops("worker:0:"),
        "{text}"
    );
    let own = client.local_addr().expect("it is open");
    let text = ask(&mut client, "stats conns");
    assert!(text.contains(&format!(":addr tcp:{own}\r\n")), "{text}");
}

fn everything(scene: &Scene) {
    conversations(scene);
    statistics(scene);
    large_values(scene);
    a_thousand_connections(scene);
    ends(scene);
    scene.ping();
}

#[test]
fn on_a_packet_socket() {
    everything(&Scene::open("packet", &[]));
}

#[test]
fn on_af_xdp() {
    everything(&Scene::open("xdp", &[]));
}

#[test]
fn on_af_xdp_without_sleeping() {
    let scene = Scene::open("xdp", &["--poll", "busy"]);
    conversations(&scene);
    large_values(&scene);
}

/// The bridge to the link is a client that leaves and comes again.
#[test]
fn on_a_memif_link() {
    let mut scene = Scene::open("memif", &[]);
    everything(&scene);
    for _ in 0..3 {
        let mut client = scene.connect(ADDRESSES[0]);
        client.write_all(b"set a 0 0 100000\r\nabc").expect("open");
        scene.change_bridge();
        client.write_all(&[b'x'; 100_000 - 3]).expect("open");
        exchange(&mut client, b"\r\n", b"STORED\r\n");
        conversations(&scene);
    }
}

#[test]
fn on_a_memif_link_without_sleeping() {
    let scene = Scene::open("memif", &["--poll", "busy"]);
    conversations(&scene);
    large_values(&scene);
}

/// DPDK's driver of a packet socket.
#[cfg(feature = "dpdk")]
#[test]
fn on_dpdk_over_a_packet_socket() {
    let _pages = huge_pages::HugePages::for_two();
    let (common, device) = (links::COMMON, netns::DEVICE);
    let arguments = format!("{common} --vdev=net_af_packet0,iface={device}");
    everything(&Scene::open("dpdk", &["--dpdk-args", &arguments]));
}

#[test]
fn with_several_workers() {
    let scene = Scene::open("packet", &["-t", "3"]);
    conversations(&scene);
    a_thousand_connections(&scene);
}

/// Connections come to both, and ARP and ping are answered whichever queue they come to.
fn two_workers(scene: &Scene) {
    conversations(scene);
    let mut clients: Vec<TcpStream> = (0..200).map(|_| scene.connect(ADDRESSES[0])).collect();
    for client in &mut clients {
        exchange(client, b"mn\r\n", b"MN\r\n");
    }
    let mut client = scene.connect(ADDRESSES[0]);
    let are_both_busy = (0..100).any(|_| {
        thread::sleep(Duration::from_millis(50));
        let text = ask(&mut client, "stats net");
        let frames = |worker| find_count(&text, &format!("worker:{worker}:frames_received"));
        // A handshake and a request each are three frames of a client's: a tenth of them.
        frames(0) > Some(60) && frames(1) > Some(60)
    });
    assert!(are_both_busy, "a worker has next to nothing to do");
    drop(clients);
    for _ in 0..10 {
        scene.forget_neighbours();
        exchange(&mut client, b"mn\r\n", b"MN\r\n");
        scene.forget_neighbours();
        scene.ping();
    }
    scene.wait_for_connections(2);
}

#[test]
fn two_workers_on_two_queues_of_af_xdp() {
    two_workers(&Scene::open("xdp", &["-t", "2"]));
}

#[test]
fn two_workers_on_two_packet_sockets() {
    two_workers(&Scene::open("packet", &["-t", "2"]));
}

/// The end of a connection comes with its beginning, in one burst: a client's last segments wait
/// while the server is stopped.
#[test]
fn a_whole_conversation_in_one_burst() {
    let scene = Scene::open("packet", &[]);
    let (mut forger, from) = (scene.forger(), ([10, 77, 0, 66], 40_000));
    let next = forger.ask_for_connection(from, 6).wrapping_add(1);
    scene.signal(Signal::STOP);
    forger.segment(from, Flags::ACK, (7, next), b"");
    forger.segment(from, Flags::ACK, (7, next), b"mn\r\n");
    forger.segment(from, Flags::FIN.and(Flags::ACK), (11, next), b"");
    forger.flush();
    scene.signal(Signal::CONT);
    let answers = |heard: &Heard| heard.to == from && heard.header.flags.has(Flags::FIN);
    let end = forger.wait_for("its end", answers);
    let said = end.header.seq.0.wrapping_sub(next) as usize + end.payload_len;
    assert_eq!((said, end.header.ack.0), (b"MN\r\n".len(), 12));
}

#[test]
fn only_who_is_allowed_is_answered() {
    let scene = Scene::open("packet", &["--allow", "10.77.0.9,fd77::/64"]);
    assert!(!scene.connects(ADDRESSES[0]));
    assert!(scene.connects(ADDRESSES[1]));
}

/// Records come in segments that begin and end anywhere, and go out behind one another.
fn encrypted(driver: &str) {
    let authority = certificates::Authority::new();
    authority.certify("server");
    let options = authority.options("server", "");
    let scene = Scene::open(driver, &["-Z", "-o", &options]);
    let config = authority.client(None);
    let connect = || certificates::encrypt(scene.connect(ADDRESSES[0]), &config);
    let mut client = connect();
    certificates::ask(&mut client, b"set a 0 0 3\r\nabc\r\n", b"STORED\r\n");
    certificates::ask(
        &mut client,
        &b"get a\r\n".repeat(5000),
        &b"VALUE a 0 3\r\nabc\r\nEND\r\n".repeat(5000),
    );
    let value: Vec<u8> = (0..1_000_000u32).map(|at| (at * 7 % 251) as u8).collect();
    let set = [&b"set big 0 0 1000000\r\n"[..], &value, b"\r\n"].concat();
    certificates::ask(&mut client, &set, b"STORED\r\n");
    let got = [&b"VALUE big 0 1000000\r\n"[..], &value, b"\r\nEND\r\n"].concat();
    // A client that asks for ten of them and reads slowly.
    client
        .write_all(&b"get big\r\n".repeat(10))
        .expect("it is open");
    for _ in 0..10 {
        thread::sleep(Duration::from_millis(20));
        certificates::ask(&mut client, b"", &got);
    }
    for _ in 0..100 {
        certificates::ask(
            &mut connect(),
            b"get a\r\n",
            b"VALUE a 0 3\r\nabc\r\nEND\r\n",
        );
    }
    // Plain clients are not served.
    let mut plain = scene.connect(ADDRESSES[0]);
    plain.write_all(b"get a\r\n").expect("it is open");
    let mut said = Vec::new();
    let _ = plain.read_to_end(&mut said);
    assert!(said.is_empty() || said.starts_with(b"\x15\x03"), "{said:?}");
}

#[test]
fn encrypted_on_a_packet_socket() {
    encrypted("packet");
}

#[test]
fn encrypted_on_memif() {
    encrypted("memif");
}
