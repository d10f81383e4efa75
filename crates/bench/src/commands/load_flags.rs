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
    /// The server: HOST:PORT or unix:PATH
    #[arg(long, default_value = "127.0.0.1:11211")]
    pub(crate) target: Target,
    #[command(flatten)]
    pub(crate) team: TeamFlags,
    /// Other machines that run `coua-bench agent` and share the load: connections, keys and the rate
    /// are divided among this machine and them; each runs --threads threads
    #[arg(long, value_name = "HOST:PORT,...", value_delimiter = ',', value_parser = agent)]
    pub(crate) agents: Vec<SocketAddr>,
    #[command(flatten)]
    pub(crate) net: NetFlags,
}

impl ServerFlags {
    /// The team that the flags describe, with `depth` requests in flight on each connection.
    pub(crate) fn setup(&self, depth: u32) -> anyhow::Result<Setup> {
        let local = match &self.target {
            Target::Tcp(address) => address.ip().is_loopback(),
            Target::Unix(_) => true,
        };
        let far = self.agents.iter().find(|agent| !agent.ip().is_loopback());
        if let Some(agent) = far.filter(|_| local) {
            require!(
                false,
                "--target {} means another server to agent {agent}: give an address that the agent reaches",
                self.target
            );
        }
        let net = Net::of_nobody(&self.net)?;
        if net.is_some() {
            require!(
                self.agents.is_empty(),
                "--net does not go with --agents: agents use the kernel's sockets"
            );
            require!(
                matches!(self.target, Target::Tcp(_)),
                "--net needs HOST:PORT as its --target"
            );
        }
        let setup = self.team.setup(&self.target, &self.agents, depth)?;
        Ok(Setup { net, ..setup })
    }

    /// The team itself, ready to send these requests.
    pub(crate) fn gather(&self, depth: u32, requests: &Requests) -> anyhow::Result<Team> {
        gather(&self.setup(depth)?, requests)
    }
}

/// How any server is talked to, and from where.
#[derive(Args, Clone, Debug)]
pub(crate) struct TeamFlags {
    /// Protocol of the requests
    #[arg(long, value_enum, default_value = "text")]
    pub(crate) dialect: Dialect,
    /// Connections, divided among all threads
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) connections: u32,
    /// Load threads; no more than connections
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) threads: u32,
    /// Bind the load threads to cores, one each, from this core on [default: not bound]
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
            "--threads {} needs --connections {threads} or more, one per thread on each machine",
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

/// The team itself, ready to send these requests.
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

/// Which items. To store them, put load on them and verify them takes the same flags.
#[derive(Args, Clone, Debug)]
pub(crate) struct ItemFlags {
    /// A published workload: etc, usr, sys or var (pools of Facebook's), or twitter1 to twitter54. It
    /// sets sizes, popularity, operations and lifetimes; other flags override it
    #[arg(long, value_parser = named)]
    pub(crate) workload: Option<Workload>,
    /// Number of keys
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) keys: u32,
    /// Bytes per key: one size (20), a uniform range (10-40), or that of a workload (etc)
    /// [default: 8]
    #[arg(long, value_name = "SIZES", value_parser = key_sizes)]
    pub(crate) key_size: Option<Sizes>,
    /// Bytes per value: one size (100), a uniform range (10-1000), or that of a workload (etc)
    /// [default: 8]
    #[arg(long, value_name = "SIZES", value_parser = value_sizes)]
    pub(crate) value_size: Option<Sizes>,
    /// Time to live of stored items, in seconds, or several with weights, as in 60=4,3600=6; 0 means
    /// no expiry [default: 0]
    #[arg(long, value_name = "SECONDS")]
    pub(crate) ttl: Option<Ttls>,
    /// Seed of all random choices: the same seed repeats the same keys and operations
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
}

