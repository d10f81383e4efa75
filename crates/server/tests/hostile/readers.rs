//! Clients that read late: what they get is whole.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use rustix::net::sockopt::set_socket_recv_buffer_size;

use crate::scene::{Scene, one_of_three};

/// Bytes of a value: more than the sockets of both sides take, and too many to be copied.
const VALUE_LEN: usize = 6_000_000;
/// Values that are there, each in a part of memory of its own: together more than may be held for those
/// who read late.
const VALUES: usize = 16;
/// Clients.
const CLIENTS: usize = 32;

/// Each asks for a value that others do not ask for, in one of the ways that there are, and rests before
/// it reads. It gets the value to its last byte, or hears before the first that there is no memory to send
/// it from; then the connection goes on.
#[test]
fn no_value_ends_in_the_middle() {
    one_of_three(|| {
        let scene = Scene::open(&["-m", "256", "-I", "8m", "-t", "2"]);
        for value in 0..VALUES {
            scene.store(&format!("v{value}"), VALUE_LEN);
        }
        let ask = |client: usize| {
            let key = client % VALUES;
            match client % 3 {
                0 => format!("get v{key} no no2\r\nmn\r\n"),
                1 => format!("gat 0 v{key}\r\nmn\r\n"),
                _ => format!("mg v{key} v\r\nmn\r\n"),
            }
        };
        let mut clients: Vec<_> = (0..CLIENTS).map(|_| scene.connect()).collect();
        for (number, client) in clients.iter_mut().enumerate() {
            let limit = Some(Duration::from_secs(20));
            client.set_read_timeout(limit).expect("a timeout");
            // What the sockets hold must not be the whole value.
            set_socket_recv_buffer_size(&*client, 128 << 10).expect("a small buffer");
            let question = ask(number);
            client
                .write_all(question.as_bytes())
                .expect("the server reads");
        }
        // Longer than a request waits for memory.
        thread::sleep(Duration::from_millis(1500));
        let whole = vec![b'x'; VALUE_LEN];
        let mut arrived = 0;
        for (number, client) in clients.iter_mut().enumerate() {
            let answer = answer(client);
            let (head, tail) = match number % 3 {
                2 => (format!("VA {VALUE_LEN}\r\n"), "\r\nMN\r\n"),
                _ => {
                    let head = format!("VALUE v{} 0 {VALUE_LEN}\r\n", number % VALUES);
                    (head, "\r\nEND\r\nMN\r\n")
                }
            };
            let refusal = "SERVER_ERROR out of memory writing get response\r\nMN\r\n";
            if answer != refusal.as_bytes() {
                let expected = [head.as_bytes(), &whole, tail.as_bytes()].concat();
                assert!(
                    answer == expected,
                    "client {number}: {} bytes instead of {}",
                    answer.len(),
                    expected.len()
                );
                arrived += 1;
            }
        }
        assert!(arrived > 0, "nobody got anything");
        drop(clients);
        scene.close()
    });
}

/// All that comes up to the answer of `mn`.
fn answer(client: &mut TcpStream) -> Vec<u8> {
    let mut answer = Vec::new();
    let mut room = vec![0; 1 << 16];
    while !answer.ends_with(b"MN\r\n") {
        let count = client.read(&mut room).expect("an answer");
        assert!(count > 0, "the end behind {} bytes", answer.len());
        answer.extend_from_slice(&room[..count]);
    }
    answer
}

/// A value that alone takes more than may be held for all who read late is read by several of them at
/// once; long values of usual size are served meanwhile.
#[test]
fn the_longest_values_are_whole_too() {
    one_of_three(|| {
        const GIANT_LEN: usize = 100 << 20;
        let scene = Scene::open(&["-m", "256", "-I", "120m", "-t", "2"]);
        scene.store("giant", GIANT_LEN);
        scene.store("usual", VALUE_LEN);
        let ask = |key: &str| {
            let mut client = scene.connect();
            let limit = Some(Duration::from_secs(20));
            client.set_read_timeout(limit).expect("a timeout");
            let question = format!("get {key}\r\nmn\r\n");
            client
                .write_all(question.as_bytes())
                .expect("the server reads");
            client
        };
        let is_whole = |mut client: TcpStream, key: &str, len: usize| {
            let head = format!("VALUE {key} 0 {len}\r\n");
            let expected = [head.as_bytes(), &vec![b'x'; len], b"\r\nEND\r\nMN\r\n"].concat();
            let answer = answer(&mut client);
            assert!(answer == expected, "{} bytes of {key}", answer.len());
        };
        for _ in 0..2 {
            let late: Vec<TcpStream> = (0..3).map(|_| ask("giant")).collect();
            thread::sleep(Duration::from_millis(200));
            is_whole(ask("usual"), "usual", VALUE_LEN);
            for client in late {
                is_whole(client, "giant", GIANT_LEN);
            }
        }
        scene.close()
    });
}
