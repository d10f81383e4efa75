//! What ten thousand encrypted connections take of memory, and values of a megabyte that clients do not read.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;

use rustix::process::{Resource, getrlimit, setrlimit};

use crate::Secured;
use crate::certificates::{TlsClient, ask, encrypt};
use crate::resident::resident_kib;

const CONNECTIONS: usize = 10_000;

/// Of these, those that ask for long values and do not read.
const LAZY: usize = 500;

const VALUE_LEN: usize = 1_000_000;

/// What `docs/production.md` says of a connection of TLS that does nothing: some 8 KiB. The test's own allowance is for
/// what the allocator keeps.
const IDLE_KIB_MAX: u64 = 12;

/// What it says of one under way, with `-o ssl_wbuf_size` at 16 KiB.
const BUSY_KIB_MAX: u64 = 128 + 16;

/// How many connections this process may have, up to [`CONNECTIONS`].
fn connections() -> usize {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).expect("up to the hard limit");
    let most = limit.maximum.unwrap_or(u64::MAX);
    CONNECTIONS.min(usize::try_from(most).expect("a number").saturating_sub(200))
}

#[test]
fn ten_thousand_connections_and_long_values_stay_within_what_is_stated() {
    let count = connections();
    let server = Secured::start("", &["-t", "2", "-m", "64", "-c", "11000"]);
    let resident = || resident_kib(server.process.child.id());
    // Memory is full, so that what comes is the connections'.
    let mut first = server.connect();
    let value: Vec<u8> = (b'a'..b'x').cycle().take(VALUE_LEN).collect();
    for number in 0..100 {
        let head = format!("set big{} 0 0 {VALUE_LEN}\r\n", number % 70);
        let set = [head.as_bytes(), &value, b"\r\n"].concat();
        ask(&mut first, &set, b"STORED\r\n");
    }
    let set = [&b"set big 0 0 1000000\r\n"[..], &value, b"\r\n"].concat();
    ask(&mut first, &set, b"STORED\r\n");
    let at_first = resident();

    let config = server.authority.client(None);
    let mut clients: Vec<TlsClient> = thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    let client = |_| {
                        let stream =
                            TcpStream::connect(server.address).expect("the kernel accepts");
                        let mut client = encrypt(stream, &config);
                        ask(&mut client, b"mn\r\n", b"MN\r\n");
                        client
                    };
                    (0..count / 4).map(client).collect::<Vec<_>>()
                })
            })
            .collect();
        let all = threads
            .into_iter()
            .map(|thread| thread.join().expect("all are served"));
        all.flatten().collect()
    });
    let idle = resident();
    let each = idle.saturating_sub(at_first) / clients.len() as u64;
    println!("{} idle connections: {each} KiB each", clients.len());
    assert!(each <= IDLE_KIB_MAX, "{each} KiB for each idle connection");

    // They ask for more than sockets and buffers hold, and do not read.
    let lazy = LAZY.min(clients.len() / 2);
    for client in &mut clients[..lazy] {
        client
            .write_all(&b"get big\r\n".repeat(20))
            .expect("it is open");
    }
    // Others are served meanwhile, by both workers.
    let served = clients.len() - lazy;
    for client in clients.iter_mut().skip(lazy).take(served.min(1000)) {
        ask(client, b"mg none v\r\n", b"EN\r\n");
    }
    let busy = resident();
    let each = busy.saturating_sub(idle) / lazy as u64;
    println!("{lazy} of them with replies that wait: {each} KiB each");
    assert!(
        each <= BUSY_KIB_MAX,
        "{each} KiB for each connection with replies that wait"
    );

    // What waited comes whole.
    let got = [&b"VALUE big 0 1000000\r\n"[..], &value, b"\r\nEND\r\n"].concat();
    let mut said = vec![0; got.len()];
    for client in &mut clients[..3] {
        for _ in 0..20 {
            client.read_exact(&mut said).expect("an answer");
            assert!(said == got);
        }
    }
    // docs/operating.md: -m, 32 MiB, 2 MiB a thread, 32 KiB a connection.
    let most = ((64 + 32 + 2 * 2) << 10) + 32 * clients.len() as u64;
    let last = resident();
    assert!(last <= most, "{last} KiB of {most}");
    println!("{last} KiB of {most} in all");
}
