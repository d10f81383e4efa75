//! Servers that die, stall and return, and what a client knows then.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use coua_client::wire::ProtocolError;
use coua_client::{
    Batch, Cause, Client, Config, DialectChoice, Distribution, Error, Expiry, Failover, Meta,
};
use proptest::prelude::*;

use support::fake::{Act, Fake};
use support::{Over, PATIENCE, Program, Server, poll};

fn config(address: impl ToString) -> Config {
    let config = Config::new(&address.to_string()).expect("an address");
    config.operation_timeout(PATIENCE).connect_timeout(PATIENCE)
}

/// Answers the first `honest` requests of the first connection, then does `act`; later connections are
/// honest. The first request of each is the client's `mn`.
fn once(honest: usize, act: Act) -> Fake {
    Fake::start(move |connection: usize, number: usize, _: &[u8]| {
        match connection == 0 && number >= honest {
            true => act,
            false => Act::Send,
        }
    })
}

#[test]
fn a_server_that_dies_in_the_middle_of_each_answer() {
    for cut in 0..b"VA 3 f0\r\nkey\r\n".len() {
        // A read is asked again on another connection.
        let fake = once(1, Act::Cut(cut));
        let cache = Client::new(config(fake.address));
        let value = cache.get("key").expect("the second connection answers");
        assert_eq!(value.expect("a hit").bytes, b"key");
        assert_eq!(fake.connections.load(Ordering::Relaxed), 2);
    }
    for cut in 0..b"HD\r\n".len() {
        // A change is not, since it may have been made.
        let fake = once(1, Act::Cut(cut));
        let cache = Client::new(config(fake.address));
        let error = cache
            .set("key", "value", Expiry::NEVER)
            .expect_err("no answer");
        let Error::OutcomeUnknown { cause, .. } = &error else {
            panic!("{error:?}");
        };
        assert!(matches!(cause, Cause::Closed | Cause::Io(..)), "{cause:?}");
        assert!(!error.had_no_effect());
        cache
            .set("key", "value", Expiry::NEVER)
            .expect("the next connection answers");
        assert_eq!(fake.connections.load(Ordering::Relaxed), 2);
    }
    for cut in 0..b"MN\r\n".len() {
        // Not even the beginning: nothing was sent, so anything is tried again.
        let fake = once(0, Act::Cut(cut));
        let cache = Client::new(config(fake.address));
        cache
            .set("key", "value", Expiry::NEVER)
            .expect("the second connection answers");
    }
}

#[test]
fn a_server_that_dies_in_the_middle_of_a_multi_get() {
    let keys = ["key-1", "miss", "key-2", "key-3"];
    let answer_len = 3 * b"VALUE key-1 0 5\r\nkey-1\r\n".len() + b"END\r\n".len();
    for cut in 0..answer_len {
        let fake = once(1, Act::Cut(cut));
        let cache = Client::new(config(fake.address));
        let values = cache.get_many(&keys).expect("the rest is asked again");
        for (key, value) in keys.iter().zip(values) {
            let value = value.map(|value| value.bytes);
            assert_eq!(value.as_deref(), (*key != "miss").then_some(key.as_bytes()));
        }
        assert_eq!(fake.connections.load(Ordering::Relaxed), 2);
    }
}

#[test]
fn a_server_that_dies_in_the_middle_of_a_batch() {
    for honest in 1..9 {
        let fake = once(honest, Act::Cut(1));
        let cache = Client::new(config(fake.address));
        let mut batch = Batch::new();
        let sets: Vec<_> = (0..4)
            .map(|n| batch.set(format!("s{n}"), "v", Expiry::NEVER))
            .collect();
        let gets: Vec<_> = (0..4).map(|n| batch.get(format!("g{n}"))).collect();
        let mut results = cache.run(batch);
        for (at, ticket) in sets.into_iter().enumerate() {
            match results.take(ticket) {
                Ok(()) => assert!(at + 1 < honest),
                Err(Error::OutcomeUnknown { .. }) => assert!(at + 1 >= honest),
                Err(error) => panic!("{error}"),
            }
        }
        for (at, ticket) in gets.into_iter().enumerate() {
            match results.take(ticket) {
                Ok(Some(value)) => assert_eq!(
                    (value.bytes, at + 5 < honest),
                    (format!("g{at}").into_bytes(), true)
                ),
                Err(Error::Interrupted { .. }) => assert!(at + 5 >= honest),
                other => panic!("{other:?}"),
            }
        }
    }
}

