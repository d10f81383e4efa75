//! A server that dies at each byte of a conversation, ten thousand times, or answers nonsense: what both clients make of it,
//! and that nothing of it is left behind.

mod support;

use std::fs;
use std::io::{self, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use coua_client::{Client, Config, Error, Expiry};
use rustix::net::sockopt::set_socket_linger;
use support::PATIENCE;
use support::fake::answer;

/// How a connection ends.
#[derive(Clone, Copy, Debug)]
struct Death {
    /// After so many bytes of requests.
    reads: usize,
    /// After so many bytes of answers.
    writes: usize,
    /// With a reset, so that what was not read is lost for the client too.
    resets: bool,
}

const NEVER: Death = Death {
    reads: usize::MAX,
    writes: usize::MAX,
    resets: false,
};

/// A server whose connections die as they are told to, by their number. Dropping it ends the listener.
struct Mortal {
    address: SocketAddr,
    connections: Arc<AtomicUsize>,
    over: Arc<AtomicBool>,
}

impl Mortal {
    fn start(death: impl Fn(usize) -> Death + Send + Sync + 'static) -> Mortal {
        Mortal::answering(move |stream, number| serve(stream, death(number)))
    }

    fn answering(serve: impl Fn(TcpStream, usize) + Send + Sync + 'static) -> Mortal {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("it is bound");
        let (connections, over) = (
            Arc::new(AtomicUsize::new(0)),
            Arc::new(AtomicBool::new(false)),
        );
        let (counter, is_over, serve) = (connections.clone(), over.clone(), Arc::new(serve));
        thread::spawn(move || {
            for stream in listener.incoming() {
                if is_over.load(Ordering::Relaxed) {
                    return;
                }
                let Ok(stream) = stream else { continue };
                let number = counter.fetch_add(1, Ordering::Relaxed);
                let serve = serve.clone();
                thread::spawn(move || serve(stream, number));
            }
        });
        Mortal {
            address,
            connections,
            over,
        }
    }

    fn count(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }
}

impl Drop for Mortal {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(self.address);
    }
}

/// Gives no more bytes than it is told.
struct Bounded {
    stream: TcpStream,
    left: usize,
}

impl Read for Bounded {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let len = into.len().min(self.left);
        if len == 0 {
            return Ok(0);
        }
        let read = self.stream.read(&mut into[..len])?;
        self.left -= read;
        Ok(read)
    }
}

fn serve(stream: TcpStream, death: Death) {
    let _ = stream.set_nodelay(true);
    let Ok(mut output) = stream.try_clone() else {
        return;
    };
    if death.resets {
        let _ = set_socket_linger(&stream, Some(Duration::ZERO));
    }
    let mut input = BufReader::new(Bounded {
        stream,
        left: death.reads,
    });
    let mut left = death.writes;
    while let Some(answer) = answer(&mut input) {
        let len = answer.len().min(left);
        if output.write_all(&answer[..len]).is_err() {
            return;
        }
        left -= len;
        if left == 0 {
            return;
        }
    }
}

fn config(server: &Mortal) -> Config {
    let config = Config::new(&server.address.to_string()).expect("an address");
    config
        .operation_timeout(PATIENCE)
        .connect_timeout(PATIENCE)
        .connections_per_server(1)
        .ejection_failures(u32::MAX)
        .login("user", "password")
}

/// The same operations for both clients: a login, `mn`, gets, stores, a multi-get. A request that reads comes to its answer
/// although one connection has died. A store is made, or it is not known whether.
macro_rules! operations {
    ($cache:expr, [$($await:tt)*]) => {{
        let value = $cache.get("one") $($await)*;
        assert_eq!(value.expect("an answer").expect("a hit").bytes, b"one");
        let stored = [
            $cache.set("two", "a value of some bytes", Expiry::NEVER) $($await)*,
            $cache.set("three", "another value", Expiry::NEVER) $($await)*,
        ];
        for stored in stored {
            match stored {
                Ok(()) | Err(Error::OutcomeUnknown { .. }) => {}
                Err(other) => panic!("{other:?}"),
            }
        }
        let values = $cache.get_many(&["four", "miss", "five"]) $($await)*.expect("answers");
        let bytes = |at: usize| values[at].as_ref().map(|value| &value.bytes[..]);
        assert_eq!((bytes(0), bytes(1), bytes(2)), (Some(&b"four"[..]), None, Some(&b"five"[..])));
    }};
}

fn synchronous(server: &Mortal) {
    let cache = Client::new(config(server));
    operations!(cache, []);
}

fn on_tokio(server: &Mortal) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.expect("a runtime").block_on(async {
        let cache = coua_client::tokio::Client::new(config(server));
        operations!(cache, [.await]);
    });
}

/// How many bytes of requests and answers there are where nobody dies.
const STEPS: usize = 180;

#[test]
fn at_each_byte() {
    for client in [synchronous, on_tokio] {
        let mut has_lived = [false; 2];
        for at in 0..STEPS {
            for resets in [false, true] {
                for reads in [false, true] {
                    let death = match reads {
                        true => Death {
                            reads: at,
                            resets,
                            ..NEVER
                        },
                        false => Death {
                            writes: at,
                            resets,
                            ..NEVER
                        },
                    };
                    let server =
                        Mortal::start(move |number| if number == 0 { death } else { NEVER });
                    client(&server);
                    let connections = server.count();
                    assert!(connections <= 2, "{death:?}: {connections} connections");
                    has_lived[usize::from(reads)] |= connections == 1;
                }
            }
        }
        assert_eq!(
            has_lived, [true; 2],
            "more steps are needed to go through all"
        );
    }
}

