//! Kernel sockets against the standard library's.

use std::io::{IoSlice, Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use coua_transport::{
    Accepted, Arrived, DatagramSocket, Datagrams, Events, ListenError, Listener, PeerAddress,
    Poller, Readiness, Received, Sent, Stream, TcpOptions, Token, Waker,
};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketType, bind, listen, socket, sockopt};

const LIMIT: Duration = Duration::from_secs(10);

fn any_port() -> SocketAddr {
    "127.0.0.1:0".parse().expect("an address")
}

fn listener() -> Listener {
    let mut listeners =
        Listener::tcp(any_port(), 1, TcpOptions { backlog: 16 }).expect("a free port");
    listeners.pop().expect("one listener")
}

fn accept(listener: &Listener) -> Stream {
    let deadline = Instant::now() + LIMIT;
    loop {
        match listener.accept() {
            Accepted::Stream(stream) => return stream,
            Accepted::Nothing => assert!(Instant::now() < deadline, "no connection came"),
            Accepted::Exhausted(error) => panic!("{error}"),
        }
    }
}

fn pair() -> (Stream, TcpStream) {
    let listener = listener();
    let peer = TcpStream::connect(listener.address().expect("TCP")).expect("a connection");
    (accept(&listener), peer)
}

/// What is reported of `token` until `is_enough`.
fn wait_for(
    poller: &Poller,
    token: Token,
    is_enough: impl Fn(&Readiness) -> bool,
) -> Vec<Readiness> {
    let mut events = Events::new();
    let mut seen = Vec::new();
    let deadline = Instant::now() + LIMIT;
    while !seen.iter().any(&is_enough) {
        assert!(Instant::now() < deadline, "not reported: {seen:?}");
        let ready = poller
            .wait(&mut events, Duration::from_millis(100), || {})
            .expect("epoll");
        seen.extend(ready.filter(|readiness| readiness.token == token));
    }
    seen
}

#[test]
fn sockets_share_a_port_but_not_with_strangers() {
    let options = TcpOptions { backlog: 16 };
    let listeners = Listener::tcp(any_port(), 3, options).expect("a free port");
    let address = listeners[0].address().expect("TCP");
    assert!(
        listeners
            .iter()
            .all(|listener| listener.address() == Some(address))
    );
    let refused = Listener::tcp(address, 1, options);
    assert!(
        matches!(refused, Err(ListenError::Tcp { .. })),
        "the port was taken twice"
    );
    drop(listeners);
    Listener::tcp(address, 1, options).expect("the port is free again");
}

#[test]
fn sockets_of_udp_share_a_port_but_not_with_strangers() {
    let sockets = DatagramSocket::bind(any_port(), 3).expect("a free port");
    let address = sockets[0].address().expect("UDP");
    assert!(
        sockets
            .iter()
            .all(|socket| socket.address() == Some(address))
    );
    let refused = DatagramSocket::bind(address, 2);
    assert!(
        matches!(refused, Err(ListenError::Udp { .. })),
        "the port was taken twice"
    );
    // Each of them is the only one that some senders reach.
    let sockets: Vec<Datagrams> = sockets.into_iter().map(Datagrams::from).collect();
    let mut received = [0; 3];
    let deadline = Instant::now() + LIMIT;
    while received.contains(&0) {
        let sender = UdpSocket::bind("127.0.0.1:0").expect("a free port");
        sender.send_to(b"x", address).expect("it is sent");
        assert!(Instant::now() < deadline, "senders are spread {received:?}");
        for (socket, count) in sockets.iter().zip(&mut received) {
            while let Arrived::Datagram { .. } = socket.receive(&mut [0; 16]) {
                *count += 1;
            }
        }
    }
    drop(sockets);
    DatagramSocket::bind(address, 1).expect("the port is free again");
}

/// One socket alone has nothing to share its port for, with a process of the same user or of another.
#[test]
fn a_socket_alone_lets_nobody_share_its_port() {
    let options = TcpOptions { backlog: 16 };
    let listeners = Listener::tcp(any_port(), 1, options).expect("a free port");
    let datagrams = DatagramSocket::bind(any_port(), 1).expect("a free port");
    for (kind, address) in [
        (SocketType::STREAM, listeners[0].address()),
        (SocketType::DGRAM, datagrams[0].address()),
    ] {
        let address = address.expect("it is bound");
        let stranger = socket(AddressFamily::INET, kind, None).expect("a socket");
        sockopt::set_socket_reuseport(&stranger, true).expect("Linux has it");
        let bound = bind(&stranger, &address).and_then(|()| {
            if kind == SocketType::STREAM {
                listen(&stranger, 1)
            } else {
                Ok(())
            }
        });
        assert_eq!(bound, Err(Errno::ADDRINUSE), "{kind:?}");
    }
}

#[test]
fn bytes_come_and_go() {
    let (stream, mut peer) = pair();
    let mut room = [0; 64];
    assert_eq!(stream.receive(&mut room), Received::Nothing);
    peer.write_all(b"hello").expect("sent");
    let poller = Poller::new().expect("epoll");
    poller.add_stream(&stream, Token(7)).expect("added");
    wait_for(&poller, Token(7), |readiness| readiness.readable);
    assert_eq!(stream.receive(&mut room), Received::Bytes(5));
    assert_eq!(&room[..5], b"hello");
    assert_eq!(stream.send(b"ab"), Sent::Bytes(2));
    let pieces = [IoSlice::new(b"cd"), IoSlice::new(b""), IoSlice::new(b"e")];
    assert_eq!(stream.send_vectored(&pieces), Sent::Bytes(3));
    let mut got = [0; 5];
    peer.read_exact(&mut got).expect("received");
    assert_eq!(&got, b"abcde");
    let own = peer.local_addr().expect("an address");
    assert_eq!(stream.peer(), PeerAddress::Tcp4(own));
    assert_eq!(stream.peer().to_string(), format!("tcp:{own}"));
}

