//! A server that stops, or that another program takes the place of, lets its clients finish.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::MemoryFile;
use crate::process::{Client, PATIENCE, Process, coua, poll};

/// Longer than any test waits: nothing is cut off.
const PATIENT: &[&str] = &["-o", "drain_timeout=600"];

/// Requests that a client sends at once.
const DEPTH: usize = 50;

/// More than the kernel keeps for a connection whose peer does not read.
const LONG: usize = 900_000;
const MANY: usize = 24;

/// A server that ends at `signal`; by SIGUSR2 another one comes in its place.
fn server(file: &MemoryFile, flags: &[&str]) -> Process {
    Process::start(coua(&[flags, &["-m", "96", "-e", file.text()]].concat()))
}

/// Everything up to the end of the stream, which is no reset.
fn rest_of(stream: &mut TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.read_to_end(&mut bytes).expect("it ends in order");
    bytes
}

/// As many bytes as are asked for.
fn read(stream: &mut TcpStream, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.read_exact(&mut bytes).expect("so much comes");
    bytes
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("no connection is refused");
    stream.set_nodelay(true).unwrap();
    stream
}

/// Waits until the server has begun to stop: who says nothing is shown the end.
fn begun_to_stop(mut idle: TcpStream) {
    assert_eq!(rest_of(&mut idle), b"");
}

