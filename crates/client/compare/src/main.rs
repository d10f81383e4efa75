//! Measures clients side by side against one server, in turns, and prints medians and ratios.
//!
//! `cargo run --release -- HOST:PORT [ROUNDS]`. libmemcached is asked by a C program that `cc` compiles from
//! `src/libmemcached.c`; it needs libmemcached-dev. Each turn makes one kind of request, one after another
//! on one connection, for a third of a second. In each round every client has one turn of each kind, and
//! the order of the clients moves on by one.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use async_memcached::AsciiProtocol;
use tokio::runtime::{Builder, Runtime};

const KEYS: usize = 1000;
const MANY: usize = 100;
const VALUE: [u8; 100] = [b'v'; 100];
const TURN: Duration = Duration::from_millis(330);

/// What a turn does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Get,
    GetMany,
    Set,
}

const KINDS: [Kind; 3] = [Kind::Get, Kind::GetMany, Kind::Set];

/// A client, ready to be measured.
trait Contender {
    fn name(&self) -> &'static str;

    /// Requests a second, where a multi-get is one request.
    fn turn(&mut self, kind: Kind, keys: &[String]) -> Result<f64>;
}

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let server = arguments.next().context("HOST:PORT of a server")?;
    let rounds: usize = arguments.next().map_or(Ok(9), |rounds| rounds.parse())?;
    let keys: Vec<String> = (0..KEYS).map(|number| format!("key:{number:06}")).collect();
    let filler = coua_client::Client::connect(&server)?;
    for key in &keys {
        filler.set(key, VALUE, coua_client::Expiry::NEVER)?;
    }
    let mut contenders: Vec<Box<dyn Contender>> = vec![
        Box::new(Coua(coua_client::Client::connect(&server)?)),
        Box::new(CouaTokio::new(&server)?),
        Box::new(Memcache::new(&server)?),
        Box::new(AsyncMemcached::new(&server)?),
        Box::new(Libmemcached::new(&server)?),
    ];
    // One turn each to warm up.
    for contender in &mut contenders {
        for kind in KINDS {
            contender.turn(kind, &keys)?;
        }
    }
    let mut rates: BTreeMap<(Kind, &str), Vec<f64>> = BTreeMap::new();
    for round in 0..rounds {
        for kind in KINDS {
            for at in 0..contenders.len() {
                let next = (at + round) % contenders.len();
                let contender = &mut contenders[next];
                let rate = contender.turn(kind, &keys)?;
                rates
                    .entry((kind, contender.name()))
                    .or_default()
                    .push(rate);
            }
        }
    }
    println!(
        "| request | client | requests/s, median | least | most | coua-client's rate over it |"
    );
    println!("|---|---|--:|--:|--:|--:|");
    for kind in KINDS {
        let ours = rates[&(kind, contenders[0].name())].clone();
        for contender in &contenders {
            let rates = &rates[&(kind, contender.name())];
            let ratios: Vec<f64> = ours
                .iter()
                .zip(rates)
                .map(|(ours, rate)| ours / rate)
                .collect();
            let least = rates.iter().copied().fold(f64::INFINITY, f64::min);
            let most = rates.iter().copied().fold(0.0, f64::max);
            let what = match kind {
                Kind::Get => "get".to_owned(),
                Kind::GetMany => format!("get of {MANY} keys"),
                Kind::Set => "set".to_owned(),
            };
            println!(
                "| {what} | {} | {:.0} | {least:.0} | {most:.0} | {:.2} |",
                contender.name(),
                median(rates),
                median(&ratios),
            );
        }
    }
    Ok(())
}

