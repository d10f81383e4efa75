//! Flags that all commands of the load generator share: which server, which items.

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow};
use clap::{Args, Parser};
use coua::flags::{Net, NetFlags};

use super::rates::{Rates, rate};
use crate::hits::trace;
use crate::load::{Arrivals, Bound, Dialect, Error, Plan, Requests, Setup, Team};
use crate::report::{WrongFlags, require};
use crate::target::Target;
use crate::workload::{
    Keys, Mix, Part, Popularity, Sampler, Sizes, Ttls, Values, WORKLOAD_NAMES, Workload, sizes,
    workload,
};

/// Which server, and how it is talked to.
#[derive(Args, Clone, Debug)]
pub(crate) struct ServerFlags {
    /// HOST:PORT or unix:PATH
    #[arg(long, default_value = "127.0.0.1:11211")]
    pub(crate) target: Target,
    #[command(flatten)]
    pub(crate) team: TeamFlags,
    /// Further machines on which `coua-bench agent` runs: connections, keys and the rate are shared
    /// out among this one and them, and each has as many --threads
    #[arg(long, value_name = "HOST:PORT,...", value_delimiter = ',', value_parser = agent)]
    pub(crate) agents: Vec<SocketAddr>,
    #[command(flatten)]
    pub(crate) net: NetFlags,
}

impl ServerFlags {
    /// The team that the flags describe, with so many requests in flight a connection.
    pub(crate) fn setup(&self, depth: u32) -> anyhow::Result<Setup> {
        let local = match &self.target {
            Target::Tcp(address) => address.ip().is_loopback(),
            Target::Unix(_) => true,
        };
        let far = self.agents.iter().find(|agent| !agent.ip().is_loopback());
        if let Some(agent) = far.filter(|_| local) {
            require!(
                false,
                "--target {} is another server to agent {agent}: give an address that it reaches",
                self.target
            );
        }
        let net = Net::of_nobody(&self.net)?;
        if net.is_some() {
            require!(
                self.agents.is_empty(),
                "--net is for this machine: agents use their kernels' sockets"
            );
            require!(
                matches!(self.target, Target::Tcp(_)),
                "--net needs HOST:PORT as its --target"
            );
        }
        let setup = self.team.setup(&self.target, &self.agents, depth)?;
        Ok(Setup { net, ..setup })
    }

    /// The team itself, ready to ask these requests.
    pub(crate) fn gather(&self, depth: u32, requests: &Requests) -> anyhow::Result<Team> {
        gather(&self.setup(depth)?, requests)
    }
}

/// How any server is talked to, and from where.
#[derive(Args, Clone, Debug)]
pub(crate) struct TeamFlags {
    /// Spelling of the requests
    #[arg(long, value_enum, default_value = "text")]
    pub(crate) dialect: Dialect,
    /// Connections, over all threads
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) connections: u32,
    /// Load threads; at most one a connection
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) threads: u32,
    /// First core of the load threads, which take one each from there on; not bound without it
    #[arg(long)]
    pub(crate) core: Option<usize>,
}

impl TeamFlags {
    /// The team that the flags describe, for one server, with these further machines.
    pub(crate) fn setup(
        &self,
        target: &Target,
        agents: &[SocketAddr],
        depth: u32,
    ) -> anyhow::Result<Setup> {
        let threads = self.threads as usize * (1 + agents.len());
        require!(
            threads <= self.connections as usize,
            "--threads {} needs {threads} --connections at least, one a thread on each machine",
            self.threads
        );
        require!(
            self.dialect != Dialect::Udp || matches!(target, Target::Tcp(_)),
            "--dialect udp needs HOST:PORT as its --target"
        );
        Ok(Setup {
            target: target.clone(),
            connections: self.connections as usize,
            depth: depth as usize,
            threads: self.threads as usize,
            core: self.core,
            agents: agents.to_vec(),
            net: None,
            gaps: None,
        })
    }
}

/// The team itself, ready to ask these requests.
pub(crate) fn gather(setup: &Setup, requests: &Requests) -> anyhow::Result<Team> {
    Team::gather(setup, requests).map_err(|error| match error {
        Error::Agent { .. } | Error::Net(_) => error.into(),
        _ => anyhow!("--target {}: {error}", setup.target),
    })
}

fn agent(text: &str) -> Result<SocketAddr, String> {
    let addresses = text.to_socket_addrs();
    let first = addresses
        .map_err(|error| format!("{error}; expected HOST:PORT"))?
        .next();
    first.ok_or_else(|| "the host has no address".to_owned())
}

fn key_sizes(text: &str) -> Result<Sizes, String> {
    sizes(text, Part::Keys)
}

