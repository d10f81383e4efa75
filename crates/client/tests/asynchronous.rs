//! The asynchronous client: every operation against coua and memcached, callers that go away, servers that
//! die and stall.

mod support;

use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use coua_client::tokio::Client;
use coua_client::wire::Status;
use coua_client::{
    Batch, Cause, Config, DialectChoice, Error, Expiry, Meta, Refusal, RequestError, StoreMode,
    StoreOutcome,
};
use proptest::prelude::*;

use support::fake::{Act, Fake};
use support::{Over, PATIENCE, Program, Server};

const HOUR: Duration = Duration::from_secs(3600);

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(2).enable_all().build();
    runtime.expect("a runtime").block_on(future)
}

fn config(address: impl ToString) -> Config {
    let config = Config::new(&address.to_string()).expect("an address");
    config.operation_timeout(PATIENCE).connect_timeout(PATIENCE)
}

#[test]
fn every_operation() {
    for program in [Program::Coua, Program::Memcached] {
        for over in [Over::Tcp, Over::Unix] {
            let server = Server::start(program, over);
            for dialect in [DialectChoice::Ask, DialectChoice::Classic] {
                let cache = Client::new(config(&server.address).dialect(dialect));
                block_on(operations(&cache, dialect)).expect("no operation fails");
            }
        }
    }
}

