//! A client that keeps a book of what it has stored, and checks each byte of what it reads.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};

use crate::process::{Client, PATIENCE, poll};

/// Client threads, and the keys that each of them has for itself.
pub(crate) const USERS: u64 = 3;
pub(crate) const KEYS: u64 = 3000;

/// How many keys a user has, and how long an ordinary value is at most.
#[derive(Clone, Copy)]
pub(crate) struct Load {
    pub(crate) keys: u64,
    pub(crate) len_max: u64,
}

impl Default for Load {
    fn default() -> Load {
        Load {
            keys: KEYS,
            len_max: 420,
        }
    }
}

/// A client that speaks in values.
pub(crate) struct User {
    pub(crate) stream: BufReader<TcpStream>,
    number: u64,
    seed: u64,
    /// What each key holds, as far as it was told.
    pub(crate) book: HashMap<u64, Vec<u8>>,
    pub(crate) missing: u64,
    pub(crate) closed: u64,
    longest: Duration,
    load: Load,
    address: SocketAddr,
}

impl User {
    pub(crate) fn new(address: SocketAddr, number: u64) -> User {
        User {
            stream: BufReader::new(connect(address)),
            number,
            seed: number + 1,
            book: HashMap::new(),
            missing: 0,
            closed: 0,
            longest: Duration::ZERO,
            load: Load::default(),
            address,
        }
    }

    /// Another server has what this one had.
    pub(crate) fn move_to(&mut self, address: SocketAddr) {
        self.address = address;
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
        let key = self.random(self.load.keys);
        let is_large = key.is_multiple_of(300);
        if self.random(4) > 0 {
            return self.read(key);
        }
        let len = if is_large {
            200_000
        } else {
            20 + self.random(self.load.len_max - 20)
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

    pub(crate) fn read(&mut self, key: u64) -> std::io::Result<()> {
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
            let wrong = value.iter().zip(right).position(|(is, was)| is != was);
            assert!(
                value == *right,
                "a wrong value of u{}-{key}: {} bytes for {}, from {wrong:?} on, {:?} for {:?}",
                self.number,
                value.len(),
                right.len(),
                String::from_utf8_lossy(
                    &value[wrong.unwrap_or(0)..][..40.min(value.len() - wrong.unwrap_or(0))]
                ),
                String::from_utf8_lossy(
                    &right[wrong.unwrap_or(0)..][..40.min(right.len() - wrong.unwrap_or(0))]
                ),
            );
        } else {
            // It was not told what became of the last set, or what was lost is there again.
            let text = format!("{}:{key}:", self.number);
            assert!(value.starts_with(text.as_bytes()), "a wrong value");
        }
        Ok(())
    }

    /// Works until it is told to end.
    pub(crate) fn work(&mut self, ends: &AtomicBool) {
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

pub(crate) fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("the server listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a time");
    stream.set_nodelay(true).expect("an option");
    stream
}

/// A number of `stats` or one of its kin.
pub(crate) fn number(client: &mut Client, command: &str, key: &str) -> u64 {
    client.stat(command, key).parse().expect("a number")
}

/// Users at work, until `body` has ended, which begins when there is something to lose.
pub(crate) fn at_work<T>(
    address: SocketAddr,
    body: impl FnOnce(&mut Client) -> T,
) -> (Vec<User>, T) {
    at_work_with(address, Load::default(), body)
}

/// As [`at_work`], with another load.
pub(crate) fn at_work_with<T>(
    address: SocketAddr,
    load: Load,
    body: impl FnOnce(&mut Client) -> T,
) -> (Vec<User>, T) {
    let ends = AtomicBool::new(false);
    let mut client = Client::connect(address);
    thread::scope(|scope| {
        let threads: Vec<ScopedJoinHandle<'_, User>> = (0..USERS)
            .map(|number| {
                let ends = &ends;
                scope.spawn(move || {
                    let mut user = User::new(address, number);
                    user.load = load;
                    user.work(ends);
                    user
                })
            })
            .collect();
        let stop = Stop(&ends);
        // An emulated machine on a busy one is slow.
        let deadline = Instant::now() + 10 * PATIENCE;
        while number(&mut client, "stats", "curr_items") < 2000 {
            assert!(Instant::now() < deadline, "too few items");
            thread::sleep(Duration::from_millis(20));
        }
        let done = body(&mut client);
        drop(stop);
        let users = threads.into_iter().map(|thread| thread.join());
        (users.map(|user| user.expect("a user")).collect(), done)
    })
}

/// Stops the users, of a test that fails too.
pub(crate) struct Stop<'s>(pub(crate) &'s AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

/// Reads all that the users know of again. Returns of how many keys how many values are missing.
pub(crate) fn read_back(users: &mut [User]) -> (u64, u64) {
    let (mut all, mut missing) = (0, 0);
    for user in users {
        user.stream = BufReader::new(connect(user.address));
        let keys: Vec<u64> = user.book.keys().copied().collect();
        let before = user.missing;
        all += keys.len() as u64;
        for key in keys {
            user.read(key).expect("an answer");
        }
        missing += user.missing - before;
    }
    (all, missing)
}

/// Waits until everything that was lost has been seen to.
pub(crate) fn wait_until_settled(client: &mut Client) {
    poll("the end of recovery", || {
        (number(client, "stats memory_errors", "unsettled") == 0).then_some(())
    });
}
