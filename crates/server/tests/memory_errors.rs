//! The real server while the machine loses memory under it, by `poison`: no value is wrong, only what
//! lay on a lost page is missing, and everything else is answered.
//!
//! Where the kernel cannot poison memory, the tests are left out and say so.

#![allow(clippy::cast_possible_truncation, reason = "small numbers")]

#[path = "support/process.rs"]
#[allow(dead_code, reason = "each test takes what it needs")]
mod process;
#[path = "support/mod.rs"]
#[allow(dead_code, reason = "these tests need the program alone")]
mod support;

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use process::{Client, PATIENCE, Process, coua, poll};

/// Client threads, and the keys that each of them has for itself.
const USERS: u64 = 3;
const KEYS: u64 = 3000;

/// A client that speaks in values.
struct User {
    stream: BufReader<TcpStream>,
    number: u64,
    seed: u64,
    /// What each key holds, as far as it was told.
    book: HashMap<u64, Vec<u8>>,
    missing: u64,
    closed: u64,
    longest: Duration,
    address: SocketAddr,
}

impl User {
    fn new(address: SocketAddr, number: u64) -> User {
        User {
            stream: BufReader::new(connect(address)),
            number,
            seed: number + 1,
            book: HashMap::new(),
            missing: 0,
            closed: 0,
            longest: Duration::ZERO,
            address,
        }
    }

    fn random(&mut self, below: u64) -> u64 {
        self.seed = self
            .seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.seed >> 33) % below
    }

    fn line(&mut self) -> std::io::Result<String> {
        let mut line = String::new();
        match self.stream.read_line(&mut line)? {
            0 => Err(std::io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(line),
        }
    }

    /// Stores or reads a random key. An error is a connection that the server has closed.
    fn step(&mut self) -> std::io::Result<()> {
        let key = self.random(KEYS);
        let is_large = key.is_multiple_of(300);
        if self.random(4) > 0 {
            return self.read(key);
        }
        let len = if is_large {
            200_000
        } else {
            20 + self.random(400)
        };
        let version = self.random(1 << 30);
        let text = format!("{}:{key}:{version}:", self.number);
        let value: Vec<u8> = text.bytes().cycle().take(len as usize).collect();
        // What the server answers to a connection that it closes is not known.
        let before = self.book.remove(&key);
        let head = format!("set u{}-{key} 0 0 {len}\r\n", self.number);
        let request = [head.as_bytes(), &value, b"\r\n"].concat();
        self.stream.get_mut().write_all(&request)?;
        match self.line()?.as_str() {
            "STORED\r\n" => {
                self.book.insert(key, value);
            }
            line if line.starts_with("SERVER_ERROR out of memory") => {
                // The upload was lost; whether the old value is there is asked with the next read.
                drop(before);
                self.forget(key)?;
            }
            line => panic!("{line}"),
        }
        Ok(())
    }

    fn forget(&mut self, key: u64) -> std::io::Result<()> {
        let delete = format!("delete u{}-{key}\r\n", self.number);
        self.stream.get_mut().write_all(delete.as_bytes())?;
        self.line().map(drop)
    }

    fn read(&mut self, key: u64) -> std::io::Result<()> {
        let get = format!("get u{}-{key}\r\n", self.number);
        self.stream.get_mut().write_all(get.as_bytes())?;
        let line = self.line()?;
        if line == "END\r\n" {
            self.missing += u64::from(self.book.remove(&key).is_some());
            return Ok(());
        }
        let len = line.trim_end().rsplit_once(' ').expect("a VALUE line").1;
        let mut value = vec![0; len.parse::<usize>().expect("a length") + 7];
        self.stream.read_exact(&mut value)?;
        assert!(value.ends_with(b"\r\nEND\r\n"));
        value.truncate(value.len() - 7);
        if let Some(right) = self.book.get(&key) {
            assert!(value == *right, "a wrong value of u{}-{key}", self.number);
        } else {
            // It was not told what became of the last set, or what was lost is there again.
            let text = format!("{}:{key}:", self.number);
            assert!(value.starts_with(text.as_bytes()), "a wrong value");
        }
        Ok(())
    }

    /// Works until it is told to end.
    fn work(&mut self, ends: &AtomicBool) {
        while !ends.load(SeqCst) {
            let began = Instant::now();
            if let Err(error) = self.step() {
                assert_ne!(error.kind(), std::io::ErrorKind::WouldBlock, "no answer");
                self.closed += 1;
                self.stream = BufReader::new(connect(self.address));
            }
            self.longest = self.longest.max(began.elapsed());
        }
    }
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("the server listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a time");
    stream.set_nodelay(true).expect("an option");
    stream
}

