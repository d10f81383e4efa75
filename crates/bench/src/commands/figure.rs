//! `coua-bench figure`: the figures of the research systems behind coua, measured again on this
//! machine, with what was published beside them.
//!
//! Servers are started, pinned and measured in turns as `coua-bench compare` does. Absolute rates
//! of other machines cannot be compared; ratios and shapes can, unless the load is the busier side.
//! The notes in the CSV say so for each point.

mod gain;
mod latency;
mod page;
mod recovery;
mod requests;
mod throughput;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::compare::{Ground, Recipe, Side};
use super::load_flags::{LoadFlags, LoadWords, TeamFlags, positive_time};
use super::rates::rate;
use crate::chart::{self, Point};
use crate::report;

/// Measures a published figure again, and writes NAME.csv and NAME.svg with the paper's numbers
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Flags {
    /// Which figure
    #[arg(value_enum)]
    name: Name,
    /// Numbers of workers of the servers, with commas [default: 1, 2, 4 and so on, up to the servers'
    /// cores]
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u16).range(1..=1024))]
    workers: Vec<u16>,
    /// Seconds of each measurement; for recovery, of the whole run [default: as published, if that is
    /// known]
    #[arg(long, value_parser = positive_time)]
    seconds: Option<Duration>,
    /// Measurements per point; medians are drawn, with their spread
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    repetitions: u32,
    /// Number of keys [default: a million, as published]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    keys: Option<u32>,
    /// For recovery: requests per second [default: 20000]
    #[arg(long, value_parser = rate)]
    rate: Option<f64>,
    /// One more server, as coua-bench compare takes it; {workers} stands for the number of workers in
    /// the command line of a server that is neither coua nor memcached
    #[arg(long, value_name = "SERVER")]
    also: Vec<Recipe>,
    /// The folder for NAME.csv and NAME.svg
    #[arg(long, value_name = "DIR", default_value = ".")]
    out: PathBuf,
    #[command(flatten)]
    ground: Ground,
}

/// A figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Name {
    /// Highest rate with a mean latency under 1 ms, by number of workers: the kernel's TCP and coua's
    /// own, for SET only and for 95 % GET (Pan 2018, figures 8 and 10)
    ThroughputByWorkers,
    /// The latency distribution, below capacity and overloaded (Pan 2018, figure 9)
    Latency,
    /// Requests per second by number of workers: a ping-pong of 16 bytes, GETs of 8 bytes, Zipf 0.9
    /// with 90:10 (mimicached 2025)
    RequestsByWorkers,
    /// Where coua's requests a second come from, in five bars: a ping-pong of 16 bytes on Linux and on
    /// coua's stack, memcached, coua on Linux and on its stack (mimicached 2025); no root, one worker
    Gain,
    /// Load times of web pages of 200 values, by cache (U2cache, figure 16); needs ab, of apache2-utils
    PageLoad,
    /// Hits, misses and the longest answer of each second around an event: a page of memory that is
    /// lost, or a restart that is warm, cold, or warmed by its clients (a study of memcached that
    /// recovers from memory errors, about 2018, figures 8 to 12)
    Recovery,
    /// How long recovery from a memory error takes, and the longest answer meanwhile, with memories of
    /// an eighth of --memory to all of it (the same study, figure 7)
    RecoveryTime,
}

const EXAMPLES: &str = "\
Examples:
  As published: hours
    coua-bench figure throughput-by-workers --out figures
  A first look: minutes
    coua-bench figure throughput-by-workers --seconds 1 --repetitions 1 --workers 1,2 --out figures
  With DPDK on a packet socket beside the others, where coua was built with it
    coua-bench figure requests-by-workers --also 'DPDK=coua --net dpdk'
  A restart after 4 of 20 seconds
    coua-bench figure recovery --seconds 20 --keys 100000
  Recovery with 2 to 16 GiB
    coua-bench figure recovery-time --memory 16384 --out figures

All but gain, recovery and recovery-time lay a cable between two network namespaces for each server
and need root.";

/// Measures the figure and writes it.
pub(crate) fn run(flags: &Flags) -> anyhow::Result<()> {
    let chart = match flags.name {
        Name::ThroughputByWorkers => throughput::measure(flags)?,
        Name::Latency => latency::measure(flags)?,
        Name::RequestsByWorkers => requests::measure(flags)?,
        Name::Gain => gain::measure(flags)?,
        Name::PageLoad => page::measure(flags)?,
        Name::Recovery => recovery::measure(flags)?,
        Name::RecoveryTime => recovery::measure_times(flags)?,
    };
    let name = flags.name.to_possible_value();
    let name = name.as_ref().map_or("figure", |name| name.get_name());
    for path in chart.write(&flags.out, name)? {
        report::print(path)?;
    }
    Ok(())
}

