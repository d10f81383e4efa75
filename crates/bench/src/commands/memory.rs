//! `coua-bench memory`: how many bytes of `-m` an item takes, filled through the protocol.
//!
//! The index grows in steps, so one memory size could be lucky. Therefore several sizes within one
//! doubling are filled, and their mean is reported. After that, keys that are held are stored
//! again, which leaves dead items behind.

use std::fmt::Display;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use clap::{Args, Parser};
use serde::Serialize;

use super::programs::{CoreFlags, CouaFlag, MemcachedFlag, OptionalMemcachedFlag};
use crate::cpu;
use crate::load::{Engine, Measured, Requests};
use crate::process::{self, Server};
use crate::report::{self, Table, require};
use crate::workload::{KeyFormat, Sampler, Values};

/// Measures the memory that an item takes in coua and in memcached, by filling them
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Flags {
    #[command(flatten)]
    coua: CouaFlag,
    #[command(flatten)]
    memcached: OptionalMemcachedFlag,
    /// The smallest -m, in MiB; --steps sizes from it up to its double are filled
    #[arg(long, default_value_t = 256)]
    memory: u64,
    /// Number of memory sizes; the index grows in steps, so one size could be lucky
    #[arg(long, default_value_t = 4)]
    steps: u32,
    /// Bytes per key
    #[arg(long, default_value_t = 10)]
    key_size: usize,
    /// Bytes per value
    #[arg(long, value_delimiter = ',', default_value = "10,100,1000")]
    value_sizes: Vec<usize>,
    /// Sets of keys that are held, per item, after filling: they leave dead items behind
    #[arg(long, default_value_t = 2.0)]
    overwrites: f64,
    #[command(flatten)]
    cores: CoreFlags,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  Bytes per item beside its key and value, for three sizes of values
    coua-bench memory
  coua alone, with values of 64 bytes
    coua-bench memory --value-sizes 64 --no-memcached --steps 1";

/// The outcome.
#[derive(Debug, Serialize)]
pub(crate) struct Outcome {
    key_size: usize,
    overwrites: f64,
    rows: Vec<Row>,
}

/// One server with one size of value, at all memory sizes.
#[derive(Debug, Serialize)]
struct Row {
    server: &'static str,
    value_size: usize,
    filled: Vec<Filled>,
}

/// One server that was filled.
#[derive(Clone, Copy, Debug, Serialize)]
struct Filled {
    /// `-m`, in bytes.
    memory: u64,
    /// Items held when the first one had been evicted.
    first_eviction: u64,
    /// Items held after half as many new keys again.
    steady: u64,
    /// Items held after the overwrites.
    overwritten: u64,
    /// Bytes of the index, if `memory` does not include it.
    index_beside: u64,
    refused_sets: u64,
}

/// Fills all servers and prints what an item takes.
pub(crate) fn run(flags: &Flags) -> anyhow::Result<()> {
    Ok(report::show(&measure(flags)?, flags.json)?)
}

/// Fills all servers as these flags say, with these programs for coua and memcached.
pub(crate) fn measure_words(
    words: &str,
    coua: &CouaFlag,
    memcached: &MemcachedFlag,
) -> anyhow::Result<Outcome> {
    let words = std::iter::once("memory").chain(words.split_whitespace());
    let Words { flags } = Words::try_parse_from(words)?;
    measure(&Flags {
        coua: coua.clone(),
        memcached: memcached.clone().into(),
        ..flags
    })
}

/// The flags without the command before them.
#[derive(Debug, Parser)]
struct Words {
    #[command(flatten)]
    flags: Flags,
}

fn measure(flags: &Flags) -> anyhow::Result<Outcome> {
    require!(flags.steps > 0, "--steps takes 1 or more");
    require!(flags.memory > 0, "--memory takes 1 or more");
    require!(
        (0.0..=1e6).contains(&flags.overwrites),
        "--overwrites takes 0 to 1000000"
    );
    let memcached = flags.memcached.path();
    let coua = flags.coua.path()?;
    let mut servers: Vec<(&'static str, &Path)> = vec![("coua", &coua)];
    if let Some(memcached) = &memcached {
        servers.push(("memcached", memcached));
    }
    let mut outcome = Outcome {
        key_size: flags.key_size,
        overwrites: flags.overwrites,
        rows: Vec::new(),
    };
    for &value_size in &flags.value_sizes {
        for &(server, program) in &servers {
            let mut filled = Vec::new();
            for step in 0..flags.steps {
                let memory = within_doubling(flags.memory, step, flags.steps);
                report::progress(format_args!(
                    "{server}, values of {value_size}, -m {memory}"
                ));
                let mut one = fill(flags, program, memory, value_size)?;
                if server == "coua" {
                    // Its index is part of -m.
                    one.index_beside = 0;
                }
                filled.push(one);
            }
            outcome.rows.push(Row {
                server,
                value_size,
                filled,
            });
        }
    }
    Ok(outcome)
}

impl Outcome {
    /// Bytes of memory, including an index beside it, for each item that the server of this name
    /// holds when it is full: the mean over all that was filled.
    pub(crate) fn bytes_an_item(&self, server: &str) -> f64 {
        let rows = self.rows.iter().filter(|row| row.server == server);
        let filled: Vec<&Filled> = rows.flat_map(|row| &row.filled).collect();
        let each = filled
            .iter()
            .map(|one| (one.memory + one.index_beside) as f64 / one.steady.max(1) as f64);
        each.sum::<f64>() / filled.len().max(1) as f64
    }
}

/// `memory` × 2^(step / steps).
#[expect(
    clippy::cast_possible_truncation,
    reason = "at most twice a number of MiB"
)]
fn within_doubling(memory: u64, step: u32, steps: u32) -> u64 {
    (memory as f64 * (f64::from(step) / f64::from(steps)).exp2()).round() as u64
}

