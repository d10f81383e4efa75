//! `coua-bench store`: coua's store in this process beside hashbrown under a lock, dashmap and
//! segcache.
//!
//! All stores of a configuration are filled and kept, and all their measurements are interleaved.
//! Every store gets 30 % more memory than its keys take, so that none evicts; a success below 100 %
//! shows that one did.

mod outcome;

use std::time::Duration;

use anyhow::Context;
use clap::{Args, ValueEnum};

use outcome::{Configured, Outcome};

use super::load_flags::positive_time;
use crate::cpu;
use crate::report::{self, require};
use crate::rivals::{
    CouaRival, DashMapRival, HashbrownRival, KeySizes, Load, Operation, Requests, Rival,
    SegcacheRival, measure,
};
use crate::workload::{Popularity, Sampler, Values};

/// Compares coua's store with hashbrown, dashmap and segcache, in this process
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Flags {
    /// Numbers of keys
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "1000,100000,1000000,10000000"
    )]
    keys: Vec<u32>,
    /// Longest key, in bytes; keys have all lengths from 8 up to it
    #[arg(long, value_delimiter = ',', default_value = "8,32")]
    key_sizes: Vec<usize>,
    /// Bytes per value
    #[arg(long, value_delimiter = ',', default_value = "8,100")]
    value_sizes: Vec<usize>,
    /// uniform or zipf:EXPONENT
    #[arg(long, value_delimiter = ',', default_value = "uniform,zipf:0.99")]
    popularity: Vec<Popularity>,
    /// Numbers of threads
    #[arg(long, value_delimiter = ',', default_value = "1,2")]
    threads: Vec<usize>,
    /// Stores to measure
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "coua,hashbrown,dashmap,segcache"
    )]
    stores: Vec<Kind>,
    /// What is done with each key
    #[arg(long, value_enum, value_delimiter = ',', default_value = "get,set")]
    operations: Vec<Operation>,
    /// Requests handed over at once, to stores that take bursts: 1, 8, 32
    #[arg(long, value_delimiter = ',', default_value = "1,8,32")]
    batches: Vec<usize>,
    /// Measurements of each store in each case, interleaved; medians are reported
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Seconds of each measurement
    #[arg(long, default_value = "0.5", value_parser = positive_time)]
    seconds: Duration,
    /// How full segcache's index may be, 0.05 to 1: a fuller one is slower and refuses keys
    #[arg(long, default_value_t = SegcacheRival::LOAD)]
    segcache_load: f64,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  A million keys, one thread and two
    coua-bench store --keys 1000000 --threads 1,2
  coua beside segcache, gets in bursts
    coua-bench store --stores coua,segcache --operations get --batches 32";

/// A store that can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Kind {
    Coua,
    Hashbrown,
    Dashmap,
    Segcache,
}

/// Measures all configurations and prints the comparison.
pub(crate) fn run(flags: &Flags) -> anyhow::Result<()> {
    require!(flags.rounds > 0, "--rounds takes 1 or more");
    require!(
        flags.keys.iter().all(|&keys| keys > 0),
        "--keys takes 1 or more"
    );
    let sizes_valid = flags
        .key_sizes
        .iter()
        .all(|size| (KeySizes::MIN..=KeySizes::MAX).contains(size));
    require!(
        sizes_valid,
        "--key-sizes takes {} to {}",
        KeySizes::MIN,
        KeySizes::MAX
    );
    require!(
        (0.05..=1.0).contains(&flags.segcache_load),
        "--segcache-load takes 0.05 to 1"
    );
    let cores = cpu::allowed()?;
    let threads_valid = flags
        .threads
        .iter()
        .all(|threads| (1..=cores.len()).contains(threads));
    require!(
        threads_valid,
        "--threads takes 1 to {}, one per core",
        cores.len()
    );
    let mut outcome = Outcome::new(flags.rounds, flags.seconds.as_secs_f64());
    for &keys in &flags.keys {
        for &most in &flags.key_sizes {
            for &value_size in &flags.value_sizes {
                let setting = Setting {
                    keys,
                    sizes: KeySizes { most },
                    values: Values::new(value_size),
                    segcache_load: flags.segcache_load,
                };
                outcome.configured.extend(setting.measure(flags, &cores)?);
            }
        }
    }
    Ok(report::show(&outcome, flags.json)?)
}

/// Keys and values of one configuration.
struct Setting {
    keys: u32,
    sizes: KeySizes,
    values: Values,
    segcache_load: f64,
}

impl Setting {
    /// The most that coua takes for an item besides key and value, including its share of the
    /// index.
    const OVERHEAD: usize = 40;
    /// Memory that does not grow with the keys: open segments, reserves.
    const FIXED: usize = 64 << 20;

    fn memory(&self) -> anyhow::Result<usize> {
        let item = self.sizes.mean() + self.values.size() + Self::OVERHEAD;
        let keys = usize::try_from(self.keys)?;
        let all = keys
            .checked_mul(item * 13 / 10)
            .context("so many keys are more than an address space")?;
        Ok(all + Self::FIXED)
    }

    fn fill(&self, kind: Kind, workers: usize) -> anyhow::Result<Box<dyn Rival>> {
        let (keys, sizes, values) = (self.keys, self.sizes, &self.values);
        Ok(match kind {
            Kind::Coua => Box::new(CouaRival::filled(
                keys,
                sizes,
                values,
                self.memory()?,
                workers,
            )?),
            Kind::Hashbrown => Box::new(HashbrownRival::filled(keys, sizes, values)),
            Kind::Dashmap => Box::new(DashMapRival::filled(keys, sizes, values)),
            Kind::Segcache => Box::new(SegcacheRival::filled(
                keys,
                sizes,
                values,
                self.memory()?,
                self.segcache_load,
            )),
        })
    }

    /// Measures every store, batch, operation, number of threads and popularity.
    fn measure(&self, flags: &Flags, cores: &[usize]) -> anyhow::Result<Vec<Configured>> {
        let workers = flags.threads.iter().copied().max().unwrap_or(1);
        let named = format!(
            "{} keys of 8 to {} bytes, values of {}",
            self.keys,
            self.sizes.most,
            self.values.size()
        );
        report::progress(format_args!("{named}: filling"));
        let rivals: Vec<_> = flags
            .stores
            .iter()
            .map(|&kind| self.fill(kind, workers))
            .collect::<Result<_, _>>()?;
        let mut all = Vec::new();
        for &popularity in &flags.popularity {
            let mut configured = Configured::new(format!("{named}, {popularity}"));
            let mut sampler = Sampler::new(popularity, self.keys, 77);
            let load = Load {
                values: &self.values,
                requests: &Requests::draw(self.sizes, &mut sampler),
                time: flags.seconds,
            };
            for round in 0..flags.rounds {
                report::progress(format_args!(
                    "{named}, {popularity}: {} of {}",
                    round + 1,
                    flags.rounds
                ));
                for &operation in &flags.operations {
                    for &threads in &flags.threads {
                        for rival in &rivals {
                            let wanted = |batch: &&usize| flags.batches.contains(batch);
                            let all = rival.batches();
                            for &batch in all.iter().filter(|batch| all.len() == 1 || wanted(batch))
                            {
                                let cores = &cores[..threads];
                                let speed = measure(rival.as_ref(), operation, batch, cores, load);
                                configured.note(rival.name(), batch, operation, threads, speed);
                            }
                        }
                    }
                }
            }
            all.push(configured);
        }
        Ok(all)
    }
}
