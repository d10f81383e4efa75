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

/// A list that its client does not read, and of which no more can be kept, ends its connection for want of memory: that
/// is the cause that is counted.
#[test]
fn a_list_that_cannot_be_kept_is_ended_for_memory() {
    one_of_three(|| {
        const KEYS: usize = 1500;
        let scene = Scene::open(&["-m", "8", "-t", "1"]);
        let long = "k".repeat(200);
        for key in 0..KEYS {
            scene.store(&format!("{long}{key}"), 10);
        }
        let clients = fill_up(&scene);
        let mut asker = scene.connect();
        let before = counts(&mut asker);
        let mut deaf = scene.connect();
        let port = deaf.local_addr().expect("it is connected").port();
        // Some 60 MB: more than both sockets hold.
        deaf.write_all(&b"lru_crawler metadump all\r\n".repeat(150))
            .expect("the server reads");
        let address = format!(":{port}");
        let mut is_there = || {
            let conns = lines_of(&mut asker, "stats conns");
            conns.iter().any(|line| line.ends_with(&address))
        };
        while is_there() {
            thread::sleep(Duration::from_millis(10));
        }
        let after = counts(&mut asker);
        let [client, memory] = [0, 1].map(|at| after[at] - before[at]);
        assert_eq!(client, 0, "closed by clients, and {memory} for memory");
        assert!(memory > 0);
        drop((deaf, clients, asker));
        scene.close()
    });
}

/// How many connections their clients have ended, and how many were ended for memory.
fn counts(client: &mut TcpStream) -> [u64; 2] {
    let lines = lines_of(client, "stats");
    ["coua_close_client ", "coua_close_memory "].map(|name| {
        let mut counts = lines.iter().filter_map(|line| line.split_once(name));
        let (_, count) = counts.next().expect("it is counted");
        count.parse().expect("a number")
    })
}

/// The lines of an answer that ends with `END`.
fn lines_of(client: &mut TcpStream, question: &str) -> Vec<String> {
    write!(client, "{question}\r\n").expect("the server reads");
    let lines = BufReader::new(client).lines();
    let lines = lines.map(|line| line.expect("an answer"));
    lines.take_while(|line| line != "END").collect()
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
