//! `coua-bench first-screen`: the figures that a reader wants first, in nine rows and one picture.
//!
//! memcached, coua on the kernel's sockets and coua on its own stack, for three kinds of work: how
//! many requests a second each answers with 99 of 100 within a millisecond, what a request costs the
//! server's core then, how many values are found, and how many bytes of memory an item takes.

use std::fmt::{self, Display};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use serde::Serialize;

use super::compare::{Contest, Ground, Recipe, Side};
use super::load_flags::{LoadWords, positive_time};
use super::memory;
use super::run::Sample;
use crate::report::{self, Table, median};

/// Measures memcached, coua, and coua on its own stack, for three kinds of work: the short answer
///
/// For each server and kind of work: the highest rate with 99 of 100 replies within a millisecond,
/// the server's CPU time per request at it, hits, and memory per item.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Flags {
    /// Searches per server and kind of work, in turns; medians are reported
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    repetitions: u32,
    /// Seconds for which each rate is tried
    #[arg(long, default_value = "0.4", value_parser = positive_time)]
    seconds: Duration,
    /// Only some kinds of work: get, full, large
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// With 1 % of the keys and little memory, to see that everything runs
    #[arg(long)]
    small: bool,
    /// Do not draw latency over the offered load
    #[arg(long)]
    no_sweep: bool,
    /// The folder for load.csv and load.svg
    #[arg(long, value_name = "DIR", default_value = ".")]
    out: PathBuf,
    #[command(flatten)]
    ground: Ground,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  All of it, in less than ten minutes
    coua-bench first-screen --out docs/figures
  The mixed load on a full cache alone
    coua-bench first-screen --only full --no-sweep

The server has the first core and the load another. coua's own stack polls and so takes a whole
core: the CPU time per request is there the core's time divided by the requests answered.";

/// A kind of work.
struct Work {
    name: &'static str,
    title: &'static str,
    keys: u32,
    value_size: u32,
    words: &'static str,
    /// MiB of the servers, if not [`Ground`]'s.
    memory: Option<u64>,
}

const WORKS: [Work; 3] = [
    Work {
        name: "get",
        title: "GET, depth 1",
        keys: 100_000,
        value_size: 100,
        words: "--mix get",
        memory: None,
    },
    Work {
        name: "full",
        title: "90 % GET, 10 % SET, full, Zipf 0.99",
        keys: 3_000_000,
        value_size: 100,
        words: "--mix get=9,set=1 --popularity zipf:0.99",
        memory: Some(128),
    },
    Work {
        name: "large",
        title: "GET of 16 KB, depth 1",
        keys: 10_000,
        value_size: 16_384,
        words: "--mix get",
        memory: None,
    },
];

/// Bytes of a key.
const KEY_SIZE: u32 = 10;

/// The servers' names, and how they are started. The last two have the same store.
const SERVERS: [(&str, &str); 3] = [
    ("memcached", "memcached"),
    ("coua, the kernel's sockets", "coua"),
    ("coua, its own stack", "coua --net memif"),
];

/// Offered loads of the picture: from less than any server takes, to more than any does.
const SWEEP: &str = "10000-5000000:10";

/// One server at one kind of work.
#[derive(Clone, Debug, Serialize)]
struct Row {
    work: &'static str,
    server: &'static str,
    /// Requests a second with p99 within a millisecond, the median of the searches; none if no rate
    /// held.
    highest_rate: Option<f64>,
    least: f64,
    greatest: f64,
    cpu_us: Option<f64>,
    /// The share of keys that were found; none if no key was asked for.
    hits: Option<f64>,
    bytes_an_item: f64,
    bottleneck: &'static str,
}

#[derive(Debug, Serialize)]
struct Outcome {
    rows: Vec<Row>,
    repetitions: u32,
}

/// Measures and prints.
pub(crate) fn run(flags: &Flags) -> anyhow::Result<()> {
    let unknown = flags
        .only
        .iter()
        .find(|name| WORKS.iter().all(|work| work.name != *name));
    report::require!(
        unknown.is_none(),
        "--only takes some of get, full and large, not {}",
        unknown.map_or("", String::as_str)
    );
    let recipes = SERVERS.iter().map(|(name, line)| {
        let recipe: Recipe = line.parse().map_err(anyhow::Error::msg)?;
        Ok(recipe.named(*name))
    });
    let recipes = recipes.collect::<anyhow::Result<Vec<Recipe>>>()?;
    let mut rows = Vec::new();
    for work in &WORKS {
        if flags.only.is_empty() || flags.only.iter().any(|name| name == work.name) {
            report::progress(work.title);
            rows.extend(measure(flags, work, &recipes).context(work.title)?);
        }
    }
    let outcome = Outcome {
        rows,
        repetitions: flags.repetitions,
    };
    Ok(report::show(&outcome, flags.json)?)
}

