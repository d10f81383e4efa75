//! Clients that do what no client should: the server keeps serving the others, within its memory, and forgets them.
//!
//! In each test a witness, an ordinary client on a connection of its own, stores and fetches all the while; no answer
//! may take it longer than [`ANSWER_LIMIT`]. Memory stays under `-m` and [`OUTSIDE_MIB`], and in the end as many
//! file descriptors are open as before. The tests run one at a time, since each takes the whole machine.
//!
//! # Not here
//! What single bad requests are answered: the scripts of `wire`.

mod dialects;
mod readers;
mod scene;
mod unfinished;
mod witness;

#[path = "../support/resident.rs"]
mod resident;
#[path = "../support/mod.rs"]
mod support;

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use scene::{Scene, one_of_three};

/// How long the witness may wait for an answer, beyond what the machine takes for an echo.
const ANSWER_LIMIT: Duration = Duration::from_millis(100);
/// What the server may take beside `-m`, in MiB: code, stacks, and each worker's constant part.
const OUTSIDE_MIB: u64 = 48;

#[test]
fn a_million_requests_in_one_pipeline() {
    one_of_three(|| {
        const REQUESTS: usize = 1_000_000;
        let scene = Scene::open(&["-m", "64", "-t", "2"]);
        let mut stream = scene.connect();
        let mut reader =
            BufReader::with_capacity(1 << 16, stream.try_clone().expect("a socket can be cloned"));
        let counter = thread::spawn(move || {
            let mut line = Vec::new();
            for expected in 1..=REQUESTS / 2 {
                for wanted in [expected.to_string(), "HD".to_owned()] {
                    line.clear();
                    reader.read_until(b'\n', &mut line).expect("an answer");
                    assert_eq!(
                        line,
                        format!("{wanted}\r\n").as_bytes(),
                        "answers come in order"
                    );
                }
            }
        });
        stream
            .write_all(b"set pipeline 0 0 1 noreply\r\n0\r\n")
            .expect("the server reads");
        let burst = b"incr pipeline 1\r\nmg pipeline\r\n".repeat(1000);
        for _ in 0..REQUESTS / 2000 {
            stream.write_all(&burst).expect("the server reads");
        }
        counter.join().expect("every answer is right");
        drop(stream);
        scene.close()
    });
}

#[test]
fn a_million_requests_before_the_first_answer_is_read() {
    one_of_three(|| {
        // Both sides' socket buffers fill: the server must stop reading, keep the rest, and go on when there is room.
        const REQUESTS: usize = 1_000_000;
        let scene = Scene::open(&["-m", "64", "-t", "2"]);
        let stream = scene.connect();
        let mut writer = stream.try_clone().expect("a socket can be cloned");
        let sender = thread::spawn(move || {
            let burst = b"mg nothing k Oabcdefgh v\r\n".repeat(1000);
            for _ in 0..REQUESTS / 1000 {
                writer
                    .write_all(&burst)
                    .expect("the server reads in the end");
            }
        });
        thread::sleep(Duration::from_secs(1));
        scene.check_memory();
        let answer = b"EN knothing Oabcdefgh\r\n";
        let mut reader = BufReader::new(stream);
        let mut line = Vec::new();
        for _ in 0..REQUESTS {
            line.clear();
            reader.read_until(b'\n', &mut line).expect("an answer");
            assert_eq!(line, answer);
        }
        sender.join().expect("everything was taken");
        drop(reader);
        scene.close()
    });
}

#[test]
fn clients_that_ask_for_gigabytes_and_never_read() {
    one_of_three(|| {
        const CLIENTS: usize = 32;
        let scene = Scene::open(&["-m", "64", "-t", "2"]);
        scene.store("big", 500_000);
        let mut clients = Vec::new();
        for _ in 0..CLIENTS {
            let stream = scene.connect();
            stream
                .set_nonblocking(true)
                .expect("a socket can be non-blocking");
            clients.push(stream);
        }
        // 32 x 10,000 x 500 kB is 160 GB; what does not fit into the socket is offered again for two seconds.
        let question = b"get big\r\n".repeat(10_000);
        let mut sent = [0; CLIENTS];
        let deadline = Instant::now() + Duration::from_secs(2);
        while Instant::now() < deadline {
            for (client, sent) in clients.iter_mut().zip(&mut sent) {
                match client.write(&question[*sent % question.len()..]) {
                    Ok(count) => *sent += count,
                    Err(error) => assert_eq!(
                        error.kind(),
                        ErrorKind::WouldBlock,
                        "a slow reader is not thrown out"
                    ),
                }
            }
            thread::sleep(Duration::from_millis(5));
            scene.check_memory();
        }
        drop(clients);
        scene.close()
    });
}

