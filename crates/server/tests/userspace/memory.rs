//! What the stack keeps for connections is part of `-m`.

use std::io::{ErrorKind, Write};
use std::net::TcpStream;
use std::time::Duration;

use rustix::net::sockopt::set_socket_recv_buffer_size;

use crate::scene::{ADDRESSES, Scene, ask, count, exchange};

/// `-m` of this test, in bytes.
const MEMORY: u64 = 256 << 20;

/// Beside it: code, stacks, a worker's buffers, the card's ring, and what is known of each
/// connection. It is less than the part of [`MEMORY`] that the stack takes.
const BESIDE: u64 = 24 << 20;

/// Clients that ask and do not read.
const CLIENTS: usize = 400;

/// Bytes of each of the values that they ask for.
const VALUE_LEN: usize = 500_000;

/// How long the clients wait before they try to send more.
const ROUND: Duration = Duration::from_millis(20);

/// Rounds in a row in which next to nothing could be sent: the server is full.
const QUIET_ROUNDS: usize = 20;

/// Rounds at most: places that ended clients leave may be filled again and again.
const ROUNDS_MAX: usize = 500;

#[test]
fn of_a_full_stack_is_within_the_bound() {
    let scene = Scene::open("packet", &["-m", "256"]);
    let mut client = scene.connect(ADDRESSES[0]);
    let text = ask(&mut client, "stats");
    assert_eq!(count(&text, "limit_maxbytes"), MEMORY);
    assert_eq!(count(&text, "coua_memory"), MEMORY);
    assert_eq!(count(&text, "coua_memory_stacks"), MEMORY / 8);
    fill_with_items(&mut client);
    let text = ask(&mut client, "stats");
    assert!(count(&text, "evictions") > 0, "{text}");
    let clients = fill_buffers(&scene);
    let resident = scene.resident();
    assert!(
        (MEMORY / 4 * 3..MEMORY + BESIDE).contains(&resident),
        "{} MiB are resident",
        resident >> 20
    );
    drop(clients);
    scene.wait_for_connections(2);
    exchange(&mut client, b"mn\r\n", b"MN\r\n");
    // Whom the stack has ended for its memory has not gone by itself.
    let ended = count(&ask(&mut client, "stats net"), "shed");
    let counted = count(&ask(&mut client, "stats"), "coua_close_memory");
    assert!(
        counted >= ended,
        "the stack has ended {ended}, {counted} are counted"
    );
}

#[test]
fn a_reset_is_counted_as_one() {
    let scene = Scene::open("packet", &[]);
    let mut witness = scene.connect(ADDRESSES[0]);
    let mut resets = scene.connect(ADDRESSES[0]);
    resets.write_all(b"mn\r\n").expect("an open socket");
    resets.peek(&mut [0]).expect("an answer");
    // What has come and is not read has the kernel reset the connection.
    drop(resets);
    scene.poll(|| {
        let text = ask(&mut witness, "stats");
        (count(&text, "coua_close_reset") == 1).then_some(())
    });
}

/// Stores more than there is room for.
fn fill_with_items(client: &mut TcpStream) {
    let value = vec![b'v'; VALUE_LEN];
    for number in 0..2 * MEMORY / VALUE_LEN as u64 {
        let head = format!("set k{} 0 0 {VALUE_LEN}\r\n", number % 700);
        let set = [head.as_bytes(), &value, b"\r\n"].concat();
        exchange(client, &set, b"STORED\r\n");
    }
}

/// Clients that have sent all that the server takes, and read nothing. Those are left out that the
/// server has ended: whoever takes nothing while memory is short is not kept for long, and on a busy
/// machine filling takes longer than that.
fn fill_buffers(scene: &Scene) -> Vec<TcpStream> {
    let mut clients: Vec<TcpStream> = (0..CLIENTS).map(|_| scene.connect(ADDRESSES[0])).collect();
    for client in &clients {
        // So that what is sent waits with the server and not here.
        set_socket_recv_buffer_size(client, 4096).expect("an open socket");
        client.set_nonblocking(true).expect("an open socket");
    }
    let asks: String = (0..2000)
        .map(|number| format!("get k{}\r\n", number % 700))
        .collect();
    let mut quiet_rounds = 0;
    for _ in 0..ROUNDS_MAX {
        let mut sent = 0;
        clients.retain_mut(|client| match client.write(asks.as_bytes()) {
            Ok(len) => {
                sent += len;
                true
            }
            Err(error) => match error.kind() {
                ErrorKind::WouldBlock => true,
                ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => false,
                kind => panic!("{kind}"),
            },
        });
        std::thread::sleep(ROUND);
        // What is retransmitted and probed for moves little.
        quiet_rounds = if sent < 4096 { quiet_rounds + 1 } else { 0 };
        if quiet_rounds == QUIET_ROUNDS {
            break;
        }
    }
    clients
}
