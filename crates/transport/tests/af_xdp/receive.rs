//! What comes here and what stays with the kernel.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::thread;
use std::time::Duration;

use coua_transport::userspace::af_xdp::{BusyPoll, Interface, Options, memory_len, open_in};

use crate::frames::{Headers, udp};
use crate::netns::{DEVICE, Namespace};
use crate::{
    LIMIT, OURS, PEERS, PORT, add_ipv6, addressed_pair, open_one, options, receive, send, try_open,
    wait,
};

fn udp_socket(namespace: &Namespace, address: &str) -> UdpSocket {
    let socket = namespace
        .enter(|| UdpSocket::bind(address))
        .expect("a socket");
    socket.set_read_timeout(Some(LIMIT)).expect("a timeout");
    socket
}

#[test]
fn the_servers_port_comes_here_and_everything_else_goes_to_the_kernel() {
    let pair = addressed_pair();
    let opened = try_open(&pair.ours, &options()).expect("it opens; the tests run as root");
    assert_eq!(
        opened.addresses,
        [OURS.parse::<std::net::IpAddr>().expect("an address")]
    );
    assert_eq!(opened.interface.mac.0, pair.ours.mac());
    assert_eq!((opened.interface.mtu, opened.interface.queues), (1500, 1));
    let mut nic = opened.nics.into_iter().next().expect("one worker");
    assert!(!nic.is_zero_copy(), "a veth pair copies");

    let peer = udp_socket(&pair.peers, "0.0.0.0:0");
    peer.send_to(b"hello", (OURS, PORT)).expect("sent");
    let frames = receive(&mut nic, 1);
    assert_eq!(frames.len(), 1);
    assert_eq!(frames[0][..6], pair.ours.mac());
    assert_eq!(frames[0][6..12], pair.peers.mac());
    assert_eq!(frames[0][42..], *b"hello");

    pair.peers.run("ping", &format!("-c 1 -W 10 {OURS}"));
    let kernels = udp_socket(&pair.ours, "0.0.0.0:11212");
    peer.send_to(b"other port", (OURS, 11212)).expect("sent");
    assert_eq!(kernels.recv(&mut [0; 64]).expect("it came"), 10);
    let listener = pair
        .ours
        .enter(|| TcpListener::bind("0.0.0.0:22"))
        .expect("listens");
    let shell = thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a connection");
        let mut bytes = [0; 4];
        stream.read_exact(&mut bytes).expect("four bytes");
        stream.write_all(&bytes).expect("sent");
    });
    pair.peers.enter(|| {
        let mut stream = TcpStream::connect((OURS, 22)).expect("the kernel answers");
        stream.write_all(b"ping").expect("sent");
        let mut bytes = [0; 4];
        stream.read_exact(&mut bytes).expect("echoed");
        assert_eq!(&bytes, b"ping");
    });
    shell.join().expect("it is well");
    assert_eq!(nic_count(&mut nic), 0, "none of it came here");

    // Nobody answers here, and the kernel must not either: it would answer RST.
    let refused = pair.peers.enter(|| {
        let address = format!("{OURS}:{PORT}").parse().expect("an address");
        TcpStream::connect_timeout(&address, Duration::from_millis(300))
    });
    assert_eq!(refused.expect_err("no server").kind(), ErrorKind::TimedOut);
    let syn = receive(&mut nic, 1).remove(0);
    assert_eq!((syn[23], syn[47] & 0x3f), (6, 2), "a SYN over TCP");
}

fn nic_count(nic: &mut impl coua_tcp::nic::Nic) -> usize {
    nic.receive()
}

#[test]
fn fragments_go_to_the_kernel_which_puts_them_together() {
    let pair = addressed_pair();
    let mut nic = open_one(&pair.ours, &options());
    let kernels = udp_socket(&pair.ours, &format!("0.0.0.0:{PORT}"));
    let peer = udp_socket(&pair.peers, "0.0.0.0:0");
    peer.send_to(&[7; 4000], (OURS, PORT)).expect("sent");
    assert_eq!(kernels.recv(&mut [0; 8000]).expect("it came"), 4000);
    assert_eq!(nic_count(&mut nic), 0);
    peer.send_to(&[7; 400], (OURS, PORT)).expect("sent");
    assert_eq!(receive(&mut nic, 1)[0].len(), 442);
}

#[test]
fn ipv6_comes_here_and_neighbour_discovery_stays_with_the_kernel() {
    let pair = addressed_pair();
    add_ipv6(&pair);
    let interface = pair
        .ours
        .enter(|| Interface::read(DEVICE))
        .expect("it is there");
    let served = |ip: &str| {
        let ip: std::net::IpAddr = ip.parse().expect("an address");
        interface.addresses.iter().any(|address| address.ip == ip)
    };
    assert!(
        served(OURS) && served("fd00::1"),
        "{:?}",
        interface.addresses
    );

    let mut nic = open_one(&pair.ours, &options());
    let peer = udp_socket(&pair.peers, "[::]:0");
    peer.send_to(b"sechs", ("fd00::1", PORT)).expect("sent");
    let frame = receive(&mut nic, 1).remove(0);
    assert_eq!(frame[12..14], [0x86, 0xdd]);
    assert_eq!(frame[62..], *b"sechs");
    pair.peers.run("ping", "-6 -c 1 -W 10 fd00::1");
}