fn value_sizes(text: &str) -> Result<Sizes, String> {
    sizes(text, Part::Values)
}

fn named(text: &str) -> Result<Workload, String> {
    workload(text).ok_or_else(|| format!("expected one of {WORKLOAD_NAMES}"))
}

/// Which items. Whoever loads, runs and verifies gives the same.
#[derive(Args, Clone, Debug)]
pub(crate) struct ItemFlags {
    /// A published workload (etc, usr, sys, var of Facebook, twitter1 to twitter54): its sizes,
    /// popularity, operations and lifetimes, where no flag says otherwise
    #[arg(long, value_parser = named)]
    pub(crate) workload: Option<Workload>,
    /// Number of keys
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) keys: u32,
    /// Bytes a key: 20, 10-40, or a workload's name [default: 8]
    #[arg(long, value_name = "SIZES", value_parser = key_sizes)]
    pub(crate) key_size: Option<Sizes>,
    /// Bytes a value: 100, 10-1000, or a workload's name [default: 8]
    #[arg(long, value_name = "SIZES", value_parser = value_sizes)]
    pub(crate) value_size: Option<Sizes>,
    /// Lifetime of what is stored, in seconds, or several with weights, as in 60=4,3600=6; 0 is for
    /// ever [default: 0]
    #[arg(long, value_name = "SECONDS")]
    pub(crate) ttl: Option<Ttls>,
    /// Seed of everything that is drawn
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
}

impl ItemFlags {
    /// The plan of a load that does `mix`, or what the workload does without one.
    pub(crate) fn plan(
        &self,
        dialect: Dialect,
        mix: Option<&Mix>,
        keys_per_get: u32,
    ) -> anyhow::Result<Plan> {
        /// Bytes of keys and values that nothing else is said about.
        const SIZE: Sizes = Sizes::Fixed(8);
        let workload = self.workload.as_ref();
        let key_sizes = self.key_size.as_ref().or(workload.map(|w| &w.key_sizes));
        let value_sizes = self
            .value_size
            .as_ref()
            .or(workload.map(|w| &w.value_sizes));
        let key_sizes = key_sizes.unwrap_or(&SIZE).clone();
        let keys = Keys::new(key_sizes, self.keys).ok_or_else(|| {
            WrongFlags(format!(
                "--key-size takes sizes up to {} in which the numbers of {} keys fit",
                Keys::SIZE_MAX,
                self.keys
            ))
        })?;
        let ttls = self.ttl.as_ref().or(workload.map(|w| &w.ttls)).cloned();
        let default_mix = || workload.map_or_else(|| Mix::with_sets(0.0), |w| w.mix.clone());
        Ok(Plan {
            dialect,
            keys,
            values: Arc::new(Values::sized(value_sizes.unwrap_or(&SIZE).clone())),
            mix: mix.cloned().unwrap_or_else(default_mix),
            ttls: ttls.unwrap_or_else(Ttls::never),
            keys_per_get,
            canned: false,
        })
    }

    /// Requests for every key, once.
    pub(crate) fn each(&self, plan: Plan) -> Requests {
        Requests::planned(plan.into(), Sampler::Sequence(0..self.keys), self.seed)
    }

    /// The popularity that is asked for, else the workload's, else none.
    pub(crate) fn popularity(&self, asked: Option<Popularity>) -> Popularity {
        let of_workload = self.workload.as_ref().map(|workload| workload.popularity);
        asked.or(of_workload).unwrap_or(Popularity::Uniform)
    }

    /// Where keys come from: the trace, else the popularity.
    pub(crate) fn sampler(
        &self,
        popularity: Popularity,
        trace: Option<&PathBuf>,
    ) -> anyhow::Result<Sampler> {
        let Some(path) = trace else {
            return Ok(Sampler::new(popularity, self.keys, self.seed));
        };
        let stream = trace::read(path).with_context(|| format!("--trace {}", path.display()))?;
        require!(
            stream.keys <= self.keys,
            "--trace {} has {} keys, so --keys must be as many at least",
            path.display(),
            stream.keys
        );
        let numbers = stream.requests.iter().map(|request| request.key);
        Ok(Sampler::replay(numbers.collect()))
    }
}

