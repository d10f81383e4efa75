//! Long runs of quiet binary gets with a noop behind them, as clients send a get of many keys: each run is answered
//! whole and in order, however it is cut on its way and however slowly its client reads.
//!
//! `COUA_QUIET_ROUNDS` says how many runs each client sends (3).

#[path = "support/mod.rs"]
mod support;

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use rustix::net::sockopt::set_socket_recv_buffer_size;
use support::Server;

/// Clients, each with a connection and keys of its own.
const CLIENTS: u64 = 16;

/// Lengths of the values: in one piece and in several, copied and sent from where they lie, pinned or not.
const LENGTHS: [usize; 9] = [0, 1, 30, 200, 1000, 5000, 17_000, 40_000, 150_000];

/// Keys of one client that have values; as many more have none.
const KEYS: usize = 300;

/// Gets in a run at most.
const GETS_MAX: u32 = 1500;

/// Bytes of replies to one run at most, about.
const RUN_LEN_MAX: usize = 4 << 20;

const GETQ: u8 = 0x09;
const NOOP: u8 = 0x0a;
const GETKQ: u8 = 0x0d;
const SETQ: u8 = 0x11;
const HEADER_LEN: usize = 24;

/// The value of key number `key` of a client.
fn value(client: u64, key: usize) -> Vec<u8> {
    // Rarely one of the long ones.
    let kind = match key % 25 {
        0..9 => key % 25,
        other => other % 5,
    };
    let bytes = name(client, key);
    bytes.into_iter().cycle().take(LENGTHS[kind]).collect()
}

fn name(client: u64, key: usize) -> Vec<u8> {
    format!("{client}:{key}").into_bytes()
}

fn request(opcode: u8, opaque: u32, extras: &[u8], key: &[u8], value: &[u8]) -> Vec<u8> {
    let body_len = extras.len() + key.len() + value.len();
    let mut request = vec![0x80, opcode];
    request.extend(u16::try_from(key.len()).expect("a short key").to_be_bytes());
    let extras_len = u8::try_from(extras.len()).expect("a few bytes");
    request.extend([extras_len, 0, 0, 0]);
    request.extend(u32::try_from(body_len).expect("a short body").to_be_bytes());
    request.extend(opaque.to_be_bytes());
    request.extend([0; 8]);
    [&request, extras, key, value].concat()
}

/// A run of requests and what answers it.
struct Run {
    requests: Vec<u8>,
    /// Opcode, opaque, key and value of each answer.
    answers: Vec<(u8, u32, Vec<u8>, Vec<u8>)>,
}

fn run(client: u64, dice: &mut Xoshiro256PlusPlus) -> Run {
    let (mut requests, mut answers) = (Vec::new(), Vec::new());
    let count = dice.random_range(1..=GETS_MAX);
    let mut len = 0;
    for opaque in 0..count {
        let key = dice.random_range(0..2 * KEYS);
        let opcode = [GETQ, GETKQ][dice.random_range(0..2)];
        let name = name(client, key);
        requests.extend(request(opcode, opaque, b"", &name, b""));
        if key < KEYS {
            let value = value(client, key);
            len += value.len();
            let shown = if opcode == GETKQ { name } else { Vec::new() };
            answers.push((opcode, opaque, shown, value));
        }
        if len > RUN_LEN_MAX {
            break;
        }
    }
    let last = u32::MAX;
    requests.extend(request(NOOP, last, b"", b"", b""));
    answers.push((NOOP, last, Vec::new(), Vec::new()));
    Run { requests, answers }
}

/// Writes in pieces of any length, some of them late.
fn write(mut stream: &TcpStream, bytes: &[u8], dice: &mut Xoshiro256PlusPlus) {
    let piece_len_max = [1 << 20, 40_000, 2000, 100][dice.random_range(0..4)];
    let mut rest = bytes;
    while !rest.is_empty() {
        let len = dice.random_range(1..=piece_len_max).min(rest.len());
        stream.write_all(&rest[..len]).expect("the server reads");
        rest = &rest[len..];
        if dice.random_range(0..20) == 0 {
            thread::sleep(Duration::from_micros(dice.random_range(0..500)));
        }
    }
}

