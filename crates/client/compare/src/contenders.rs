//! The clients that are measured, each behind the same seam.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use async_memcached::AsciiProtocol;
use tokio::runtime::{Builder, Runtime};

pub const KEYS: usize = 1000;
pub const MANY: usize = 100;
const VALUE: [u8; 100] = [b'v'; 100];

/// What a turn does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Get,
    GetMany,
    Set,
    /// Sets that are sent without waiting for answers between them.
    SetMany,
}

pub const KINDS: [Kind; 4] = [Kind::Get, Kind::GetMany, Kind::Set, Kind::SetMany];

impl Kind {
    /// As it stands in the tables.
    pub fn title(self) -> &'static str {
        match self {
            Kind::Get => "get",
            Kind::GetMany => "get of 100 keys",
            Kind::Set => "set",
            Kind::SetMany => "100 sets, pipelined",
        }
    }

    /// As it stands on command lines.
    pub fn word(self) -> &'static str {
        match self {
            Kind::Get => "get",
            Kind::GetMany => "get-many",
            Kind::Set => "set",
            Kind::SetMany => "set-many",
        }
    }
}

/// How long a turn goes on.
#[derive(Clone, Copy, Debug)]
pub enum Until {
    Time(Duration),
    Count(usize),
}

impl Until {
    fn is_over(self, started: Instant, count: usize) -> bool {
        match self {
            Until::Time(time) => started.elapsed() >= time,
            Until::Count(all) => count >= all,
        }
    }

    fn word(self) -> String {
        match self {
            Until::Time(time) => time.as_secs_f64().to_string(),
            Until::Count(count) => format!("{count}x"),
        }
    }
}

/// A client, ready to be measured.
pub trait Contender {
    /// Requests a second, where a multi-get or a pipeline is one request; `None` if it has no such request.
    fn turn(&mut self, kind: Kind, keys: &[String], until: Until) -> Result<Option<f64>>;
}

/// How a contender is connected to HOST:PORT.
type Make = fn(&str) -> Result<Box<dyn Contender>>;

/// All of them; the first is the one that the others are compared with.
pub const CONTENDERS: &[(&str, Make)] = &[
    ("coua-client", |server| {
        Ok(Box::new(Coua(coua_client::Client::connect(server)?)))
    }),
    ("coua-client, tokio", |server| {
        Ok(Box::new(CouaTokio::new(server)?))
    }),
    ("memcache 0.20", |server| {
        Ok(Box::new(Memcache::new(server)?))
    }),
    ("async-memcached 0.6", |server| {
        Ok(Box::new(AsyncMemcached::new(server)?))
    }),
    ("libmemcached", |server| {
        Ok(Box::new(Libmemcached::new(server)?))
    }),
];

/// Requests between two looks at the clock.
const STEP: usize = 16;

/// Runs `request`, which is told its number, for the length of a turn.
fn timed(until: Until, mut request: impl FnMut(usize) -> Result<()>) -> Result<Option<f64>> {
    let started = Instant::now();
    let mut count = 0;
    while !until.is_over(started, count) {
        for _ in 0..STEP {
            request(count)?;
            count += 1;
        }
    }
    Ok(Some(count as f64 / started.elapsed().as_secs_f64()))
}

/// The keys of a multi-get.
fn some(keys: &[String], number: usize) -> &[String] {
    let begin = number * MANY % KEYS;
    &keys[begin..begin + MANY]
}

fn batch_of_sets(keys: &[String]) -> coua_client::Batch {
    let mut batch = coua_client::Batch::new();
    for key in keys {
        batch.set(key, VALUE, coua_client::Expiry::NEVER);
    }
    batch
}

struct Coua(coua_client::Client);

impl Contender for Coua {
    fn turn(&mut self, kind: Kind, keys: &[String], until: Until) -> Result<Option<f64>> {
        let cache = &self.0;
        timed(until, |number| {
            let key = &keys[number % KEYS];
            match kind {
                Kind::Get => ensure!(cache.get(key)?.is_some_and(|value| value.bytes == VALUE)),
                Kind::Set => cache.set(key, VALUE, coua_client::Expiry::NEVER)?,
                Kind::GetMany => {
                    let values = cache.get_many(some(keys, number))?;
                    ensure!(values.iter().flatten().count() == MANY);
                }
                Kind::SetMany => {
                    let results = cache.run(batch_of_sets(some(keys, number)));
                    ensure!(results.first_error().is_none());
                }
            }
            Ok(())
        })
    }
}

/// One thread, on which the connection's task runs too.
fn runtime() -> Result<Runtime> {
    Ok(Builder::new_current_thread().enable_all().build()?)
}

struct CouaTokio {
    client: coua_client::tokio::Client,
    runtime: Runtime,
}

impl CouaTokio {
    fn new(server: &str) -> Result<Self> {
        let client = coua_client::tokio::Client::connect(server)?;
        let runtime = runtime()?;
        Ok(CouaTokio { client, runtime })
    }
}