fn fill(flags: &Flags, program: &Path, memory: u64, value_size: usize) -> anyhow::Result<Filled> {
    let server_flags = process::Flags {
        memory,
        item_size_max: None,
        more: Vec::new(),
    };
    let server = Server::start(program, flags.cores.server_core, &server_flags)?;
    let bytes = memory << 20;
    let filling = Filling {
        flags,
        server: &server,
        keys: KeyFormat::new(flags.key_size, u32::MAX)?,
        values: Arc::new(Values::new(value_size)),
    };
    let mut client = server.client()?;
    // Steps of a thousandth of what memory can hold, so that the first eviction is noticed soon.
    let step = u32::try_from((bytes / (flags.key_size + value_size) as u64 / 1000).max(100))?;
    let (mut next, mut refused) = (0u32, 0);
    while client.stats()?.number("evictions") == 0 {
        let end = next
            .checked_add(step)
            .context("the server does not evict")?;
        refused += filling.store(next..end)?.refused;
        next = end;
    }
    let first_eviction = client.stats()?.number("curr_items");
    let end = next
        .checked_add(next / 2)
        .context("more keys than there are numbers")?;
    refused += filling.store(next..end)?.refused;
    let steady = client.stats()?.number("curr_items");
    let held = u32::try_from(steady)?.min(end);
    refused += filling.overwrite(end - held..end)?.refused;
    let stats = client.stats()?;
    Ok(Filled {
        memory: bytes,
        first_eviction,
        steady,
        overwritten: stats.number("curr_items"),
        index_beside: stats.number("hash_bytes"),
        refused_sets: refused,
    })
}

/// A server, and what it is filled with.
struct Filling<'a> {
    flags: &'a Flags,
    server: &'a Server,
    keys: KeyFormat,
    values: Arc<Values>,
}

impl Filling<'_> {
    /// Stores each key of the range once.
    fn store(&self, range: std::ops::Range<u32>) -> anyhow::Result<Measured> {
        self.drive(&Requests::filling(self.keys, self.values.clone(), range))
    }

    /// Stores keys of the range, uniformly chosen, for each of them as often as the flag says.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a multiple of a 32-bit number, in floating point"
    )]
    fn overwrite(&self, range: std::ops::Range<u32>) -> anyhow::Result<Measured> {
        let count = (f64::from(range.end - range.start) * self.flags.overwrites) as u64;
        let sampler = Sampler::draws(range, count, 5);
        self.drive(&Requests::new(
            self.keys,
            self.values.clone(),
            sampler,
            1,
            1.0,
        ))
    }

    fn drive(&self, requests: &Requests) -> anyhow::Result<Measured> {
        const CONNECTIONS: usize = 16;
        const DEPTH: usize = 32;
        let measured = cpu::pinned(self.flags.cores.load_core, || {
            Engine::connect(self.server.target(), CONNECTIONS, DEPTH, requests)?.finish()
        })??;
        Ok(measured)
    }
}

impl Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(
            f,
            "Bytes of -m for each item held; keys of {} bytes. Each figure is the mean over \
             the memory sizes, which lie within one doubling, with the least and the most in \
             brackets. Filled: half as many new keys again after the first eviction. \
             Overwritten: keys held are stored again, {} × as many as there are. memcached's \
             hash table is not part of its -m, coua's index is.\n",
            self.key_size, self.overwrites
        )?;
        let mut table = Table::new([
            "",
            "value",
            "-m in MiB",
            "at the first eviction",
            "filled",
            "overwritten",
            "filled, with an index beside -m",
            "sets refused",
        ]);
        for row in &self.rows {
            let bytes = |items: fn(&Filled) -> u64, beside: fn(&Filled) -> u64| {
                let each: Vec<f64> = row
                    .filled
                    .iter()
                    .map(|filled| {
                        (filled.memory + beside(filled)) as f64 / items(filled).max(1) as f64
                    })
                    .collect();
                let mean = each.iter().sum::<f64>() / each.len() as f64;
                let least = each.iter().copied().fold(f64::INFINITY, f64::min);
                let most = each.iter().copied().fold(0.0, f64::max);
                format!("{mean:.1} ({least:.1} … {most:.1})")
            };
            let memories: Vec<String> = row
                .filled
                .iter()
                .map(|filled| (filled.memory >> 20).to_string())
                .collect();
            table.row([
                row.server.to_owned(),
                row.value_size.to_string(),
                memories.join(", "),
                bytes(|filled| filled.first_eviction, |_| 0),
                bytes(|filled| filled.steady, |_| 0),
                bytes(|filled| filled.overwritten, |_| 0),
                bytes(|filled| filled.steady, |filled| filled.index_beside),
                row.filled
                    .iter()
                    .map(|filled| filled.refused_sets)
                    .sum::<u64>()
                    .to_string(),
            ]);
        }
        write!(f, "{table}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_sizes_stay_within_a_doubling() {
        let sizes: Vec<u64> = (0..4).map(|step| within_doubling(1024, step, 4)).collect();
        assert_eq!(sizes, [1024, 1218, 1448, 1722]);
    }
}