/// Whether pages can be lost here.
fn is_possible(client: &mut Client) -> bool {
    client.ask("set possible 0 0 1\r\nx\r\n");
    match client.ask("poison possible\r\n").trim_end() {
        "OK" => true,
        line => {
            assert!(line.starts_with("SERVER_ERROR this kernel"), "{line}");
            #[expect(clippy::print_stderr, reason = "what is left out is told")]
            {
                eprintln!("left out: {line}");
            }
            false
        }
    }
}

fn number(client: &mut Client, command: &str, key: &str) -> u64 {
    client.stat(command, key).parse().expect("a number")
}

/// Loses pages of all kinds under load.
fn serve_through_losses(flags: &[&str]) {
    let all = [
        &[
            "-m",
            "64",
            "-t",
            "2",
            "-o",
            "poison_command,mce_limit=10000",
        ],
        flags,
    ]
    .concat();
    let server = Process::start(coua(&all));
    let address = server.address();
    let mut client = Client::connect(address);
    if !is_possible(&mut client) {
        return;
    }
    let (ends, lost) = (AtomicBool::new(false), AtomicU64::new(0));
    let users: Vec<User> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..USERS)
            .map(|number| {
                let ends = &ends;
                scope.spawn(move || {
                    let mut user = User::new(address, number);
                    user.work(ends);
                    user
                })
            })
            .collect();
        // Until there is something to lose.
        poll("items", || {
            (number(&mut client, "stats", "curr_items") > 2000).then_some(())
        });
        for round in 0..90 {
            let user = round % USERS;
            let key = (round * 37 % 10 * 300 + round % 7 * (round % 3)) % KEYS;
            let kind = [
                "item",
                "superblock",
                "value",
                "page_table",
                "index",
                "directory",
                "item untouched",
                "copies",
                "buffers",
            ][round as usize % 9];
            let said = client.ask(&format!("poison u{user}-{key} {kind}\r\n"));
            match said.trim_end() {
                "OK" => lost.fetch_add(1, SeqCst),
                "NOT_FOUND" => 0,
                line => panic!("{line}"),
            };
            std::thread::sleep(Duration::from_millis(20));
        }
        ends.store(true, SeqCst);
        threads
            .into_iter()
            .map(|thread| thread.join().expect("a user"))
            .collect()
    });
    let lost = lost.load(SeqCst);
    assert!(lost > 20, "{lost} pages were lost");
    let (missing, closed): (u64, u64) = users.iter().fold((0, 0), |sum, user| {
        (sum.0 + user.missing, sum.1 + user.closed)
    });
    // What shows that losses were met, and that no more is missing than can have lain there.
    let told = number(&mut client, "stats memory_errors", "errors");
    assert!(told > 0 && missing > 0, "{told} {missing}");
    assert!(missing < lost * 400, "{missing} of {lost} pages");
    // Only who was promised a value or has sent one is closed.
    assert!(closed <= number(&mut client, "stats memory_errors", "connections_closed"));
    // All other items are there.
    let mut left = users;
    for user in &mut left {
        user.stream = BufReader::new(connect(address));
        let keys: Vec<u64> = user.book.keys().copied().collect();
        let (all, before) = (keys.len() as u64, user.missing);
        for key in keys {
            user.read(key).expect("an answer");
        }
        assert!(
            user.missing - before < all / 2,
            "{} of {all}",
            user.missing - before
        );
    }
    poll("the end of recovery", || {
        (number(&mut client, "stats memory_errors", "unsettled") == 0).then_some(())
    });
    assert!(
        server.said().contains("memory error: 4096 bytes at"),
        "{}",
        server.said()
    );
}

