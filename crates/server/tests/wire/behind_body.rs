//! When an error is answered whose request has a body: not before the body's last byte is there.
//!
//! A client that reads while it writes takes an answer that comes early for the end of its request, and may stop in
//! the middle of the body. Then both sides wait for each other.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

use crate::memcached::memcached_program;
use crate::support::{Server, coua_program};

/// Requests that are wrong and whose body has to come all the same: a head, the bytes of the body behind it, and how
/// the whole is answered.
fn requests() -> Vec<(Vec<u8>, usize, &'static [u8])> {
    const TOO_LARGE: &[u8] = b"SERVER_ERROR object too large for cache\r\n";
    const BAD_FORMAT: &[u8] = b"CLIENT_ERROR bad command line format\r\n";
    let long = "k".repeat(251);
    let text =
        |line: &str, len: usize, answer| (format!("{line}\r\n").into_bytes(), len + 2, answer);
    vec![
        text("set k 0 0 2000000", 2_000_000, TOO_LARGE),
        text("set k 0 0 2000000 noreply", 2_000_000, b""),
        text("add k 0 0 1048600", 1_048_600, TOO_LARGE),
        text("ms k 2000000", 2_000_000, TOO_LARGE),
        text("ms k 2000000 q", 2_000_000, TOO_LARGE),
        text("ms k 10 z", 10, b"CLIENT_ERROR invalid flag\r\n"),
        text(
            "ms k 10 MX",
            10,
            b"CLIENT_ERROR invalid mode for ms M token\r\n",
        ),
        text("set k -1 0 10", 10, BAD_FORMAT),
        text("cas k 0 0 10", 10, BAD_FORMAT),
        text(&format!("set {long} 0 0 10"), 10, BAD_FORMAT),
        text(&format!("ms {long} 10"), 10, BAD_FORMAT),
        binary(
            0x01,
            8,
            2_000_000,
            b"\x81\x01\0\0\0\0\0\x03\0\0\0\x0aTTTT\0\0\0\0\0\0\0\0Too large.",
        ),
        binary(
            0x11,
            8,
            2_000_000,
            b"\x81\x11\0\0\0\0\0\x03\0\0\0\x0aTTTT\0\0\0\0\0\0\0\0Too large.",
        ),
        binary(
            0x70,
            0,
            10,
            b"\x81\x70\0\0\0\0\0\x81\0\0\0\x0fTTTT\0\0\0\0\0\0\0\0Unknown command",
        ),
    ]
}

/// The head of a request for the key `k`, where it has extras. Without them it has no key either: memcached counts
/// the key of an unknown request twice.
fn binary(
    opcode: u8,
    extras_len: u8,
    value_len: usize,
    answer: &'static [u8],
) -> (Vec<u8>, usize, &'static [u8]) {
    let key: &[u8] = if extras_len > 0 { b"k" } else { b"" };
    let body_len = usize::from(extras_len) + key.len() + value_len;
    let body_len = u32::try_from(body_len).expect("below 4 GiB");
    let key_len = u8::try_from(key.len()).expect("one byte");
    let mut head = vec![0x80, opcode, 0, key_len, extras_len, 0, 0, 0];
    head.extend(body_len.to_be_bytes());
    head.extend(*b"TTTT");
    head.resize(24 + usize::from(extras_len), 0);
    head.extend(key);
    (head, value_len, answer)
}

#[test]
fn an_error_is_answered_behind_the_body() {
    for program in [memcached_program(), coua_program()] {
        let complaints = complaints_about(&program);
        assert!(
            complaints.is_empty(),
            "{}\n{}",
            program.display(),
            complaints.join("\n")
        );
    }
}

