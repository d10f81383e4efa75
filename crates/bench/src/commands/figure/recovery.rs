//! Hits and misses a second around a restart: figures 8 to 12 of a study of memcached that recovers
//! from memory errors (about 2018).

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context;

use super::{Flags, Load};
use crate::chart::{Axis, Chart, Panel, Point, Scale, Series};
use crate::commands::compare::{Needs, Recipe};
use crate::commands::fill;
use crate::commands::load_flags::LoadFlags;
use crate::cpu;
use crate::load::{Order, Pace, Requests, Team};
use crate::process::MemoryFile;
use crate::report;
use crate::target::Target;

/// Seconds of the whole run, and the share of them before the restart: 60 of 300.
const SECONDS: f64 = 300.0;
const BEFORE: f64 = 0.2;

/// Requests per second without --rate.
const RATE: f64 = 20_000.0;

/// Seconds after the event, and the share of hits by those of a cache that was kept: 82 % ahead 10 s
/// after the load resumed, which took 10 s, and 30 % after 4 minutes.
const COLD: [(f64, f64); 2] = [(20.0, 1.0 / 1.82), (250.0, 1.0 / 1.3)];
/// 8 % apart after 222 s of restart and warm-up.
const WARMED: [(f64, f64); 1] = [(222.0, 1.0 / 1.08)];

/// What happens to a server after the first part of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    /// It is killed and started again with the memory that it left (`-e`).
    Warm,
    /// It is killed and started again, empty.
    Cold,
    /// The same, and the client stores every item before the load goes on.
    Warmed,
}

/// Each server, what happens to it, and how that is called in the figure.
const CASES: [(&str, Event, &str); 5] = [
    ("coua -e {memory}", Event::Warm, "coua, warm restart"),
    ("coua", Event::Cold, "coua, cold restart"),
    ("coua", Event::Warmed, "coua, warmed by clients"),
    ("memcached", Event::Cold, "memcached, cold restart"),
    ("memcached", Event::Warmed, "memcached, warmed by clients"),
];

/// Where the memory of a server lies that outlives it.
const MEMORY_FOLDER: &str = "/dev/shm";

/// One second of one load.
#[derive(Clone, Copy, Debug)]
struct Second {
    /// When it ended, in seconds after the restart.
    at: f64,
    /// A second.
    hits: f64,
    misses: f64,
    /// The longest time from when a request was due to its answer, in milliseconds.
    longest_ms: f64,
}

/// All that is measured: the known servers, and cold and warmed what was asked for beside them.
fn cases(flags: &Flags) -> anyhow::Result<Vec<(Recipe, Event)>> {
    let mut cases = Vec::new();
    for (line, event, name) in CASES {
        let recipe: Recipe = line.parse().map_err(anyhow::Error::msg)?;
        cases.push((recipe.named(name), event));
    }
    for recipe in &flags.also {
        for (event, what) in [
            (Event::Cold, "cold restart"),
            (Event::Warmed, "warmed by clients"),
        ] {
            let name = format!("{}, {what}", recipe.name());
            cases.push((recipe.clone().named(name), event));
        }
    }
    let with_workers = |(recipe, event): (Recipe, _)| (recipe.with_workers(1), event);
    Ok(cases.into_iter().map(with_workers).collect())
}

/// Measures every case.
pub(super) fn measure(flags: &Flags) -> anyhow::Result<Chart> {
    let rate = flags.rate.unwrap_or(RATE);
    let words = format!(
        "--keys {} --value-size 500 --mix get=90,set=10 --popularity zipf:0.99 --rate {rate}",
        flags.keys()
    );
    let load = flags.load(&words, SECONDS)?;
    let [mut hits, mut misses, mut longest, mut shares] = [const { Vec::new() }; 4];
    for (recipe, event) in cases(flags)? {
        let name = recipe.name();
        report::progress(name);
        let played = play(flags, &recipe, &load, rate, event);
        let seconds = played.with_context(|| name.to_owned())?;
        let series = |of: &dyn Fn(&Second) -> f64| {
            let points = seconds
                .iter()
                .map(|second| Point::new(second.at, of(second)));
            Series::measured(name, points.collect())
        };
        hits.push(series(&|second| second.hits));
        misses.push(series(&|second| second.misses));
        longest.push(series(&|second| second.longest_ms));
        let before = seconds.iter().filter(|second| second.at <= 0.0);
        let (count, sum) = before.fold((0.0, 0.0), |(count, sum), second| {
            (count + 1.0, sum + second.hits)
        });
        let mean_before = (sum / f64::max(count, 1.0)).max(1e-9);
        shares.push(series(&|second| second.hits / mean_before));
    }
    let last = load.flags.seconds.as_secs_f64() * (1.0 - BEFORE);
    for (name, points) in [
        ("recovery study, figures 8 to 10: cold", &COLD[..]),
        ("recovery study, figures 11 and 12: warmed", &WARMED[..]),
    ] {
        let shown: Vec<(f64, f64)> = points
            .iter()
            .copied()
            .filter(|(at, _)| *at <= last)
            .collect();
        if !shown.is_empty() {
            shares.push(Series::published(name, &shown));
        }
    }
    let panel = |title: &str, unit: &str, series| Panel {
        title: title.to_owned(),
        x: Axis::new("seconds after the event", Scale::Linear),
        y: Axis::new(unit, Scale::Linear),
        series,
    };
    Ok(Chart {
        title: "Hits and misses around a restart".to_owned(),
        caption: vec![
            format!("Measured here on loopback: {}", load.words),
            "Warm: the server is killed, and the next one begins with its memory. Cold: the next one \
             begins empty. Warmed by clients: before the load resumes, the client stores every item."
                .to_owned(),
            "Published (a study of recovery from memory errors, about 2018; memcached 1.4.39, 20 GB, \
             Twitter-like load of the Data Caching benchmark, 9:1, event at 60 s, load back after about 10 s): a cache that was kept \
             is ahead of a cold one by 82 % of throughput 10 s after the load is back and by 30 % after \
             4 minutes; warming took about 212 s, so 222 s of downtime, and left them 8 % apart."
                .to_owned(),
        ],
        panels: vec![
            panel("hits", "hits/s", hits),
            panel("misses", "misses/s", misses),
            panel("hits by those before the event", "share", shares),
            panel("the longest answer of each second", "ms", longest),
        ],
    })
}

