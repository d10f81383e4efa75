//! Many tasks over two connections: `cargo run -p coua-client --features tokio --example asynchronous --
//! HOST:PORT`.
#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;
use std::time::{Duration, Instant};

use coua_client::tokio::Client;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let servers = std::env::args().nth(1);
    let cache = Client::connect(servers.as_deref().unwrap_or("127.0.0.1:11211"))?;
    let started = Instant::now();
    let tasks: Vec<_> = (0..1000)
        .map(|number| {
            let cache = cache.clone();
            tokio::spawn(async move {
                let key = format!("item:{number}");
                cache.set(&key, &key, Duration::from_secs(60)).await?;
                cache.get(&key).await
            })
        })
        .collect();
    let mut hits = 0;
    for task in tasks {
        hits += usize::from(task.await??.is_some());
    }
    println!(
        "{hits} of 1000 tasks have set and got: {:?}",
        started.elapsed()
    );
    Ok(())
}