impl Contender for CouaTokio {
    fn turn(&mut self, kind: Kind, keys: &[String], until: Until) -> Result<Option<f64>> {
        let cache = &self.client;
        self.runtime.block_on(async {
            let started = Instant::now();
            let mut number = 0;
            while !until.is_over(started, number) {
                for _ in 0..STEP {
                    let key = &keys[number % KEYS];
                    match kind {
                        Kind::Get => {
                            let value = cache.get(key).await?;
                            ensure!(value.is_some_and(|value| value.bytes == VALUE));
                        }
                        Kind::Set => cache.set(key, VALUE, coua_client::Expiry::NEVER).await?,
                        Kind::GetMany => {
                            let values = cache.get_many(some(keys, number)).await?;
                            ensure!(values.iter().flatten().count() == MANY);
                        }
                        Kind::SetMany => {
                            let results = cache.run(batch_of_sets(some(keys, number))).await;
                            ensure!(results.first_error().is_none());
                        }
                    }
                    number += 1;
                }
            }
            Ok(Some(number as f64 / started.elapsed().as_secs_f64()))
        })
    }
}

struct Memcache(memcache::Client);

impl Memcache {
    fn new(server: &str) -> Result<Self> {
        let url = format!("memcache://{server}?protocol=ascii&tcp_nodelay=true&timeout=10");
        Ok(Memcache(memcache::connect(url)?))
    }
}

impl Contender for Memcache {
    fn turn(&mut self, kind: Kind, keys: &[String], until: Until) -> Result<Option<f64>> {
        let cache = &self.0;
        if kind == Kind::SetMany {
            return Ok(None);
        }
        timed(until, |number| {
            let key = &keys[number % KEYS];
            match kind {
                Kind::Get => {
                    let value: Option<Vec<u8>> = cache.get(key)?;
                    ensure!(value.is_some_and(|value| value == VALUE));
                }
                Kind::GetMany => {
                    let keys: Vec<&str> = some(keys, number).iter().map(|key| &key[..]).collect();
                    let values = cache.gets::<Vec<u8>>(&keys)?;
                    ensure!(values.len() == MANY);
                }
                Kind::Set | Kind::SetMany => cache.set(key, &VALUE[..], 0)?,
            }
            Ok(())
        })
    }
}

struct AsyncMemcached {
    client: async_memcached::Client,
    runtime: Runtime,
}

impl AsyncMemcached {
    fn new(server: &str) -> Result<Self> {
        let runtime = runtime()?;
        let connecting = async_memcached::Client::new(format!("tcp://{server}"));
        let client = runtime.block_on(connecting)?;
        Ok(AsyncMemcached { client, runtime })
    }
}

impl Contender for AsyncMemcached {
    fn turn(&mut self, kind: Kind, keys: &[String], until: Until) -> Result<Option<f64>> {
        let cache = &mut self.client;
        self.runtime.block_on(async {
            let started = Instant::now();
            let mut number = 0;
            while !until.is_over(started, number) {
                for _ in 0..STEP {
                    let key = &keys[number % KEYS];
                    match kind {
                        Kind::Get => {
                            let value = cache.get(key).await?;
                            let value = value.and_then(|value| value.data);
                            ensure!(value.as_deref() == Some(&VALUE[..]));
                        }
                        Kind::Set => cache.set(key, &VALUE[..], None, None).await?,
                        Kind::GetMany => {
                            let values = cache.get_multi(some(keys, number)).await?;
                            ensure!(values.len() == MANY);
                        }
                        Kind::SetMany => {
                            let pairs: Vec<(&str, &[u8])> = some(keys, number)
                                .iter()
                                .map(|key| (&key[..], &VALUE[..]))
                                .collect();
                            let results = cache.set_multi(&pairs, None, None).await?;
                            ensure!(results.values().all(Result::is_ok) && results.len() == MANY);
                        }
                    }
                    number += 1;
                }
            }
            Ok(Some(number as f64 / started.elapsed().as_secs_f64()))
        })
    }
}

/// A process a turn, which measures itself once it is connected.
struct Libmemcached {
    program: std::path::PathBuf,
    host: String,
    port: String,
}

impl Libmemcached {
    fn new(server: &str) -> Result<Self> {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/libmemcached.c");
        let program =
            std::env::temp_dir().join(format!("compare-libmemcached-{}", std::process::id()));
        let mut cc = Command::new("cc");
        cc.args(["-O2", "-o"])
            .arg(&program)
            .arg(source)
            .arg("-lmemcached");
        ensure!(cc.status()?.success(), "libmemcached.c does not compile");
        let (host, port) = server.rsplit_once(':').context("HOST:PORT")?;
        let (host, port) = (host.to_owned(), port.to_owned());
        Ok(Libmemcached {
            program,
            host,
            port,
        })
    }
}

impl Contender for Libmemcached {
    fn turn(&mut self, kind: Kind, _: &[String], until: Until) -> Result<Option<f64>> {
        let words = [&self.host, &self.port, kind.word(), &until.word()];
        let output = Command::new(&self.program).args(words).output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        ensure!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(Some(text.trim().parse()?))
    }
}

impl Drop for Libmemcached {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.program);
    }
}
