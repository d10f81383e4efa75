//! Connections whose segments come to another queue than before, in the midst of everything.
//!
//! Linux draws the hash of a connection anew when its retransmission timer expires
//! (`net.core.txrehash`), and the queue of a veth pair goes by that hash.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use rustix::process::Signal;

use crate::scene::{ADDRESSES, Scene, ask, count, exchange};

/// Clients, half of which are on another queue after a timeout.
const CLIENTS: usize = 40;

/// For how long the server does not answer: several retransmission timeouts.
const PAUSE: Duration = Duration::from_millis(1500);

/// Pauses at most: on a busy machine one may pass without a timeout.
const PAUSES_MAX: usize = 5;

/// Segments that the workers have passed on to each other.
fn passed_on(scene: &Scene) -> u64 {
    // Counts are shown a few times a second.
    thread::sleep(Duration::from_secs(1));
    let text = ask(&mut scene.connect(ADDRESSES[0]), "stats net");
    count(&text, "segments_passed_on")
}

#[test]
fn connections_move_between_queues_of_af_xdp() {
    let scene = Scene::open("xdp", &["-t", "2"]);
    let mut clients: Vec<TcpStream> = (0..CLIENTS).map(|_| scene.connect(ADDRESSES[0])).collect();
    for client in &mut clients {
        exchange(client, b"mn\r\n", b"MN\r\n");
    }
    for _ in 0..PAUSES_MAX {
        scene.signal(Signal::STOP);
        for client in &mut clients {
            client.write_all(b"mn\r\n").expect("it is open");
        }
        thread::sleep(PAUSE);
        scene.signal(Signal::CONT);
        let failed = clients
            .iter_mut()
            .filter_map(|client| client.read_exact(&mut [0; 4]).err())
            .count();
        assert_eq!(failed, 0, "of {CLIENTS} connections");
        if passed_on(&scene) > 0 {
            break;
        }
    }
    let passed_on = passed_on(&scene);
    assert!(passed_on > 0, "no connection has moved");
    // They stay where they are now.
    let value = vec![b'v'; 100_000];
    for (number, client) in clients.iter_mut().enumerate() {
        let head = format!("set moved{number} 0 0 {}\r\n", value.len());
        let set = [head.as_bytes(), &value, b"\r\n"].concat();
        exchange(client, &set, b"STORED\r\n");
        let head = format!("VALUE moved{number} 0 {}\r\n", value.len());
        let reply = [head.as_bytes(), &value, b"\r\nEND\r\n"].concat();
        exchange(client, format!("get moved{number}\r\n").as_bytes(), &reply);
    }
    eprintln!("{passed_on} segments were passed on");
}
