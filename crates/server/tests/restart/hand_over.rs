//! Another program takes the place of a running one (`SIGUSR2`): clients connect once more, and nothing
//! else.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::MemoryFile;
use super::support::Server;

fn signal(server: &Server, signal: Signal) {
    let number = i32::try_from(server.child.id()).unwrap();
    kill_process(Pid::from_raw(number).unwrap(), signal).unwrap();
}

/// What a server answers to `request`, up to `end`; `None` where the connection ends before.
fn ask(address: SocketAddr, request: &[u8], end: &[u8]) -> Option<Vec<u8>> {
    // The kernel takes it, whoever serves at the moment.
    let mut stream = TcpStream::connect(address).expect("a connection is refused");
    stream
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    stream.write_all(request).ok()?;
    let mut answer = Vec::new();
    let mut buffer = [0; 4096];
    while !answer.ends_with(end) {
        match stream.read(&mut buffer) {
            Ok(0) => return None,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                panic!("no answer in 20 seconds")
            }
            Err(_) => return None,
            Ok(n) => answer.extend_from_slice(&buffer[..n]),
        }
    }
    Some(answer)
}

/// Seconds since the program began.
fn uptime(address: SocketAddr) -> u64 {
    let stats = loop {
        if let Some(stats) = ask(address, b"stats\r\n", b"END\r\n") {
            break String::from_utf8(stats).unwrap();
        }
    };
    let line = stats.lines().find(|line| line.starts_with("STAT uptime "));
    line.unwrap()["STAT uptime ".len()..].parse().unwrap()
}

#[test]
fn clients_connect_once_more_and_find_their_items() {
    let file = MemoryFile::new();
    let server = Server::coua(&["-m", "32", "-t", "3", "-e", file.text()]);
    let address = server.address;
    let stored = ask(address, b"set key 5 0 5\r\nvalue\r\n", b"\r\n");
    assert_eq!(stored.unwrap(), b"STORED\r\n");
    let (stop, lost) = (AtomicBool::new(false), AtomicU32::new(0));
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    match ask(address, b"get key\r\n", b"END\r\n") {
                        Some(answer) => assert_eq!(answer, b"VALUE key 5 5\r\nvalue\r\nEND\r\n"),
                        None => _ = lost.fetch_add(1, Ordering::Relaxed),
                    }
                }
            });
        }
        for _ in 0..3 {
            thread::sleep(Duration::from_millis(1_200));
            let began = Instant::now();
            signal(&server, Signal::USR2);
            // It begins to count anew.
            while uptime(address) > 1 || began.elapsed() < Duration::from_millis(200) {
                assert!(
                    began.elapsed() < Duration::from_secs(20),
                    "it goes on as it was"
                );
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    // Each client has one connection at a time, and three ends were seen.
    let lost = lost.into_inner();
    assert!(lost <= 9 * 3, "{lost} connections ended");
    signal(&server, Signal::TERM);
}

#[test]
fn without_a_file_the_server_goes_on() {
    let server = Server::coua(&["-m", "32"]);
    let stored = ask(server.address, b"set key 0 0 1\r\n1\r\n", b"\r\n");
    assert_eq!(stored.unwrap(), b"STORED\r\n");
    signal(&server, Signal::USR2);
    thread::sleep(Duration::from_millis(200));
    let found = ask(server.address, b"get key\r\n", b"END\r\n");
    assert_eq!(found.unwrap(), b"VALUE key 0 1\r\n1\r\nEND\r\n");
}
