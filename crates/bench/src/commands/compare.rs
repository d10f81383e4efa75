//! `coua-bench compare`: servers that it starts, measured in turns.

mod contest;
mod ground;
mod outcome;
mod recipe;
mod stack;

use std::path::PathBuf;

use anyhow::ensure;
use clap::Args;

pub(crate) use contest::{Contest, Side};
pub(crate) use ground::{Cores, Ground};
use outcome::Outcome;
pub(crate) use recipe::{Needs, Recipe};
use stack::LoadStack;

use super::load_flags::{LoadFlags, ReportFlags, TeamFlags};
use super::run::{csv_rows, write_histograms};
use crate::report;

/// Starts servers, puts the same load on them in turns, and prints medians and ratios
///
/// Servers run on cores of their own and hold the same items. Only the one that is being measured
/// runs.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Flags {
    /// Servers, each quoted with its arguments: coua, memcached, echo (a service without a cache, for
    /// --dialect mirror), or any command line with {port}, {host} or {socket} in place of those.
    /// NAME= in front names it in the report
    #[arg(required = true, value_name = "SERVER")]
    servers: Vec<Recipe>,
    #[command(flatten)]
    ground: Ground,
    #[command(flatten)]
    team: TeamFlags,
    #[command(flatten)]
    load: LoadFlags,
    /// Run the load on coua's own TCP stack, over cables between network namespaces. To servers with
    /// --net memif it always does
    #[arg(long, value_enum)]
    net: Option<LoadStack>,
    /// Write the latencies in nanoseconds to a file in HdrHistogram's log format, a tag for each server
    #[arg(long, value_name = "FILE", conflicts_with = "sweep")]
    histogram: Option<PathBuf>,
    /// Draw p99 and p50 of each server over the offered load of a --sweep
    #[arg(long, value_name = "FILE.svg", requires = "sweep")]
    plot: Option<PathBuf>,
    #[command(flatten)]
    report: ReportFlags,
}

const EXAMPLES: &str = "\
Examples:
  What can each take? One worker each, 64 connections
    coua-bench compare coua memcached --keys 1000000
  Two workers on cores 0 and 1, the load on core 2 and 3
    coua-bench compare 'coua -t 2' 'memcached -t 2' --server-cores 0-1 --threads 2 --core 2
  How fast does each answer 50,000 requests a second?
    coua-bench compare coua memcached --keys 1000000 --rate 50000 --mix get=90,set=10
  What is the most that each answers within a millisecond?
    coua-bench compare coua memcached --keys 1000000 --find-max --bound p99=1ms
  How does the latency of each grow with the load? Drawn on logarithmic axes
    coua-bench compare coua memcached --keys 1000000 --sweep 10000-400000:12 --plot sweep.svg
  All latencies, for HdrHistogram's tools
    coua-bench compare coua memcached --keys 1000000 --rate 50000 --histogram latencies.hlog
  This build and an older one, and both on a unix socket
    coua-bench compare coua old=./older/coua 'coua -s {socket}' 'unix-old=./older/coua -s {socket}'
  The kernel's TCP and coua's own stack, over a cable between two network namespaces (needs root)
    coua-bench compare coua 'coua --net xdp' 'coua --net packet' memcached
  The same, with a load that goes past the kernel too
    coua-bench compare coua 'coua --net xdp' memcached --net xdp
  Over shared memory, both sides on coua's own stack
    coua-bench compare 'coua --net memif' memcached --connections 512
  A TCP ping-pong of 16 bytes, without a cache
    coua-bench compare echo 'echo --net xdp' --dialect mirror --key-size 16 --connections 32
  Any other server
    coua-bench compare coua 'mine=./cached --listen {host}:{port}'

coua and memcached get the flags by which they listen, -m --memory, -t 1 unless they are given a
-t, and as many connections as the load needs. Ratios are to the first server, each with the least
and the greatest among the repetitions. With --find-max each repetition is a search.";

/// Measures all servers and prints the comparison.
pub(crate) fn run(flags: &Flags) -> anyhow::Result<()> {
    let (load, report) = (&flags.load, &flags.report);
    let (ground, team) = (&flags.ground, &flags.team);
    let contest = Contest::prepare(&flags.servers, ground, team, load, flags.net)?;
    let rounds = load.repetitions.unwrap_or(ROUNDS);
    if let Some(rates) = &load.sweep {
        let sweep = contest.sweep(load, rates, rounds)?;
        drop(contest);
        if let Some(path) = &flags.plot {
            let title = "Latency over the offered load";
            sweep.chart(title).write_svg(path)?;
        }
        return sweep.tell(report);
    }
    let sides = contest.measure(load, rounds)?;
    drop(contest);
    if let Some(path) = &flags.histogram {
        let all = sides
            .iter()
            .map(|side| (Some(side.name.as_str()), &side.merged));
        write_histograms(path, all)?;
    }
    let outcome = Outcome::new(load, sides);
    let named = || {
        outcome
            .servers
            .iter()
            .map(|side| (side.name.as_str(), &side.outcome))
    };
    if report.csv {
        report::print(csv_rows(named(), report.by_second))?;
    } else {
        report::show(&outcome, report.json)?;
        if report.by_second && !report.json {
            for (name, outcome) in named() {
                report::print(format_args!("\n{name}\n\n{}", outcome.seconds_table()))?;
            }
        }
    }
    let wrong = outcome.wrong();
    ensure!(wrong == 0, "{wrong} values are not those of their keys");
    Ok(())
}

/// Repetitions unless a flag says otherwise.
const ROUNDS: u32 = 5;