fn measure(flags: &Flags, work: &Work, recipes: &[Recipe]) -> anyhow::Result<Vec<Row>> {
    let keys = match flags.small {
        true => work.keys / 100,
        false => work.keys,
    };
    let ground = flags.ground.with_memory(match (work.memory, flags.small) {
        (_, true) => 64,
        (Some(memory), _) => memory,
        (None, _) => flags.ground.memory,
    });
    let (seconds, value_size, words) = (flags.seconds.as_secs_f64(), work.value_size, work.words);
    let load = |pace: &str| {
        let words = format!(
            "--keys {keys} --key-size {KEY_SIZE} --value-size {value_size} {words} {pace} \
             --connections 64 --seconds {seconds} --warm-up 0.2"
        );
        LoadWords::parse(&words)
    };
    let search = load("--find-max --bound p99=1ms")?;
    let contest = Contest::prepare(recipes, &ground, &search.team, &search.load, None)?;
    let sides = contest.measure(&search.load, flags.repetitions)?;
    if work.name == "get" && !flags.no_sweep {
        let sweep = load("")?.load;
        let rates = SWEEP.parse().map_err(anyhow::Error::msg)?;
        let swept = contest.sweep(&sweep, &rates, flags.repetitions)?;
        let title = "GET, 64 connections with one request at a time: latency over the offered load";
        swept.chart(title).write(&flags.out, "load")?;
    }
    drop(contest);
    let [memcached, coua] = bytes_an_item(flags, work)?;
    let bytes = [memcached, coua, coua];
    let rows = sides.iter().zip(SERVERS).zip(bytes);
    let rows = rows.map(|((side, (server, _)), bytes)| Row::new(work, server, side, bytes));
    Ok(rows.collect())
}

/// Bytes of `-m`, and of an index beside it, for each item that memcached and coua hold when full.
fn bytes_an_item(flags: &Flags, work: &Work) -> anyhow::Result<[f64; 2]> {
    let memory = if flags.small { 16 } else { 256 };
    let words = format!(
        "--memory {memory} --steps 1 --overwrites 0 --key-size {KEY_SIZE} --value-sizes {}",
        work.value_size
    );
    let filled = memory::measure_words(&words, &flags.ground.coua, &flags.ground.memcached)?;
    Ok(["memcached", "coua"].map(|server| filled.bytes_an_item(server)))
}

impl Row {
    fn new(work: &Work, server: &'static str, side: &Side, bytes_an_item: f64) -> Row {
        let rates = &side.requests_per_second;
        let rate = median(rates.iter().copied());
        let outcome = &side.outcome;
        let found = |s: &Sample| s.hits as f64 / (s.hits + s.misses) as f64;
        Row {
            work: work.title,
            server,
            highest_rate: Some(rate).filter(|rate| *rate > 0.0),
            least: rates.iter().copied().fold(f64::INFINITY, f64::min),
            greatest: rates.iter().copied().fold(0.0, f64::max),
            cpu_us: Some(outcome.median(Sample::cpu_us)).filter(|cpu| cpu.is_finite()),
            hits: Some(outcome.median(found)).filter(|hits| hits.is_finite()),
            bytes_an_item,
            bottleneck: outcome.bottleneck,
        }
    }
}

impl Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = Table::new([
            "",
            "",
            "highest rate with p99 ≤ 1 ms, requests/s",
            "least … greatest",
            "server's CPU a request, µs",
            "hits, %",
            "bytes an item",
            "bottleneck",
        ]);
        for row in &self.rows {
            let thousands = |rate: f64| format!("{:.1} k", rate / 1000.0);
            table.row([
                row.work.to_owned(),
                row.server.to_owned(),
                row.highest_rate
                    .map_or_else(|| "none".to_owned(), thousands),
                format!("{} … {}", thousands(row.least), thousands(row.greatest)),
                row.cpu_us
                    .map_or_else(String::new, |cpu| format!("{cpu:.2}")),
                row.hits
                    .map_or_else(String::new, |hits| format!("{:.1}", 100.0 * hits)),
                format!("{:.0}", row.bytes_an_item),
                // What comes after one of these signs is an explanation.
                row.bottleneck
                    .split([':', ';'])
                    .next()
                    .unwrap_or_default()
                    .to_owned(),
            ]);
        }
        writeln!(
            f,
            "One worker on a core, 64 connections with one request at a time, the load on another core; \
             medians of {} searches, in turns. Keys of {KEY_SIZE} bytes, values of 100 where nothing else is \
             said. `Full`: 3 million keys, -m 128.\n",
            self.repetitions
        )?;
        write!(f, "{table}")
    }
}