#[test]
fn what_was_begun_is_finished() {
    for signal in [Signal::TERM, Signal::USR1, Signal::USR2] {
        let file = MemoryFile::new();
        let process = server(&file, PATIENT);
        let address = process.address();
        let mut value = vec![b'v'; LONG];
        let set = |key: &str, len: usize| format!("set {key} 0 0 {len}\r\n").into_bytes();
        // A line, a short value and a long one, each of which has begun to arrive.
        let mut line = connect(address);
        line.write_all(b"mn\r\nget no").unwrap();
        assert_eq!(read(&mut line, 4), b"MN\r\n");
        let mut short = connect(address);
        short
            .write_all(&[&b"mn\r\n"[..], &set("short", 6), b"abc"].concat())
            .unwrap();
        assert_eq!(read(&mut short, 4), b"MN\r\n");
        let mut long = connect(address);
        long.write_all(&[&b"mn\r\n"[..], &set("long", LONG), &value[..LONG / 2]].concat())
            .unwrap();
        assert_eq!(read(&mut long, 4), b"MN\r\n");
        // Replies that wait until they are read.
        let mut slow = connect(address);
        slow.write_all(&[&set("read", LONG)[..], &value, b"\r\n"].concat())
            .unwrap();
        assert_eq!(read(&mut slow, 8), b"STORED\r\n");
        let keys = " read".repeat(MANY);
        slow.write_all(format!("get{keys}\r\n").as_bytes()).unwrap();
        let header = format!("VALUE read 0 {LONG}\r\n");
        assert_eq!(read(&mut slow, header.len()), header.as_bytes());
        let idle = connect(address);
        poll("the connections", || {
            let open = Client::connect(address).stat("stats", "curr_connections");
            (open.parse::<u32>().unwrap() >= 6).then_some(())
        });

        process.signal(signal);
        if signal == Signal::USR2 {
            // While the slow ones go on, the others are served.
            process.hear("handing over");
            for _ in 0..3 {
                assert_eq!(Client::connect(address).ask("mn\r\n"), "MN");
            }
        } else {
            begun_to_stop(idle);
        }
        line.write_all(b"thing\r\n").unwrap();
        short.write_all(b"def\r\n").unwrap();
        assert_eq!(read(&mut line, 5), b"END\r\n");
        assert_eq!(read(&mut short, 8), b"STORED\r\n");
        value.extend_from_slice(b"\r\n");
        for piece in value[LONG / 2..].chunks(LONG / 8) {
            long.write_all(piece).unwrap();
            thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(read(&mut long, 8), b"STORED\r\n");
        let mut whole = header.len();
        let mut piece = vec![0; 1 << 20];
        slow.set_read_timeout(Some(PATIENCE)).unwrap();
        loop {
            match slow.read(&mut piece).expect("it ends in order") {
                0 => break,
                len => whole += len,
            }
            thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(whole, MANY * (header.len() + LONG + 2) + "END\r\n".len());
        for stream in [&mut line, &mut short, &mut long] {
            assert_eq!(rest_of(stream), b"");
        }

        let next = match signal {
            Signal::USR2 => process,
            _ => {
                let end = process.end();
                assert!(
                    end.status.success() && !end.said.contains("cut off"),
                    "{}",
                    end.said
                );
                server(&file, PATIENT)
            }
        };
        let address = match signal {
            Signal::USR2 => address,
            _ => next.address(),
        };
        let mut client = Client::connect(address);
        assert_eq!(client.ask("mg short v\r\n"), "VA 6");
        assert_eq!(client.line(), "abcdef");
        assert_eq!(client.ask("mg long s\r\n"), format!("HD s{LONG}"));
    }
}

/// Each request that was executed is answered, and no connection is reset, refused or ends in the
/// middle of a reply, however the client works meanwhile.
#[test]
fn every_increment_is_answered() {
    let file = MemoryFile::new();
    let process = server(&file, &["-o", "drain_timeout=600", "-t", "3"]);
    let address = process.address();
    let stop = AtomicBool::new(false);
    let (ends, answers) = (AtomicU64::new(0), AtomicU64::new(0));
    let hand_overs = 4;
    thread::scope(|scope| {
        for number in 0..6 {
            let (stop, ends, answers) = (&stop, &ends, &answers);
            scope.spawn(move || {
                let counted = count(address, number, stop, ends);
                answers.fetch_add(counted, Ordering::Relaxed);
            });
        }
        for number in 0..hand_overs {
            thread::sleep(Duration::from_millis(300));
            process.signal(Signal::USR2);
            poll("the next program", || {
                let said = process.said();
                let starts = said.matches("the cache begins with").count();
                (starts > number).then_some(())
            });
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert!(answers.into_inner() > 0);
    // Six clients have a connection each.
    let ends = ends.into_inner();
    assert!(
        (1..=6 * hand_overs as u64).contains(&ends),
        "{ends} connections ended"
    );
}

/// Increments a counter over and over, by connections that send many requests at once, and compares
/// it in the end with what was answered. Gives how many answers there were.
fn count(address: SocketAddr, number: usize, stop: &AtomicBool, ends: &AtomicU64) -> u64 {
    let key = format!("counter-{number}");
    let mut client = Client::connect(address);
    assert_eq!(client.ask(&format!("set {key} 0 0 1\r\n0\r\n")), "STORED");
    let requests = format!("incr {key} 1\r\n").repeat(DEPTH);
    // Half of them send on while they read.
    let depth = DEPTH * (1 + number % 2 * 3);
    let mut counted = 0_u64;
    let mut buffer = [0; 4096];
    while !stop.load(Ordering::Relaxed) {
        let mut stream = connect(address);
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let (mut sent, mut answered, mut is_whole) = (0, 0, true);
        loop {
            let is_over = stop.load(Ordering::Relaxed);
            if is_over && answered == sent {
                break;
            }
            while !is_over && sent < answered + depth {
                // Where the end has come meanwhile, nobody takes it.
                if stream.write_all(requests.as_bytes()).is_err() {
                    break;
                }
                sent += DEPTH;
            }
            let len = stream.read(&mut buffer).expect("no connection is reset");
            if len == 0 {
                assert!(is_whole, "it ends in the middle of a reply");
                ends.fetch_add(1, Ordering::Relaxed);
                break;
            }
            let lines = buffer[..len].iter().filter(|&&byte| byte == b'\n').count();
            (answered, is_whole) = (answered + lines, buffer[len - 1] == b'\n');
        }
        counted += answered as u64;
    }
    let mut client = Client::connect(address);
    assert_eq!(
        client.ask(&format!("get {key}\r\n")),
        format!("VALUE {key} 0 {}", counted.to_string().len())
    );
    assert_eq!(client.line(), counted.to_string());
    counted
}

#[test]
fn who_does_not_finish_is_cut_off_in_time() {
    let process = Process::start(coua(&["-o", "drain_timeout=1"]));
    let address = process.address();
    let mut begun = connect(address);
    begun.write_all(b"mn\r\nset key 0 0 10\r\nabc").unwrap();
    assert_eq!(read(&mut begun, 4), b"MN\r\n");
    process.signal(Signal::TERM);
    let end = process.end();
    assert!(end.status.success());
    assert!(
        end.said.contains("1 connections were cut off") && end.said.contains("-o drain_timeout"),
        "{}",
        end.said
    );
    // Nor does it keep the next program waiting for longer.
    let file = MemoryFile::new();
    let process = server(&file, &["-o", "drain_timeout=2"]);
    let address = process.address();
    let mut begun = connect(address);
    begun.write_all(b"mn\r\nset key 0 0 10\r\nabc").unwrap();
    assert_eq!(read(&mut begun, 4), b"MN\r\n");
    process.signal(Signal::USR2);
    process.hear("1 connections were cut off");
    process.hear("the cache begins with");
    assert_eq!(Client::connect(address).ask("mn\r\n"), "MN");
    // Another one waits long, and is told a second time.
    let process = Process::start(coua(PATIENT));
    let mut begun = connect(process.address());
    begun.write_all(b"mn\r\nset key 0 0 10\r\nabc").unwrap();
    assert_eq!(read(&mut begun, 4), b"MN\r\n");
    process.signal(Signal::TERM);
    process.hear("stopping");
    process.signal(Signal::TERM);
    assert!(process.end().status.success());
}

/// A client that has ended its own stream is served to the end, and one that sends on and on is no
/// reason to wait.
#[test]
fn peers_that_end_or_never_end() {
    let process = Process::start(coua(PATIENT));
    let address = process.address();
    let mut half = connect(address);
    half.write_all(b"mn\r\n").unwrap();
    half.shutdown(Shutdown::Write).unwrap();
    assert_eq!(rest_of(&mut half), b"MN\r\n");
    let began = Instant::now();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let talker = scope.spawn(|| {
            let mut stream = connect(address);
            let mut reader = stream.try_clone().unwrap();
            let requests = b"mn\r\n".repeat(1000);
            let writer = scope.spawn(move || while stream.write_all(&requests).is_ok() {});
            let mut buffer = vec![0; 1 << 16];
            let mut answers = 0;
            loop {
                match reader.read(&mut buffer) {
                    Ok(0) => break,
                    Ok(len) => answers += len,
                    // It goes on sending after the end.
                    Err(error) if error.kind() == ErrorKind::ConnectionReset => break,
                    Err(error) => panic!("{error}"),
                }
                if answers > 1 << 20 && !stop.swap(true, Ordering::Relaxed) {
                    process.signal(Signal::TERM);
                }
            }
            assert_eq!(answers % 4, 0, "it ends in the middle of a reply");
            let _ = reader.shutdown(Shutdown::Both);
            writer.join().unwrap();
        });
        talker.join().unwrap();
    });
    assert!(process.end().status.success());
    assert!(began.elapsed() < PATIENCE);
}
