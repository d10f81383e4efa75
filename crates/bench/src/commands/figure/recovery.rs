//! A study of memcached that recovers from memory errors (about 2018): hits and misses a second
//! around an error or a restart (figures 8 to 12), and how long recovery takes by the size of the
//! memory (figure 7).

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail, ensure};

use super::{Flags, Load};
use crate::chart::{Axis, Chart, Panel, Point, Scale, Series};
use crate::client::Client;
use crate::commands::compare::{Needs, Recipe};
use crate::commands::fill;
use crate::commands::load_flags::LoadFlags;
use crate::cpu;
use crate::load::{Order, Pace, Requests, Team};
use crate::process::MemoryFile;
use crate::report;
use crate::target::Target;
use crate::workload::KeyFormat;

/// Seconds of the whole run, and the share of them before the event: 60 of 300.
const SECONDS: f64 = 300.0;
const BEFORE: f64 = 0.2;

/// Requests per second without --rate.
const RATE: f64 = 20_000.0;

/// Seconds after the event, and a cold cache's hits divided by those of a cache that was kept. The
/// kept one is 82 % ahead 10 s after the load resumed, which it did after 10 s, and 30 % ahead
/// after 4 minutes.
const COLD: [(f64, f64); 2] = [(20.0, 1.0 / 1.82), (250.0, 1.0 / 1.3)];
/// The same for a cache that clients warmed: 8 % apart after 222 s of restart and warm-up.
const WARMED: [(f64, f64); 1] = [(222.0, 1.0 / 1.08)];

/// What happens to a server after the first part of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    /// The machine loses a page of the server's memory, on which items lie. The server goes on.
    PageLost,
    /// It is killed and started again with the memory that it left (`-e`).
    Warm,
    /// It is killed and started again, empty.
    Cold,
    /// The same, and the client stores every item before the load goes on.
    Warmed,
}

/// Each server, what happens to it, and the name of that in the figure.
const CASES: [(&str, Event, &str); 6] = [
    (LOSING, Event::PageLost, "coua, a page lost"),
    ("coua -e {memory}", Event::Warm, "coua, warm restart"),
    ("coua", Event::Cold, "coua, cold restart"),
    ("coua", Event::Warmed, "coua, warmed by clients"),
    ("memcached", Event::Cold, "memcached, cold restart"),
    ("memcached", Event::Warmed, "memcached, warmed by clients"),
];

/// A coua that loses a page on command.
const LOSING: &str = "coua -o poison_command";

/// Bytes of a key and of a value.
const KEY_LEN: usize = 16;
const VALUE_LEN: u64 = 500;
/// Bytes that an item takes, at most.
const ITEM_LEN: u64 = KEY_LEN as u64 + VALUE_LEN + 60;

/// The study's recovery in seconds, by GB: its fit is 0.0087 s and 0.1992 s for each 2 GB, and at
/// 20 GB it took 2.03 s.
const STUDY_S: [(f64, f64); 2] = [(2.0, 0.2079), (20.0, 2.03)];

/// The folder for the memory of a server that outlives it.
const MEMORY_FOLDER: &str = "/dev/shm";

/// One second of one load.
#[derive(Clone, Copy, Debug)]
struct Second {
    /// When it ended, in seconds after the event.
    at: f64,
    /// Gets that hit, and gets that missed, a second.
    hits: f64,
    misses: f64,
    /// The longest time from when a request was due to its answer, in milliseconds.
    longest_ms: f64,
}

/// All cases: the known servers, and those of `--also`, cold and warmed.
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
        "--keys {} --key-size {KEY_LEN} --value-size {VALUE_LEN} --mix get=90,set=10 \
         --popularity zipf:0.99 --rate {rate}",
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
        title: "Hits and misses around a memory error or a restart".to_owned(),
        caption: vec![
            format!("Measured here on loopback: {}", load.words),
            "A page lost: the machine loses 4 KiB on which items lie (UFFDIO_POISON), and the server \
             goes on. Warm: the server is killed, and the next one begins with its memory. Cold: the next one \
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

/// Loads a server, lets the event happen, and loads it until the time is over.
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
    if event == Event::PageLost {
        stage.lose_page(first.target(), begun, before, whole)?;
        return Ok(stage.seconds);
    }
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
    /// Cores of the load.
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

    /// Sends requests until `end` after `begun`; the event is `event` after it.
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

    /// Sends requests until `end` after `begun`; a page is lost `event` after it.
    fn lose_page(
        &mut self,
        target: &Target,
        begun: Instant,
        event: Duration,
        end: Duration,
    ) -> anyhow::Result<()> {
        let keys = self.load.flags.items.keys;
        std::thread::scope(|scope| {
            let loses = scope.spawn(|| {
                std::thread::sleep(event.saturating_sub(begun.elapsed()));
                poison(target, keys)
            });
            self.ask(target, begun, event, end)?;
            let lost = loses.join();
            lost.unwrap_or_else(|_| Err(anyhow!("the thread that poisons has panicked")))
        })
    }

    /// Records a moment in which no request is sent.
    fn rest(&mut self, begun: Instant, event: Duration) {
        self.seconds.push(Second {
            at: begun.elapsed().as_secs_f64() - event.as_secs_f64(),
            hits: 0.0,
            misses: 0.0,
            longest_ms: 0.0,
        });
    }
}

