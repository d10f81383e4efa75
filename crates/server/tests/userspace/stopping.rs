//! A server on a stack of its own that stops lets its clients finish.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use rustix::process::Signal;

use crate::scene::{ADDRESSES, Scene};

/// More than the stack's windows and the client's buffers hold.
const LONG: usize = 900_000;
const MANY: usize = 24;

const FLAGS: &[&str] = &["-o", "drain_timeout=600"];

fn rest_of(stream: &mut TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).expect("it ends in order");
    bytes
}

fn what_was_begun_is_finished(driver: &str) {
    let scene = Scene::open(driver, FLAGS);
    let address = ADDRESSES[0];
    let value = vec![b'v'; LONG];
    let mut long = scene.connect(address);
    long.write_all(format!("mn\r\nset long 0 0 {LONG}\r\n").as_bytes())
        .expect("it is open");
    long.write_all(&value[..LONG / 2]).expect("it is open");
    let mut answer = [0; 4];
    long.read_exact(&mut answer).expect("it is open");
    let mut slow = scene.connect(address);
    slow.write_all(format!("set read 0 0 {LONG}\r\n").as_bytes())
        .expect("it is open");
    slow.write_all(&value).expect("it is open");
    slow.write_all(format!("\r\nget{}\r\n", " read".repeat(MANY)).as_bytes())
        .expect("it is open");
    let mut answer = [0; 8];
    slow.read_exact(&mut answer).expect("it is open");
    assert_eq!(&answer, b"STORED\r\n");
    let mut idle = scene.connect(address);
    scene.wait_for_connections(4);

    scene.signal(Signal::TERM);
    assert_eq!(rest_of(&mut idle), b"");
    // The stack answers no more openings.
    assert!(!scene.connects(address));
    long.write_all(&value[LONG / 2..]).expect("it is open");
    long.write_all(b"\r\n").expect("it is open");
    assert_eq!(rest_of(&mut long), b"STORED\r\n");
    let (mut whole, mut piece) = (0, vec![0; 1 << 20]);
    loop {
        match slow.read(&mut piece).expect("it ends in order") {
            0 => break,
            len => whole += len,
        }
        thread::sleep(Duration::from_millis(1));
    }
    let reply = format!("VALUE read 0 {LONG}\r\n").len() + LONG + 2;
    assert_eq!(whole, MANY * reply + "END\r\n".len());
    scene.ends();
}

#[test]
fn what_was_begun_is_finished_on_a_packet_socket() {
    what_was_begun_is_finished("packet");
}

#[test]
fn what_was_begun_is_finished_on_af_xdp() {
    what_was_begun_is_finished("xdp");
}
