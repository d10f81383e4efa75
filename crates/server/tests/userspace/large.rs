//! Many connections at once, each with a large value, there and back.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use crate::scene::{ADDRESSES, Scene};

/// Threads among which they are shared out.
const THREADS: usize = 4;
/// How long a client may wait for its next bytes, while all others are served.
const PATIENCE: Duration = Duration::from_secs(60);
/// Bytes that a client sends or receives before it is another's turn.
const PIECE_LEN: usize = 50_000;

/// The byte at a place of a client's value: its own, so that none can be taken for another's.
pub(crate) fn byte(number: usize, at: usize) -> u8 {
    u8::try_from((at.wrapping_mul(31) ^ (number * 7919) ^ (at >> 8)) % 251).expect("below 251")
}

/// Text, a client's value, and text again, as long as they are made up piece by piece.
struct Framed {
    head: String,
    tail: String,
    number: usize,
    /// Bytes of the value.
    len: usize,
    done: usize,
}

impl Framed {
    fn is_done(&self) -> bool {
        self.done == self.head.len() + self.len + self.tail.len()
    }

    /// The next piece; empty behind the last.
    fn next(&mut self) -> Vec<u8> {
        let (value_at, tail_at) = (self.head.len(), self.head.len() + self.len);
        let end = (tail_at + self.tail.len()).min(self.done + PIECE_LEN);
        let piece = (self.done..end).map(|at| match at {
            at if at < value_at => self.head.as_bytes()[at],
            at if at < tail_at => byte(self.number, at - value_at),
            at => self.tail.as_bytes()[at - tail_at],
        });
        let piece = piece.collect();
        self.done = end;
        piece
    }
}

/// A client that stores its value, fetches it, and compares every byte.
struct Client {
    stream: TcpStream,
    /// The value in a request, and then the question for it.
    request: Framed,
    /// What comes back.
    answer: Framed,
}

impl Client {
    fn new(scene: &Scene, number: usize, len: usize) -> Client {
        let stream = scene.connect(ADDRESSES[0]);
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        stream.set_write_timeout(Some(PATIENCE)).expect("a timeout");
        let framed = |head, tail| Framed {
            head,
            tail,
            number,
            len,
            done: 0,
        };
        let set = format!("set k{number} 0 0 {len}\r\n");
        let stored = format!("STORED\r\nVALUE k{number} 0 {len}\r\n");
        Client {
            stream,
            request: framed(set, format!("\r\nget k{number}\r\n")),
            answer: framed(stored, "\r\nEND\r\n".to_owned()),
        }
    }

    /// Sends the next piece; the last one has the server answer.
    fn send(&mut self) {
        let piece = self.request.next();
        self.stream.write_all(&piece).expect("the server reads");
    }

    /// Receives the next piece.
    fn receive(&mut self) {
        let expected = self.answer.next();
        let mut piece = vec![0; expected.len()];
        self.stream.read_exact(&mut piece).expect("an answer");
        assert!(piece == expected, "other bytes");
    }
}

/// All clients of a thread in turn, piece by piece, so that all connections are busy at once.
fn play(mut clients: Vec<Client>) {
    while !clients.iter().all(|client| client.request.is_done()) {
        clients.iter_mut().for_each(Client::send);
    }
    while !clients.iter().all(|client| client.answer.is_done()) {
        clients.iter_mut().for_each(Client::receive);
    }
}

/// So many clients at once, each with a value of so many bytes. What is stored at one time takes an
/// eighth of the server's memory at most.
fn large_values(driver: &str, clients: usize, len: usize) {
    let scene = Scene::open(driver, &["-m", "1400"]);
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let numbers = (thread..clients).step_by(THREADS);
            let clients = numbers.map(|number| Client::new(&scene, number, len));
            let clients = clients.collect();
            scope.spawn(|| play(clients));
        }
    });
    scene.wait_for_connections(1);
}

#[test]
fn a_thousand_clients_on_a_packet_socket() {
    large_values("packet", 1000, 100_000);
}

#[test]
fn a_thousand_clients_on_af_xdp() {
    large_values("xdp", 1000, 100_000);
}

#[test]
fn a_hundred_megabytes_on_a_packet_socket() {
    large_values("packet", 100, 1_000_000);
}

#[test]
fn a_hundred_megabytes_on_af_xdp() {
    large_values("xdp", 100, 1_000_000);
}
