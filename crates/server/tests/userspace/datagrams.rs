//! Datagrams over the stack: the same answers as over the kernel's sockets, and the same refusals.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use crate::client::{Client, NO_REQUESTS, conversation, payload, request};
use crate::scene::{ADDRESSES, Scene, ask, count};

/// The server's address on the kernel's sockets, in the clients' namespace.
const KERNELS: &str = "127.0.0.1:11211";

fn client_of(scene: &Scene, server: &str) -> Client {
    let server: SocketAddr = server.parse().expect("an address");
    let any = match server.ip() {
        IpAddr::V4(_) => IpAddr::from([0; 4]),
        IpAddr::V6(_) => IpAddr::from([0; 16]),
    };
    scene.enter(|| Client::at(any, server))
}

/// The same requests at both: each answer is the same, byte by byte and part by part.
fn same_answers(scene: &Scene, value_len_max: usize) {
    let _kernels = scene.start_kernels(&["-U", "11211", "-l", "127.0.0.1"]);
    let theirs = client_of(scene, KERNELS);
    for &address in scene.addresses() {
        let ours = client_of(scene, address);
        for (id, case) in (1..).zip(&conversation(value_len_max)) {
            let datagram = request(id, case);
            assert_eq!(
                ours.ask(&[&datagram]),
                theirs.ask(&[&datagram]),
                "{address}: {}",
                case[..case.len().min(60)].escape_ascii()
            );
        }
        assert_eq!(ours.ask(NO_REQUESTS), []);
        let unfinished: &[&[u8]] = &[
            &request(1, b"set a 0 0 100\r\nabc"),
            &request(2, b"get a"),
            &request(3, b"\x80\x0a\0\0"),
        ];
        assert_eq!(payload(&ours.ask(unfinished)), b"");
    }
}

/// More datagrams at once than a turn brings, and a reply of more than a card's queue holds.
fn much_at_once(scene: &Scene) {
    let client = client_of(scene, ADDRESSES[0]);
    let mut tcp = scene.connect(ADDRESSES[0]);
    let value = vec![b'v'; 900_000];
    let set = [&b"set large 0 0 900000\r\n"[..], &value, b"\r\n"].concat();
    crate::scene::exchange(&mut tcp, &set, b"STORED\r\n");
    let answer = [b"VALUE large 0 900000\r\n", &value[..], b"\r\nEND\r\n"].concat();
    let parts = client.ask(&[&request(1, b"get large\r\n")]);
    assert_eq!(parts.len(), answer.len().div_ceil(1392));
    assert!(payload(&parts) == answer);
    for first in (0..1000).step_by(100) {
        let requests: Vec<_> = (first..first + 100)
            .map(|id| {
                request(
                    id,
                    format!("set k{id} 0 0 1\r\nx\r\nget k{id}\r\n").as_bytes(),
                )
            })
            .collect();
        let requests: Vec<&[u8]> = requests.iter().map(Vec::as_slice).collect();
        let parts = client.ask(&requests);
        for (id, part) in (first..).zip(&parts) {
            let expected = format!("STORED\r\nVALUE k{id} 0 1\r\nx\r\nEND\r\n");
            assert_eq!(
                (part.request_id, &part.bytes[..]),
                (id, expected.as_bytes())
            );
        }
        assert_eq!(parts.len(), 100);
    }
}

/// Services, and the server itself, are not answered.
fn refusals(scene: &Scene) {
    let server: SocketAddr = ADDRESSES[0].parse().expect("an address");
    for port in [1023, server.port()] {
        let own = SocketAddr::from((Ipv4Addr::UNSPECIFIED, port));
        let client = scene.enter(|| Client::new(own, server));
        assert!(client.is_refused(&request(1, b"mn\r\n")), "{port}");
    }
    let mut tcp = scene.connect(ADDRESSES[0]);
    let text = ask(&mut tcp, "stats");
    assert_eq!(
        count(&text, "coua_udp_dropped"),
        2 + dropped_before(scene),
        "{text}"
    );
    assert_eq!(count(&text, "coua_udp_replies_dropped"), 0, "{text}");
    assert!(count(&text, "coua_udp_requests") > 1000, "{text}");
}

/// What [`same_answers`] had dropped: a datagram of no bytes comes too.
fn dropped_before(scene: &Scene) -> u64 {
    (NO_REQUESTS.len() * scene.addresses().len()) as u64
}

fn everything(scene: &Scene) {
    same_answers(scene, 1400);
    much_at_once(scene);
    refusals(scene);
}

#[test]
fn on_a_packet_socket() {
    let scene = Scene::open("packet", &["-U", "11211"]);
    everything(&scene);
    // What has been cut on the way is not put together again.
    let client = client_of(&scene, ADDRESSES[0]);
    let long = [&b"set cut 0 0 3000\r\n"[..], &[b'v'; 3000], b"\r\n"].concat();
    assert_eq!(client.ask(&[&request(1, &long)]), []);
    let mut tcp = scene.connect(ADDRESSES[0]);
    let fragments = scene.poll(|| {
        let dropped = count(&ask(&mut tcp, "stats net"), "dropped_fragment");
        (dropped > 0).then_some(dropped)
    });
    assert_eq!(fragments, 3);
}

#[test]
fn on_af_xdp() {
    let scene = Scene::open("xdp", &["-U", "11211"]);
    everything(&scene);
}

#[test]
fn an_address_is_not_sent_without_end() {
    let scene = Scene::open("packet", &["-U", "11211", "--udp-reply-rate", "1"]);
    let mut tcp = scene.connect(ADDRESSES[0]);
    let value = vec![b'v'; 20_000];
    let set = [&b"set v 0 0 20000\r\n"[..], &value, b"\r\n"].concat();
    crate::scene::exchange(&mut tcp, &set, b"STORED\r\n");
    let received = client_of(&scene, ADDRESSES[0]).receive_until_refused("get v\r\n");
    // A second's worth at the start, and what each second of the test adds.
    assert!((900_000..10_000_000).contains(&received), "{received}");
    let text = ask(&mut tcp, "stats");
    assert_eq!(count(&text, "coua_udp_replies_dropped"), 1, "{text}");
}

/// A cable that takes less than what memcached makes its datagrams of.
#[test]
fn replies_fit_the_cable() {
    let scene = Scene::open_narrow("packet", &["-U", "11211", "-t", "3"], 1280);
    let value = vec![b'v'; 5000];
    let set = [&b"set v 0 0 5000\r\n"[..], &value, b"\r\n"].concat();
    crate::scene::exchange(&mut scene.connect(ADDRESSES[0]), &set, b"STORED\r\n");
    let answer = [b"VALUE v 0 5000\r\n", &value[..], b"\r\nEND\r\n"].concat();
    for &address in scene.addresses() {
        let parts = client_of(&scene, address).ask(&[&request(1, b"get v\r\n")]);
        assert!(payload(&parts) == answer);
        assert_eq!(parts.len(), 5);
    }
}

/// Only the port that -U names, and none without it.
#[test]
fn at_no_other_port() {
    let scene = Scene::open("packet", &["-p", "11211", "-U", "11212"]);
    let other = ADDRESSES[0].replace("11211", "11212");
    assert_eq!(payload(&client_of(&scene, &other).ask(&[])), b"");
    assert!(client_of(&scene, ADDRESSES[0]).is_refused(&request(1, b"mn\r\n")));
    let text = ask(&mut scene.connect(ADDRESSES[0]), "stats settings");
    assert_eq!(count(&text, "udpport"), 11212, "{text}");
}
