//! Hostile clients in all dialects at once, for a minute, or for `COUA_HOSTILE_SECONDS`.

use std::env;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use crate::scene::{Scene, one_of_three};

/// Connections that a client keeps open at a time.
const OPEN: usize = 40;

/// Between two acts of a client: they are to disturb the server, not to take its cores away.
const PAUSE: Duration = Duration::from_micros(300);

#[test]
fn all_dialects_at_once() {
    one_of_three(attempt);
}

/// Says how the witness fared; all else must hold each time.
fn attempt() -> Result<(), String> {
    let seconds = env::var("COUA_HOSTILE_SECONDS").map_or(60, |text| {
        text.parse().expect("COUA_HOSTILE_SECONDS is a number")
    });
    let free = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let port = free.local_addr().expect("it is bound").port();
    drop(free);
    let port_text = port.to_string();
    let flags = ["-m", "64", "-t", "2", "-I", "2m", "-U", &port_text];
    let scene = Scene::open(&flags);
    let udp = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let end = Instant::now() + Duration::from_secs(seconds);
    thread::scope(|scope| {
        for (seed, make) in (1..).zip([text as Make, meta, binary]) {
            let scene = &scene;
            scope.spawn(move || talk(scene, Random(seed * 0x9e37_79b9), make, end));
        }
        scope.spawn(|| send_datagrams(udp, Random(77), end));
        while Instant::now() < end {
            thread::sleep(Duration::from_millis(200));
            scene.check_memory();
        }
    });
    scene.close_after(|scene| assert_eq!(scene.ask("mn\r\n"), "MN\r\n"))
}

/// Makes something like a request.
type Make = fn(&mut Random, &mut Vec<u8>);

/// Opens connections, and does with each time and again what no client should.
fn talk(scene: &Scene, mut random: Random, make: Make, end: Instant) {
    let mut open: Vec<Client> = Vec::new();
    while Instant::now() < end {
        if open.len() < OPEN {
            open.push(Client::new(scene.connect()));
        }
        let at = random.below(open.len());
        if !open[at].act(&mut random, make) {
            open.swap_remove(at);
        }
        thread::sleep(PAUSE);
    }
}

/// A connection and what its client has not sent yet.
struct Client {
    stream: TcpStream,
    unsent: Vec<u8>,
    /// It never reads.
    is_deaf: bool,
}

impl Client {
    fn new(stream: TcpStream) -> Client {
        stream
            .set_nonblocking(true)
            .expect("a socket can be non-blocking");
        Client {
            stream,
            unsent: Vec::new(),
            is_deaf: false,
        }
    }

    /// One act. False where the connection is over.
    fn act(&mut self, random: &mut Random, make: Make) -> bool {
        if self.unsent.is_empty() {
            for _ in 0..=random.below(30) {
                make(random, &mut self.unsent);
            }
        }
        match random.below(200) {
            // Dies, in the middle of whatever it was about.
            0 => return false,
            1 => {
                let _ = self.stream.shutdown(Shutdown::Write);
            }
            2 => self.is_deaf = true,
            _ => {}
        }
        let most = match random.below(4) {
            0 => 1,
            1 => 30,
            _ => self.unsent.len(),
        };
        let piece = &self.unsent[..most.min(self.unsent.len())];
        match self.stream.write(piece) {
            Ok(count) => _ = self.unsent.drain(..count),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(_) => return false,
        }
        let mut room = [0; 4096];
        while !self.is_deaf {
            match self.stream.read(&mut room) {
                Ok(0) => return false,
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(_) => return false,
            }
        }
        true
    }
}

fn send_datagrams(to: SocketAddr, mut random: Random, end: Instant) {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
    socket
        .set_nonblocking(true)
        .expect("a socket can be non-blocking");
    let mut room = [0; 2000];
    while Instant::now() < end {
        let mut datagram = vec![0, 1, 0, 0, 0, 1, 0, 0];
        for _ in 0..=random.below(5) {
            [text as Make, meta, binary][random.below(3)](&mut random, &mut datagram);
        }
        if random.below(4) == 0 {
            let at = random.below(datagram.len());
            datagram[at] = random.byte();
        }
        datagram.truncate(match random.below(4) {
            0 => random.below(datagram.len()),
            _ => 60_000,
        });
        // What the kernel refuses is lost as any other.
        let _ = socket.send_to(&datagram, to);
        while socket.recv(&mut room).is_ok() {}
        thread::sleep(PAUSE);
    }
}

/// Some key of few, or one that cannot be.
fn key(random: &mut Random) -> Vec<u8> {
    match random.below(12) {
        0 => b"k".repeat(random.below(300)),
        1 => (0..random.below(40)).map(|_| random.byte()).collect(),
        _ => format!("key{}", random.below(50)).into_bytes(),
    }
}

