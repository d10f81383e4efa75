//! `coua-bench site`: the web site as a process of its own.

use std::net::{SocketAddr, TcpListener};

use anyhow::Context;
use clap::Args;

use crate::report;
use crate::site::{Plan, Site};
use crate::target::Target;

/// Serves web pages of many small values, from a cache with a database behind it
///
/// A page at / draws random keys, gets each from the cache, reads missing ones from the database and
/// stores them in the cache. Every value is checked; a page with a wrong value has status 500.
/// Counters are at /stats. Each connection serves one page.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Flags {
    /// The cache: HOST:PORT or unix:PATH
    #[arg(long, required_unless_present = "no_cache")]
    cache: Option<Target>,
    /// Read everything from the database
    #[arg(long, conflicts_with = "cache")]
    no_cache: bool,
    /// Store all items in the cache before the first page
    #[arg(long, conflicts_with = "no_cache")]
    warm: bool,
    /// Address to listen on
    #[arg(long, default_value = "127.0.0.1:8080")]
    listen: SocketAddr,
    /// Pages that are made at a time
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: u32,
    #[command(flatten)]
    plan: Plan,
}

const EXAMPLES: &str = "\
Examples:
  A site on a cache, and its pages
    coua-bench site --cache 127.0.0.1:11211 &
    ab -n 1000 -c 4 http://127.0.0.1:8080/
  With a database that is as slow as one on another machine
    coua-bench site --cache 127.0.0.1:11211 --database-delay 300";

/// Serves until it is killed.
pub(crate) fn run(flags: &Flags) -> anyhow::Result<()> {
    let site = Site::open(flags.plan.clone(), flags.cache.clone(), flags.warm)?;
    let listener =
        TcpListener::bind(flags.listen).with_context(|| format!("--listen {}", flags.listen))?;
    let address = listener.local_addr()?;
    report::print(format_args!("pages at http://{address}/"))?;
    Ok(site.serve(&listener, flags.threads)?)
}
