//! `coua-bench net-load`: one load on one server, over a link.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};

use super::load_flags::{positive_time, time};
use crate::client::{Client, Stats};
use crate::cpu;
use crate::link::client::{Answers, KEYS_MAX, Requests, Settings, Stretch};
use crate::link::{Driver, End, Kind, Plan};
use crate::load::Latencies;
use crate::report::{self, Table, require};
use crate::target::Target;
use crate::workload::{KeyFormat, Popularity, Sampler, Values};

/// Puts load on one server at the other end of a shared-memory link (a part of `net`)
///
/// It has a TCP client of its own that costs less per request than any server: the load of
/// `coua-bench run --net memif:…` would be the busier side.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Flags {
    /// Kind of the link
    #[arg(long, value_enum, default_value = "memif")]
    link: Kind,
    /// The unix socket at which the two ends of the link meet
    #[arg(long)]
    socket: PathBuf,
    /// The server's address on the link, in 10.0.0.0/8
    #[arg(long, default_value = "10.0.0.1:11211")]
    server: SocketAddr,
    /// Core to run on
    #[arg(long, default_value_t = 1)]
    core: usize,
    #[command(flatten)]
    shape: Shape,
    /// What the server is, and so which replies are right
    #[arg(long, value_enum, default_value = "cache")]
    answers: Who,
    /// Requests per second [default: as many as the server answers]
    #[arg(long)]
    rate: Option<f64>,
    /// Seconds of the measurement
    #[arg(long, default_value = "5", value_parser = positive_time)]
    seconds: Duration,
    /// Seconds of load before the measurement
    #[arg(long, default_value = "1", value_parser = time)]
    warm_up: Duration,
    /// Where coua answers on the kernel's TCP (HOST:PORT): `stats net` there says how busy it was
    #[arg(long)]
    stats: Option<Target>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  coua on one core, and a load on the other
    coua -m 1024 --net memif:/tmp/link --address 10.0.0.1/8 --poll busy
    coua-bench net-load --socket /tmp/link --server 10.0.0.1:11211 --sets 1
    coua-bench net-load --socket /tmp/link --server 10.0.0.1:11211 --rate 500000";

/// The load.
#[derive(Args, Clone, Debug)]
pub(crate) struct Shape {
    /// Connections
    #[arg(long, default_value_t = 64)]
    pub(crate) connections: usize,
    /// Requests that a connection sends at once before it waits for the replies
    #[arg(long, default_value_t = 1)]
    pub(crate) depth: usize,
    /// Most requests in flight at a time, over all connections
    #[arg(long, default_value_t = 512)]
    pub(crate) outstanding: usize,
    /// Number of keys
    #[arg(long, default_value_t = 1000)]
    pub(crate) keys: u32,
    /// Bytes per key
    #[arg(long, default_value_t = 8)]
    pub(crate) key_size: usize,
    /// Bytes per value
    #[arg(long, default_value_t = 8)]
    pub(crate) value_size: usize,
    /// Fraction of requests that are sets, from 0 to 1
    #[arg(long, default_value_t = 0.0)]
    pub(crate) sets: f64,
    /// uniform or zipf:EXPONENT
    #[arg(long, default_value = "uniform")]
    pub(crate) popularity: Popularity,
}

/// What answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Who {
    /// A cache that holds every key
    Cache,
    /// A cache that evicts, so that gets may miss
    FullCache,
    /// coua-bench net-echo
    Same,
    /// coua-bench net-echo --mirror
    Mirror,
}

/// The outcome, for programs.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Outcome {
    pub(crate) seconds: f64,
    pub(crate) requests: u64,
    pub(crate) requests_per_second: f64,
    pub(crate) gets: u64,
    pub(crate) hits: u64,
    /// Segments that either side retransmitted, as far as the clients know.
    pub(crate) retransmitted: u64,
    /// Share of the time in which the load found something to do.
    pub(crate) client_busy: f64,
    /// The load's time per request, in nanoseconds, without turns that found nothing.
    pub(crate) client_ns: f64,
    /// Mean number of replies in a turn that found something to do.
    pub(crate) burst: f64,
    /// The server's turns, if it was asked for them.
    pub(crate) server: Option<ServerTurns>,
    #[serde(flatten)]
    pub(crate) latency: Latencies,
}

/// What a server reports of its turns.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct ServerTurns {
    /// Share of its time in turns that found frames.
    pub(crate) busy: f64,
    /// Frames that such a turn found, on average.
    pub(crate) burst: f64,
    /// Its time in such turns for each frame, in nanoseconds.
    pub(crate) frame_ns: f64,
}

