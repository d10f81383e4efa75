//! Many operations in one exchange: `cargo run -p coua-client --example pipeline -- HOST:PORT`.
#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;
use std::time::{Duration, Instant};

use coua_client::{Batch, Client, Config};

fn main() -> Result<(), Box<dyn Error>> {
    let servers = std::env::args().nth(1);
    let servers = servers.as_deref().unwrap_or("127.0.0.1:11211");
    let config = Config::new(servers)?.operation_timeout(Duration::from_millis(500));
    let cache = Client::new(config);

    let started = Instant::now();
    let mut batch = Batch::new();
    for number in 0..1000 {
        batch.set(
            format!("item:{number}"),
            format!("value {number}"),
            Duration::from_secs(60),
        );
    }
    let visits = batch.increment("visits", 1);
    let mut results = cache.run(batch);
    if let Some(error) = results.first_error() {
        println!("at least one failed: {error}");
    }
    if results.take(visits)?.is_none() {
        cache.set("visits", "1", Duration::from_secs(3600))?;
    }
    println!("1000 sets and an increment: {:?}", started.elapsed());

    let keys: Vec<String> = (0..1000).map(|number| format!("item:{number}")).collect();
    let started = Instant::now();
    let values = cache.get_many(&keys)?;
    let hits = values.iter().flatten().count();
    println!("{hits} of 1000 values: {:?}", started.elapsed());
    Ok(())
}