#[test]
fn answers_in_single_bytes() {
    let fake = Fake::start(|_: usize, _: usize, _: &[u8]| Act::Pieces(1));
    let cache = Client::new(config(fake.address));
    let keys: Vec<String> = (0..50).map(|number| format!("key-{number}")).collect();
    let values = cache.get_many(&keys).expect("they come");
    assert!(
        keys.iter()
            .zip(values)
            .all(|(key, value)| { value.is_some_and(|value| value.bytes == key.as_bytes()) })
    );
    cache
        .set("key", "value", Expiry::NEVER)
        .expect("it is answered");
}

#[test]
fn a_server_that_stalls() {
    let short = Duration::from_millis(100);
    let fake = once(1, Act::Hang);
    let cache = Client::new(config(fake.address).operation_timeout(short));
    let error = cache
        .set("key", "value", Expiry::NEVER)
        .expect_err("no answer");
    assert!(
        error.is_timeout() && matches!(error, Error::OutcomeUnknown { .. }),
        "{error:?}"
    );
    let fake = once(1, Act::Hang);
    let cache = Client::new(config(fake.address).operation_timeout(short));
    let error = cache
        .get("key")
        .expect_err("no answer, and a timeout is not tried again");
    assert!(
        error.is_timeout() && matches!(error, Error::Interrupted { .. }),
        "{error:?}"
    );
    assert_eq!(
        cache
            .get("other")
            .expect("a new connection")
            .expect("a hit")
            .bytes,
        b"other"
    );

    // It takes nothing: part of the request was never sent.
    let fake = once(1, Act::Hang);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("it is bound");
    let held = thread::spawn(move || listener.accept());
    let deaf = config(address)
        .dialect(DialectChoice::Meta)
        .operation_timeout(short);
    let huge = vec![0; 60 << 20];
    let error = Client::new(deaf)
        .set("key", &huge, Expiry::NEVER)
        .expect_err("nobody reads");
    assert!(
        error.is_timeout() && matches!(error, Error::NotSent { .. }),
        "{error:?}"
    );
    drop((held.join(), fake));
}

#[test]
fn a_server_that_is_not_there() {
    let address = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        listener.local_addr().expect("it is bound")
    };
    let cache = Client::new(config(address).ejection_wait(PATIENCE, PATIENCE));
    let error = cache
        .set("key", "value", Expiry::NEVER)
        .expect_err("nobody listens");
    let Error::NotSent {
        cause: Cause::Connect(..),
        ..
    } = &error
    else {
        panic!("{error:?}");
    };
    assert!(error.to_string().contains("Connection refused"), "{error}");
    let error = cache.get("key").expect_err("it is left alone now");
    assert!(matches!(error.cause(), Some(Cause::Ejected)), "{error:?}");
    let missing = Client::new(config("unix:/nowhere/at/all"));
    let error = missing.get("key").expect_err("no socket");
    assert!(
        matches!(error.cause(), Some(Cause::Connect(..))),
        "{error:?}"
    );
}

#[test]
fn answers_that_do_not_fit_end_the_connection() {
    for (answer, expected) in [
        ("STORED\r\n", ProtocolError::Misplaced),
        ("EN\r\nEN\r\n", ProtocolError::Unsolicited),
        (
            "VA 99999999 f0\r\n",
            ProtocolError::TooLarge {
                len: 99_999_999,
                max: 64 << 20,
            },
        ),
        ("VA 1 f0\r\nxx", ProtocolError::Malformed),
    ] {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("it is bound");
        let closed = Arc::new(AtomicUsize::new(0));
        let counter = closed.clone();
        thread::spawn(move || {
            use std::io::{Read, Write};
            for stream in listener.incoming().flatten() {
                let mut stream = stream;
                let mut request = [0; 100];
                let _ = stream.read(&mut request);
                let _ = stream.write_all(answer.as_bytes());
                while stream.read(&mut request).is_ok_and(|len| len > 0) {}
                counter.fetch_add(1, Ordering::Relaxed);
            }
        });
        let plain = config(address)
            .dialect(DialectChoice::Meta)
            .ejection_failures(u32::MAX);
        let cache = Client::new(plain);
        let result = cache.get("key");
        match (&expected, result) {
            // The first answer is right; what is behind it ends the connection.
            (ProtocolError::Unsolicited, result) => assert_eq!(result.expect("a miss"), None),
            (
                _,
                Err(Error::Interrupted {
                    cause: Cause::Protocol(error),
                    ..
                }),
            ) => {
                assert_eq!(error, expected);
            }
            (_, other) => panic!("{answer:?}: {other:?}"),
        }
        poll("the connection is closed", || {
            (closed.load(Ordering::Relaxed) > 0).then_some(())
        });
    }
}

