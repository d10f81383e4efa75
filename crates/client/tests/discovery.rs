//! Clients that find out which servers there are: from a server with a list, and from names.

mod support;

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use coua_client::{Client, Config, Discovery, Error, Expiry};
use support::{Over, PATIENCE, Program, Server, poll};

const OFTEN: Duration = Duration::from_millis(100);

fn cluster() -> Discovery {
    Discovery::cluster().interval(OFTEN)
}

/// A file with the servers of a fleet.
struct List {
    folder: tempfile::TempDir,
}

impl List {
    fn new() -> List {
        let folder = tempfile::tempdir().expect("a folder");
        let list = List { folder };
        list.write(1, &["127.0.0.1:1"]);
        list
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("cluster")
    }

    /// In one step, as whoever writes such a file should.
    fn write(&self, version: u64, servers: &[&str]) {
        let lines = servers.iter().map(|server| {
            let (host, port) = server.split_once(':').expect("HOST:PORT");
            format!("{host}|{host}|{port}\n")
        });
        let text = format!("{version}\n{}", lines.collect::<String>());
        let new = self.folder.path().join("new");
        fs::write(&new, text).expect("it is written");
        fs::rename(new, self.path()).expect("it is renamed");
    }

    /// A server that tells of the list.
    fn teller(&self) -> Server {
        let option = format!("cluster_config={}", self.path().display());
        Server::start_with(Program::Coua, Over::Tcp, &["-o", &option])
    }
}

fn config(servers: &str) -> Config {
    let config = Config::new(servers).expect("addresses");
    config.operation_timeout(PATIENCE).connect_timeout(PATIENCE)
}

fn plain() -> Server {
    Server::start(Program::Coua, Over::Tcp)
}

fn key(index: usize) -> String {
    format!("key:{index}")
}

/// How many of the keys a server has, of itself.
fn held(server: &Server, keys: usize) -> usize {
    let alone = Client::new(config(&server.address));
    let keys: Vec<String> = (0..keys).map(key).collect();
    let values = alone.get_many(&keys).expect("answers");
    values.iter().flatten().count()
}

