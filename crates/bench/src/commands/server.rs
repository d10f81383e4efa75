//! `coua-bench server`: coua, memcached and the bare echo beside each other on loopback.
//!
//! Each has one worker on one core, the load has another core, and all measurements of a case are
//! interleaved. The ratios are medians of the ratios of neighbours in time. A side whose core is
//! not busy was not measured at its capacity: then the server's CPU time per request is the better
//! comparison.

mod cases;
mod outcome;

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use clap::Args;

use cases::{Case, State};
use outcome::{CaseOutcome, Outcome, Sample};

use super::echo::{Answer, Request};
use super::load_flags::{positive_time, time};
use super::programs::{CoreFlags, CouaFlag, MemcachedFlag, Versions};
use crate::cpu;
use crate::load::{Engine, Requests};
use crate::process::{self, Server};
use crate::report::{self, require};
use crate::workload::{KeyFormat, Popularity, Sampler, Values};

/// Compares coua with memcached and a bare echo on loopback, all on the kernel's sockets
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Flags {
    #[command(flatten)]
    coua: CouaFlag,
    #[command(flatten)]
    memcached: MemcachedFlag,
    /// One more argument for both servers; repeat it for several
    #[arg(long = "server-flag", allow_hyphen_values = true)]
    server_flags: Vec<String>,
    #[command(flatten)]
    cores: CoreFlags,
    /// Measurements of each side in each case, interleaved; medians are reported
    #[arg(long, default_value_t = 5)]
    pairs: usize,
    /// Seconds of each measurement
    #[arg(long, default_value = "1", value_parser = positive_time)]
    seconds: Duration,
    /// Seconds of load before each measurement
    #[arg(long, default_value = "0.2", value_parser = time)]
    warm_up: Duration,
    /// Connections
    #[arg(long, default_value_t = 64)]
    connections: usize,
    /// Requests in flight per connection; each number is a case
    #[arg(long, value_delimiter = ',', default_value = "1,8,16,64")]
    depths: Vec<usize>,
    /// Keys per multi-get
    #[arg(long, default_value_t = 100)]
    keys_per_get: usize,
    /// Number of keys in the cases in which everything fits
    #[arg(long, default_value_t = 1000)]
    keys: u32,
    /// Bytes per key
    #[arg(long, default_value_t = 8)]
    key_size: usize,
    /// Bytes per value
    #[arg(long, default_value_t = 8)]
    value_size: usize,
    /// uniform or zipf:EXPONENT
    #[arg(long, default_value = "uniform")]
    popularity: Popularity,
    /// -m in the cases in which everything fits, in MiB
    #[arg(long, default_value_t = 1024)]
    memory: u64,
    /// -m in the cases in which memory is full, in MiB
    #[arg(long, default_value_t = 128)]
    full_memory: u64,
    /// Only cases whose name contains this, such as "depth 8", "full: set" or "get of" [default: all]
    #[arg(long, default_value = "", hide_default_value = true)]
    only: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  All cases: minutes
    coua-bench server
  Gets with pipelines, on cores 2 and 3
    coua-bench server --only get --depths 1,16 --server-core 2 --load-core 3
  Both servers with -R 100 as well
    coua-bench server --server-flag -R --server-flag 100";

/// Measures all cases and prints the comparison.
pub(crate) fn run(flags: &Flags) -> anyhow::Result<()> {
    for (flag, least) in [
        ("--pairs", Some(&flags.pairs)),
        ("--connections", Some(&flags.connections)),
        ("--depths", flags.depths.iter().min()),
        ("--keys-per-get", Some(&flags.keys_per_get)),
        ("--keys", Some(&(flags.keys as usize))),
    ] {
        require!(
            least.is_some_and(|&least| least > 0),
            "{flag} takes 1 or more"
        );
    }
    let cases = cases::all(&flags.depths, flags.keys_per_get);
    let cases: Vec<Case> = cases
        .into_iter()
        .filter(|case| case.name().contains(&flags.only))
        .collect();
    require!(
        !cases.is_empty(),
        "--only: no case has {:?} in its name",
        flags.only
    );
    let mut outcome = Outcome::new(flags);
    for state in [State::Roomy, State::Full] {
        let cases: Vec<&Case> = cases.iter().filter(|case| case.state == state).collect();
        if cases.is_empty() {
            continue;
        }
        let stage = Stage::prepare(flags, state)?;
        outcome.versions = Versions::of(&stage.coua, &stage.memcached)?;
        for case in cases {
            outcome.cases.push(stage.measure(case)?);
        }
    }
    Ok(report::show(&outcome, flags.json)?)
}

/// Both servers, filled, and the load for them.
struct Stage<'a> {
    flags: &'a Flags,
    coua: Server,
    memcached: Server,
    keys: KeyFormat,
    values: Arc<Values>,
    sampler: Sampler,
}

