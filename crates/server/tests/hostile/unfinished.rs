//! Clients that leave a request unfinished: they hold memory for connections until there is none.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write as _};
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use crate::scene::{Scene, one_of_three};

/// Each of so many clients has a block of 4 KiB: together more than the quarter of memory that
/// connections get.
const CLIENTS: usize = 700;

/// Most of the blocks that connections get.
const BLOCKS_MIN: u64 = 400;

/// Those who have been at it for longest are closed for the others, and nobody else notices.
#[test]
fn the_oldest_make_room() {
    one_of_three(|| {
        let scene = Scene::open(&["-m", "8", "-t", "1"]);
        scene.store("k", 10);
        let clients = fill_up(&scene);
        // A request waits for memory for a second before anybody is closed for it.
        while stat(&scene, "coua_connections_shed") == 0 {
            thread::sleep(Duration::from_millis(50));
        }
        assert_eq!(scene.ask("mg k\r\n"), "HD\r\n");
        drop(clients);
        scene.close()
    });
}

/// Requests of a connection are executed in order, also where the first has an answer of several turns and there is no
/// memory to keep the others meanwhile.
#[test]
fn requests_behind_a_long_answer_wait_for_its_end() {
    one_of_three(|| {
        const KEYS: usize = 1500;
        // More than a connection's part of the input buffer: what is behind the kernel still holds.
        const REQUESTS: usize = 2000;
        let scene = Scene::open(&["-m", "8", "-t", "1"]);
        let long = "k".repeat(80);
        for key in 0..KEYS {
            scene.store(&format!("{long}{key}"), 10);
        }
        scene.store("k", 10);
        // Lists that are made in one turn, in two and in more.
        for length in [100, 400, 700, 1000, 1300] {
            let clients = fill_up(&scene);
            let client = scene.connect();
            let limit = Some(Duration::from_secs(60));
            client.set_read_timeout(limit).expect("a timeout");
            let mut requests = format!("stats cachedump 1 {length}\r\n");
            for number in 0..REQUESTS {
                write!(requests, "mg k O{number}\r\n").expect("memory");
            }
            let mut sender = client.try_clone().expect("a socket can be cloned");
            let sender = thread::spawn(move || sender.write_all(requests.as_bytes()));
            let mut lines = BufReader::new(&client).lines();
            let mut line = || lines.next().expect("an answer").expect("an answer");
            for _ in 0..length {
                let item = line();
                assert!(item.starts_with("ITEM "), "{item:?} within a list of items");
            }
            assert_eq!(line(), "END");
            for number in 0..REQUESTS {
                assert_eq!(line(), format!("HD O{number}"), "behind {length} items");
            }
            sender.join().expect("it ends").expect("the server reads");
            drop((client, clients));
            scene.wait_until_gone(0);
        }
        scene.close()
    });
}

/// Clients with unfinished requests, who together hold all memory for connections. For a second the last of them wait
/// for some; then the first are closed for them.
fn fill_up(scene: &Scene) -> Vec<TcpStream> {
    let unfinished = format!("get {}", "key ".repeat(400));
    let clients = (0..CLIENTS).map(|_| {
        let mut client = scene.connect();
        client
            .write_all(unfinished.as_bytes())
            .expect("the server reads");
        client
    });
    let clients = clients.collect();
    let mut blocks = 0;
    loop {
        let taken = stat(scene, "read_buf_count");
        if taken == blocks && taken >= BLOCKS_MIN {
            return clients;
        }
        blocks = taken;
        thread::sleep(Duration::from_millis(10));
    }
}

/// A number of the statistics.
fn stat(scene: &Scene, name: &str) -> u64 {
    let mut client = scene.connect();
    client.write_all(b"stats\r\n").expect("the server reads");
    let lines = BufReader::new(client).lines();
    let line = lines
        .map(|line| line.expect("an answer"))
        .find_map(|line| Some(line.strip_prefix(&format!("STAT {name} "))?.to_owned()));
    let number = line.expect("it is counted");
    number.parse().expect("a number")
}