/// Reads the answers to a run in pieces of any length, some of them late.
struct Reader<'s> {
    stream: &'s TcpStream,
    dice: Xoshiro256PlusPlus,
    is_slow: bool,
}

impl Reader<'_> {
    fn exactly(&mut self, len: usize, what: &dyn Fn() -> String) -> Vec<u8> {
        let mut bytes = vec![0; len];
        let mut at = 0;
        while at < len {
            if self.is_slow && self.dice.random_range(0..40) == 0 {
                thread::sleep(Duration::from_micros(self.dice.random_range(0..3000)));
            }
            let most = match self.is_slow {
                true => self.dice.random_range(1..=20_000),
                false => len,
            };
            let end = len.min(at + most);
            match self.stream.read(&mut bytes[at..end]) {
                Ok(0) => panic!("the server hangs up: {}", what()),
                Ok(count) => at += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => panic!("{error} at byte {at} of {len}: {}", what()),
            }
        }
        bytes
    }

    fn expect(&mut self, run: &Run, context: &str) {
        for (number, (opcode, opaque, key, value)) in run.answers.iter().enumerate() {
            let of = run.answers.len();
            let what = || format!("{context}, answer {number} of {of}");
            let head = self.exactly(HEADER_LEN, &what);
            let status = u16::from_be_bytes([head[6], head[7]]);
            let number = u32::from_be_bytes([head[12], head[13], head[14], head[15]]);
            let got = (head[0], head[1], status, number);
            assert_eq!(got, (0x81, *opcode, 0, *opaque), "{}", what());
            let body_len = u32::from_be_bytes([head[8], head[9], head[10], head[11]]) as usize;
            let extras_len = usize::from(head[4]);
            assert_eq!(body_len, extras_len + key.len() + value.len(), "{}", what());
            let body = self.exactly(body_len, &what);
            let (shown, got) = body[extras_len..].split_at(key.len());
            assert!(shown == key && got == value, "{}", what());
        }
    }
}

fn converse(server: &Server, client: u64, rounds: usize) {
    let stream = server.connect();
    let limit = Some(Duration::from_secs(60));
    stream.set_read_timeout(limit).expect("a timeout");
    stream.set_write_timeout(limit).expect("a timeout");
    if client.is_multiple_of(3) {
        // Less, and the kernel sends by its timers: a segment of loopback has 64 KiB.
        set_socket_recv_buffer_size(&stream, 128 << 10).expect("a small buffer");
    }
    let mut dice = Xoshiro256PlusPlus::seed_from_u64(client);
    for key in 0..KEYS {
        let set = request(SETQ, 0, &[0; 8], &name(client, key), &value(client, key));
        (&stream).write_all(&set).expect("the server reads");
    }
    for round in 0..rounds {
        // Some runs follow one another before any is answered.
        let runs: Vec<Run> = (0..dice.random_range(1..=3))
            .map(|_| run(client, &mut dice))
            .collect();
        let mut reader = Reader {
            stream: &stream,
            dice: Xoshiro256PlusPlus::seed_from_u64(dice.random()),
            is_slow: dice.random_range(0..2) == 0,
        };
        let context = format!("client {client}, round {round}");
        thread::scope(|scope| {
            scope.spawn(|| {
                for run in &runs {
                    write(&stream, &run.requests, &mut dice);
                }
            });
            for run in &runs {
                reader.expect(run, &context);
            }
        });
    }
}

#[test]
fn runs_of_quiet_gets_are_answered_whole() {
    let rounds = std::env::var("COUA_QUIET_ROUNDS").map_or(3, |text| {
        text.parse().expect("COUA_QUIET_ROUNDS is a number")
    });
    for flags in [
        &["-m", "256", "-t", "2"][..],
        &["-m", "256", "-t", "1", "-R", "1"],
    ] {
        let server = Server::coua(flags);
        thread::scope(|scope| {
            for client in 0..CLIENTS {
                let server = &server;
                scope.spawn(move || converse(server, client, rounds));
            }
        });
    }
}
