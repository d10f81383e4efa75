//! The synchronous client over RDMA, on libfabric's provider `tcp`, and where there is none.
//!
//! Without libfabric everything here goes over TCP, and what RDMA has counted is not looked at.

#![allow(clippy::print_stderr, reason = "says what was left out")]

mod support;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use coua_client::{Batch, Client, Config, DialectChoice, Error, Rdma};
use coua_rdma::libfabric::{Driver, Setup};
use support::{Over, PATIENCE, Program, Server};

const HOUR: Duration = Duration::from_secs(3600);

const FLAGS: [&str; 4] = ["--rdma", "127.0.0.1,provider=tcp", "-I", "4m"];

fn has_libfabric() -> bool {
    let setup = Setup {
        provider: "tcp".to_owned(),
        address: "127.0.0.1:0".parse().expect("an address"),
        credits: 1,
        peers_max: 1,
    };
    let is_there = Driver::client(setup).is_ok();
    if !is_there {
        eprintln!("left out: libfabric is not installed");
    }
    is_there
}

fn client(server: &Server, dialect: DialectChoice) -> Client {
    let config = Config::new(&server.address).expect("an address");
    // With RDMA a server takes some time from listening to serving.
    let config = config.operation_timeout(PATIENCE).connect_timeout(PATIENCE);
    let config = config.dialect(dialect);
    Client::builder(config).transport(Rdma::default()).build()
}

fn value(len: usize) -> Vec<u8> {
    (0..len)
        .map(|at| u8::try_from((at * 31 + len) % 251).expect("below 251"))
        .collect()
}

/// Every kind of operation, with values of every length.
fn use_it(cache: &Client) -> Result<(), Error> {
    assert_eq!(cache.get("nothing")?, None);
    let lens = [0, 1, 100, 4000, 5000, 20_000, 100_000, 1_000_000];
    for len in lens {
        let key = format!("k{len}");
        cache.set(&key, value(len), HOUR)?;
        assert!(
            cache.get(&key)?.expect("a hit").bytes == value(len),
            "{len}"
        );
    }
    let keys: Vec<String> = lens.iter().map(|len| format!("k{len}")).collect();
    for (found, len) in cache.get_many(&keys[..7])?.iter().zip(lens) {
        assert!(found.as_ref().expect("a hit").bytes == value(len), "{len}");
    }
    assert!(cache.append("k1", value(50_000))?);
    assert_eq!(cache.get("k1")?.expect("a hit").bytes.len(), 50_001);
    cache.set("n", "41", HOUR)?;
    assert_eq!(cache.increment("n", 1)?, Some(42));
    assert!(cache.delete("k1")?);
    assert_eq!(cache.get("k1")?, None);
    // Requests in order, more than one piece of output.
    let mut batch = Batch::new();
    let mut asked = Vec::new();
    for nth in 0..200 {
        batch.set(&format!("b{}", nth % 7), value(nth * 20), HOUR);
        asked.push((nth, batch.get(&format!("b{}", nth % 7))));
    }
    let mut results = cache.run(batch);
    for (nth, ticket) in asked {
        let found = results.take(ticket)?.expect("a hit");
        assert!(found.bytes == value(nth * 20), "{nth}");
    }
    Ok(())
}

fn counted(cache: &Client, name: &str) -> u64 {
    let statistics = cache.stats("rdma");
    let all: Vec<BTreeMap<String, String>> = statistics
        .into_iter()
        .map(|(_, statistics)| statistics.expect("an answer").into_iter().collect())
        .collect();
    all[0]
        .get(name)
        .map_or(0, |number| number.parse().unwrap_or(0))
}

#[test]
fn operations_go_over_rdma() {
    let has_rdma = has_libfabric();
    let flags: &[&str] = if has_rdma { &FLAGS } else { &["-I", "4m"] };
    for dialect in [DialectChoice::Ask, DialectChoice::Classic] {
        let server = Server::start_with(Program::Coua, Over::Tcp, flags);
        let cache = client(&server, dialect);
        use_it(&cache).expect("no operation fails");
        // Longer than RDMA carries: they go the other way, and back again.
        cache
            .set("long", value(3_000_000), HOUR)
            .expect("it is set");
        assert!(cache.get("long").expect("an answer").expect("a hit").bytes == value(3_000_000));
        use_it(&cache).expect("no operation fails");
        if has_rdma {
            let began = Instant::now();
            while counted(&cache, "requests") < 40 {
                assert!(
                    began.elapsed() < PATIENCE,
                    "{} requests",
                    counted(&cache, "requests")
                );
            }
            assert!(counted(&cache, "values_read") > 0);
            assert_eq!(counted(&cache, "misbehaved"), 0);
        }
    }
}

#[test]
fn servers_without_rdma_are_used_as_they_are() {
    for program in [Program::Coua, Program::Memcached] {
        let server = Server::start_with(program, Over::Tcp, &["-I", "4m"]);
        use_it(&client(&server, DialectChoice::Ask)).expect("no operation fails");
    }
}

#[test]
fn a_server_that_has_come_back_is_used_again() {
    if !has_libfabric() {
        return;
    }
    let mut server = Server::start_with(Program::Coua, Over::Tcp, &FLAGS);
    let config = Config::new(&server.address).expect("an address");
    let config = config.operation_timeout(PATIENCE).connect_timeout(PATIENCE);
    let config = config.ejection_failures(u32::MAX);
    let cache = Client::builder(config).transport(Rdma::default()).build();
    use_it(&cache).expect("no operation fails");
    server.restart();
    let began = Instant::now();
    while let Err(error) = use_it(&cache) {
        assert!(began.elapsed() < PATIENCE, "{error}");
    }
    server.kill();
    assert!(cache.get("k").is_err());
}

#[test]
fn threads_share_a_client() {
    if !has_libfabric() {
        return;
    }
    let server = Server::start_with(Program::Coua, Over::Tcp, &FLAGS);
    let cache = client(&server, DialectChoice::Meta);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let cache = &cache;
            scope.spawn(move || {
                for nth in 0..200 {
                    let (key, len) = (format!("{thread}-{nth}"), nth * 100 + thread);
                    cache.set(&key, value(len), HOUR).expect("it is set");
                    assert!(
                        cache.get(&key).expect("an answer").expect("a hit").bytes == value(len)
                    );
                }
            });
        }
    });
}