/// Some number, or what is none.
fn number(random: &mut Random) -> String {
    let numbers = [
        "0",
        "1",
        "-1",
        "60",
        "4294967295",
        "2147483648",
        "18446744073709551615",
        "99999999999999999999",
        "x",
        "",
    ];
    numbers[random.below(numbers.len())].to_owned()
}

/// The length of a value, small most often.
fn value_len(random: &mut Random) -> usize {
    match random.below(40) {
        0 => random.below(3_000_000),
        1..5 => random.below(40_000),
        _ => random.below(200),
    }
}

fn text(random: &mut Random, to: &mut Vec<u8>) {
    let key = key(random);
    let words = [
        "set",
        "add",
        "replace",
        "append",
        "prepend",
        "cas",
        "get",
        "gets",
        "gat",
        "delete",
        "incr",
        "decr",
        "touch",
        "stats",
        "verbosity",
        "version",
        "flush_all",
    ];
    let word = words[random.below(words.len())];
    // Verbosity above 0 would drown the tests' output.
    let word = if word == "verbosity" { "mn" } else { word };
    to.extend(word.bytes());
    to.push(b' ');
    to.extend(&key);
    if ["set", "add", "replace", "append", "prepend", "cas"].contains(&word) {
        let len = value_len(random);
        let (flags, expiry, cas) = (number(random), number(random), number(random));
        let tail = match word {
            "cas" => format!(" {flags} {expiry} {len} {cas}\r\n"),
            _ => format!(" {flags} {expiry} {len}\r\n"),
        };
        to.extend(tail.bytes());
        to.extend(b"v".repeat(len));
        if random.below(20) == 0 {
            to.extend(b"more than announced");
        }
    } else {
        for _ in 0..random.below(4) {
            to.push(b' ');
            to.extend(number(random).bytes());
        }
    }
    to.extend(b"\r\n");
}

fn meta(random: &mut Random, to: &mut Vec<u8>) {
    let word = ["mg", "ms", "md", "ma", "me", "mn"][random.below(6)];
    to.extend(word.bytes());
    to.push(b' ');
    to.extend(key(random));
    let len = value_len(random);
    if word == "ms" {
        to.extend(format!(" {len}").bytes());
    }
    for _ in 0..random.below(8) {
        to.push(b' ');
        to.push(random.byte());
        to.extend(number(random).bytes());
    }
    to.extend(b"\r\n");
    if word == "ms" {
        to.extend(b"m".repeat(len));
        to.extend(b"\r\n");
    }
}

fn binary(random: &mut Random, to: &mut Vec<u8>) {
    let opcode = match random.below(20) {
        0 => random.byte(),
        _ => u8::try_from(random.below(0x25)).expect("below 256"),
    };
    let extras_len = match opcode {
        0x01..=0x03 | 0x11..=0x13 => 8,
        0x05 | 0x06 | 0x15 | 0x16 => 20,
        0x1c..=0x1e | 0x23 | 0x24 => 4,
        _ => 0,
    };
    let extras: Vec<u8> = (0..extras_len).map(|_| random.byte()).collect();
    let mut key = match opcode {
        0x07 | 0x08 | 0x0a | 0x0b | 0x17 | 0x18 | 0x20 => Vec::new(),
        _ => key(random),
    };
    key.truncate(300);
    let value = match opcode {
        0x01..=0x03 | 0x0e | 0x0f | 0x11..=0x13 | 0x19 | 0x1a => vec![b'b'; value_len(random)],
        _ => Vec::new(),
    };
    let body_len = u32::try_from(extras.len() + key.len() + value.len()).expect("short");
    let mut header = vec![0x80, opcode, 0, 0];
    header[2..4].copy_from_slice(&u16::try_from(key.len()).expect("short").to_be_bytes());
    header.extend([u8::try_from(extras_len).expect("short"), 0, 0, 0]);
    header.extend(body_len.to_be_bytes());
    header.extend([1, 2, 3, 4]);
    let cas = if random.below(4) == 0 { 1u64 } else { 0 };
    header.extend(cas.to_be_bytes());
    if random.below(30) == 0 {
        let at = random.below(header.len());
        header[at] = random.byte();
    }
    to.extend([header, extras, key, value].concat());
}

/// xorshift64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, most: usize) -> usize {
        let random = usize::try_from(self.next() >> 16).expect("48 bits");
        random % most.max(1)
    }

    fn byte(&mut self) -> u8 {
        self.next().to_le_bytes()[3]
    }
}
