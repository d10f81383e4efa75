//! Clients and servers that leave while reads are under way.

use std::io::Write;
use std::net::TcpStream;

use rustix::process::Signal;

use crate::process::poll;
use crate::scene::{Client, Scene, value};

const COUNT: usize = 10_000;

/// Clients close with their reads under way, some of them in the middle of an answer. Nothing of theirs is kept, and
/// others are served.
#[test]
fn clients_close() {
    let scene = Scene::new(&[]);
    let mut client = scene.client();
    client.fill("k", COUNT, 1000);
    client.push_out();
    let address = scene.address();
    for round in 0..200 {
        let mut leaving = TcpStream::connect(address).expect("the kernel accepts");
        let keys = (0..90).map(|nth| format!(" k{}", (round * 37 + nth * 101) % COUNT));
        let request = format!("get{}\r\n", keys.collect::<String>());
        // Some requests are still on their way, others wait for more of their input.
        let all = request.repeat(1 + round % 3);
        let part = if round % 5 == 0 {
            all.len() - 3
        } else {
            all.len()
        };
        leaving
            .write_all(&all.as_bytes()[..part])
            .expect("the server reads");
        drop(leaving);
    }
    let busy = poll("reads of the closed connections", || {
        let stats = client.stats();
        (stats["extstore_io_queue"] == "0" && stats["curr_connections"] == "1").then_some(stats)
    });
    assert!(
        busy["extstore_objects_read"]
            .parse::<u64>()
            .expect("a number")
            > 0
    );
    let mut found = 0;
    for number in (0..COUNT).step_by(53) {
        if let Some(bytes) = client.get(&format!("k{number}")) {
            assert!(bytes == value(number, 1000));
            found += 1;
        }
    }
    assert!(found > 50, "{found}");
}

/// A server that stops answers what it was asked before, and ends well.
#[test]
fn the_server_stops() {
    let scene = Scene::new(&[]);
    let mut client = scene.client();
    client.fill("k", COUNT, 1000);
    client.push_out();
    let mut others: Vec<Client> = (0..10).map(|_| scene.client()).collect();
    for (nth, other) in others.iter_mut().enumerate() {
        let keys = (0..90).map(|at| format!(" k{}", (nth * 977 + at * 11) % COUNT));
        other.send(format!("get{}\r\n", keys.collect::<String>()));
    }
    // All requests have arrived when this is answered.
    let _ = client.stats();
    scene.process.signal(Signal::TERM);
    for other in &mut others {
        for (key, bytes, _) in other.values() {
            let number: usize = key[1..].parse().expect("a number");
            assert!(bytes == value(number, 1000), "{key}");
        }
    }
    let end = scene.process.end();
    assert!(end.status.success(), "{}", end.said);
}