fn median(numbers: &[f64]) -> f64 {
    let mut sorted = numbers.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

/// Runs `request`, which is told its number, for the length of a turn.
fn timed(mut request: impl FnMut(usize) -> Result<()>) -> Result<f64> {
    let started = Instant::now();
    let mut count = 0;
    while started.elapsed() < TURN {
        for _ in 0..16 {
            request(count)?;
            count += 1;
        }
    }
    Ok(count as f64 / started.elapsed().as_secs_f64())
}

/// The keys of a multi-get.
fn some(keys: &[String], number: usize) -> &[String] {
    let begin = number * MANY % KEYS;
    &keys[begin..begin + MANY]
}

struct Coua(coua_client::Client);

impl Contender for Coua {
    fn name(&self) -> &'static str {
        "coua-client"
    }

    fn turn(&mut self, kind: Kind, keys: &[String]) -> Result<f64> {
        let cache = &self.0;
        timed(|number| {
            let key = &keys[number % KEYS];
            match kind {
                Kind::Get => ensure!(cache.get(key)?.is_some_and(|value| value.bytes == VALUE)),
                Kind::Set => cache.set(key, VALUE, coua_client::Expiry::NEVER)?,
                Kind::GetMany => {
                    let values = cache.get_many(some(keys, number))?;
                    ensure!(values.iter().flatten().count() == MANY);
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
    fn name(&self) -> &'static str {
        "coua-client, tokio"
    }

    fn turn(&mut self, kind: Kind, keys: &[String]) -> Result<f64> {
        let cache = &self.client;
        self.runtime.block_on(async {
            let started = Instant::now();
            let mut number = 0;
            while started.elapsed() < TURN {
                for _ in 0..16 {
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
                    }
                    number += 1;
                }
            }
            Ok(number as f64 / started.elapsed().as_secs_f64())
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
    fn name(&self) -> &'static str {
        "memcache 0.20"
    }

    fn turn(&mut self, kind: Kind, keys: &[String]) -> Result<f64> {
        let cache = &self.0;
        timed(|number| {
            let key = &keys[number % KEYS];
            match kind {
                Kind::Get => {
                    let value: Option<Vec<u8>> = cache.get(key)?;
                    ensure!(value.is_some_and(|value| value == VALUE));
                }
                Kind::Set => cache.set(key, &VALUE[..], 0)?,
                Kind::GetMany => {
                    let keys: Vec<&str> = some(keys, number).iter().map(|key| &key[..]).collect();
                    let values = cache.gets::<Vec<u8>>(&keys)?;
                    ensure!(values.len() == MANY);
                }
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
    fn name(&self) -> &'static str {
        "async-memcached 0.6"
    }

    fn turn(&mut self, kind: Kind, keys: &[String]) -> Result<f64> {
        let cache = &mut self.client;
        self.runtime.block_on(async {
            let started = Instant::now();
            let mut number = 0;
            while started.elapsed() < TURN {
                for _ in 0..16 {
                    let key = &keys[number % KEYS];
                    match kind {
                        Kind::Get => {
                            let value = cache.get(key).await?;
                            ensure!(
                                value
                                    .is_some_and(|value| value.data.as_deref() == Some(&VALUE[..]))
                            );
                        }
                        Kind::Set => cache.set(key, &VALUE[..], None, None).await?,
                        Kind::GetMany => {
                            let values = cache.get_multi(some(keys, number)).await?;
                            ensure!(values.len() == MANY);
                        }
                    }
                    number += 1;
                }
            }
            Ok(number as f64 / started.elapsed().as_secs_f64())
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
    fn name(&self) -> &'static str {
        "libmemcached"
    }

    fn turn(&mut self, kind: Kind, _: &[String]) -> Result<f64> {
        let kind = match kind {
            Kind::Get => "get",
            Kind::GetMany => "get-many",
            Kind::Set => "set",
        };
        let output = Command::new(&self.program)
            .args([
                &self.host,
                &self.port,
                kind,
                &TURN.as_secs_f64().to_string(),
            ])
            .output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        ensure!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(text.trim().parse()?)
    }
}

impl Drop for Libmemcached {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.program);
    }
}