impl<'a> Stage<'a> {
    /// Memory that any server takes for an item beside its key and value, at least; for the number
    /// of keys only.
    const ITEM_OVERHEAD: u64 = 30;

    fn prepare(flags: &'a Flags, state: State) -> anyhow::Result<Stage<'a>> {
        let (memory, count) = match state {
            State::Roomy => (flags.memory, flags.keys),
            State::Full => {
                let item = Self::ITEM_OVERHEAD + (flags.key_size + flags.value_size) as u64;
                let held = (flags.full_memory << 20) / item;
                (
                    flags.full_memory,
                    u32::try_from(2 * held)
                        .context("--full-memory: so much memory holds too many keys")?,
                )
            }
        };
        let server_flags = process::Flags {
            memory,
            item_size_max: None,
            more: flags.server_flags.clone(),
        };
        let memcached = flags.memcached.path();
        let coua = flags.coua.path()?;
        let coua = Server::start(&coua, flags.cores.server_core, &server_flags)?;
        let memcached = Server::start(&memcached, flags.cores.server_core, &server_flags)?;
        let keys = KeyFormat::new(flags.key_size, count)?;
        let values = Arc::new(Values::new(flags.value_size));
        let sampler = Sampler::new(flags.popularity, count, 1);
        let stage = Stage {
            flags,
            coua,
            memcached,
            keys,
            values,
            sampler,
        };
        report::progress(format_args!("{count} keys, -m {memory}"));
        for server in [&stage.coua, &stage.memcached] {
            let requests = Requests::filling(keys, stage.values.clone(), 0..count);
            cpu::pinned(flags.cores.load_core, || {
                stage.engine(server, 64, &requests)?.finish()
            })??;
        }
        Ok(stage)
    }

    fn measure(&self, case: &Case) -> anyhow::Result<CaseOutcome> {
        let answer = Answer {
            request: if case.sets > 0.0 {
                Request::Set
            } else {
                Request::Get
            },
            key_size: self.flags.key_size,
            value_size: self.flags.value_size,
            keys_per_get: case.keys_per_get,
            mirror: false,
        };
        let echo = case
            .has_echo()
            .then(|| Server::start_echo(self.flags.cores.server_core, answer.arguments()));
        let echo = echo.transpose()?;
        let requests = Requests::new(
            self.keys,
            self.values.clone(),
            self.sampler.clone(),
            case.keys_per_get,
            case.sets,
        );
        let canned = requests.canned();
        let mut outcome = CaseOutcome::new(case);
        for pair in 0..self.flags.pairs {
            report::progress(format_args!(
                "{}, {} of {}",
                case.name(),
                pair + 1,
                self.flags.pairs
            ));
            let mut sides = vec![
                (&self.coua, &requests, &mut outcome.coua),
                (&self.memcached, &requests, &mut outcome.memcached),
            ];
            if let Some(echo) = &echo {
                sides.push((echo, &canned, &mut outcome.echo));
            }
            if pair % 2 == 1 {
                sides.reverse();
            }
            for (server, requests, samples) in sides {
                let sample = cpu::pinned(self.flags.cores.load_core, || {
                    self.sample(server, case.depth, requests)
                })?;
                samples.push(sample?);
            }
        }
        Ok(outcome)
    }

    fn sample(&self, server: &Server, depth: usize, requests: &Requests) -> anyhow::Result<Sample> {
        let mut engine = self.engine(server, depth, requests)?;
        engine.run(self.flags.warm_up)?;
        let before = server.cpu()?;
        let measured = engine.run(self.flags.seconds)?;
        let server_cpu = server.cpu()?.saturating_sub(before);
        ensure!(
            measured.replies > 0 && measured.elapsed > Duration::ZERO,
            "nothing was answered"
        );
        Ok(Sample::new(&measured, server_cpu))
    }

    fn engine(
        &self,
        server: &Server,
        depth: usize,
        requests: &Requests,
    ) -> Result<Engine, crate::load::Error> {
        Engine::connect(server.target(), self.flags.connections, depth, requests)
    }
}
