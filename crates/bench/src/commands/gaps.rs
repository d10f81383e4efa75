//! `coua-bench gaps`: how long a thread that does nothing but read the clock is away from its core.
//!
//! It explains latencies that no program causes: what such a thread loses, a server or a load that
//! spins on the same core loses too. If the scheduler knows of a gap, another thread of this
//! machine ran. If it does not, the machine itself was away: its hypervisor ran another guest, or
//! an interrupt was served.

use std::fmt::{self, Display};
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::Args;
use serde::Serialize;

use super::compare::Cores;
use super::load_flags::positive_time;
use crate::cpu;
use crate::load::microseconds;
use crate::report::{self, Table};
use crate::sched::{RunDelay, stolen};

/// Measures how often and how long the machine takes a core away from a busy thread
///
/// A thread on each core does nothing but read the clock; a jump of 50 µs or more is a gap. A server or
/// load that is busy on the same core loses as much.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Flags {
    /// Cores, all at once, a thread on each, as in 0-1 or 0,2 [default: all]
    #[arg(long, value_name = "CORES")]
    cores: Option<Cores>,
    /// Seconds of the measurement
    #[arg(long, default_value = "5", value_parser = positive_time)]
    seconds: Duration,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  What does this machine take away from a server on core 0 and its load on core 1?
    coua-bench gaps --cores 0,1 --seconds 30
  And during a load? Its slow replies, by who had no CPU meanwhile
    coua-bench run --rate 50000 --seconds 30 --core 1 --gaps

A gap of d seconds delays what is due in it, the first request by d and the last by nothing. So at
a steady rate the share of requests delayed by more than t is the sum of (d - t) over all gaps
longer than t, divided by the time measured. The last column is this share for t = 1 ms: above 1 %,
the 99th percentile of any server on these cores is above 1 ms.";

/// The outcome of one core.
#[derive(Clone, Debug, Serialize)]
struct Core {
    core: usize,
    seconds: f64,
    gaps: usize,
    gap_us_median: f64,
    gap_us_longest: f64,
    /// Share of the time that was lost, in per cent.
    lost: f64,
    /// Share lost while another thread of this machine ran.
    lost_to_threads: f64,
    /// Share that went to other guests, if the hypervisor tells.
    stolen: Option<f64>,
    /// Share of the requests at a steady rate that would be delayed by more than a millisecond.
    delayed: f64,
}

#[derive(Debug, Serialize)]
struct Outcome {
    cores: Vec<Core>,
}

/// Spins on all cores at once and prints what was lost.
pub(crate) fn run(flags: &Flags) -> anyhow::Result<()> {
    let cores = match &flags.cores {
        Some(cores) => cores.numbers().to_vec(),
        None => cpu::allowed()?,
    };
    let threads: Vec<_> = cores
        .into_iter()
        .map(|core| {
            let time = flags.seconds;
            std::thread::spawn(move || watch(core, time))
        })
        .collect();
    let cores = threads.into_iter().map(|thread| {
        let watched = thread.join();
        watched.unwrap_or_else(|_| Err(anyhow::anyhow!("a thread has ended early")))
    });
    let outcome = Outcome {
        cores: cores.collect::<anyhow::Result<Vec<Core>>>()?,
    };
    Ok(report::show(&outcome, flags.json)?)
}

fn watch(core: usize, time: Duration) -> anyhow::Result<Core> {
    cpu::pin(core).with_context(|| format!("--cores: {core}"))?;
    let delay = RunDelay::of_this_thread().context(
        "/proc/thread-self/schedstat cannot be read: the kernel lacks CONFIG_SCHED_INFO",
    )?;
    let (delay_before, stolen_before) = (delay.nanoseconds(), stolen(core));
    let gaps = spin(time, GAP);
    let waited = Duration::from_nanos(delay.nanoseconds() - delay_before);
    let stolen = stolen(core).zip(stolen_before);
    let stolen = stolen.map(|(now, before)| now.saturating_sub(before));
    Ok(Core::new(core, time, gaps, waited, stolen))
}

/// The gaps of at least `least`.
fn spin(time: Duration, least: Duration) -> Vec<Duration> {
    let mut gaps = Vec::new();
    let began = Instant::now();
    let mut last = began;
    while last - began < time {
        let now = Instant::now();
        if now - last >= least {
            gaps.push(now - last);
        }
        last = now;
    }
    gaps
}

impl Core {
    fn new(
        core: usize,
        time: Duration,
        mut gaps: Vec<Duration>,
        waited: Duration,
        stolen: Option<Duration>,
    ) -> Core {
        gaps.sort_unstable();
        let per_cent = |part: Duration| 100.0 * part.as_secs_f64() / time.as_secs_f64();
        let beyond = gaps.iter().map(|gap| gap.saturating_sub(DELAY));
        Core {
            core,
            seconds: time.as_secs_f64(),
            gaps: gaps.len(),
            gap_us_median: report::median(gaps.iter().copied().map(microseconds)),
            gap_us_longest: gaps.last().copied().map_or(0.0, microseconds),
            lost: per_cent(gaps.iter().sum()),
            lost_to_threads: per_cent(waited),
            stolen: stolen.map(per_cent),
            delayed: per_cent(beyond.sum()),
        }
    }
}

/// The shortest time between two looks at the clock that counts as a gap.
const GAP: Duration = Duration::from_micros(50);

/// The delay that the last column counts.
const DELAY: Duration = Duration::from_millis(1);

impl Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = Table::new([
            "core",
            "gaps",
            "median, µs",
            "longest, µs",
            "time lost, %",
            "to threads here, %",
            "to other guests, %",
            "requests delayed by 1 ms, %",
        ]);
        for core in &self.cores {
            table.row([
                core.core.to_string(),
                core.gaps.to_string(),
                format!("{:.0}", core.gap_us_median),
                format!("{:.0}", core.gap_us_longest),
                format!("{:.2}", core.lost),
                format!("{:.2}", core.lost_to_threads),
                core.stolen
                    .map_or_else(|| "?".to_owned(), |stolen| format!("{stolen:.2}")),
                format!("{:.2}", core.delayed),
            ]);
        }
        write!(f, "{}", table.to_string().trim_end())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_delays_what_is_due_in_it() {
        let gaps = [3u64, 1, 2].map(Duration::from_millis).to_vec();
        let time = Duration::from_secs(1);
        let core = Core::new(0, time, gaps, Duration::from_millis(2), None);
        assert_eq!((core.gaps, core.gap_us_median), (3, 2000.0));
        let near = |value: f64, expected: f64| (value - expected).abs() < 1e-9;
        assert!(near(core.lost, 0.6) && near(core.lost_to_threads, 0.2));
        // Two milliseconds of the first, and one of the third.
        assert!(near(core.delayed, 0.3), "{core:?}");
    }

    #[test]
    fn every_gap_is_seen_where_none_is_too_short() {
        let gaps = spin(Duration::from_millis(2), Duration::ZERO);
        let sum: Duration = gaps.iter().sum();
        assert!(sum >= Duration::from_millis(2));
    }
}
