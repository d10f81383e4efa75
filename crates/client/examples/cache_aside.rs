//! Reads through a cache: `cargo run -p coua-client --example cache_aside -- HOST:PORT[,HOST:PORT...]`.
//!
//! Of many clients that miss at once one computes the value; the others wait for it a little, and a cache
//! that is down costs only the computing.
#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;
use std::thread;
use std::time::{Duration, Instant};

use coua_client::wire::Status;
use coua_client::{Client, Expiry, Meta};

/// How long a client that was told to compute may take before another is told to.
const LEASE: Duration = Duration::from_secs(5);

fn main() -> Result<(), Box<dyn Error>> {
    let servers = std::env::args().nth(1);
    let cache = Client::connect(servers.as_deref().unwrap_or("127.0.0.1:11211"))?;
    for _ in 0..3 {
        let started = Instant::now();
        let page = page(&cache, "page:front");
        println!("{page:?} after {:?}", started.elapsed());
    }
    for (server, version) in cache.version() {
        match version {
            Ok(version) => println!("{server} runs {version}"),
            Err(error) => println!("{error}"),
        }
    }
    Ok(())
}

/// The page from the cache, or else from where it is made.
fn page(cache: &Client, key: &str) -> String {
    for _ in 0..20 {
        // A miss leaves an empty item, and tells one client to fill it.
        let lease = Meta::get().value().cas().vivify(Expiry::after(LEASE));
        let Ok(item) = cache.meta(key, lease) else {
            return make();
        };
        if item.flags.won {
            let page = make();
            let mut fill = Meta::set(page.as_bytes()).set_expiry(Expiry::after(LEASE * 12));
            if let Some(cas) = item.flags.cas {
                fill = fill.compare_cas(cas);
            }
            // Whether it is stored changes nothing for this reader.
            let _ = cache.meta(key, fill);
            return page;
        }
        match item.value {
            Some(page) if item.status == Status::Done && !item.flags.already_won => {
                return String::from_utf8_lossy(&page).into_owned();
            }
            _ => thread::sleep(Duration::from_millis(50)),
        }
    }
    make()
}

/// What takes long.
fn make() -> String {
    thread::sleep(Duration::from_millis(300));
    "the front page".to_owned()
}