#[test]
fn one_request_for_a_gigabyte_arrives_whole() {
    one_of_three(|| {
        const VALUE: usize = 500_000;
        const KEYS: usize = 2_000;
        let scene = Scene::open(&["-m", "64", "-t", "2"]);
        scene.store("big", VALUE);
        let mut stream = scene.connect();
        stream
            .write_all(format!("get{}\r\n", " big".repeat(KEYS)).as_bytes())
            .expect("the server reads");
        let header = format!("VALUE big 0 {VALUE}\r\n");
        let total = KEYS * (header.len() + VALUE + 2) + "END\r\n".len();
        let (mut buffer, mut left, mut end, mut reads) = (vec![0; 1 << 20], total, Vec::new(), 0);
        while left > 0 {
            let count = stream.read(&mut buffer).expect("the answer goes on");
            assert!(
                count > 0 && count <= left,
                "{left} of {total} bytes are still to come"
            );
            left -= count;
            end.extend_from_slice(&buffer[..count]);
            let surplus = end.len().saturating_sub(100);
            end.drain(..surplus);
            reads += 1;
            if reads % 200 == 0 {
                scene.check_memory();
            }
        }
        assert!(
            end.ends_with(b"x\r\nEND\r\n"),
            "the end of the answer: {}",
            end.escape_ascii()
        );
        drop(stream);
        scene.close()
    });
}

#[test]
fn senders_of_one_byte_at_a_time() {
    one_of_three(|| {
        const CLIENTS: usize = 200;
        let scene = Scene::open(&["-m", "64", "-t", "2"]);
        let mut clients: Vec<TcpStream> = (0..CLIENTS).map(|_| scene.connect()).collect();
        let requests: Vec<Vec<u8>> = (0..CLIENTS)
            .map(|n| {
                format!(
                "set slow{n} 0 0 5\r\nvalue\r\nget slow{n}\r\nincr slow{n} 1\r\nmg slow{n} v k\r\n"
            )
            .into_bytes()
            })
            .collect();
        for at in 0..requests.iter().map(Vec::len).max().unwrap_or(0) {
            for (client, request) in clients.iter_mut().zip(&requests) {
                if let Some(byte) = request.get(at) {
                    client.write_all(&[*byte]).expect("the server reads");
                }
            }
            thread::sleep(Duration::from_millis(2));
        }
        for (n, client) in clients.iter_mut().enumerate() {
            let wanted = format!(
                "STORED\r\nVALUE slow{n} 0 5\r\nvalue\r\nEND\r\n\
             CLIENT_ERROR cannot increment or decrement non-numeric value\r\nVA 5 kslow{n}\r\nvalue\r\n"
            );
            let mut answer = vec![0; wanted.len()];
            client.read_exact(&mut answer).expect("an answer");
            assert_eq!(answer, wanted.as_bytes());
        }
        drop(clients);
        scene.close()
    });
}

#[test]
fn ten_thousand_clients_die_in_mid_body() {
    one_of_three(clients_die_in_mid_body);
}

fn clients_die_in_mid_body() -> Result<(), String> {
    const DEATHS: usize = 10_000;
    const AT_ONCE: usize = 100;
    let scene = Scene::open(&["-m", "64", "-t", "2"]);
    scene.store("big", 500_000);
    let half = "x".repeat(50_000);
    for round in 0..DEATHS / AT_ONCE {
        let mut clients = Vec::new();
        for n in 0..AT_ONCE {
            let mut stream = scene.connect();
            // With an answer that nobody reads, the end comes as a reset.
            let question = if n % 2 == 0 { "get big\r\n" } else { "" };
            let request = format!("{question}set dead{round}-{n} 0 0 100000\r\n{half}");
            stream
                .write_all(request.as_bytes())
                .expect("the server reads");
            clients.push(stream);
        }
        drop(clients);
        scene.check_memory();
        // More of them than `-c` would be turned away at the door.
        scene.wait_until_gone(AT_ONCE);
    }
    for key in ["dead0-0", "dead99-99", "dead50-1"] {
        assert_eq!(
            scene.ask(&format!("get {key}\r\n")),
            "END\r\n",
            "half a value is no value"
        );
    }
    scene.close_after(|scene| scene.store("again", 100_000))
}

/// More than the store holds, faster than it makes room: who must wait for memory waits, and nobody is
/// closed for it. The witness waits with them, for 35 to 90 ms where the server is built for tests.
#[test]
fn sets_in_a_row_from_all_sides() {
    one_of_three(sets_in_a_row);
}

fn sets_in_a_row() -> Result<(), String> {
    const CONNECTIONS: usize = 64;
    const SETS: usize = 3000;
    let scene = Scene::open(&["-m", "64", "-t", "1"]);
    let rows: Vec<_> = (0..CONNECTIONS)
        .map(|number| {
            let mut stream = scene.connect();
            thread::spawn(move || {
                let value = [b'v'; 2000];
                let mut requests = Vec::new();
                for at in 0..SETS {
                    let len = 1 + (at * 7919 + number * 104_729) % value.len();
                    write!(requests, "set {number}-{at} 0 0 {len}\r\n").expect("memory");
                    requests.extend_from_slice(&value[..len]);
                    requests.extend_from_slice(b"\r\n");
                }
                // The answers to all of it find room in the sockets.
                stream.write_all(&requests).expect("the server reads");
                let expected = b"STORED\r\n".repeat(SETS);
                let mut answers = vec![0; expected.len()];
                stream.read_exact(&mut answers).expect("every answer");
                assert!(answers == expected, "something was not stored");
            })
        })
        .collect();
    for row in rows {
        row.join().expect("all is stored");
    }
    scene.close()
}

