//! How long a hit on flash takes, and how many requests a second both serve.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::ensure;
use rand::SeedableRng;
use rand::rngs::Xoshiro256PlusPlus;
use rand::seq::SliceRandom;

use super::filling::{Items, settle};
use super::outcome::{Latency, Throughput};
use super::page_cache::Emptied;
use super::sides::{Programs, Running, Set, Side};
use super::{Flags, KEY_LEN};
use crate::cpu;
use crate::load::{Engine, Latencies, Measured, Requests};
use crate::report;
use crate::workload::{KeyFormat, Popularity, Sampler, Values};

/// The share of requests that store, in the mixed load.
const SETS: f64 = 0.1;

/// Bytes that an item takes on flash beside its value, roughly.
const OVERHEAD: u64 = 100;

/// How long it is read until it is looked whether all keys have been read.
const STRETCH: Duration = Duration::from_millis(10);

/// What is measured: a side, and whether its file is kept out of the page cache.
const CASES: [(Side, bool); 3] = [
    (Side::Coua, false),
    (Side::Memcached, false),
    (Side::Memcached, true),
];

/// Measures both, one after the other in each repetition.
pub(super) fn measure(
    flags: &Flags,
    programs: &Programs,
    latency: bool,
    throughput: bool,
) -> anyhow::Result<(Vec<Latency>, Vec<Throughput>)> {
    let (mut latencies, mut rates) = (Vec::new(), Vec::new());
    for &workers in &flags.workers {
        let is_first = workers == flags.workers[0];
        if !throughput && !is_first {
            break;
        }
        let pair = Pair::start(flags, programs, workers)?;
        for repetition in 0..flags.repetitions {
            report::progress(format_args!("-t {workers}, repetition {}", repetition + 1));
            if latency && is_first {
                for case in CASES {
                    latencies.push(pair.latency(case, repetition)?);
                }
            }
            if throughput {
                for sets in [0.0, SETS] {
                    for case in CASES {
                        rates.push(pair.throughput(case, repetition, sets)?);
                    }
                }
            }
        }
    }
    Ok((latencies, rates))
}

/// Both servers, filled with the same items; one of them runs at a time.
struct Pair<'f> {
    flags: &'f Flags,
    workers: usize,
    running: Vec<Running>,
    keys: KeyFormat,
    values: Arc<Values>,
    items: u32,
    /// The older half of the keys, in an order in which nobody has stored them.
    old: Vec<u32>,
}

impl<'f> Pair<'f> {
    fn start(flags: &'f Flags, programs: &Programs, workers: usize) -> anyhow::Result<Pair<'f>> {
        let each = (flags.value_size + KEY_LEN) as u64 + OVERHEAD;
        let filling = u32::try_from((flags.flash << 20) / 2 / each)?;
        let items = flags.items.unwrap_or(filling).max(1000);
        let mut old: Vec<u32> = (0..items / 2).collect();
        old.shuffle(&mut Xoshiro256PlusPlus::seed_from_u64(19));
        let mut pair = Pair {
            flags,
            workers,
            running: Vec::new(),
            keys: KeyFormat::new(KEY_LEN, u32::MAX)?,
            values: Arc::new(Values::new(flags.value_size)),
            items,
            old,
        };
        let first = flags.cores.server_core;
        let set = Set {
            memory: flags.memory,
            flash: flags.flash,
            workers,
            cores: match workers {
                1 => vec![first],
                _ => (first..first + workers).collect(),
            },
        };
        for side in Side::BOTH {
            report::progress(format_args!("{}: {items} items, -t {workers}", side.name()));
            let running = Running::start(side, programs, flags, &set)?;
            let filled = Items {
                keys: pair.keys,
                values: &pair.values,
            };
            filled.fill(&mut running.client()?, 0..items, flags.fill_rate)?;
            settle(&running)?;
            running.server.pause()?;
            pair.running.push(running);
        }
        Ok(pair)
    }

    fn latency(&self, (side, emptied): (Side, bool), repetition: u32) -> anyhow::Result<Latency> {
        // Other keys each time: what is read a second time may be in memory.
        let rounds = self.flags.repetitions as usize * CASES.len();
        let nth = repetition as usize * CASES.len() + usize::from(emptied);
        let len = self.old.len() / rounds;
        ensure!(len > 0, "more --items are needed for so many --repetitions");
        let part: Arc<[u32]> = self.old[nth * len..][..len].into();
        let sampler = Sampler::replay(part);
        let most = Some(len as u64);
        let (measured, from_flash, written, _) =
            self.load((side, emptied), sampler, 0.0, 1, most)?;
        Ok(Latency {
            side,
            emptied,
            repetition,
            gets: measured.gets,
            hits: measured.hits,
            from_flash,
            bytes_written: written,
            latencies: Latencies::of(&measured),
        })
    }

    fn throughput(
        &self,
        (side, emptied): (Side, bool),
        repetition: u32,
        sets: f64,
    ) -> anyhow::Result<Throughput> {
        let sampler = Sampler::new(Popularity::Uniform, self.items, repetition.into());
        let connections = self.flags.connections;
        let (measured, from_flash, written, cpu) =
            self.load((side, emptied), sampler, sets, connections, None)?;
        Ok(Throughput {
            side,
            emptied,
            workers: self.workers,
            sets,
            repetition,
            gets: measured.gets,
            hits: measured.hits,
            from_flash,
            bytes_written: written,
            cpu_us_per_request: cpu.as_secs_f64() * 1e6 / measured.replies.max(1) as f64,
            requests_per_second: measured.rate(),
            latencies: Latencies::of(&measured),
        })
    }

    /// Puts a load on one side, of about so many gets at most. Returns what was measured, hits on flash, bytes written, and the server's time on
    /// processors.
    fn load(
        &self,
        (side, emptied): (Side, bool),
        sampler: Sampler,
        sets: f64,
        connections: usize,
        most: Option<u64>,
    ) -> anyhow::Result<(Measured, u64, u64, Duration)> {
        let found = self.running.iter().find(|running| running.side == side);
        let running = found.expect("both sides run");
        running.server.resume()?;
        let emptied = match emptied {
            true => Some(Emptied::begin(running.file.path())?),
            false => None,
        };
        let before = running.stats()?.number("get_extstore");
        let (written, cpu) = (running.bytes_written()?, running.server.cpu()?);
        let time = Duration::from_secs_f64(self.flags.seconds);
        let measured = cpu::pinned(self.flags.cores.load_core, || {
            let requests = Requests::new(self.keys, self.values.clone(), sampler, 1, sets);
            let target = running.server.target();
            let mut engine = Engine::connect(target, connections, 1, &requests)?;
            let Some(most) = most else {
                return engine.run(time);
            };
            let (begin, mut all) = (Instant::now(), Measured::new());
            while all.gets < most && begin.elapsed() < time {
                all.add(&engine.run(STRETCH)?);
            }
            Ok(all)
        })??;
        let cpu = running.server.cpu()?.saturating_sub(cpu);
        let written = running.bytes_written()?.saturating_sub(written);
        let from_flash = running.stats()?.number("get_extstore") - before;
        drop(emptied);
        running.server.pause()?;
        ensure!(measured.wrong == 0, "{} values are wrong", measured.wrong);
        Ok((measured, from_flash, written, cpu))
    }
}