#[test]
fn the_end_of_a_stream_is_reported_behind_its_bytes() {
    let (stream, mut peer) = pair();
    let poller = Poller::new().expect("epoll");
    poller.add_stream(&stream, Token(1)).expect("added");
    peer.write_all(b"bye").expect("sent");
    drop(peer);
    wait_for(&poller, Token(1), |readiness| readiness.end_of_stream);
    let mut room = [0; 64];
    assert_eq!(stream.receive(&mut room), Received::Bytes(3));
    assert_eq!(stream.receive(&mut room), Received::Ended);
}

#[test]
fn a_full_stream_says_when_there_is_room() {
    let (stream, mut peer) = pair();
    let poller = Poller::new().expect("epoll");
    poller.add_stream(&stream, Token(2)).expect("added");
    wait_for(&poller, Token(2), |readiness| readiness.writable);
    let mut sent = 0;
    let chunk = [b'x'; 1 << 16];
    loop {
        match stream.send(&chunk) {
            Sent::Bytes(count) => sent += count,
            Sent::Full => break,
            Sent::Broken => panic!("broken"),
        }
    }
    let reader = std::thread::spawn(move || {
        let mut got = vec![0; sent];
        peer.read_exact(&mut got).expect("received");
        peer
    });
    wait_for(&poller, Token(2), |readiness| readiness.writable);
    assert!(matches!(stream.send(b"more"), Sent::Bytes(4)));
    drop(reader.join().expect("the reader"));
    let deadline = Instant::now() + LIMIT;
    while !matches!(stream.send(b"y"), Sent::Broken) {
        assert!(Instant::now() < deadline, "the peer's end is never told");
    }
}

#[test]
fn unix_sockets_have_their_access_bits_and_replace_only_sockets() {
    let folder = std::env::temp_dir().join(format!("coua-transport-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let path = folder.join("socket");
    let first = Listener::unix(&path, 0o750, 16).expect("a listener");
    let mode = std::fs::metadata(&path)
        .expect("the socket")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o750);
    drop(first);
    let second = Listener::unix(&path, 0o700, 16).expect("the old socket is replaced");
    let shared = second.shared_by(2).expect("shared");
    assert!(shared.iter().all(Listener::is_shared));
    let _peer = UnixStream::connect(&path).expect("a connection");
    assert_eq!(accept(&shared[0]).peer(), PeerAddress::Unix(String::new()));
    let file = folder.join("file");
    std::fs::write(&file, "precious").expect("a file");
    assert!(matches!(
        Listener::unix(&file, 0o700, 16),
        Err(ListenError::Unix { .. })
    ));
    assert_eq!(std::fs::read(&file).expect("still there"), b"precious");
    std::fs::remove_dir_all(&folder).expect("removed");
}

#[test]
fn a_waker_wakes_until_it_is_drained() {
    let poller = Poller::new().expect("epoll");
    let waker = Waker::new().expect("eventfd");
    poller.add_source(&waker, Token(9), false).expect("added");
    let mut events = Events::new();
    assert_eq!(
        poller
            .wait(&mut events, Duration::ZERO, || {})
            .expect("epoll")
            .count(),
        0
    );
    thread::scope(|scope| {
        scope.spawn(|| waker.wake());
        wait_for(&poller, Token(9), |readiness| readiness.readable);
    });
    assert_eq!(
        poller
            .wait(&mut events, Duration::ZERO, || {})
            .expect("epoll")
            .count(),
        1
    );
    waker.drain();
    assert_eq!(
        poller
            .wait(&mut events, Duration::ZERO, || {})
            .expect("epoll")
            .count(),
        0
    );
}

/// Sockets that share a port let another server's share it too, and then each of the two gets half of the
/// connections, and loses them when the other one ends.
#[test]
fn of_two_servers_that_start_at_the_same_time_one_gets_the_port() {
    for _ in 0..300 {
        let address = {
            let listeners = Listener::tcp(any_port(), 1, TcpOptions { backlog: 1 });
            let listeners = listeners.expect("a free port");
            listeners[0].address().expect("it is bound")
        };
        let barrier = Barrier::new(2);
        let start = || {
            barrier.wait();
            Listener::tcp(address, 2, TcpOptions { backlog: 1 })
        };
        let (one, other) = thread::scope(|scope| {
            let one = scope.spawn(start);
            let other = start();
            (one.join().expect("it does not panic"), other)
        });
        let listening = usize::from(one.is_ok()) + usize::from(other.is_ok());
        assert!(listening <= 1, "both listen on {address}");
    }
}

/// The same of UDP, where each would get half of the senders. Every server tries until one has the port.
#[test]
fn of_servers_that_start_at_the_same_time_one_gets_the_port_of_udp() {
    for _ in 0..5_000 {
        let address = {
            let sockets = DatagramSocket::bind(any_port(), 1).expect("a free port");
            sockets[0].address().expect("it is bound")
        };
        let (barrier, is_bound) = (Barrier::new(3), AtomicBool::new(false));
        let start = || {
            barrier.wait();
            loop {
                let bound = DatagramSocket::bind(address, 2);
                let is_last = is_bound.fetch_or(bound.is_ok(), Ordering::Relaxed);
                if bound.is_ok() || is_last {
                    return bound.ok();
                }
            }
        };
        let all = thread::scope(|scope| {
            let servers = [(); 3].map(|()| scope.spawn(start));
            servers.map(|server| server.join().expect("it does not panic"))
        });
        let bound = all.iter().flatten().count();
        assert_eq!(bound, 1, "so many receive at {address}");
    }
}