impl ServerTurns {
    /// From what one worker had counted at the beginning and at the end.
    pub(crate) fn between(looks: &[Stats]) -> Option<ServerTurns> {
        let [before, after] = looks else {
            return None;
        };
        let passed = |name: &str| {
            let name = format!("worker:0:{name}");
            after.number(&name).saturating_sub(before.number(&name)) as f64
        };
        let (idle, busy) = (passed("idle_us"), passed("busy_us"));
        let turns = passed("turns") - passed("turns_idle");
        Some(ServerTurns {
            busy: busy / (idle + busy).max(1.0),
            burst: passed("frames_received") / turns.max(1.0),
            frame_ns: busy * 1000.0 / passed("frames_received").max(1.0),
        })
    }
}

/// Measures and prints the outcome.
pub(crate) fn run(flags: &Flags) -> anyhow::Result<()> {
    let plan = plan(flags)?;
    cpu::pin(flags.core).with_context(|| format!("--core {} cannot be used", flags.core))?;
    let card = flags.link.open(End::Client, &flags.socket)?;
    let mut looks = Vec::new();
    let stretch = Driver::run(card, &plan, || {
        if let Some(target) = &flags.stats {
            looks.push(Client::connect(target)?.stats_of("net")?);
        }
        Ok(())
    })?;
    let outcome = Outcome {
        server: ServerTurns::between(&looks),
        ..Outcome::new(&stretch)
    };
    match flags.json {
        true => report::print_json(&outcome)?,
        false => report::print(outcome.table())?,
    }
    Ok(())
}

fn plan(flags: &Flags) -> anyhow::Result<Plan> {
    require!(
        flags.rate.is_none_or(|rate| rate > 0.0),
        "--rate takes more than 0"
    );
    let answers = match flags.answers {
        Who::Cache => Answers::Cache,
        Who::FullCache => Answers::FullCache,
        Who::Same => Answers::Same,
        Who::Mirror => Answers::Mirror,
    };
    Ok(Plan {
        settings: flags.shape.settings(flags.server, answers, 1)?,
        rate: flags.rate,
        warm_up: flags.warm_up,
        time: flags.seconds,
    })
}

impl Shape {
    /// Clients that put this load on a server.
    pub(crate) fn settings(
        &self,
        server: SocketAddr,
        answers: Answers,
        seed: u64,
    ) -> anyhow::Result<Settings> {
        ensure!(
            (1..=KEYS_MAX).contains(&self.keys),
            "--keys takes 1 to {KEYS_MAX}"
        );
        let keys = KeyFormat::new(self.key_size, self.keys)?;
        let values = Arc::new(Values::new(self.value_size));
        let sampler = Sampler::new(self.popularity, self.keys, seed);
        let requests = Requests::new(keys, values.clone(), sampler, self.sets);
        Ok(Settings {
            server: (server.ip().into(), server.port()),
            connections: self.connections,
            depth: self.depth,
            outstanding: self.outstanding,
            requests,
            keys,
            values,
            answers,
            seed,
        })
    }
}

impl Outcome {
    fn new(stretch: &Stretch) -> Outcome {
        let measured = &stretch.measured;
        let elapsed = measured.elapsed.as_secs_f64();
        let busy = measured.elapsed.saturating_sub(stretch.idle).as_secs_f64();
        let replies = measured.replies.max(1) as f64;
        Outcome {
            seconds: elapsed,
            requests: measured.replies,
            requests_per_second: measured.rate(),
            gets: measured.gets,
            hits: measured.hits,
            retransmitted: stretch.retransmitted,
            client_busy: busy / elapsed,
            client_ns: busy * 1e9 / replies,
            burst: replies / stretch.busy_turns.max(1) as f64,
            server: None,
            latency: Latencies::of(measured),
        }
    }

    fn table(&self) -> Table {
        let mut rows = vec![
            ("requests/s", format!("{:.0}", self.requests_per_second)),
            ("hits, of gets", format!("{} / {}", self.hits, self.gets)),
            ("retransmissions", self.retransmitted.to_string()),
            ("load busy, %", format!("{:.1}", self.client_busy * 100.0)),
            ("load, ns a request", format!("{:.1}", self.client_ns)),
            ("replies a burst", format!("{:.1}", self.burst)),
        ];
        if let Some(server) = self.server {
            rows.push(("server busy, %", format!("{:.1}", server.busy * 100.0)));
            rows.push(("requests a burst", format!("{:.1}", server.burst)));
        }
        for (name, value) in [
            ("p50, µs", self.latency.p50),
            ("p99, µs", self.latency.p99),
            ("p99.9, µs", self.latency.p999),
            ("longest, µs", self.latency.max),
        ] {
            rows.push((name, format!("{value:.1}")));
        }
        let mut table = Table::new(["figure", "value"]);
        for (name, value) in rows {
            table.row([name, &value]);
        }
        table
    }
}