async fn operations(cache: &Client, dialect: DialectChoice) -> Result<(), Error> {
    for key in ["k", "n", "s0", "s1", "s2"] {
        cache.delete(key).await?;
    }
    assert_eq!(cache.get("k").await?, None);
    assert!(!cache.replace("k", "0", HOUR).await?);
    assert!(!cache.append("k", "0").await?);
    assert!(cache.add("k", "1", HOUR).await?);
    assert!(!cache.add("k", "2", HOUR).await?);
    assert!(cache.append("k", ">").await?);
    assert!(cache.prepend("k", "<").await?);
    let seen = cache.gets("k").await?.expect("a hit");
    assert_eq!(seen.bytes, b"<1>");
    let cas = seen.cas.expect("gets tells it");
    assert!(cache.touch("k", HOUR).await?);
    assert!(cache.get_and_touch("k", HOUR).await?.is_some());
    let cas = cache
        .gets("k")
        .await?
        .and_then(|seen| seen.cas)
        .unwrap_or(cas);
    assert_eq!(cache.cas("k", "3", HOUR, cas).await?, StoreOutcome::Stored);
    assert_eq!(cache.cas("k", "4", HOUR, cas).await?, StoreOutcome::Exists);
    let stored = cache.store(StoreMode::Set, "k", "text", 9, HOUR).await?;
    assert_eq!(stored, StoreOutcome::Stored);
    assert_eq!(cache.get("k").await?.expect("a hit").client_flags, 9);
    let refused = cache.increment("k", 1).await.expect_err("it is no number");
    assert!(matches!(
        refused,
        Error::Refused {
            refusal: Refusal::Client(_),
            ..
        }
    ));
    cache.set("n", "10", HOUR).await?;
    assert_eq!(cache.increment("n", 5).await?, Some(15));
    assert_eq!(cache.decrement("n", 20).await?, Some(0));
    match (dialect, cache.meta("k", Meta::get().value().ttl()).await) {
        (DialectChoice::Classic, refused) => {
            assert!(matches!(
                refused,
                Err(Error::Request(RequestError::NeedsMeta(_)))
            ));
        }
        (_, item) => {
            let item = item?;
            assert_eq!(
                (item.status, item.value.as_deref()),
                (Status::Done, Some(&b"text"[..]))
            );
            assert!(item.flags.details().ttl_seconds.is_some());
        }
    }
    let too_large = cache
        .set("k", vec![b'x'; 2 << 20], HOUR)
        .await
        .expect_err("the limit");
    assert!(matches!(
        too_large,
        Error::Refused {
            refusal: Refusal::Server(_),
            ..
        }
    ));

    let large = vec![b'l'; 1_000_000];
    let mut batch = Batch::new();
    let sets: Vec<_> = (0..3)
        .map(|n| batch.set(format!("s{n}"), &large, HOUR))
        .collect();
    let gets: Vec<_> = (0..3).map(|n| batch.get(format!("s{n}"))).collect();
    let bad = batch.get("a key");
    let mut results = cache.run(batch).await;
    for ticket in sets {
        results.take(ticket)?;
    }
    for ticket in gets {
        assert_eq!(results.take(ticket)?.expect("a hit").bytes, large);
    }
    assert!(results.take(bad).is_err());

    // More than the queue of a connection has room for, all at once.
    let tasks: Vec<_> = (0..5000)
        .map(|number| {
            let cache = cache.clone();
            tokio::spawn(async move {
                let key = format!("key-{number}");
                cache.set(&key, &key, HOUR).await
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("no panic")?;
    }
    let keys: Vec<String> = (0..6000).map(|number| format!("key-{number}")).collect();
    let values = cache.get_many(&keys).await?;
    for (number, (key, value)) in keys.iter().zip(values).enumerate() {
        let expected = (number < 5000).then_some(key.as_bytes());
        assert_eq!(value.as_ref().map(|value| &value.bytes[..]), expected);
    }
    assert!(cache.get_many_each(&["a key"]).await[0].is_err());
    for (_, version) in cache.version().await {
        assert!(version?.contains('.'));
    }
    for (_, stats) in cache.stats("").await {
        assert!(stats?.len() > 10);
    }
    cache.flush_all(Duration::ZERO).await
}

#[test]
fn callers_that_go_away_leave_the_others_their_answers() {
    let fake = Fake::start(|_: usize, number: usize, _: &[u8]| match number % 7 {
        0 => Act::Late(Duration::from_millis(2)),
        _ => Act::Pieces(3),
    });
    let cache = Client::new(config(fake.address).connections_per_server(1));
    block_on(async {
        let mut answered = 0;
        for round in 0..300u32 {
            let key = format!("key-{round}");
            // Some are dropped before they are sent, some while they wait, some are answered.
            let patience = match round % 10 {
                9 => PATIENCE,
                step => Duration::from_micros(u64::from(step) * 300),
            };
            let one = tokio::time::timeout(patience, cache.get(&key)).await;
            if let Ok(value) = one {
                assert_eq!(
                    value.expect("an answer").expect("a hit").bytes,
                    key.as_bytes()
                );
                answered += 1;
            }
            let keys = [format!("miss-{round}"), format!("many-{round}")];
            if let Ok(values) = tokio::time::timeout(patience, cache.get_many(&keys)).await {
                let values = values.expect("an answer");
                assert!(values[0].is_none());
                assert_eq!(values[1].as_ref().expect("a hit").bytes, keys[1].as_bytes());
            }
        }
        let last = cache.get("last").await.expect("an answer").expect("a hit");
        assert_eq!(last.bytes, b"last");
        assert!(answered > 0);
    });
    assert_eq!(
        fake.connections.load(Ordering::Relaxed),
        1,
        "none of it cost the connection"
    );
}

#[test]
fn a_server_that_dies_in_the_middle_of_each_answer() {
    for cut in 0..b"VA 3 f0\r\nkey\r\n".len() {
        let fake = Fake::start(move |connection: usize, number: usize, _: &[u8]| {
            match connection == 0 && number > 0 {
                true => Act::Cut(cut),
                false => Act::Send,
            }
        });
        let cache = Client::new(config(fake.address).connections_per_server(1));
        block_on(async {
            let (set, get) = tokio::join!(cache.set("key", "v", Expiry::NEVER), cache.get("key"));
            // The set comes first, and is known to be done only if its whole answer came.
            match set {
                Ok(()) => assert!(cut >= b"HD\r\n".len()),
                Err(Error::OutcomeUnknown {
                    cause: Cause::Closed | Cause::Io(..),
                    ..
                }) => {
                    assert!(cut < b"HD\r\n".len());
                }
                Err(error) => panic!("{error:?}"),
            }
            assert_eq!(get.expect("asked again").expect("a hit").bytes, b"key");
            cache
                .set("key", "v", Expiry::NEVER)
                .await
                .expect("a new connection");
        });
    }
}

#[test]
fn a_server_that_stalls() {
    let hung = AtomicUsize::new(0);
    let fake = Fake::start(move |_: usize, number: usize, _: &[u8]| {
        match number > 0 && hung.fetch_add(1, Ordering::Relaxed) == 0 {
            true => Act::Hang,
            false => Act::Send,
        }
    });
    let settings = config(fake.address)
        .connections_per_server(1)
        .operation_timeout(Duration::from_millis(200))
        .ejection_failures(u32::MAX);
    let cache = Client::new(settings);
    block_on(async {
        let error = cache
            .set("key", "v", Expiry::NEVER)
            .await
            .expect_err("no answer");
        assert!(error.is_timeout() && !error.had_no_effect(), "{error:?}");
        // The connection is given up, and another one takes its place.
        for _ in 0..1000 {
            if let Ok(value) = cache.get("key").await {
                assert_eq!(value.expect("a hit").bytes, b"key");
                return;
            }
        }
        panic!("it stays with the connection that stalls");
    });
    let nobody = Client::new(config("127.0.0.1:1").ejection_wait(PATIENCE, PATIENCE));
    block_on(async {
        let error = nobody
            .set("key", "v", Expiry::NEVER)
            .await
            .expect_err("nobody is there");
        assert!(matches!(&error, Error::NotSent { .. }), "{error:?}");
        let error = nobody.get("key").await.expect_err("nobody is there");
        assert!(matches!(error.cause(), Some(Cause::Ejected)), "{error:?}");
    });
}

/// More than a connection has in flight, with one that cannot be sent among them.
#[test]
fn a_long_batch() {
    for program in [Program::Coua, Program::Memcached] {
        let server = Server::start(program, Over::Tcp);
        let cache = Client::new(config(&server.address));
        block_on(async {
            let mut batch = Batch::new();
            let key = |index: usize| match index {
                1700 => "a b".to_owned(),
                _ => format!("long:{index}"),
            };
            let sets: Vec<_> = (0..3000)
                .map(|index| batch.set(key(index), vec![b'v'; index], Expiry::NEVER))
                .collect();
            let gets: Vec<_> = (0..3000).map(|index| batch.get(key(index))).collect();
            let mut results = cache.run(batch).await;
            for (index, (set, get)) in sets.into_iter().zip(gets).enumerate() {
                let (set, get) = (results.take(set), results.take(get));
                if index == 1700 {
                    assert!(matches!(set, Err(Error::Request(_))), "{set:?}");
                    assert!(matches!(get, Err(Error::Request(_))), "{get:?}");
                    continue;
                }
                set.expect("it is stored");
                let value = get.expect("an answer").expect("it was just stored");
                assert_eq!(value.bytes.len(), index);
            }
        });
    }
}

/// Of a batch whose connection is lost, each operation tells what is known of it.
#[test]
fn a_batch_that_is_cut() {
    // The answers are those to `mn`, and to twenty requests.
    let server = Fake::start(|_: usize, number: usize, _: &[u8]| match number {
        0..11 => Act::Send,
        _ => Act::Cut(0),
    });
    let cache = Client::new(config(server.address));
    block_on(async {
        let mut batch = Batch::new();
        let mut tickets = Vec::new();
        for index in 0..10 {
            let key = format!("cut:{index}");
            tickets.push((batch.set(&key, "v", HOUR), batch.get(&key)));
        }
        let mut results = cache.run(batch).await;
        for (index, (set, get)) in tickets.into_iter().enumerate() {
            let (set, get) = (results.take(set), results.take(get));
            if index < 5 {
                assert!(set.is_ok() && get.is_ok(), "{set:?}, {get:?}");
                continue;
            }
            assert!(matches!(set, Err(Error::OutcomeUnknown { .. })), "{set:?}");
            assert!(matches!(get, Err(Error::Interrupted { .. })), "{get:?}");
        }
    });
}

#[test]
fn a_server_that_returns() {
    let mut server = Server::start(Program::Coua, Over::Tcp);
    let soon = Duration::from_millis(20);
    let cache = Client::new(config(&server.address).ejection_wait(soon, 2 * soon));
    block_on(async {
        cache
            .set("key", "v", Expiry::NEVER)
            .await
            .expect("it is there");
        server.kill();
        for _ in 0..10 {
            let error = cache.get("key").await.expect_err("it is gone");
            assert!(error.had_no_effect());
        }
        server.restart();
        let deadline = std::time::Instant::now() + PATIENCE;
        while cache.set("key", "v", Expiry::NEVER).await.is_err() {
            assert!(std::time::Instant::now() < deadline, "it is asked again");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert!(cache.get("key").await.expect("an answer").is_some());
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    /// Whatever a server does to its answers, and whichever callers go away: a value is never another
    /// key's.
    #[test]
    fn an_answer_is_never_taken_for_anothers(seed in any::<u64>()) {
        let fake = Fake::start(move |connection: usize, number: usize, answer: &[u8]| {
            let mut mix = seed ^ (connection as u64) << 32 ^ number as u64;
            mix = (mix ^ mix >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
            mix = (mix ^ mix >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
            let amount = usize::try_from(mix >> 40 & 31).expect("it is small");
            match mix % 60 {
                0 => Act::Cut(amount % (answer.len() + 1)),
                1 => Act::Late(Duration::from_millis(amount as u64 * 2)),
                2..8 => Act::Pieces(amount % 5 + 1),
                _ => Act::Send,
            }
        });
        let settings = config(fake.address)
            .operation_timeout(Duration::from_millis(30))
            .ejection_failures(u32::MAX);
        let cache = Client::new(settings);
        let answered = block_on(async {
            let tasks: Vec<_> = (0..8u64).map(|task| {
                let cache = cache.clone();
                tokio::spawn(async move { use_it(&cache, task).await })
            }).collect();
            let mut answered = 0;
            for task in tasks {
                answered += task.await.expect("no panic");
            }
            answered
        });
        prop_assert!(answered > 0);
    }
}

async fn use_it(cache: &Client, task: u64) -> usize {
    let mut answered = 0;
    for round in 0..60u64 {
        let keys: Vec<String> = (0..6)
            .map(|at| {
                format!(
                    "{}-{task}-{round}-{at}",
                    if (round + at) % 3 == 0 { "miss" } else { "hit" }
                )
            })
            .collect();
        let values = match round % 3 {
            0 => vec![cache.get(&keys[0]).await],
            1 => cache.get_many_each(&keys).await,
            _ => {
                let patience = Duration::from_micros(round * 20);
                match tokio::time::timeout(patience, cache.get_many_each(&keys)).await {
                    Ok(values) => values,
                    Err(_) => continue,
                }
            }
        };
        for (key, value) in keys.iter().zip(values) {
            match value {
                Ok(Some(value)) => assert_eq!(value.bytes, key.as_bytes()),
                Ok(None) => assert!(key.starts_with("miss")),
                Err(_) => continue,
            }
            answered += 1;
        }
    }
    answered
}
