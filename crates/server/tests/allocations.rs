//! A million warm requests allocate nothing, nor do datagrams.
//!
//! The server runs in this process, under an allocator that counts what its threads allocate while
//! the count is on. The client's thread is not counted: it is the one that switches.
#![allow(unsafe_code, reason = "an allocator that counts")]

#[path = "support/bursts.rs"]
mod bursts;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ffi::OsString;
use std::io::{Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use coua::flags::{self, Invocation};
use coua::server::{Server, Sockets};

use bursts::{Scene, Sender, message};

struct Counting;

static COUNTS: AtomicBool = AtomicBool::new(false);
static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// Set in the client's thread.
    static IS_CLIENT: Cell<bool> = const { Cell::new(false) };
}

fn count() {
    if COUNTS.load(Ordering::Relaxed) && !IS_CLIENT.with(Cell::get) {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
    }
}

// SAFETY: all calls go to the system's allocator as they are.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        count();
        // SAFETY: the caller's promises are passed on.
        unsafe { System.realloc(pointer, layout, new_size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Requests of all kinds on one key, and the bytes of their replies where they are all hits.
fn requests(key: usize, pipeline: &mut Vec<u8>) -> usize {
    let key = format!("key-{key}");
    let value = "v".repeat(80);
    let parts = [
        (
            format!("set {key} 5 0 80\r\n{value}\r\n"),
            "STORED\r\n".len(),
        ),
        (
            format!("get {key}\r\n"),
            "VALUE  5 80\r\n\r\nEND\r\n".len() + key.len() + 80,
        ),
        (
            format!("mg {key} v f t\r\n"),
            "VA 80 f5 t-1\r\n\r\n".len() + 80,
        ),
        (format!("ms {key} 2 T60\r\n10\r\n"), "HD\r\n".len()),
        (format!("incr {key} 5\r\n"), "15\r\n".len()),
        (format!("touch {key} 0\r\n"), "TOUCHED\r\n".len()),
        (format!("delete {key}\r\n"), "DELETED\r\n".len()),
        (format!("get {key} nothing\r\n"), "END\r\n".len()),
    ];
    parts.into_iter().fold(0, |expected, (request, reply_len)| {
        pipeline.extend_from_slice(request.as_bytes());
        expected + reply_len
    })
}

/// Whether an allocation of another thread is counted.
fn instrument_works() -> bool {
    COUNTS.store(true, Ordering::SeqCst);
    let thread = std::thread::spawn(|| std::hint::black_box(vec![1u8; 100]).len());
    let _ = thread.join();
    COUNTS.store(false, Ordering::SeqCst);
    ALLOCATIONS.swap(0, Ordering::SeqCst) > 0
}

/// A server in this process, with one worker.
fn server(flags: &[&str]) -> Server {
    let user: &[&str] = match rustix::process::getuid().is_root() {
        true => &["-u", "root"],
        false => &[],
    };
    let own = "coua -p -1 -l 127.0.0.1 -m 64 -t 1".split(' ');
    let arguments = own.chain(user.iter().chain(flags).copied());
    let Ok(Invocation::Serve(settings)) = flags::read(arguments.map(OsString::from)) else {
        panic!("the flags are wrong");
    };
    let sockets = Sockets::open(&settings).expect("a port is free");
    Server::start(*settings, sockets, None).expect("the server starts")
}

/// Requests of a round by TCP, and so many rounds that the log has gone round and cleaning is warm too.
const PER_ROUND: usize = 32 * 8;
const ROUNDS_TO_WARM: usize = 12_000;

/// Asks a server by TCP, a round at a call.
fn over_tcp(server: &Server) -> impl FnMut() {
    let mut client = TcpStream::connect(server.shared().addresses()[0]).expect("it listens");
    client.set_nodelay(true).expect("a TCP socket");
    let mut pipeline = Vec::new();
    let expected: usize = (0..32).map(|key| requests(key, &mut pipeline)).sum();
    let mut replies = vec![0; expected];
    move || {
        client.write_all(&pipeline).expect("the server reads");
        client.read_exact(&mut replies).expect("the server answers");
        assert!(
            replies.ends_with(b"DELETED\r\nEND\r\n"),
            "{}",
            String::from_utf8_lossy(&replies)
        );
    }
}

/// A datagram for each of so many requests: sets and gets, which the fast path takes, and one of eight that
/// takes the long way and is not answered.
fn datagrams(count: u16) -> Vec<Vec<u8>> {
    let request = |number: u16| match number % 8 {
        0 => format!("set key-{number} 0 0 80\r\n{}\r\n", "v".repeat(80)),
        7 => format!("append key-{} 0 0 1 noreply\r\nx\r\n", number - 7),
        place => format!(
            "get key-{} none\r\nget key-{}\r\n",
            number - place,
            number - place
        ),
    };
    (0..count)
        .map(|number| message(number, request(number).as_bytes()))
        .collect()
}

/// Asks a server by UDP, a round at a call.
fn over_udp(server: &Server) -> impl FnMut() {
    let client = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let port = server.shared().udp_port();
    client.connect(("127.0.0.1", port)).expect("an address");
    let datagrams = datagrams(16);
    move || {
        for datagram in &datagrams {
            client.send(datagram).expect("it leaves");
        }
        // One of eight is not answered.
        for _ in 0..14 {
            let len = client.recv(&mut [0; 1500]).expect("the server answers");
            assert!(len > 8);
        }
    }
}

/// Asks a server with a stack of its own by datagrams, a round at a call.
fn over_stack(scene: &Scene) -> impl FnMut() {
    let datagrams = datagrams(48);
    let sent: Vec<_> = (0u8..)
        .zip(datagrams.chunks(8))
        .flat_map(|(sender, own)| own.iter().map(move |sent| (Sender(sender), sent.clone())))
        .collect();
    move || assert_eq!(scene.exchange(&sent).len(), 42)
}

/// Counts what the server allocates while `round` is done so many times, and once before.
fn counted(rounds: usize, mut round: impl FnMut()) -> u64 {
    round();
    assert!(instrument_works());
    COUNTS.store(true, Ordering::SeqCst);
    (0..rounds).for_each(|_| round());
    COUNTS.store(false, Ordering::SeqCst);
    ALLOCATIONS.swap(0, Ordering::SeqCst)
}

/// In one test: another beside it would be counted.
#[test]
fn warm_requests_allocate_nothing() {
    IS_CLIENT.with(|client| client.set(true));
    let server = server(&["-U", "-1"]);
    let mut tcp = over_tcp(&server);
    (0..ROUNDS_TO_WARM).for_each(|_| tcp());
    assert_eq!(counted(1_000_000usize.div_ceil(PER_ROUND), tcp), 0);
    assert_eq!(counted(1000, over_udp(&server)), 0);
    server.stop();

    let scene = Scene::start(&[]);
    let mut tcp = over_tcp(scene.server());
    (0..ROUNDS_TO_WARM).for_each(|_| tcp());
    assert_eq!(counted(1000, over_stack(&scene)), 0);
}
