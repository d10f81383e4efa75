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

/// Puts one load on one server at the other end of a link of shared memory
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Flags {
    /// The kind of link
    #[arg(long, value_enum, default_value = "memif")]
    link: Kind,
    /// The unix socket by which the link's ends find each other
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
    /// Who answers
    #[arg(long, value_enum, default_value = "cache")]
    answers: Who,
    /// Requests a second; as many as can be where not given
    #[arg(long)]
    rate: Option<f64>,
    /// Seconds measured
    #[arg(long, default_value = "5", value_parser = positive_time)]
    seconds: Duration,
    /// Seconds of load before that
    #[arg(long, default_value = "1", value_parser = time)]
    warm_up: Duration,
    /// Where a coua answers `stats net` on the kernel's TCP, HOST:PORT, to say how busy it was
    #[arg(long)]
    stats: Option<Target>,
    /// Seed of everything that is drawn
    #[arg(long, default_value_t = 1)]
    seed: u64,
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
    /// Requests that a connection sends at once, before it waits for the replies
    #[arg(long, default_value_t = 1)]
    pub(crate) depth: usize,
    /// Requests under way at most, over all connections
    #[arg(long, default_value_t = 512)]
    pub(crate) outstanding: usize,
    /// Number of keys
    #[arg(long, default_value_t = 1000)]
    pub(crate) keys: u32,
    /// Bytes a key
    #[arg(long, default_value_t = 8)]
    pub(crate) key_size: usize,
    /// Bytes a value
    #[arg(long, default_value_t = 8)]
    pub(crate) value_size: usize,
    /// Fraction of requests that are sets, from 0 to 1
    #[arg(long, default_value_t = 0.0)]
    pub(crate) sets: f64,
    /// uniform or zipf:EXPONENT
    #[arg(long, default_value = "uniform")]
    pub(crate) popularity: Popularity,
}

/// Who answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Who {
    /// A cache that holds every key
    Cache,
    /// A cache that evicts, so that gets may miss
    FullCache,
    /// net-echo
    Same,
    /// net-echo --mirror
    Mirror,
}

/// What came of it, for programs.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Outcome {
    pub(crate) seconds: f64,
    pub(crate) requests: u64,
    pub(crate) requests_per_second: f64,
    pub(crate) gets: u64,
    pub(crate) hits: u64,
    /// Segments sent again, by either side, as far as the clients know.
    pub(crate) retransmitted: u64,
    /// Share of the time in which the load found something to do.
    pub(crate) client_busy: f64,
    /// What a request took of the load's time, in nanoseconds, turns that found nothing left out.
    pub(crate) client_ns: f64,
    /// Replies that a turn brought which brought any, on average.
    pub(crate) burst: f64,
    /// The server's turns, where it was asked.
    pub(crate) server: Option<ServerTurns>,
    #[serde(flatten)]
    pub(crate) latency: Latencies,
}

/// What a server says of its turns.
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
    /// From what one worker has counted at the beginning and at the end.
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

/// Does it and prints what came of it.
pub(crate) fn run(flags: &Flags) -> anyhow::Result<()> {
    let plan = plan(flags)?;
    cpu::pin(flags.core).with_context(|| format!("core {} cannot be used", flags.core))?;
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
        "--rate 0 asks for nothing"
    );
    let answers = match flags.answers {
        Who::Cache => Answers::Cache,
        Who::FullCache => Answers::FullCache,
        Who::Same => Answers::Same,
        Who::Mirror => Answers::Mirror,
    };
    Ok(Plan {
        settings: flags.shape.settings(flags.server, answers, flags.seed)?,
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
            "there may be 1 to {KEYS_MAX} keys"
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
        let mut table = Table::new(["figure", "value"]);
        table.row([
            "requests/s".to_owned(),
            format!("{:.0}", self.requests_per_second),
        ]);
        table.row([
            "hits, of gets".to_owned(),
            format!("{} / {}", self.hits, self.gets),
        ]);
        table.row(["retransmissions".to_owned(), self.retransmitted.to_string()]);
        table.row([
            "load busy, %".to_owned(),
            format!("{:.1}", self.client_busy * 100.0),
        ]);
        table.row([
            "load, ns a request".to_owned(),
            format!("{:.1}", self.client_ns),
        ]);
        table.row(["replies a burst".to_owned(), format!("{:.1}", self.burst)]);
        if let Some(server) = self.server {
            let busy = server.busy * 100.0;
            table.row(["server busy, %".to_owned(), format!("{busy:.1}")]);
            table.row([
                "requests a burst".to_owned(),
                format!("{:.1}", server.burst),
            ]);
        }
        for (name, value) in [
            ("p50, µs", self.latency.p50),
            ("p99, µs", self.latency.p99),
            ("p99.9, µs", self.latency.p999),
            ("longest, µs", self.latency.max),
        ] {
            table.row([name.to_owned(), format!("{value:.1}")]);
        }
        table
    }
}