/// Makes a coua lose the page on which a key's item lies, before anybody touches it. The key is the
/// last of `keys` that was not evicted.
fn poison(target: &Target, keys: u32) -> anyhow::Result<()> {
    const TRIES: usize = 1000;
    let format = KeyFormat::new(KEY_LEN, u32::MAX)?;
    let mut client = Client::connect(target)?;
    let (mut name, mut line) = (vec![0; KEY_LEN], Vec::new());
    for key in (0..keys).rev().take(TRIES) {
        format.write(key, &mut name);
        client.send(&[b"poison ", &name[..], b" item untouched\r\n"].concat())?;
        client.read_line(&mut line)?;
        match &line[..] {
            b"OK" => return Ok(()),
            b"NOT_FOUND" => {}
            _ => break,
        }
    }
    bail!(
        "poison: {}; it takes root and a kernel with UFFDIO_POISON (6.6)",
        String::from_utf8_lossy(&line)
    );
}

/// The outcome of recovery from one error.
struct Recovery {
    gib: f64,
    /// From the error until nothing refers to what was lost.
    took_ms: f64,
    /// The longest answer of the seconds before the error, and of those after it.
    longest_ms: [f64; 2],
}

/// Measures recovery with memories of an eighth of `--memory` to all of it, all of them full.
pub(super) fn measure_times(flags: &Flags) -> anyhow::Result<Chart> {
    let rate = flags.rate.unwrap_or(RATE);
    let mut recoveries = Vec::new();
    for memory in [8, 4, 2, 1].map(|part| (flags.ground.memory / part).max(64)) {
        report::progress(format_args!("{memory} MiB"));
        for _ in 0..flags.repetitions {
            recoveries.push(recover(flags, memory, rate)?);
        }
    }
    let series = |name: &str, of: &dyn Fn(&Recovery) -> f64| {
        let mut places: Vec<f64> = recoveries.iter().map(|one| one.gib).collect();
        places.dedup();
        let points = places.into_iter().map(|gib| {
            let at_place = recoveries.iter().filter(|one| one.gib == gib);
            Point::of(gib, &at_place.map(of).collect::<Vec<_>>(), "")
        });
        Series::measured(name, points.collect())
    };
    let panel = |title: &str, series| Panel {
        title: title.to_owned(),
        x: Axis::new("memory, GiB", Scale::Log),
        y: Axis::new("ms", Scale::Log),
        series,
    };
    let largest = flags.ground.memory as f64 / 1024.0;
    let study = STUDY_S.map(|(gib, seconds)| (gib, seconds * 1000.0));
    let study: Vec<_> = study
        .into_iter()
        .filter(|(gib, _)| *gib <= 2.0 * largest)
        .collect();
    let mut times = vec![series("coua, until nothing refers to the page", &|one| {
        one.took_ms
    })];
    if !study.is_empty() {
        times.push(Series::published(
            "recovery study, figure 7: the server stands still",
            &study,
        ));
    }
    Ok(Chart {
        title: "Recovery from a memory error, by the size of the memory".to_owned(),
        caption: vec![
            format!(
                "Measured here on loopback: full of values of {VALUE_LEN} bytes, 90 % gets, {rate} requests a \
                 second, 4 KiB lost (UFFDIO_POISON)."
            ),
            "Published (a study of recovery from memory errors, about 2018; memcached 1.4.39): no request \
             is answered meanwhile."
                .to_owned(),
        ],
        panels: vec![
            panel("time of recovery", times),
            panel(
                "longest answer",
                vec![
                    series("before the error", &|one| one.longest_ms[0]),
                    series("during recovery and after it", &|one| one.longest_ms[1]),
                ],
            ),
        ],
    })
}

fn recover(flags: &Flags, memory: u64, rate: f64) -> anyhow::Result<Recovery> {
    const SECONDS: f64 = 8.0;
    let keys = (memory << 20) / ITEM_LEN;
    let words = format!(
        "--keys {keys} --key-size {KEY_LEN} --value-size {VALUE_LEN} --mix get=90,set=10 --rate {rate}"
    );
    let load = flags.load(&words, SECONDS)?;
    let ground = flags.ground.with_memory(memory);
    let recipe: Recipe = LOSING.parse().map_err(anyhow::Error::msg)?;
    let server = recipe
        .with_workers(1)
        .start(&ground, false, Needs::of(&load.team))?;
    let mut stage = Stage {
        load: &load,
        rate,
        cores: ground.load_cores()?,
        seconds: Vec::new(),
    };
    stage.store(server.target())?;
    let (begun, whole) = (Instant::now(), load.flags.seconds);
    let event = whole / 2;
    stage.lose_page(server.target(), begun, event, whole)?;
    let mut client = Client::connect(server.target())?;
    let until = Instant::now() + Duration::from_secs(120);
    let told = loop {
        let told = client.stats_of("memory_errors")?;
        if told.number("errors") > 0 && told.number("unsettled") == 0 {
            break told;
        }
        ensure!(Instant::now() < until, "no end of recovery in two minutes");
        std::thread::sleep(Duration::from_millis(50));
    };
    let longest = |is_of: &dyn Fn(f64) -> bool| {
        let seconds = stage.seconds.iter().filter(|second| is_of(second.at));
        seconds.map(|second| second.longest_ms).fold(0.0, f64::max)
    };
    Ok(Recovery {
        gib: memory as f64 / 1024.0,
        took_ms: told.number("longest_recovery_us") as f64 / 1000.0,
        // The second of the error ends after it.
        longest_ms: [longest(&|at| at <= 0.0), longest(&|at| at > 0.0)],
    })
}
