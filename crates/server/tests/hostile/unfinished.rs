//! Clients that leave a request unfinished: they hold memory for connections until there is none.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use crate::scene::{Scene, one_of_three};

/// Each of so many clients has a block of 4 KiB: together more than the quarter of memory that
/// connections get.
const CLIENTS: usize = 700;

/// Those who have been at it for longest are closed for the others, and nobody else notices.
#[test]
fn the_oldest_make_room() {
    one_of_three(|| {
        let scene = Scene::open(&["-m", "8", "-t", "1"]);
        scene.store("k", 10);
        let unfinished = format!("get {}", "key ".repeat(400));
        let clients: Vec<TcpStream> = (0..CLIENTS)
            .map(|_| {
                let mut client = scene.connect();
                client
                    .write_all(unfinished.as_bytes())
                    .expect("the server reads");
                client
            })
            .collect();
        // A request waits for memory for a second before anybody is closed for it.
        while shed(&scene) == 0 {
            thread::sleep(Duration::from_millis(50));
        }
        assert_eq!(scene.ask("mg k\r\n"), "HD\r\n");
        drop(clients);
        scene.close()
    });
}

/// Connections that were closed for others.
fn shed(scene: &Scene) -> u64 {
    let mut client = scene.connect();
    client.write_all(b"stats\r\n").expect("the server reads");
    let lines = BufReader::new(client).lines();
    let line = lines
        .map(|line| line.expect("an answer"))
        .find_map(|line| Some(line.strip_prefix("STAT coua_connections_shed ")?.to_owned()));
    let number = line.expect("it is counted");
    number.parse().expect("a number")
}
