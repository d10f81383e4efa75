//! `coua-bench memaslap`: what libmemcached's load generator measures of a server, beside what this
//! one measures.

mod distribution;
mod outcome;
mod program;

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::ensure;
use clap::Args;

use outcome::{Outcome, Sample};

use super::load_flags::TimingFlags;
use super::programs::{CoreFlags, MemcachedFlag};
use crate::cpu;
use crate::load::{Engine, Requests};
use crate::process::{self, Server};
use crate::report::{self, require};
use crate::workload::{KeyFormat, Popularity, Sampler, Values};

/// Checks this load generator against memaslap: the same load on one memcached by both, in turns
///
/// memaslap is part of libmemcached-tools.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Flags {
    #[command(flatten)]
    memcached: MemcachedFlag,
    /// The memaslap program [default: memaslap or memcaslap in PATH]
    #[arg(long, value_name = "PROGRAM")]
    memaslap: Option<PathBuf>,
    #[command(flatten)]
    cores: CoreFlags,
    /// Connections, each with one request at a time and a key of its own
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    connections: u32,
    /// Bytes per key
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u16).range(16..=250))]
    key_size: u16,
    /// Bytes per value
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    value_size: u32,
    /// Fraction of requests that are sets, from 0 to 1; the others are gets
    #[arg(long, default_value_t = 0.1)]
    sets: f64,
    #[command(flatten)]
    timing: TimingFlags,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  64 connections, nine gets per set
    coua-bench memaslap --seconds 3
  Gets only, of larger values, on more connections
    coua-bench memaslap --sets 0 --value-size 1000 --connections 256";

/// Measures both and prints the comparison.
pub(crate) fn run(flags: &Flags) -> anyhow::Result<()> {
    let timing = &flags.timing;
    require!(
        timing.seconds.subsec_nanos() == 0,
        "--seconds takes whole seconds, as memaslap does"
    );
    require!(
        (0.0..=1.0).contains(&flags.sets),
        "--sets takes a share from 0 to 1"
    );
    let server_flags = process::Flags {
        memory: 256,
        item_size_max: None,
        more: vec!["-c".to_owned(), (2 * flags.connections + 64).to_string()],
    };
    let program = flags.memcached.path();
    let server = Server::start(&program, flags.cores.server_core, &server_flags)?;
    let version = server.client()?.version()?;
    let requests = fill(flags, &server)?;
    let (mut theirs, mut ours) = (Vec::new(), Vec::new());
    for round in 1..=timing.rounds {
        let memaslap = || {
            anyhow::Ok(cpu::pinned(flags.cores.load_core, || {
                program::ask(flags, server.target())
            })??)
        };
        let coua_bench = || {
            anyhow::Ok(cpu::pinned(flags.cores.load_core, || {
                ask(flags, &server, &requests)
            })??)
        };
        // Each goes first in every second round, so that neither always follows the other.
        let (seen, own) = match round % 2 {
            1 => (memaslap()?, coua_bench()?),
            _ => {
                let own = coua_bench()?;
                (memaslap()?, own)
            }
        };
        report::progress(format_args!(
            "{round} of {}: memaslap {:.0} requests/s, coua-bench {:.0}",
            timing.rounds, seen.requests_per_second, own.requests_per_second
        ));
        theirs.push(seen);
        ours.push(own);
    }
    let load = format!(
        "{} connections, keys of {} bytes, values of {}, {:.0} % sets, a closed loop of one thread",
        flags.connections,
        flags.key_size,
        flags.value_size,
        100.0 * flags.sets
    );
    let outcome = Outcome::new(load, format!("memcached {version}"), theirs, ours);
    Ok(report::show(&outcome, flags.json)?)
}

/// Stores the items, and returns the requests for them.
fn fill(flags: &Flags, server: &Server) -> anyhow::Result<Requests> {
    let count = flags.connections;
    let keys = KeyFormat::new(flags.key_size.into(), count)?;
    let values = Arc::new(Values::new(flags.value_size as usize));
    let filling = Requests::filling(keys, values.clone(), 0..count);
    Engine::connect(server.target(), 1, 1, &filling)?.finish()?;
    let sampler = Sampler::new(Popularity::Uniform, count, 1);
    Ok(Requests::new(keys, values, sampler, 1, flags.sets))
}

/// This program's own load.
fn ask(flags: &Flags, server: &Server, requests: &Requests) -> anyhow::Result<Sample> {
    let connections = flags.connections as usize;
    let mut engine = Engine::connect(server.target(), connections, 1, requests)?;
    engine.run(flags.timing.warm_up)?;
    let measured = engine.run(flags.timing.seconds)?;
    let bad = measured.wrong + measured.refused + measured.misses;
    ensure!(bad == 0, "{bad} replies were wrong");
    Ok(Sample::of(&measured))
}
