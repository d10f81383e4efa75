//! A server on a stack of its own that stops lets its clients finish, also where another program
//! takes its place and its card.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::scene::{ADDRESSES, Scene, ask, count, exchange};

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

/// The next program opens the card anew. Who connects meanwhile tries again, be it refused by the
/// system whose address it is, or not answered for a second.
fn the_next_program_takes_the_card(driver: &str) {
    let path = format!("/dev/shm/coua-card-{driver}-{}", std::process::id());
    let mut scene = Scene::open(driver, &["-t", "2", "-e", &path]);
    let mut client = scene.connect(ADDRESSES[0]);
    exchange(&mut client, b"set k 0 0 1\r\nv\r\n", b"STORED\r\n");
    for _ in 0..3 {
        let mut idle = scene.connect(ADDRESSES[0]);
        let before = count(&ask(&mut idle, "stats"), "pid");
        let began = Instant::now();
        scene.signal(Signal::USR2);
        assert_eq!(rest_of(&mut idle), b"", "it ends in order");
        if driver == "memif" {
            // The other end of the link connects once more, as any peer of memif's does.
            scene.change_bridge();
        }
        let address = ADDRESSES[0].parse().expect("an address");
        scene.enter(|| {
            let soon = Duration::from_millis(20);
            while TcpStream::connect_timeout(&address, soon).is_err() {
                assert!(began.elapsed() < Duration::from_secs(60), "nobody serves");
                thread::sleep(Duration::from_millis(1));
            }
        });
        eprintln!("{driver}: served again after {:?}", began.elapsed());
        let mut client = scene.connect(ADDRESSES[0]);
        exchange(&mut client, b"get k\r\n", b"VALUE k 0 1\r\nv\r\nEND\r\n");
        let stats = ask(&mut client, "stats");
        assert_eq!(count(&stats, "pid"), before);
        assert!(count(&stats, "total_connections") < 10, "it counts anew");
    }
    scene.signal(Signal::TERM);
    scene.ends();
    std::fs::remove_file(path).expect("it was left");
}

#[test]
fn the_next_program_takes_a_packet_socket() {
    the_next_program_takes_the_card("packet");
}

#[test]
fn the_next_program_takes_a_card_of_af_xdp() {
    the_next_program_takes_the_card("xdp");
}

#[test]
fn the_next_program_takes_a_memif_link() {
    the_next_program_takes_the_card("memif");
}