#[test]
fn a_server_that_returns() {
    for program in [Program::Coua, Program::Memcached] {
        for over in [Over::Tcp, Over::Unix] {
            let mut server = Server::start(program, over);
            let soon = Duration::from_millis(20);
            let settings = Config::new(&server.address).expect("an address");
            let cache = Client::new(
                settings
                    .operation_timeout(PATIENCE)
                    .ejection_wait(soon, 2 * soon),
            );
            cache
                .set("key", "value", Expiry::NEVER)
                .expect("it is there");
            server.kill();
            for _ in 0..10 {
                let error = cache.get("key").expect_err("it is gone");
                assert!(error.had_no_effect());
            }
            server.restart();
            let value = poll("it is asked again", || cache.get("key").ok());
            assert_eq!(value, None, "it is a new one");
            cache
                .set("key", "value", Expiry::NEVER)
                .expect("it is back for good");
            assert!(cache.get("key").expect("an answer").is_some());
        }
    }
}

#[test]
fn keys_of_an_ejected_server_go_elsewhere_and_come_back() {
    let mut servers: Vec<Server> = (0..3)
        .map(|_| Server::start(Program::Coua, Over::Tcp))
        .collect();
    let list: Vec<&str> = servers.iter().map(|server| &server.address[..]).collect();
    let list = list.join(",");
    let keys: Vec<String> = (0..200).map(|number| format!("key-{number}")).collect();
    let soon = Duration::from_millis(20);
    let settings = |failover, wait| {
        let settings = config(&list).distribution(Distribution::KetamaSpymemcached);
        settings.failover(failover).ejection_wait(wait, wait)
    };
    let cache = Client::new(settings(Failover::Redistribute, soon));
    let strict = Client::new(settings(Failover::FailFast, PATIENCE));
    for key in &keys {
        cache.set(key, "first", Expiry::NEVER).expect("stored");
    }
    servers[1].kill();
    for client in [&cache, &strict] {
        poll("it is ejected", || {
            let failed = client.get_many_each(&keys);
            let ejected = failed.iter().flat_map(Result::as_ref).count();
            let is_over = client.get_many(&keys).is_ok() || ejected < keys.len();
            is_over.then_some(())
        });
    }
    // Where they go to, it is a miss; the others' keys have not moved.
    let values = poll("all keys have a server", || cache.get_many(&keys).ok());
    let moved: Vec<&String> = keys
        .iter()
        .zip(&values)
        .filter_map(|(key, value)| value.is_none().then_some(key))
        .collect();
    assert!((20..120).contains(&moved.len()), "{}", moved.len());
    for key in &moved {
        poll("it is stored elsewhere", || {
            cache.set(key, "second", Expiry::NEVER).ok()
        });
    }
    let error = strict.get(moved[0]).expect_err("it has no other server");
    assert!(error.cause().is_some());
    for key in keys.iter().filter(|key| !moved.contains(key)) {
        assert!(strict.get(key).expect("its server is there").is_some());
    }
    servers[1].restart();
    poll("the keys come back", || {
        let values = cache.get_many(&moved).ok()?;
        values.iter().all(Option::is_none).then_some(())
    });
    for key in &moved {
        cache
            .set(key, "third", Expiry::NEVER)
            .expect("its own server has it");
    }
    assert!(
        cache
            .get_many(&keys)
            .expect("all are there")
            .iter()
            .all(Option::is_some)
    );
}