/// What is asked, how hard, and for how long.
#[derive(Args, Clone, Debug)]
pub(crate) struct LoadFlags {
    #[command(flatten)]
    pub(crate) items: ItemFlags,
    /// Requests in flight a connection
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=65536))]
    pub(crate) depth: u32,
    /// Keys that one get asks for
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) keys_per_get: u32,
    /// Operations with their weights, as in get=90,set=10; there are get, gets, gat, set, add,
    /// replace, delete, incr, decr and touch. incr and decr count on items of their own
    /// [default: get]
    #[arg(long)]
    pub(crate) mix: Option<Mix>,
    /// uniform, zipf:EXPONENT, or hot:KEYS:REQUESTS, where hot:0.1:0.9 gives a tenth of the keys nine
    /// tenths of the requests [default: uniform]
    #[arg(long)]
    pub(crate) popularity: Option<Popularity>,
    /// Keys in the order of a trace instead: one number a line, or as `coua-bench hits` reads them
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: Option<PathBuf>,
    /// Open loop: requests a second, whatever the server does; latency counts from when a request
    /// was due. Without it a closed loop, in which the server sets the pace
    #[arg(long, value_parser = rate)]
    pub(crate) rate: Option<f64>,
    /// How an open loop's requests are spread over time
    #[arg(long, value_enum, default_value = "poisson")]
    pub(crate) arrivals: Arrivals,
    /// Find the highest rate at which --bound holds; each rate is tried for --seconds
    #[arg(long, conflicts_with = "rate")]
    pub(crate) find_max: bool,
    /// Measure at several rates, one after the other: 10000,20000,50000, or 10000-200000 for eight
    /// in equal proportions, or 10000-200000:12
    #[arg(long, value_name = "RATES", conflicts_with_all = ["rate", "find_max"])]
    pub(crate) sweep: Option<Rates>,
    /// For --find-max: avg=TIME, max=TIME or a percentile, as in p99=1ms
    #[arg(long, default_value = "avg=1ms")]
    pub(crate) bound: Bound,
    /// Seconds measured
    #[arg(long, default_value = "5", value_parser = positive_time)]
    pub(crate) seconds: Duration,
    /// Seconds of load before that
    #[arg(long, default_value = "1", value_parser = time)]
    pub(crate) warm_up: Duration,
    /// Tell of replies that took more than half a millisecond who was away: the load, the server, or
    /// the machine under both (coua-bench gaps tells of the machine alone)
    #[arg(long)]
    pub(crate) gaps: bool,
    /// Measurements; medians and spread are reported [default: 1 of one server, 5 to compare]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) repetitions: Option<u32>,
}

/// The flags of a load as words, for commands that put loads together.
#[derive(Debug, Parser)]
pub(crate) struct LoadWords {
    #[command(flatten)]
    pub(crate) team: TeamFlags,
    #[command(flatten)]
    pub(crate) load: LoadFlags,
}

impl LoadWords {
    /// As `coua-bench compare` reads them.
    pub(crate) fn parse(words: &str) -> Result<LoadWords, clap::Error> {
        let words = words.split_whitespace();
        LoadWords::try_parse_from(std::iter::once("load").chain(words))
    }
}

impl LoadFlags {
    /// The same load, so many requests a second.
    pub(crate) fn at_rate(&self, rate: f64) -> LoadFlags {
        LoadFlags {
            rate: Some(rate),
            ..self.clone()
        }
    }
}

/// How what was measured is told.
#[derive(Args, Clone, Debug)]
pub(crate) struct ReportFlags {
    /// Print JSON; coua-bench diff compares two of these
    #[arg(long)]
    pub(crate) json: bool,
    /// Print a row with commas for each measurement
    #[arg(long, conflicts_with = "json")]
    pub(crate) csv: bool,
    /// Show each second for itself, so that stalls show (JSON has them in any case)
    #[arg(long)]
    pub(crate) by_second: bool,
}

/// How long and how often it is measured, of interleaved sides.
#[derive(Args, Clone, Debug)]
pub(crate) struct TimingFlags {
    /// Measurements of each side in each case
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) rounds: u32,
    /// Seconds of each measurement
    #[arg(long, default_value = "1", value_parser = positive_time)]
    pub(crate) seconds: Duration,
    /// Seconds of load before each measurement
    #[arg(long, default_value = "0.3", value_parser = time)]
    pub(crate) warm_up: Duration,
}

/// A number of seconds, as the value of a flag.
pub(crate) fn time(text: &str) -> Result<Duration, String> {
    let time = text.parse().ok().map(Duration::try_from_secs_f64);
    let time = time.and_then(Result::ok);
    time.ok_or_else(|| "expected a number of seconds, as in 0.5".to_owned())
}

/// A number of seconds above 0, as the value of a flag.
pub(crate) fn positive_time(text: &str) -> Result<Duration, String> {
    let time = time(text).ok().filter(|time| !time.is_zero());
    time.ok_or_else(|| "expected a number of seconds above 0, as in 0.5".to_owned())
}