#[test]
fn uploads_that_stop_half_way() {
    one_of_three(uploads_stop_half_way);
}

fn uploads_stop_half_way() -> Result<(), String> {
    const CLIENTS: usize = 400;
    const VALUE: usize = 1_000_000;
    let scene = Scene::open(&["-m", "64", "-t", "2"]);
    let half = vec![b'x'; VALUE / 2];
    let mut clients = Vec::new();
    for n in 0..CLIENTS {
        let stream = scene.connect();
        stream
            .set_write_timeout(Some(Duration::from_millis(200)))
            .expect("a timeout can be set");
        let mut writer = &stream;
        let request = [format!("set half{n} 0 0 {VALUE}\r\n").as_bytes(), &half].concat();
        // A server without room may stop reading: then this is as far as the upload comes.
        let _ = writer.write_all(&request);
        clients.push(stream);
        if n % 20 == 0 {
            scene.check_memory();
        }
    }
    thread::sleep(Duration::from_secs(1));
    scene.check_memory();
    drop(clients);
    scene.close_after(|scene| scene.store("whole", 900_000))
}

#[test]
fn half_a_line_from_every_connection() {
    one_of_three(|| {
        const CLIENTS: usize = 900;
        let scene = Scene::open(&["-m", "64", "-t", "2"]);
        let mut clients: Vec<TcpStream> = (0..CLIENTS).map(|_| scene.connect()).collect();
        for client in &mut clients {
            client.write_all(b"get ").expect("the server reads");
            client
                .write_all("k".repeat(1000).as_bytes())
                .expect("the server reads");
        }
        thread::sleep(Duration::from_secs(1));
        scene.check_memory();
        drop(clients);
        scene.close()
    });
}

#[test]
fn ten_thousand_connections_that_say_nothing() {
    one_of_three(|| {
        let scene = Scene::open(&["-m", "64", "-t", "2"]);
        for _ in 0..200 {
            let clients: Vec<TcpStream> = (0..50).map(|_| scene.connect()).collect();
            drop(clients);
        }
        scene.close()
    });
}

#[test]
fn more_connections_than_allowed() {
    one_of_three(|| {
        let scene = Scene::open(&["-m", "64", "-t", "2", "-c", "50"]);
        let clients: Vec<TcpStream> = (0..100).map(|_| scene.connect()).collect();
        let mut refused = 0;
        for client in &clients {
            client
                .set_read_timeout(Some(Duration::from_secs(2)))
                .expect("a timeout can be set");
            let mut reader = client;
            let _ = reader.write_all(b"mn\r\n");
            let mut answer = [0; 100];
            match reader.read(&mut answer) {
                Ok(count) if &answer[..count] == b"MN\r\n" => {}
                Ok(count) => {
                    refused += 1;
                    let said = &answer[..count];
                    let right = said.is_empty() || said == b"ERROR Too many open connections\r\n";
                    assert!(right, "{}", said.escape_ascii());
                }
                Err(_) => refused += 1,
            }
        }
        assert!(
            (50..100).contains(&refused),
            "{refused} of 100 were refused at -c 50"
        );
        drop(clients);
        scene.close_after(|scene| assert_eq!(scene.ask("mn\r\n"), "MN\r\n"))
    });
}

#[test]
fn noise() {
    one_of_three(|| {
        let scene = Scene::open(&["-m", "64", "-t", "2"]);
        let mut state = 0x2545_f491_4f6c_dd1d_u64;
        let mut random = move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        let words: [&[u8]; 24] = [
            b"get ",
            b"set ",
            b"ms ",
            b"mg ",
            b"ma ",
            b"md ",
            b"me ",
            b"mn\r\n",
            b"cas ",
            b"incr ",
            b"touch ",
            b"gat ",
            b"\r\n",
            b"\n",
            b" ",
            b"key ",
            b"0 ",
            b"4294967295 ",
            b"-1 ",
            b"noreply",
            b"\0",
            b"\xff",
            b"99999999999999999999 ",
            b"S100 ",
        ];
        for _ in 0..500 {
            let mut noise = Vec::new();
            for _ in 0..random() % 400 {
                match random() % 8 {
                    0 => noise.extend_from_slice(&random().to_le_bytes()),
                    _ => noise.extend_from_slice(
                        words[usize::try_from(random() % 24).expect("below 24")],
                    ),
                }
            }
            let mut stream = scene.connect();
            // 0x80 as the first byte asks for another protocol.
            noise.insert(0, b'm');
            let _ = stream.write_all(&noise);
            if random() % 2 == 0 {
                let _ = stream.shutdown(std::net::Shutdown::Write);
                stream
                    .set_read_timeout(Some(Duration::from_millis(500)))
                    .expect("a timeout can be set");
                let _ = std::io::copy(&mut stream, &mut std::io::sink());
            }
        }
        scene.close()
    });
}
