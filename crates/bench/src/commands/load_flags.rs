//! Flags that all commands of the load generator share: which server, which items.

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, anyhow, bail, ensure};
use clap::Args;

use crate::hits::trace;
use crate::load::{Dialect, Error, Plan, Requests, Setup, Team};
use crate::target::Target;
use crate::workload::{
    Keys, Mix, Part, Popularity, Sampler, Sizes, Ttls, Values, WORKLOAD_NAMES, Workload, workload,
};

/// Which server, and how it is talked to.
#[derive(Args, Clone, Debug)]
pub(crate) struct ServerFlags {
    /// HOST:PORT or unix:PATH
    #[arg(long, default_value = "127.0.0.1:11211")]
    pub(crate) target: Target,
    /// Spelling of the requests
    #[arg(long, value_enum, default_value = "text")]
    pub(crate) dialect: Dialect,
    /// Connections, over all threads and agents
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) connections: u32,
    /// Load threads, of each agent too; at most one a connection
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) threads: u32,
    /// First core of the load threads, which take one each from there on; not bound without it
    #[arg(long)]
    pub(crate) core: Option<usize>,
    /// Further machines on which `coua-bench agent` runs: connections, keys and the rate are shared
    /// out among this one and them
    #[arg(long, value_name = "HOST:PORT,...", value_delimiter = ',', value_parser = agent)]
    pub(crate) agents: Vec<SocketAddr>,
}

impl ServerFlags {
    /// The team that the flags describe, with so many requests in flight a connection.
    pub(crate) fn setup(&self, depth: u32) -> anyhow::Result<Setup> {
        let threads = self.threads as usize * (1 + self.agents.len());
        ensure!(
            threads <= self.connections as usize,
            "--threads {} needs {threads} --connections at least, one a thread on each machine",
            self.threads
        );
        let local = match &self.target {
            Target::Tcp(address) => address.ip().is_loopback(),
            Target::Unix(_) => true,
        };
        let far = self.agents.iter().find(|agent| !agent.ip().is_loopback());
        if let Some(agent) = far.filter(|_| local) {
            bail!(
                "--target {} is another server to agent {agent}: give an address that it reaches",
                self.target
            );
        }
        ensure!(
            self.dialect != Dialect::Udp || matches!(self.target, Target::Tcp(_)),
            "--dialect udp needs HOST:PORT as its --target"
        );
        Ok(Setup {
            target: self.target.clone(),
            connections: self.connections as usize,
            depth: depth as usize,
            threads: self.threads as usize,
            core: self.core,
            agents: self.agents.clone(),
        })
    }

    /// The team itself, ready to ask these requests.
    pub(crate) fn gather(&self, depth: u32, requests: &Requests) -> anyhow::Result<Team> {
        Team::gather(&self.setup(depth)?, requests).map_err(|error| match error {
            Error::Agent { .. } => error.into(),
            _ => anyhow!("--target {}: {error}", self.target),
        })
    }
}

fn agent(text: &str) -> Result<SocketAddr, String> {
    let addresses = text.to_socket_addrs();
    let first = addresses
        .map_err(|error| format!("{error}; expected HOST:PORT"))?
        .next();
    first.ok_or_else(|| "the host has no address".to_owned())
}

fn key_sizes(text: &str) -> Result<Sizes, String> {
    Sizes::parse(text, Part::Keys)
}

fn value_sizes(text: &str) -> Result<Sizes, String> {
    Sizes::parse(text, Part::Values)
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
        let keys = Keys::new(key_sizes, self.keys).with_context(|| {
            format!(
                "--key-size takes sizes up to {} in which the numbers of {} keys fit",
                Keys::SIZE_MAX,
                self.keys
            )
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
        ensure!(
            stream.keys <= self.keys,
            "--trace {} has {} keys, so --keys must be as many at least",
            path.display(),
            stream.keys
        );
        let numbers = stream.requests.iter().map(|request| request.key);
        Ok(Sampler::replay(numbers.collect()))
    }
}