/// A value of which the server reads a part, and then dies: it is not stored unless another connection has taken it.
#[test]
fn in_the_middle_of_a_large_value() {
    let value = vec![7; 3 << 20];
    for resets in [false, true] {
        let death = Death {
            reads: 1 << 20,
            resets,
            ..NEVER
        };
        let first = move |number: usize| if number == 0 { death } else { NEVER };
        let server = Mortal::start(first);
        let cache = Client::new(config(&server));
        let stored = cache.set("k", &value, Expiry::NEVER);
        assert!(
            matches!(stored, Ok(()) | Err(Error::OutcomeUnknown { .. })),
            "{stored:?}"
        );
        cache.set("k", &value, Expiry::NEVER).expect("it is stored");
        assert_eq!(server.count(), 2);
    }
}

fn open_files() -> usize {
    fs::read_dir("/proc/self/fd")
        .expect("the process has files")
        .count()
}

/// Each connection answers its first requests and dies; no descriptor, thread or task is left.
#[test]
fn ten_thousand_deaths() {
    const DEATHS: usize = 10_000;
    let short = |number: usize| Death {
        // Behind the login, `mn` and one value, or in the middle of the value.
        writes: b"STORED\r\nMN\r\nVA 3 f0\r\nkey\r\n".len() - number % 2 * 7,
        resets: number.is_multiple_of(3),
        ..NEVER
    };
    let rounds = |server: &Mortal, mut round: Box<dyn FnMut() + '_>| {
        while server.count() < DEATHS {
            round();
        }
    };
    let before = open_files();
    {
        let server = Mortal::start(short);
        let cache = Client::new(config(&server));
        // An attempt may meet the death of two connections in a row.
        let mut answered = 0;
        rounds(
            &server,
            Box::new(|| answered += usize::from(cache.get("key").is_ok())),
        );
        assert!(answered > DEATHS / 4, "{answered}");
    }
    {
        let server = Mortal::start(short);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        let runtime = runtime.expect("a runtime");
        let cache = coua_client::tokio::Client::new(config(&server));
        let mut answered = 0;
        rounds(
            &server,
            Box::new(|| {
                answered += usize::from(runtime.block_on(cache.get("key")).is_ok());
            }),
        );
        assert!(answered > DEATHS / 4, "{answered}");
        assert!(runtime.metrics().num_alive_tasks() <= 2);
    }
    support::poll("the descriptors", || {
        (open_files() <= before + 16).then_some(())
    });
}

/// Answers that are put together by chance out of pieces of real ones, and noise.
fn nonsense(seed: u64) -> Vec<u8> {
    const PIECES: [&[u8]; 22] = [
        b"VA 3 f0\r\nkey\r\n",
        b"VA 9999999999 f0\r\n",
        b"VA 3 f0\r\nke",
        b"VALUE key 0 3\r\nkey\r\n",
        b"END\r\n",
        b"HD\r\n",
        b"EN\r\n",
        b"NS\r\n",
        b"STORED\r\n",
        b"MN\r\n",
        b"ERROR\r\n",
        b"SERVER_ERROR out\r\n",
        b"CLIENT_ERROR bad\r\n",
        b"\r\n",
        b"VALUE key 0 -1\r\n",
        b"STAT a b\r\n",
        b"CONFIG cluster 0 3\r\n1\na\r\nEND\r\n",
        b"CONFIG x\r\n",
        b"\0\xff\n",
        b"HD c",
        b"VERSION 1\r\n",
        b"VALUE other 0 67108865\r\n",
    ];
    let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = move |below: usize| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        usize::try_from((random >> 20) % below as u64).expect("it is small")
    };
    let mut bytes = Vec::new();
    for _ in 0..next(6) {
        bytes.extend_from_slice(PIECES[next(PIECES.len())]);
    }
    if next(3) == 0 {
        bytes.extend((0..next(60)).map(|_| u8::try_from(next(256)).expect("a byte")));
    }
    bytes
}

/// Whatever comes, it ends, and the next connection serves.
#[test]
fn nonsense_for_answers() {
    let serve = |stream: TcpStream, number: usize| {
        if number % 2 == 1 {
            return serve(stream, NEVER);
        }
        let Ok(mut output) = stream.try_clone() else {
            return;
        };
        let mut input = BufReader::new(stream);
        // Half of the connections come through their opening.
        for step in 0_u64.. {
            let Some(right) = answer(&mut input) else {
                return;
            };
            let wrong = nonsense(number as u64 * 31 + step);
            let bytes = if number.is_multiple_of(4) && step < 2 {
                right
            } else {
                wrong
            };
            if output.write_all(&bytes).is_err() || step > 3 {
                return;
            }
        }
    };
    let server = Mortal::answering(serve);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = runtime.expect("a runtime");
    for round in 0..90 {
        let quick = Duration::from_millis(40);
        let quick = config(&server)
            .operation_timeout(quick)
            .connect_timeout(quick);
        let cache = Client::new(quick.clone());
        let other = coua_client::tokio::Client::new(quick);
        for key in ["key", "other"] {
            match round % 3 {
                0 => drop((cache.get(key), runtime.block_on(other.get(key)))),
                1 => drop((
                    cache.set(key, key, Expiry::NEVER),
                    runtime.block_on(other.set(key, key, Expiry::NEVER)),
                )),
                _ => drop((
                    cache.get_many_each(&[key, "third"]),
                    runtime.block_on(other.get_many_each(&[key, "third"])),
                )),
            }
        }
    }
    let cache = Client::new(config(&server));
    support::poll("an honest connection", || cache.get("key").ok().flatten());
}