#[test]
fn no_value_is_wrong_and_others_are_answered() {
    serve_through_losses(&[]);
}

#[test]
fn no_value_is_wrong_in_a_file_of_memory() {
    let path = std::path::Path::new("/dev/shm").join(format!("coua-errors-{}", std::process::id()));
    let _ = std::fs::remove_file(&path);
    serve_through_losses(&["-e", path.to_str().expect("ASCII")]);
    let _ = std::fs::remove_file(&path);
}

#[test]
fn what_a_connection_has_sent_may_be_lost_and_others_are_served() {
    let server = Process::start(coua(&["-t", "1", "-o", "poison_command"]));
    let mut client = Client::connect(server.address());
    if !is_possible(&mut client) {
        return;
    }
    let mut unfinished = connect(server.address());
    unfinished
        .write_all(b"set half 0 0 10\r\n01234")
        .expect("sent");
    poll("the half request to be kept", || {
        (number(&mut client, "stats", "read_buf_count") > 0).then_some(())
    });
    assert_eq!(client.ask("poison half buffers\r\n").trim_end(), "OK");
    unfinished.write_all(b"56789\r\n").expect("sent");
    let mut rest = Vec::new();
    // A close, or a reset if it had not read everything.
    let _ = unfinished.read_to_end(&mut rest);
    assert!(rest.is_empty(), "{rest:?}");
    assert_eq!(number(&mut client, "stats", "coua_close_memory_error"), 1);
    assert_eq!(client.ask("get half\r\n").trim_end(), "END");
    poll("the loss to be seen to", || {
        let pages = number(
            &mut client,
            "stats memory_errors",
            "errors_in_connection_buffers",
        );
        (pages == 1).then_some(())
    });
}

#[test]
fn the_command_is_unknown_unless_it_is_permitted() {
    let server = Process::start(coua(&[]));
    let mut client = Client::connect(server.address());
    client.ask("set key 0 0 1\r\nx\r\n");
    assert_eq!(client.ask("poison key\r\n").trim_end(), "ERROR");
    assert_eq!(number(&mut client, "stats memory_errors", "errors"), 0);
}

#[test]
fn too_many_losses_end_the_server_in_order_and_the_next_is_warm() {
    let path = std::path::Path::new("/dev/shm").join(format!("coua-storm-{}", std::process::id()));
    let _ = std::fs::remove_file(&path);
    let file = path.to_str().expect("ASCII");
    let flags = [
        "-t",
        "2",
        "-e",
        file,
        "-o",
        "poison_command,mce_limit=2/600",
    ];
    let server = Process::start(coua(&flags));
    let mut client = Client::connect(server.address());
    if is_possible(&mut client) {
        for key in 0..100 {
            let value = "x".repeat(5000);
            client.ask(&format!("set key{key} 0 0 5000\r\n{value}\r\n"));
        }
        for key in 0..3 {
            // The connection may be gone after the third.
            client.send(&format!("poison key{} item untouched\r\n", key * 10));
        }
        let end = server.end();
        assert_eq!(end.status.code(), Some(71), "{}", end.said);
        assert!(end.said.contains("mce_limit"), "{}", end.said);
        let server = Process::start(coua(&flags));
        let mut client = Client::connect(server.address());
        let left = number(&mut client, "stats", "curr_items");
        assert!((90..=98).contains(&left), "{left}");
    }
    let _ = std::fs::remove_file(&path);
}
