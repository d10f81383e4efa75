//! The outcome of a comparison, for people and for programs.

use std::fmt::Display;
use std::time::Duration;

use serde::Serialize;

use super::Flags;
use super::cases::Case;
use crate::commands::programs::Versions;
use crate::load::{Latencies, Measured};
use crate::report::{Table, median, saturated};

/// All cases of a run.
#[derive(Debug, Serialize)]
pub(super) struct Outcome {
    #[serde(flatten)]
    pub(super) versions: Versions,
    connections: usize,
    pairs: usize,
    seconds: f64,
    key_size: usize,
    value_size: usize,
    popularity: String,
    /// TCP's congestion control, as the kernel chose it.
    congestion_control: String,
    pub(super) cases: Vec<CaseOutcome>,
}

/// All measurements of a case, by side, in the order of time.
#[derive(Debug, Serialize)]
pub(super) struct CaseOutcome {
    name: String,
    keys_per_request: f64,
    pub(super) coua: Vec<Sample>,
    pub(super) memcached: Vec<Sample>,
    pub(super) echo: Vec<Sample>,
}

/// One measurement of one side.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Sample {
    requests_per_second: f64,
    /// Values that came back for each get.
    values_per_get: f64,
    refused_sets: u64,
    /// Share of its core that the server used.
    server_busy: f64,
    /// Share of its core that the load used.
    client_busy: f64,
    /// The server's CPU time per request.
    server_ns: f64,
    #[serde(flatten)]
    latency: Latencies,
}

impl Sample {
    pub(super) fn new(measured: &Measured, server_cpu: Duration) -> Sample {
        let elapsed = measured.elapsed.as_secs_f64();
        Sample {
            requests_per_second: measured.rate(),
            values_per_get: measured.hits as f64 / measured.gets.max(1) as f64,
            refused_sets: measured.refused,
            server_busy: server_cpu.as_secs_f64() / elapsed,
            client_busy: measured.client_cpu.as_secs_f64() / elapsed,
            server_ns: server_cpu.as_secs_f64() * 1e9 / measured.replies.max(1) as f64,
            latency: Latencies::of(measured),
        }
    }
}

impl CaseOutcome {
    pub(super) fn new(case: &Case) -> CaseOutcome {
        let keys_per_request = (1.0 - case.sets) * case.keys_per_get as f64 + case.sets;
        CaseOutcome {
            name: case.name(),
            keys_per_request,
            coua: vec![],
            memcached: vec![],
            echo: vec![],
        }
    }
}

/// The median of one figure of a side's measurements.
fn middle(samples: &[Sample], figure: impl Fn(&Sample) -> f64) -> f64 {
    median(samples.iter().map(figure))
}

/// The median of the ratios of neighbours in time.
fn ratio(samples: &[Sample], others: &[Sample], figure: impl Fn(&Sample) -> f64) -> f64 {
    median(
        samples
            .iter()
            .zip(others)
            .map(|(one, other)| figure(one) / figure(other)),
    )
}

impl Outcome {
    pub(super) fn new(flags: &Flags) -> Outcome {
        Outcome {
            versions: Versions::default(),
            connections: flags.connections,
            pairs: flags.pairs,
            seconds: flags.seconds.as_secs_f64(),
            key_size: flags.key_size,
            value_size: flags.value_size,
            popularity: flags.popularity.to_string(),
            congestion_control: congestion_control(),
            cases: Vec::new(),
        }
    }

    fn rates(&self) -> Table {
        let mut table = Table::new([
            "M requests/s",
            "coua",
            "memcached",
            "echo",
            "÷ memcached",
            "÷ echo",
            "by CPU: ÷ memcached",
            "÷ echo",
            "saturated: coua",
            "memcached",
            "echo",
        ]);
        for case in &self.cases {
            let millions = |samples: &[Sample]| match samples {
                [] => String::new(),
                _ => format!(
                    "{:.3}",
                    middle(samples, |sample| sample.requests_per_second) / 1e6
                ),
            };
            let rates = |others: &[Sample]| match others {
                [] => String::new(),
                _ => format!(
                    "{:.2}",
                    ratio(&case.coua, others, |sample| sample.requests_per_second)
                ),
            };
            // How many requests coua serves with the CPU time that the other takes for one.
            let work = |others: &[Sample]| match others {
                [] => String::new(),
                _ => format!(
                    "{:.2}",
                    ratio(others, &case.coua, |sample| sample.server_ns)
                ),
            };
            let busy = |samples: &[Sample]| match samples {
                [] => String::new(),
                _ => {
                    let server = middle(samples, |sample| sample.server_busy);
                    saturated(Some(server), middle(samples, |sample| sample.client_busy))
                }
            };
            table.row([
                case.name.clone(),
                millions(&case.coua),
                millions(&case.memcached),
                millions(&case.echo),
                rates(&case.memcached),
                rates(&case.echo),
                work(&case.memcached),
                work(&case.echo),
                busy(&case.coua),
                busy(&case.memcached),
                busy(&case.echo),
            ]);
        }
        table
    }

    fn latencies(&self) -> Table {
        let mut table = Table::new([
            "µs, coua / memcached",
            "p50",
            "p99",
            "p99.9",
            "longest",
            "values a get, of",
            "sets refused",
        ]);
        for case in &self.cases {
            let both = |figure: fn(&Sample) -> f64| {
                format!(
                    "{:.0} / {:.0}",
                    middle(&case.coua, figure),
                    middle(&case.memcached, figure)
                )
            };
            let values = |samples| middle(samples, |sample: &Sample| sample.values_per_get);
            let refused = |samples: &[Sample]| {
                samples
                    .iter()
                    .map(|sample| sample.refused_sets)
                    .sum::<u64>()
            };
            table.row([
                case.name.clone(),
                both(|sample| sample.latency.p50),
                both(|sample| sample.latency.p99),
                both(|sample| sample.latency.p999),
                both(|sample| sample.latency.max),
                format!("{:.2} / {:.2}", values(&case.coua), values(&case.memcached)),
                format!("{} / {}", refused(&case.coua), refused(&case.memcached)),
            ]);
        }
        table
    }
}

fn congestion_control() -> String {
    let name = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_congestion_control");
    name.map_or_else(|_| "unknown".to_owned(), |name| name.trim().to_owned())
}

impl Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(
            f,
            "coua {}, memcached {}, one worker each on one core, the load on another.",
            self.versions.coua, self.versions.memcached
        )?;
        writeln!(
            f,
            "{} connections over {}, keys of {} and values of {} bytes, {}; medians of {} \
             interleaved measurements of {} s.",
            self.connections,
            self.congestion_control,
            self.key_size,
            self.value_size,
            self.popularity,
            self.pairs,
            self.seconds
        )?;
        writeln!(
            f,
            "A multi-get counts once. A core counts as saturated from 95 % on. `By CPU` \
             compares requests for each second of the server's CPU time, which is the better \
             comparison where the load is saturated.\n"
        )?;
        writeln!(f, "{}", self.rates())?;
        write!(f, "{}", self.latencies())
    }
}
