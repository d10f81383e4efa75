//! `coua-bench hits`: miss ratios of coua's store beside LRU, S3-FIFO and memcached.
//!
//! For each stream and each fraction of its distinct keys, values get the size at which coua's
//! store, in a memory of many segments, holds that many items. LRU and S3-FIFO then hold as many
//! items as coua was found to hold when it was full; memcached gets the same `-m` and the same
//! values.

mod outcome;

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, ensure};
use clap::Args;

use outcome::{Outcome, Point};

use super::programs::OptionalMemcachedFlag;
use crate::client::Client;
use crate::hits::coua::{Coua, Sizes};
use crate::hits::lru::Lru;
use crate::hits::memcached::Memcached;
use crate::hits::s3fifo::S3Fifo;
use crate::hits::stream::Stream;
use crate::hits::synthetic::Recipe;
use crate::hits::{self, trace};
use crate::process::{self, Server};
use crate::report::{self, require};
use crate::workload::Values;

/// Compares coua's miss ratio with LRU, S3-FIFO and memcached on traces and synthetic streams
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Flags {
    /// A trace or a folder of traces; see below for the formats
    #[arg(long, value_name = "PATH")]
    traces: Vec<PathBuf>,
    /// Also replay the synthetic streams
    #[arg(long)]
    synthetic: bool,
    /// Number of popular keys of a synthetic stream
    #[arg(long, default_value_t = 1_000_000)]
    keys: u32,
    /// Requests of a synthetic stream; the first half is warm-up
    #[arg(long, default_value_t = 8_000_000)]
    requests: usize,
    /// Sizes of the cache: items held, in per cent of the distinct keys; below 64 items one is left
    /// out
    #[arg(long, value_delimiter = ',', default_value = "1,10,25")]
    percents: Vec<f64>,
    /// Memory (-m), in MiB, in 1024 segments; more if values would have less than 8 bytes
    #[arg(long, default_value_t = 64)]
    memory: u64,
    #[command(flatten)]
    memcached: OptionalMemcachedFlag,
    /// Core of memcached
    #[arg(long, default_value_t = 0)]
    server_core: usize,
    /// Only streams whose name contains this [default: all]
    #[arg(long, default_value = "", hide_default_value = true)]
    only: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Caches of fewer items are left out.
const ITEMS_MIN: u32 = 64;

/// The most bytes of values that go over memcached's socket; beyond them memcached is left out.
const TRANSFER_MAX: u64 = 64 << 30;

const EXAMPLES: &str = "\
Examples:
  On synthetic streams, without memcached
    coua-bench hits --synthetic --no-memcached
  On traces in a folder, for caches of 1 and 10 % of the keys
    coua-bench hits --traces ./traces --percents 1,10

memcached is left out where more than 64 GiB of values would go over its socket.

Formats of traces; files in .gz, .xz and .zst are unpacked:
  NAME.lis   per line a first block, a count, and more; each block of the range is a request (ARC)
  text       one key number per line; other lines are skipped (LIRS)
  others     key numbers of 4 bytes, most significant first";

/// Replays everything and prints the comparison.
pub(crate) fn run(flags: &Flags) -> anyhow::Result<()> {
    require!(
        flags
            .percents
            .iter()
            .all(|percent| *percent > 0.0 && *percent < 100.0),
        "--percents takes numbers between 0 and 100"
    );
    require!(
        flags.keys > 0 && flags.requests > 0,
        "--keys and --requests take 1 or more"
    );
    let mut outcome = Outcome::new(flags.memory, ITEMS_MIN);
    for path in trace_files(&flags.traces)? {
        if path.to_string_lossy().contains(&flags.only) {
            let stream = trace::read(&path).with_context(|| path.display().to_string())?;
            outcome.traces.extend(points(flags, &stream)?);
        }
    }
    if flags.synthetic {
        for recipe in Recipe::all()
            .into_iter()
            .filter(|recipe| recipe.name().contains(&flags.only))
        {
            outcome
                .synthetic
                .extend(points(flags, &recipe.stream(flags.keys, flags.requests))?);
        }
    }
    ensure!(
        !(outcome.traces.is_empty() && outcome.synthetic.is_empty()),
        "nothing to replay: give --traces or --synthetic"
    );
    Ok(report::show(&outcome, flags.json)?)
}

/// The files that are named, and those in the folders that are named, except documentation.
pub(crate) fn trace_files(named: &[PathBuf]) -> anyhow::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for path in named {
        if path.is_dir() {
            let entries = std::fs::read_dir(path).with_context(|| path.display().to_string())?;
            for entry in entries {
                let file = entry?.path();
                let documentation = file.extension().is_some_and(|extension| extension == "md");
                if file.is_file() && !documentation {
                    files.push(file);
                }
            }
        } else {
            files.push(path.clone());
        }
    }
    files.sort();
    Ok(files)
}

fn points(flags: &Flags, stream: &Stream) -> anyhow::Result<Vec<Point>> {
    let mut points = Vec::new();
    for &percent in &flags.percents {
        let wanted = share(stream.keys, percent);
        if wanted < ITEMS_MIN {
            report::progress(format_args!(
                "{}: {percent} % are {wanted} items only, left out",
                stream.name
            ));
            continue;
        }
        points.push(point(flags, stream, percent, wanted)?);
    }
    Ok(points)
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "a share of a 32-bit number"
)]
pub(super) fn share(keys: u32, percent: f64) -> u32 {
    (f64::from(keys) * percent / 100.0) as u32
}

fn point(flags: &Flags, stream: &Stream, percent: f64, wanted: u32) -> anyhow::Result<Point> {
    let (sizes, items) = Sizes::for_items(wanted, flags.memory)?;
    report::progress(format_args!(
        "{}, {percent} %: {items} items, values of {} bytes, -m {}",
        stream.name, sizes.value_size, sizes.memory
    ));
    let values = Arc::new(Values::new(sizes.value_size));
    let held = usize::try_from(items)?;
    let mut coua = Coua::new(sizes, values.clone())?;
    let coua_misses = hits::replay(stream, &mut coua);
    Ok(Point {
        stream: stream.name.clone(),
        percent,
        items,
        memory: sizes.memory,
        value_size: sizes.value_size,
        lru: hits::replay(stream, &mut Lru::new(stream.keys, held)).ratio(),
        s3fifo: hits::replay(stream, &mut S3Fifo::new(stream.keys, held)).ratio(),
        coua: coua_misses.ratio(),
        coua_items: coua.items(),
        memcached: memcached(flags, stream, sizes, values)?,
    })
}

/// memcached's miss ratio and the items that it holds in the end; none if it is left out.
fn memcached(
    flags: &Flags,
    stream: &Stream,
    sizes: Sizes,
    values: Arc<Values>,
) -> anyhow::Result<Option<(f64, u64)>> {
    let transfer = stream.requests.len() as u64 * sizes.value_size as u64;
    let program = match flags.memcached.path() {
        Some(program) if transfer <= TRANSFER_MAX => program,
        _ => return Ok(None),
    };
    let item_size_max = (sizes.value_size as u64 * 2).max(1 << 20);
    let server_flags = process::Flags {
        memory: sizes.memory,
        item_size_max: Some(item_size_max),
        more: Vec::new(),
    };
    let server = Server::start(&program, flags.server_core, &server_flags)?;
    let client = Client::connect(server.target())?;
    let mut memcached = Memcached::new(client, Sizes::KEYS, values);
    let misses = memcached.replay(stream)?;
    Ok(Some((misses.ratio(), memcached.items()?)))
}