impl ItemFlags {
    /// The plan of a load that does `mix`; without one, it does the workload's operations.
    pub(crate) fn plan(
        &self,
        dialect: Dialect,
        mix: Option<&Mix>,
        keys_per_get: u32,
    ) -> anyhow::Result<Plan> {
        /// Bytes of keys and of values unless flags or the workload say otherwise.
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

    /// The popularity that was asked for, or the workload's, or uniform.
    pub(crate) fn popularity(&self, asked: Option<Popularity>) -> Popularity {
        let of_workload = self.workload.as_ref().map(|workload| workload.popularity);
        asked.or(of_workload).unwrap_or(Popularity::Uniform)
    }

    /// Where keys come from: the trace if there is one, or the popularity.
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
            "--trace {} has {} keys: --keys must be at least as many",
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
    /// Requests in flight per connection: above 1, a connection pipelines
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=65536))]
    pub(crate) depth: u32,
    /// Keys per get; above 1, a multi-get
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) keys_per_get: u32,
    /// Operations with their weights, as in get=90,set=10: any of get, gets, gat, set, add, replace,
    /// delete, incr, decr and touch. incr and decr use counters, items beside the others
    /// (coua-bench load --counters makes them) [default: get]
    #[arg(long)]
    pub(crate) mix: Option<Mix>,
    /// How often each key is asked for: uniform, zipf:EXPONENT, or hot:KEYS:REQUESTS, where
    /// hot:0.1:0.9 sends 90 % of the requests to 10 % of the keys [default: uniform]
    #[arg(long)]
    pub(crate) popularity: Option<Popularity>,
    /// Ask for the keys of a trace, in its order, instead: one number per line, or a format that
    /// `coua-bench hits` reads
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: Option<PathBuf>,
    /// Open loop: send so many requests per second, however slowly the server answers; latency counts
    /// from when a request was due. Without it a closed loop: a connection sends its next requests
    /// when the replies to the last are there
    #[arg(long, value_parser = rate)]
    pub(crate) rate: Option<f64>,
    /// When the requests of an open loop are due
    #[arg(long, value_enum, default_value = "poisson")]
    pub(crate) arrivals: Arrivals,
    /// Search for the highest rate at which --bound holds; each rate is tried for --seconds
    #[arg(long, conflicts_with = "rate")]
    pub(crate) find_max: bool,
    /// Measure at several rates, one after the other: a list (10000,20000,50000), or a range, in
    /// equal ratios: 10000-200000 for eight rates, 10000-200000:12 for twelve
    #[arg(long, value_name = "RATES", conflicts_with_all = ["rate", "find_max"])]
    pub(crate) sweep: Option<Rates>,
    /// The latency that --find-max keeps: avg=TIME, max=TIME or a percentile, as in p99=1ms
    #[arg(long, default_value = "avg=1ms")]
    pub(crate) bound: Bound,
    /// Seconds of each measurement
    #[arg(long, default_value = "5", value_parser = positive_time)]
    pub(crate) seconds: Duration,
    /// Seconds of load before measuring, which do not count
    #[arg(long, default_value = "1", value_parser = time)]
    pub(crate) warm_up: Duration,
    /// For replies that took more than 0.5 ms, count who had no CPU meanwhile: the load, the server,
    /// or the whole machine (coua-bench gaps measures the machine alone)
    #[arg(long)]
    pub(crate) gaps: bool,
    /// Number of measurements; their medians and spread are reported [default: run 1, compare 5]
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
    /// Reads the words as `coua-bench compare` does.
    pub(crate) fn parse(words: &str) -> Result<LoadWords, clap::Error> {
        let words = words.split_whitespace();
        LoadWords::try_parse_from(std::iter::once("load").chain(words))
    }
}

impl LoadFlags {
    /// The same load at `rate` requests a second.
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
    /// Print comma-separated values, one row per measurement
    #[arg(long, conflicts_with = "json")]
    pub(crate) csv: bool,
    /// Show each second by itself, so that stalls become visible (JSON always has them)
    #[arg(long)]
    pub(crate) by_second: bool,
}

/// How long and how often the sides of a comparison are measured, interleaved.
#[derive(Args, Clone, Debug)]
pub(crate) struct TimingFlags {
    /// Measurements of each side in each case, interleaved; medians are reported
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
