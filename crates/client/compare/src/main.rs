//! Measures clients side by side against one server, in turns, and prints medians and ratios.
//!
//! `cargo run --release -- HOST:PORT [ROUNDS]`. libmemcached is asked by a C program that `cc` compiles from
//! `src/libmemcached.c`; it needs libmemcached-dev. Each turn makes one kind of request, one after another
//! on one connection, for a third of a second. In each round every client has one turn of each kind, and
//! the order of the clients moves on by one.
//!
//! `cargo run --release -- HOST:PORT cost` counts instead of measuring time: instructions (valgrind) and
//! system calls (strace) of each client for a request. Neither depends on what else the machine does.

mod contenders;
mod cost;

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result};

use contenders::{CONTENDERS, Contender, KEYS, KINDS, Kind, Until};

const TURN: Duration = Duration::from_millis(330);

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let server = arguments.first().context("HOST:PORT of a server")?;
    let keys: Vec<String> = (0..KEYS).map(|number| format!("key:{number:06}")).collect();
    match arguments.get(1).map(String::as_str) {
        Some("cost") => cost::table(server),
        Some("one") => cost::one(server, &keys, &arguments[2..]),
        rounds => measure(server, &keys, rounds.unwrap_or("9").parse()?),
    }
}

fn measure(server: &str, keys: &[String], rounds: usize) -> Result<()> {
    fill(server, keys)?;
    let mut contenders: Vec<(&str, Box<dyn Contender>)> = Vec::new();
    for (name, make) in CONTENDERS {
        contenders.push((name, make(server)?));
    }
    // One turn each to warm up.
    for (_, contender) in &mut contenders {
        for kind in KINDS {
            contender.turn(kind, keys, Until::Time(TURN))?;
        }
    }
    let mut rates: BTreeMap<(Kind, &str), Vec<f64>> = BTreeMap::new();
    for round in 0..rounds {
        for kind in KINDS {
            for at in 0..contenders.len() {
                let next = (at + round) % contenders.len();
                let (name, contender) = &mut contenders[next];
                if let Some(rate) = contender.turn(kind, keys, Until::Time(TURN))? {
                    rates.entry((kind, name)).or_default().push(rate);
                }
            }
        }
    }
    println!(
        "| request | client | requests/s, median | least | most | coua-client's rate over it |"
    );
    println!("|---|---|--:|--:|--:|--:|");
    for kind in KINDS {
        let ours = &rates[&(kind, CONTENDERS[0].0)];
        for (name, _) in CONTENDERS {
            let Some(rates) = rates.get(&(kind, name)) else {
                continue;
            };
            let ratios: Vec<f64> = ours
                .iter()
                .zip(rates)
                .map(|(ours, rate)| ours / rate)
                .collect();
            let least = rates.iter().copied().fold(f64::INFINITY, f64::min);
            let most = rates.iter().copied().fold(0.0, f64::max);
            println!(
                "| {} | {name} | {:.0} | {least:.0} | {most:.0} | {:.2} |",
                kind.title(),
                median(rates),
                median(&ratios),
            );
        }
    }
    Ok(())
}

/// Stores what the gets find.
fn fill(server: &str, keys: &[String]) -> Result<()> {
    let filler = coua_client::Client::connect(server)?;
    for key in keys {
        filler.set(key, [b'v'; 100], coua_client::Expiry::NEVER)?;
    }
    Ok(())
}

fn median(numbers: &[f64]) -> f64 {
    let mut sorted = numbers.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}