#[test]
fn connections_are_bounded() {
    let release = Arc::new(AtomicBool::new(false));
    let released = release.clone();
    let fake = Fake::start(move |_: usize, number: usize, _: &[u8]| {
        while number > 0 && !released.load(Ordering::Relaxed) {
            thread::sleep(Duration::from_millis(2));
        }
        Act::Send
    });
    let cache = Client::new(config(fake.address).connections_per_server(3));
    thread::scope(|scope| {
        let threads: Vec<_> = (0..12)
            .map(|number| {
                let cache = &cache;
                scope.spawn(move || cache.get(format!("key-{number}")).expect("its turn comes"))
            })
            .collect();
        poll("three are open", || {
            (fake.connections.load(Ordering::Relaxed) == 3).then_some(())
        });
        release.store(true, Ordering::Relaxed);
        for (number, thread) in threads.into_iter().enumerate() {
            let value = thread.join().expect("no panic").expect("a hit");
            assert_eq!(value.bytes, format!("key-{number}").as_bytes());
        }
    });
    assert_eq!(fake.connections.load(Ordering::Relaxed), 3);

    let fake = once(1, Act::Hang);
    let settings = config(fake.address).operation_timeout(Duration::from_millis(200));
    let cache = Client::new(settings.connections_per_server(1));
    let errors: Vec<Error> = thread::scope(|scope| {
        let get = || cache.get("key");
        let threads: Vec<_> = (0..2).map(|_| scope.spawn(get)).collect();
        threads
            .into_iter()
            .filter_map(|thread| thread.join().expect("no panic").err())
            .collect()
    });
    assert!(!errors.is_empty());
    let is_known =
        |error: &Error| matches!(error.cause(), Some(Cause::Timeout(_) | Cause::Busy(_)));
    assert!(errors.iter().all(is_known), "{errors:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    /// Whatever a server does to its answers, a value is never another key's.
    #[test]
    fn an_answer_is_never_taken_for_anothers(seed in any::<u64>()) {
        let fake = Fake::start(move |connection: usize, number: usize, answer: &[u8]| {
            let mix = seed
                ^ (connection as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
                ^ (number as u64).wrapping_mul(0xd1b5_4a32_d192_ed03);
            let mut random = fastrand(mix);
            match random() % 40 {
                0 => Act::Cut(small(random(), answer.len() + 1)),
                1 => Act::Late(Duration::from_millis(random() % 60)),
                2..8 => Act::Pieces(small(random(), 5) + 1),
                _ => Act::Send,
            }
        });
        let settings = config(fake.address)
            .operation_timeout(Duration::from_millis(25))
            .connections_per_server(2)
            .ejection_failures(u32::MAX);
        let cache = Client::new(settings);
        let answered: usize = thread::scope(|scope| {
            let threads: Vec<_> = (0..3u64).map(|thread| {
                let cache = &cache;
                scope.spawn(move || use_it(cache, seed ^ thread, thread))
            }).collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).sum()
        });
        prop_assert!(answered > 0);
    }
}

/// Many operations; says how many values came.
fn use_it(cache: &Client, seed: u64, thread: u64) -> usize {
    let mut random = fastrand(seed);
    let mut answered = 0;
    let mut check = |key: &str, value: Option<Vec<u8>>| {
        match value {
            Some(value) => assert_eq!(String::from_utf8_lossy(&value), key),
            None => assert!(key.starts_with("miss")),
        }
        answered += 1;
    };
    for round in 0..60 {
        let mut name = || {
            let kind = if small(random(), 3) == 0 {
                "miss"
            } else {
                "hit"
            };
            format!("{kind}-{thread}-{round}-{}", random() % 100_000)
        };
        let keys: Vec<String> = (0..8).map(|_| name()).collect();
        match random() % 4 {
            0 => {
                if let Ok(value) = cache.get(&keys[0]) {
                    check(&keys[0], value.map(|value| value.bytes));
                }
            }
            1 => {
                for (key, value) in keys.iter().zip(cache.get_many_each(&keys)) {
                    if let Ok(value) = value {
                        check(key, value.map(|value| value.bytes));
                    }
                }
            }
            2 => {
                let mut batch = Batch::new();
                let mut tickets = Vec::new();
                for key in &keys {
                    batch.set(key, key, Expiry::NEVER);
                    tickets.push((key, batch.get(key)));
                }
                let mut results = cache.run(batch);
                for (key, ticket) in tickets {
                    if let Ok(value) = results.take(ticket) {
                        check(key, value.map(|value| value.bytes));
                    }
                }
            }
            _ => {
                if let Ok(item) = cache.meta(&keys[0], Meta::get().value()) {
                    check(&keys[0], item.value);
                }
            }
        }
    }
    answered
}

/// Numbers from a seed (xorshift).
fn fastrand(seed: u64) -> impl FnMut() -> u64 {
    let mut state = seed | 1;
    move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state >> 16
    }
}

fn small(random: u64, below: usize) -> usize {
    usize::try_from(random % below as u64).expect("it is below a usize")
}