/// Where memory is used up, a large value is refused while it arrives.
#[test]
fn a_want_of_memory_is_answered_behind_the_body() {
    const LEN: usize = 400_000;
    for program in [memcached_program(), coua_program()] {
        let server = Server::start(&program, &["-t", "1", "-M", "-m", "16"]);
        let value = "v".repeat(LEN);
        let mut filler = server.connect();
        filler
            .set_read_timeout(Some(Duration::from_secs(20)))
            .expect("a timeout can be set");
        let is_full = (0..64).any(|number| {
            let request = format!("set fill{number} 0 0 {LEN}\r\n{value}\r\n");
            filler
                .write_all(request.as_bytes())
                .expect("the server reads");
            read_to(&mut filler, b"\r\n").starts_with(b"SERVER_ERROR")
        });
        assert!(is_full, "{} has room for 64 values", program.display());
        let refused = refused_for_memory(&server);
        let mut client = server.connect();
        client
            .set_read_timeout(Some(Duration::from_secs(20)))
            .expect("a timeout can be set");
        let head = format!("set one_more 0 0 {LEN}\r\n");
        client.write_all(head.as_bytes()).expect("the server reads");
        let (first, rest) = value.split_at(LEN / 2);
        client
            .write_all(first.as_bytes())
            .expect("the server reads");
        while refused_for_memory(&server) == refused {
            std::thread::sleep(Duration::from_millis(10));
        }
        wait_for_turns(&server);
        let early = what_has_come(&mut client);
        assert_eq!(
            early.escape_ascii().to_string(),
            "",
            "{}",
            program.display()
        );
        client.write_all(rest.as_bytes()).expect("the server reads");
        client.write_all(b"\r\nmn\r\n").expect("the server reads");
        let came = read_to(&mut client, b"MN\r\n");
        let came = String::from_utf8_lossy(&came);
        // memcached says the one where a value is split, the other where it is not.
        let lines = [
            "SERVER_ERROR out of memory storing object\r\nMN\r\n",
            "SERVER_ERROR Out of memory during read\r\nMN\r\n",
        ];
        assert!(
            lines.contains(&came.as_ref()),
            "{}: {came}",
            program.display()
        );
    }
}

/// How many stores have been refused for want of memory.
fn refused_for_memory(server: &Server) -> u64 {
    let mut client = server.connect();
    client.write_all(b"stats\r\n").expect("the server reads");
    let stats = read_to(&mut client, b"END\r\n");
    let stats = String::from_utf8_lossy(&stats);
    let mut numbers = stats
        .lines()
        .filter_map(|line| line.strip_prefix("STAT store_no_memory "));
    let number = numbers.next().expect("it is counted");
    number.parse().expect("a number")
}

fn complaints_about(program: &Path) -> Vec<String> {
    // One worker: it has seen what one client sent before what another sends then.
    let server = Server::start(program, &["-t", "1"]);
    let mut complaints = Vec::new();
    for (head, body_len, answer) in requests() {
        let name = head.escape_ascii().to_string();
        let mut client = server.connect();
        client
            .set_read_timeout(Some(Duration::from_secs(20)))
            .expect("a timeout can be set");
        let body = vec![b'v'; body_len];
        let body = [&body[..body_len - 2], b"\r\n"].concat();
        let (first, rest) = body.split_at(body_len / 2);
        client.write_all(&head).expect("the server reads");
        client.write_all(first).expect("the server reads");
        wait_for_turns(&server);
        let early = what_has_come(&mut client);
        if !early.is_empty() {
            let early = early.escape_ascii();
            complaints.push(format!("{name}: in the middle of the body came {early}"));
        }
        client.write_all(rest).expect("the server reads");
        // What follows is answered in any case.
        let (question, end): (&[u8], &[u8]) = match head[0] {
            0x80 => (&NOOP, &NOOP_ANSWER),
            _ => (b"mn\r\n", b"MN\r\n"),
        };
        client.write_all(question).expect("the server reads");
        let came = [early, read_to(&mut client, end)].concat();
        if came != [answer, end].concat() {
            complaints.push(format!("{name}: answered {}", came.escape_ascii()));
        }
    }
    complaints
}

const NOOP: [u8; 24] = noop(0x80);
const NOOP_ANSWER: [u8; 24] = noop(0x81);

const fn noop(magic: u8) -> [u8; 24] {
    let mut header = [0; 24];
    header[0] = magic;
    header[1] = 0x0a;
    header
}

/// Returns when the server has taken what was sent before.
fn wait_for_turns(server: &Server) {
    let mut other = server.connect();
    for _ in 0..4 {
        other.write_all(b"mn\r\n").expect("the server reads");
        other.read_exact(&mut [0; 4]).expect("it answers");
    }
}

fn what_has_come(client: &mut TcpStream) -> Vec<u8> {
    let mut buffer = [0; 1024];
    client.set_nonblocking(true).expect("it can be set");
    let came = match client.read(&mut buffer) {
        Ok(count) => buffer[..count].to_vec(),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Vec::new(),
        Err(error) => panic!("{error}"),
    };
    client.set_nonblocking(false).expect("it can be set");
    came
}

fn read_to(client: &mut TcpStream, end: &[u8]) -> Vec<u8> {
    let (mut came, mut buffer) = (Vec::new(), [0; 1024]);
    while !came.ends_with(end) {
        match client.read(&mut buffer) {
            Ok(count) if count > 0 => came.extend_from_slice(&buffer[..count]),
            Ok(_) => break,
            Err(error) => panic!("after {}: {error}", came.escape_ascii()),
        }
    }
    came
}