/// Loads a server, ends it, starts it again, and loads it until the time is over.
fn play(
    flags: &Flags,
    recipe: &Recipe,
    load: &Load,
    rate: f64,
    event: Event,
) -> anyhow::Result<Vec<Second>> {
    let memory = MemoryFile::new(Path::new(MEMORY_FOLDER));
    let recipe = recipe.clone().with_memory_in(memory.path());
    let ground = &flags.ground;
    let needs = Needs::of(&load.team);
    let whole = load.flags.seconds;
    let before = whole.mul_f64(BEFORE);
    let mut stage = Stage {
        load,
        rate,
        cores: ground.load_cores()?,
        seconds: Vec::new(),
    };
    let first = recipe.start(ground, false, needs)?;
    stage.store(first.target())?;
    let begun = Instant::now();
    stage.ask(first.target(), begun, before, before)?;
    stage.rest(begun, before);
    drop(first);
    let second = recipe.start(ground, false, needs)?;
    if event == Event::Warmed {
        stage.store(second.target())?;
    }
    stage.rest(begun, before);
    stage.ask(second.target(), begun, before, whole)?;
    Ok(stage.seconds)
}

/// A load second by second.
struct Stage<'a> {
    load: &'a Load,
    rate: f64,
    /// The load's.
    cores: Vec<usize>,
    seconds: Vec<Second>,
}

impl Stage<'_> {
    const DEPTH: u32 = 32;
    const SECOND: Duration = Duration::from_secs(1);

    fn store(&self, target: &Target) -> anyhow::Result<()> {
        let team = &self.load.team;
        let items = &self.load.flags.items;
        let setup = team.setup(target, &[], Self::DEPTH)?;
        let stored = || fill::store(&setup, items, team.dialect, false);
        let measured = cpu::bound(&self.cores, stored)??;
        fill::all_stored(items, &measured)
    }

    /// Asks until `end` after the beginning; the event is `event` after it.
    fn ask(
        &mut self,
        target: &Target,
        begun: Instant,
        event: Duration,
        end: Duration,
    ) -> anyhow::Result<()> {
        let LoadFlags { items, depth, .. } = &self.load.flags;
        let plan = items.plan(
            self.load.team.dialect,
            self.load.flags.mix.as_ref(),
            self.load.flags.keys_per_get,
        )?;
        let sampler = items.sampler(items.popularity(self.load.flags.popularity), None)?;
        let requests = Requests::planned(plan.into(), sampler, items.seed);
        let setup = self.load.team.setup(target, &[], *depth)?;
        let mut team = cpu::bound(&self.cores, || Team::gather(&setup, &requests))??;
        let mut round = 0;
        while let Some(left) = end
            .checked_sub(begun.elapsed())
            .filter(|left| !left.is_zero())
        {
            round += 1;
            let pace = Pace {
                rate: self.rate,
                arrivals: self.load.flags.arrivals,
                seed: items.seed + round,
            };
            let order = Order::Open(pace, left.min(Self::SECOND));
            let measured = team.carry_out(order, |_, _| ())?;
            let seconds = measured.elapsed.as_secs_f64().max(1e-9);
            self.seconds.push(Second {
                at: begun.elapsed().as_secs_f64() - event.as_secs_f64(),
                hits: measured.hits as f64 / seconds,
                misses: measured.misses as f64 / seconds,
                longest_ms: measured.latency_ns.max() as f64 / 1e6,
            });
        }
        Ok(())
    }

    /// No request is sent.
    fn rest(&mut self, begun: Instant, event: Duration) {
        self.seconds.push(Second {
            at: begun.elapsed().as_secs_f64() - event.as_secs_f64(),
            hits: 0.0,
            misses: 0.0,
            longest_ms: 0.0,
        });
    }
}