/// Servers come and go under load, and no request fails.
#[test]
fn changes_lose_no_request() {
    let list = List::new();
    let teller = list.teller();
    let (second, third) = (plain(), plain());
    list.write(2, &[&teller.address, &second.address]);
    poll("the list", || {
        let cache = Client::builder(config(&teller.address)).discover(cluster());
        let servers = cache.expect("a list").version().len();
        (servers == 2).then_some(())
    });
    let cache = Client::builder(config(&teller.address));
    let cache = cache.discover(cluster()).expect("a list");
    let (is_over, done) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        for thread in 0..4 {
            let (cache, is_over, done) = (&cache, &is_over, &done);
            scope.spawn(move || {
                let mut index = thread;
                while !is_over.load(Ordering::Relaxed) {
                    let key = key(index % 1000);
                    cache.set(&key, &key, Expiry::NEVER).expect("it is stored");
                    let value = cache.get(&key).expect("an answer");
                    // Between the two the key may have moved to a server that does not have it yet.
                    if let Some(value) = value {
                        assert_eq!(value.bytes, key.as_bytes());
                    }
                    index += 1;
                    done.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let all_done = |more: usize| {
            let enough = done.load(Ordering::Relaxed) + more;
            poll("requests", || {
                (done.load(Ordering::Relaxed) >= enough).then_some(())
            });
        };
        all_done(2000);
        assert!(held(&second, 1000) > 50 && held(&third, 1000) == 0);
        list.write(3, &[&teller.address, &second.address, &third.address]);
        poll("the third server", || {
            (cache.version().len() == 3).then_some(())
        });
        all_done(4000);
        assert!(held(&third, 1000) > 50);
        // The second one leaves, and is gone only then.
        list.write(4, &[&teller.address, &third.address]);
        poll("two servers", || (cache.version().len() == 2).then_some(()));
        all_done(100);
        drop(second);
        all_done(4000);
        is_over.store(true, Ordering::Relaxed);
    });
    // Keys are where a client has them that was given the list.
    let given = Client::new(config(&format!("{},{}", teller.address, third.address)));
    for index in 0..1000 {
        cache
            .set(key(index), "v", Expiry::NEVER)
            .expect("it is stored");
        assert!(given.get(key(index)).expect("an answer").is_some());
    }
}

#[test]
fn an_older_list_changes_nothing() {
    let list = List::new();
    let teller = list.teller();
    list.write(7, &[&teller.address, "127.0.0.1:1"]);
    let cache = poll("the list", || {
        let cache = Client::builder(config(&teller.address)).discover(cluster());
        cache.ok().filter(|cache| cache.version().len() == 2)
    });
    list.write(6, &[&teller.address]);
    // Whoever asks now is told so.
    poll("the older list", || {
        let cache = Client::builder(config(&teller.address)).discover(cluster());
        (cache.expect("a list").version().len() == 1).then_some(())
    });
    thread::sleep(5 * OFTEN);
    assert_eq!(cache.version().len(), 2);
    list.write(8, &[&teller.address]);
    poll("the newer list", || {
        (cache.version().len() == 1).then_some(())
    });
}

/// Where the configuration endpoint goes, servers of the list are asked.
#[test]
fn any_server_of_the_list_may_be_asked() {
    let list = List::new();
    let (mut first, second) = (list.teller(), list.teller());
    list.write(2, &[&first.address, &second.address]);
    let cache = poll("the list", || {
        let cache = Client::builder(config(&first.address)).discover(cluster());
        cache.ok().filter(|cache| cache.version().len() == 2)
    });
    first.kill();
    list.write(3, &[&second.address]);
    poll("one server", || (cache.version().len() == 1).then_some(()));
    for index in 0..100 {
        cache
            .set(key(index), "v", Expiry::NEVER)
            .expect("it is stored");
    }
}

/// What memcached before 1.4.14 had: an item of that key.
#[test]
fn the_key_of_old() {
    let server = Server::start(Program::Memcached, Over::Tcp);
    let cache = Client::new(config(&server.address));
    let nothing = Client::builder(config(&server.address)).discover(cluster());
    let Err(Error::Discovery { reason, .. }) = nothing else {
        panic!("{nothing:?}");
    };
    assert_eq!(reason, "it has no list of servers");
    let (host, port) = server.address.split_once(':').expect("HOST:PORT");
    let value = format!("3\n{host}|{host}|{port} other||1\n");
    cache
        .set("AmazonElastiCache:cluster", value, Expiry::NEVER)
        .expect("it is stored");
    let found = Client::builder(config(&server.address)).discover(cluster());
    let servers: Vec<String> = found
        .expect("a list")
        .version()
        .into_iter()
        .map(|(name, _)| name)
        .collect();
    assert_eq!(servers, [server.address.as_str(), "other:1"]);
    cache
        .set("AmazonElastiCache:cluster", "nonsense", Expiry::NEVER)
        .expect("it is stored");
    let nonsense = Client::builder(config(&server.address)).discover(cluster());
    assert!(
        matches!(nonsense, Err(Error::Discovery { .. })),
        "{nonsense:?}"
    );
}

#[test]
fn nobody_tells() {
    let quick = |servers: &str| {
        let config = Config::new(servers).expect("an address");
        Client::builder(config.connect_timeout(Duration::from_secs(5)))
    };
    let nobody = quick("127.0.0.1:1").discover(cluster());
    assert!(matches!(nobody, Err(Error::NotSent { .. })), "{nobody:?}");
    // One of several is enough.
    let list = List::new();
    let teller = list.teller();
    let servers = format!("127.0.0.1:1,{}", teller.address);
    quick(&servers).discover(cluster()).expect("a list");
    for names in ["no.such.name.invalid:1", "unix:/nowhere"] {
        let names = quick(names).discover(Discovery::names());
        assert!(matches!(names, Err(Error::Discovery { .. })), "{names:?}");
    }
}

#[test]
fn addresses_of_names() {
    let server = plain();
    let (_, port) = server.address.split_once(':').expect("HOST:PORT");
    let names = format!("localhost:{port},127.0.0.1:{port}");
    let cache = Client::builder(config(&names)).discover(Discovery::names().interval(OFTEN));
    let cache = cache.expect("addresses");
    let versions = cache.version();
    // A machine may have ::1 for localhost too, where nobody listens.
    let ours: Vec<_> = versions
        .iter()
        .filter(|(_, version)| version.is_ok())
        .collect();
    assert_eq!(ours.len(), 1, "{versions:?}");
    assert_eq!(ours[0].0, server.address);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_tokio() {
    use coua_client::tokio::Client;
    let list = List::new();
    let (teller, second, third) = (list.teller(), plain(), plain());
    list.write(2, &[&teller.address, &second.address]);
    let nobody = Client::builder(config("127.0.0.1:1"))
        .discover(cluster())
        .await;
    assert!(matches!(nobody, Err(Error::NotSent { .. })), "{nobody:?}");
    let cache = loop {
        let cache = Client::builder(config(&teller.address))
            .discover(cluster())
            .await;
        let cache = cache.expect("a list");
        if cache.version().await.len() == 2 {
            break cache;
        }
    };
    let is_over = std::sync::Arc::new(AtomicBool::new(false));
    let mut tasks = Vec::new();
    for task in 0..8 {
        let (cache, is_over) = (cache.clone(), is_over.clone());
        tasks.push(tokio::spawn(async move {
            let mut index = task;
            while !is_over.load(Ordering::Relaxed) {
                let key = key(index % 1000);
                cache
                    .set(&key, &key, Expiry::NEVER)
                    .await
                    .expect("it is stored");
                let values = cache.get_many(&[&key, "other"]).await.expect("answers");
                assert!(
                    values[0]
                        .as_ref()
                        .is_none_or(|value| value.bytes == key.as_bytes())
                );
                index += 1;
            }
            index
        }));
    }
    let until = async |servers: usize| {
        let limit = tokio::time::Instant::now() + PATIENCE;
        while cache.version().await.len() != servers {
            assert!(tokio::time::Instant::now() < limit, "not {servers} servers");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        tokio::time::sleep(2 * OFTEN).await;
    };
    list.write(3, &[&teller.address, &second.address, &third.address]);
    until(3).await;
    list.write(4, &[&teller.address, &third.address]);
    until(2).await;
    drop(second);
    tokio::time::sleep(2 * OFTEN).await;
    is_over.store(true, Ordering::Relaxed);
    for task in tasks {
        assert!(task.await.expect("no request fails") > 100);
    }
    assert!(held(&third, 1000) > 100);
}
