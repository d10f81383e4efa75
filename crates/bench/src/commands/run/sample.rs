//! One measurement in numbers, as JSON has it.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

use crate::load::{Absences, Measured, Row, microseconds};
use crate::owner::Spent;
use crate::workload::Op;

/// One measurement, for programs.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Sample {
    pub(crate) seconds: f64,
    pub(crate) requests: u64,
    pub(crate) requests_per_second: f64,
    pub(crate) by_operation: BTreeMap<&'static str, u64>,
    /// Values that were right, and operations that found their key.
    pub(crate) hits: u64,
    pub(crate) misses: u64,
    pub(crate) stored: u64,
    pub(crate) not_stored: u64,
    pub(crate) errors: u64,
    pub(crate) wrong: u64,
    pub(crate) lost: u64,
    pub(crate) unsent: u64,
    pub(crate) late: u64,
    pub(crate) bytes_sent_per_second: f64,
    pub(crate) bytes_received_per_second: f64,
    pub(crate) latency_us_mean: f64,
    pub(crate) latency_us_p50: f64,
    pub(crate) latency_us_p90: f64,
    pub(crate) latency_us_p99: f64,
    pub(crate) latency_us_p999: f64,
    pub(crate) latency_us_p9999: f64,
    pub(crate) latency_us_max: f64,
    /// Share of their cores that the load threads used; they have one each, or fewer if there are
    /// fewer.
    pub(crate) client_busy: f64,
    /// The same for each agent, by its address.
    pub(crate) agents_busy: BTreeMap<String, f64>,
    /// Cores that the server used.
    pub(crate) server_cores: Option<f64>,
    /// Share of its time that the server's busiest thread worked.
    pub(crate) server_busiest_thread: Option<f64>,
    /// Share that the server used of the cores on which it may run.
    pub(crate) server_busy: Option<f64>,
    /// The first error or wrong value, in words.
    pub(crate) example: Option<Box<str>>,
    /// Replies that took more than 0.5 ms, by who had no CPU meanwhile (`--gaps`).
    pub(crate) absences: Option<Absences>,
    /// The same figures second by second.
    pub(crate) by_second: Vec<Second>,
}

/// A second of a measurement. In long ones it is several seconds, and the last one may be longer.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Second {
    /// From the beginning of the measurement to that of the second.
    pub(crate) from_seconds: f64,
    pub(crate) seconds: f64,
    pub(crate) requests_per_second: f64,
    /// Errors, wrong values and lost datagrams.
    pub(crate) errors_per_second: f64,
    pub(crate) latency_us_p50: f64,
    pub(crate) latency_us_p99: f64,
    pub(crate) latency_us_max: f64,
}

impl From<Row> for Second {
    fn from(row: Row) -> Second {
        let seconds = row.length.as_secs_f64().max(1e-9);
        Second {
            from_seconds: row.from.as_secs_f64(),
            seconds,
            requests_per_second: row.replies as f64 / seconds,
            errors_per_second: row.errors as f64 / seconds,
            latency_us_p50: microseconds(row.p50),
            latency_us_p99: microseconds(row.p99),
            latency_us_max: microseconds(row.longest),
        }
    }
}

impl Sample {
    /// `cores` is how many cores the load threads can use up.
    pub(crate) fn new(measured: &Measured, cores: usize, usage: Option<Spent>) -> Sample {
        let seconds = measured.elapsed.as_secs_f64().max(1e-9);
        let latency = |quantile| microseconds(measured.latency(quantile));
        let share = |cpu: Duration| cpu.as_secs_f64() / seconds;
        let agents = measured.agents.iter();
        let operations = Op::NAMES.iter().zip(measured.by_op);
        Sample {
            seconds,
            requests: measured.replies,
            requests_per_second: measured.rate(),
            by_operation: operations
                .filter(|(_, count)| *count > 0)
                .map(|((_, name), count)| (*name, count))
                .collect(),
            hits: measured.hits,
            misses: measured.misses,
            stored: measured.stored,
            not_stored: measured.not_stored,
            errors: measured.refused,
            wrong: measured.wrong,
            lost: measured.lost,
            unsent: measured.unsent,
            late: measured.late,
            bytes_sent_per_second: measured.sent as f64 / seconds,
            bytes_received_per_second: measured.received as f64 / seconds,
            latency_us_mean: microseconds(measured.latency_mean()),
            latency_us_p50: latency(0.5),
            latency_us_p90: latency(0.9),
            latency_us_p99: latency(0.99),
            latency_us_p999: latency(0.999),
            latency_us_p9999: latency(0.9999),
            latency_us_max: microseconds(measured.latency_max()),
            client_busy: measured.client_busy(cores),
            agents_busy: agents
                .map(|agent| (agent.agent.clone(), agent.busy))
                .collect(),
            server_cores: usage.map(|spent| share(spent.all)),
            server_busiest_thread: usage.map(|spent| share(spent.busiest_thread)),
            server_busy: usage.map(|spent| share(spent.all) / spent.cores.max(1) as f64),
            example: measured.example.clone(),
            absences: measured.absences,
            by_second: measured.by_second().into_iter().map(Second::from).collect(),
        }
    }

    /// The server's CPU time per request, in microseconds; not finite if that is not known or nothing
    /// was answered.
    pub(crate) fn cpu_us(&self) -> f64 {
        let cores = self.server_cores.unwrap_or(f64::NAN);
        cores * 1e6 / self.requests_per_second
    }

    /// How busy the load threads of the busiest machine were.
    pub(crate) fn busiest_client(&self) -> f64 {
        let agents = self.agents_busy.values().copied();
        agents.fold(self.client_busy, f64::max)
    }
}
