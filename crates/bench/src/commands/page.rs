//! `coua-bench page-load`: how long the pages of a site take, by which cache it has.

mod ab;
mod outcome;

use std::ffi::OsString;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use anyhow::{Context, ensure};
use clap::{Args, Parser};
use serde::Serialize;

use super::compare::{Ground, Needs, Recipe};
use crate::process::{self, Server};
use crate::report;
use crate::site::{Counters, Plan};
use crate::target::Target;
pub(crate) use outcome::Outcome;
use outcome::Round;

/// Measures load times of web pages by cache: `site` on each server and on none, asked by `ab`
///
/// ab is part of apache2-utils.
#[derive(Args, Clone, Debug, Serialize)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Flags {
    /// Servers, as coua-bench compare takes them
    #[arg(value_name = "SERVER", default_values = ["coua", "memcached"])]
    #[serde(skip)]
    servers: Vec<Recipe>,
    #[command(flatten)]
    #[serde(skip)]
    ground: Ground,
    #[command(flatten)]
    plan: Plan,
    /// Pages per measurement
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(100..=10_000_000))]
    pages: u32,
    /// Pages asked for at a time, and threads of the site
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
    concurrency: u32,
    /// Begin with empty caches and without a warm-up
    #[arg(long)]
    cold: bool,
    /// Measurements of each side, in turns; medians are printed
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Print JSON
    #[arg(long)]
    #[serde(skip)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  A thousand pages of 200 queries each, on coua, on memcached, and without a cache
    coua-bench page-load
  With a database as slow as one on another machine, and cold caches
    coua-bench page-load --database-delay 300 --cold
  Four pages at a time, on coua's own stack too, over a cable (needs root)
    coua-bench page-load coua 'coua --net xdp' memcached --concurrency 4

Of the cores beside --server-cores ab has the last and the site the rest; a single one is shared.
Each measurement starts its server and its site anew.";

/// Measures all sides and prints the comparison.
pub(crate) fn run(flags: &Flags) -> anyhow::Result<()> {
    let outcome = measure(flags)?;
    report::show(&outcome, flags.json)?;
    Ok(())
}

impl Flags {
    /// As published, but for the database's delay: a thousand pages of 200 values of 20 bytes.
    pub(crate) fn published(
        servers: Vec<Recipe>,
        ground: Ground,
        items: Option<u32>,
        rounds: u32,
    ) -> Flags {
        let defaults = Words::parse_from(["page-load"]).flags;
        Flags {
            servers,
            ground,
            plan: Plan {
                items: items.unwrap_or(defaults.plan.items),
                database_delay: 300,
                ..defaults.plan
            },
            rounds,
            ..defaults
        }
    }
}

/// The flags without the command before them.
#[derive(Debug, Parser)]
struct Words {
    #[command(flatten)]
    flags: Flags,
}

/// Measures all sides.
pub(crate) fn measure(flags: &Flags) -> anyhow::Result<Outcome<'_>> {
    ab::check()?;
    let recipes = flags.servers.iter().map(Some);
    let sides: Vec<Option<&Recipe>> = recipes.chain([None]).collect();
    let name = |side: &Option<&Recipe>| side.map_or("no cache", Recipe::name).to_owned();
    let mut measured: Vec<_> = sides
        .iter()
        .map(|side| (name(side), None, Vec::new()))
        .collect();
    for number in 1..=flags.rounds {
        for (side, (name, command, rounds)) in sides.iter().zip(&mut measured) {
            let (running, round) = turn(flags, *side).with_context(|| name.clone())?;
            report::progress(format_args!(
                "{name}, {number} of {}: half of the pages within {:.2} ms",
                flags.rounds, round.seen.percentiles_ms[50]
            ));
            *command = running;
            rounds.push(round);
        }
    }
    Ok(Outcome::new(flags, measured))
}

/// Makes one measurement; returns the server's command line too.
fn turn(flags: &Flags, recipe: Option<&Recipe>) -> anyhow::Result<(Option<String>, Round)> {
    let Some(recipe) = recipe else {
        return Ok((None, visit(flags, None)?));
    };
    let needs = Needs::connections(flags.concurrency + 1);
    let cabled = flags.ground.veth || flags.servers.iter().any(Recipe::needs_cable);
    let running = recipe.start(&flags.ground, cabled, needs)?;
    let round = running.at_clients(|| visit(flags, Some(running.target())))??;
    Ok((Some(running.command().to_owned()), round))
}

/// Starts the site, and requests its pages.
fn visit(flags: &Flags, cache: Option<&Target>) -> anyhow::Result<Round> {
    let cores = flags.ground.load_cores()?;
    let (site_cores, ab_cores) = match &cores[..] {
        [rest @ .., last] if !rest.is_empty() => (rest, std::slice::from_ref(last)),
        all => (all, all),
    };
    let address = process::free_address()?;
    let mut words = vec!["site".to_owned(), format!("--listen={address}")];
    words.push(match cache {
        Some(target) => format!("--cache={target}"),
        None => "--no-cache".to_owned(),
    });
    if cache.is_some() && !flags.cold {
        words.push("--warm".to_owned());
    }
    words.push(format!("--threads={}", flags.concurrency));
    words.extend(flags.plan.arguments());
    let words = words.into_iter().map(OsString::from).collect();
    let program = std::env::current_exe()?;
    let _site = Server::start_at(&program, site_cores, words, Target::Tcp(address), None)?;
    let ask = |pages| ab::ask(address, pages, flags.concurrency, ab_cores);
    if !flags.cold {
        ask(flags.concurrency.max(flags.pages / 10))?;
    }
    let before = counters(address)?;
    let seen = ask(flags.pages)?;
    let site = counters(address)?.since(&before);
    ensure!(
        site.wrong_values == 0 && site.cache_errors == 0,
        "{} wrong values, {} errors of connections to the cache",
        site.wrong_values,
        site.cache_errors
    );
    Ok(Round { seen, site })
}

/// What the site has done.
fn counters(address: SocketAddr) -> anyhow::Result<Counters> {
    let mut stream = TcpStream::connect(address)?;
    stream.write_all(b"GET /stats HTTP/1.0\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (_, body) = answer
        .split_once("\r\n\r\n")
        .context("/stats has no body")?;
    Ok(serde_json::from_str(body)?)
}