#[test]
fn tags_and_options_are_in_the_frames_that_come() {
    let pair = addressed_pair();
    for end in [&pair.ours, &pair.peers] {
        end.run("ethtool", &format!("-K {DEVICE} rxvlan off txvlan off"));
    }
    let with_tags = Options {
        vlans: true,
        ..options()
    };
    let mut ours = open_one(&pair.ours, &with_tags);
    let mut peers = open_one(&pair.peers, &options());
    let plain = Headers {
        to: pair.ours.mac(),
        from: pair.peers.mac(),
        ..Headers::default()
    };
    for (tags, words) in [
        (vec![(0x8100, 5)], 0),
        (vec![(0x88a8, 4094), (0x8100, 0xe005)], 3),
        (vec![], 10),
    ] {
        let headers = Headers {
            tags,
            options: words,
            ..plain.clone()
        };
        let frame = udp(&headers, PEERS, OURS, PORT, &[9; 100]);
        send(&mut peers, &frame);
        assert_eq!(receive(&mut ours, 1), [frame]);
    }
}

#[test]
fn frames_as_long_as_the_mtu_come_whole() {
    for (mtu, chunk) in [(1500, 2048), (3300, 4096)] {
        let pair = addressed_pair();
        for end in [&pair.ours, &pair.peers] {
            end.ip(&format!("link set {DEVICE} mtu {mtu}"));
        }
        let len = pair
            .ours
            .enter(|| memory_len(&options()))
            .expect("it can be opened");
        assert_eq!(len, 4096 * chunk);
        let mut nic = open_one(&pair.ours, &options());
        let peer = udp_socket(&pair.peers, "0.0.0.0:0");
        let payload = crate::frames::filler(1, mtu - 28);
        peer.send_to(&payload, (OURS, PORT)).expect("sent");
        assert_eq!(receive(&mut nic, 1)[0][42..], payload);
    }
}

#[test]
fn a_sleeping_worker_is_woken_by_the_descriptor() {
    let pair = addressed_pair();
    let mut nic = open_one(&pair.ours, &options());
    let peer = udp_socket(&pair.peers, "0.0.0.0:0");
    assert!(
        !wait(&nic.as_fd(), Duration::from_millis(20)),
        "nothing is there"
    );
    for _ in 0..3 {
        peer.send_to(b"wake up", (OURS, PORT)).expect("sent");
        assert!(wait(&nic.as_fd(), LIMIT));
        assert_eq!(nic_count(&mut nic), 1);
        assert_eq!(nic_count(&mut nic), 0);
        assert!(
            !wait(&nic.as_fd(), Duration::from_millis(20)),
            "it was taken"
        );
    }
}

#[test]
fn frames_come_by_busy_polling() {
    let pair = addressed_pair();
    let busy = Options {
        busy_poll: Some(BusyPoll::default()),
        ..options()
    };
    let mut nic = open_one(&pair.ours, &busy);
    assert!(nic.is_busy_polling());
    for calls in 1..=3 {
        assert_eq!(nic_count(&mut nic), 0);
        let counters = nic.counters().expect("counted");
        assert_eq!(counters.wakeups, calls, "an empty receive runs the driver");
    }
    let peer = udp_socket(&pair.peers, "0.0.0.0:0");
    for at in 0..100u8 {
        peer.send_to(&[at; 30], (OURS, PORT)).expect("sent");
        assert_eq!(receive(&mut nic, 1)[0][42..], [at; 30]);
    }
}

#[test]
fn frames_lie_in_memory_that_was_given() {
    let pair = addressed_pair();
    let len = pair
        .ours
        .enter(|| memory_len(&options()))
        .expect("it can be opened");
    let memory = crate::given(len + 4096);
    let before = memory.as_ptr().align_offset(4096);
    let (memory, _) = memory[before..].split_at_mut(len);
    let range = memory.as_ptr_range();
    let opened = pair
        .ours
        .enter(|| open_in(&options(), memory))
        .expect("it opens");
    let mut nic = opened.nics.into_iter().next().expect("one worker");
    let peer = udp_socket(&pair.peers, "0.0.0.0:0");
    peer.send_to(b"where am I", (OURS, PORT)).expect("sent");
    assert!(wait(&nic.as_fd(), LIMIT));
    assert_eq!(nic_count(&mut nic), 1);
    let frame = coua_tcp::nic::Nic::frame(&nic, 0).bytes;
    assert_eq!(frame[42..], *b"where am I");
    assert!(range.contains(&frame.as_ptr()));
}

#[test]
fn frames_that_nobody_takes_are_counted() {
    let pair = addressed_pair();
    let short = Options {
        receive_len: 64,
        ..options()
    };
    let mut nic = open_one(&pair.ours, &short);
    let peer = udp_socket(&pair.peers, "0.0.0.0:0");
    for at in 0..200u8 {
        peer.send_to(&[at; 30], (OURS, PORT)).expect("sent");
    }
    let lost = |nic: &coua_transport::userspace::af_xdp::XdpNic| {
        let counters = nic.counters().expect("counted");
        counters.receive_ring_full + counters.dropped
    };
    assert!(
        crate::eventually(|| lost(&nic) == 136),
        "{:?}",
        nic.counters()
    );
    let frames = receive(&mut nic, 64);
    assert_eq!(frames.len(), 64, "the first are kept");
    assert!((0..64).all(|at| frames[usize::from(at)][42] == at));
    peer.send_to(b"on we go", (OURS, PORT)).expect("sent");
    assert_eq!(receive(&mut nic, 1)[0][42..], *b"on we go");
}