/// The load of a figure.
struct Load {
    team: TeamFlags,
    flags: LoadFlags,
    /// The same as words of a command line, for the report.
    words: String,
}

/// The coua that others are compared with, and its series.
const KERNEL: (&str, &str) = ("coua, the kernel's TCP", "coua");
const OWN: [(&str, &str); 2] = [
    ("coua, own TCP on AF_XDP", "coua --net xdp"),
    ("coua, own TCP on a packet socket", "coua --net packet"),
];
const MEMCACHED: (&str, &str) = ("memcached, the kernel's TCP", "memcached");

impl Flags {
    /// Numbers of workers, in ascending order.
    fn workers(&self) -> anyhow::Result<Vec<usize>> {
        let mut workers: Vec<usize> = self.workers.iter().copied().map(usize::from).collect();
        if workers.is_empty() {
            let cores = self.ground.server_cores()?.len();
            let doubled = std::iter::successors(Some(1), |count| Some(count * 2));
            workers.extend(doubled.take_while(|count| *count < cores));
            workers.push(cores);
        }
        workers.sort_unstable();
        workers.dedup();
        Ok(workers)
    }

    fn keys(&self) -> u32 {
        self.keys.unwrap_or(1_000_000)
    }

    fn seconds(&self, published: f64) -> f64 {
        self.seconds
            .map_or(published, |seconds| seconds.as_secs_f64())
    }

    /// Load threads: as many as published, but no more than there are cores for them.
    fn threads(&self, published: usize) -> anyhow::Result<usize> {
        Ok(published.min(self.ground.load_cores()?.len()))
    }

    /// A load of `published_seconds` seconds, unless `--seconds` says otherwise.
    fn load(&self, words: &str, published_seconds: f64) -> anyhow::Result<Load> {
        let seconds = self.seconds(published_seconds);
        let warm_up = (seconds / 4.0).min(1.0);
        let words = format!("{words} --seconds {seconds} --warm-up {warm_up}");
        let LoadWords { team, load } = LoadWords::parse(&words)?;
        Ok(Load {
            team,
            flags: load,
            words,
        })
    }

    /// coua on the kernel's TCP first, then coua on its own stacks, memcached, and the servers of
    /// `--also`; each with so many workers.
    fn servers(&self, workers: usize) -> anyhow::Result<Vec<Recipe>> {
        let [first, second] = OWN;
        self.recipes(&[KERNEL, first, second, MEMCACHED], workers)
    }

    fn recipes(&self, known: &[(&str, &str)], workers: usize) -> anyhow::Result<Vec<Recipe>> {
        let known = known.iter().map(|(name, line)| {
            let recipe: Recipe = line.parse().map_err(anyhow::Error::msg)?;
            Ok(recipe.named(*name))
        });
        let mut all = known.collect::<anyhow::Result<Vec<Recipe>>>()?;
        all.extend(self.also.iter().cloned());
        Ok(all
            .into_iter()
            .map(|recipe| recipe.with_workers(workers))
            .collect())
    }
}

/// A number of workers, for people.
fn counted(workers: usize) -> String {
    match workers {
        1 => "1 worker".to_owned(),
        count => format!("{count} workers"),
    }
}

/// The rates of a side at a place on the x axis, with its bottleneck.
fn rates(x: f64, side: &Side) -> Point {
    let note = std::iter::once(format!("bottleneck: {}", side.outcome.bottleneck))
        .chain(side.outcome.warnings.iter().cloned());
    let note: Vec<String> = note.collect();
    Point::of(x, &side.requests_per_second, note.join("; "))
}

/// Sides of the same name at all places, as series in the order of the first place.
fn by_server(places: &[(f64, Vec<Side>)]) -> Vec<chart::Series> {
    let Some((_, first)) = places.first() else {
        return Vec::new();
    };
    let series = first.iter().enumerate().map(|(index, side)| {
        let points = places
            .iter()
            .filter_map(|(x, sides)| sides.get(index).map(|side| rates(*x, side)));
        chart::Series::measured(side.name.clone(), points.collect())
    });
    series.collect()
}
