//! A million warm requests allocate nothing.
//!
//! The server runs in this process, under an allocator that counts what its threads allocate while
//! the count is on. The client's thread is not counted: it is the one that switches.
#![allow(unsafe_code, reason = "an allocator that counts")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ffi::OsString;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use coua::flags::{self, Asked};
use coua::server::{Server, Sockets};

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

#[test]
fn a_million_warm_requests_allocate_nothing() {
    IS_CLIENT.with(|client| client.set(true));
    let user = if rustix::process::getuid().is_root() {
        vec!["-u", "root"]
    } else {
        Vec::new()
    };
    let arguments = [
        "coua",
        "-p",
        "-1",
        "-U",
        "0",
        "-l",
        "127.0.0.1",
        "-m",
        "64",
        "-t",
        "1",
    ];
    let arguments = arguments.into_iter().chain(user).map(OsString::from);
    let Ok(Asked::Serve(settings)) = flags::read(arguments) else {
        panic!("the flags are wrong");
    };
    let sockets = Sockets::open(&settings).expect("a port is free");
    let server = Server::start(*settings, sockets).expect("the server starts");
    let mut client = TcpStream::connect(server.shared().addresses()[0]).expect("it listens");
    client.set_nodelay(true).expect("a TCP socket");

    let mut pipeline = Vec::new();
    let expected: usize = (0..32).map(|key| requests(key, &mut pipeline)).sum();
    let per_round = 32 * 8;
    let mut replies = vec![0; expected];
    let mut round = || {
        client.write_all(&pipeline).expect("the server reads");
        client.read_exact(&mut replies).expect("the server answers");
        assert!(
            replies.ends_with(b"DELETED\r\nEND\r\n"),
            "{}",
            String::from_utf8_lossy(&replies)
        );
    };
    // Long enough that the log has gone round and cleaning is warm too.
    for _ in 0..12_000 {
        round();
    }
    assert!(instrument_works());
    COUNTS.store(true, Ordering::SeqCst);
    for _ in 0..1_000_000usize.div_ceil(per_round) {
        round();
    }
    COUNTS.store(false, Ordering::SeqCst);
    assert_eq!(ALLOCATIONS.load(Ordering::SeqCst), 0);
    drop(client);
    server.stop();
}
