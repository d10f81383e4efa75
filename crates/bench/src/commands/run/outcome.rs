//! The outcome of a load: medians, their spread, the bottleneck, and warnings.

use std::fmt::{self, Display};

use coua::flags::{Driver, Net};
use serde::Serialize;

use super::Sample;
use crate::commands::load_flags::LoadFlags;
use crate::load::{Absences, Bound, Found, Measured, Plan, Setup};
use crate::report::{Table, median};
use crate::workload::Popularity;

/// The load in words and numbers.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Load {
    target: String,
    dialect: String,
    connections: usize,
    threads: usize,
    agents: Vec<String>,
    depth: u32,
    keys_per_get: u32,
    keys: u32,
    seed: u64,
    key_bytes_mean: f64,
    value_bytes_mean: f64,
    mix: String,
    popularity: String,
    ttl: String,
    arrivals: String,
    /// Seconds of each measurement.
    seconds: f64,
    warm_up_seconds: f64,
    /// How the load reaches the server: the kernel's sockets, or a driver of coua's stack.
    net: String,
}

impl Load {
    /// The load of a team that carries out the plan; its keys are drawn by the popularity.
    pub(crate) fn new(
        flags: &LoadFlags,
        setup: &Setup,
        plan: &Plan,
        popularity: Popularity,
    ) -> Load {
        let trace = flags.trace.as_ref();
        Load {
            target: setup.target.to_string(),
            dialect: format!("{:?}", plan.dialect).to_lowercase(),
            connections: setup.connections,
            threads: setup.threads,
            agents: setup.agents.iter().map(ToString::to_string).collect(),
            depth: flags.depth,
            keys_per_get: flags.keys_per_get,
            keys: flags.items.keys,
            seed: flags.items.seed,
            key_bytes_mean: plan.keys.size_mean(),
            value_bytes_mean: plan.values.size_mean(),
            mix: plan.mix.to_string(),
            popularity: trace.map_or_else(
                || popularity.to_string(),
                |path| format!("trace {}", path.display()),
            ),
            ttl: plan.ttls.spell(),
            arrivals: format!("{:?}", flags.arrivals).to_lowercase(),
            seconds: flags.seconds.as_secs_f64(),
            warm_up_seconds: flags.warm_up.as_secs_f64(),
            net: setup.net.as_ref().map_or("kernel", driver_name).to_owned(),
        }
    }

    /// The server's address.
    pub(crate) fn target(&self) -> &str {
        &self.target
    }

    /// How requests are spread over time in an open loop.
    pub(crate) fn arrivals(&self) -> &str {
        &self.arrivals
    }
}

/// The driver of the load's own stack.
fn driver_name(net: &Net) -> &'static str {
    match net.driver {
        Driver::Xdp(_) => "xdp",
        Driver::Packet(_) => "packet",
        Driver::Tap(_) => "tap",
        Driver::Memif(_) => "memif",
        Driver::Dpdk { .. } => "dpdk",
    }
}

/// The search for the highest rate.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Search {
    /// The bound and its value.
    pub(crate) bound: String,
    /// The highest rate that held, in requests a second; none if no rate did.
    pub(crate) rate: Option<f64>,
    trials: Vec<TrialOutcome>,
}

#[derive(Clone, Debug, Serialize)]
struct TrialOutcome {
    rate: f64,
    held: bool,
    latency_us: f64,
    late: u64,
}

impl Search {
    /// What the search found for a bound.
    pub(crate) fn new(bound: &Bound, found: &Found) -> Search {
        let trials = found.trials.iter().map(|trial| TrialOutcome {
            rate: trial.rate,
            held: trial.held,
            latency_us: bound.of(&trial.measured).as_secs_f64() * 1e6,
            late: trial.measured.late,
        });
        Search {
            bound: bound.to_string(),
            rate: found.best.as_ref().map(|best| best.rate),
            trials: trials.collect(),
        }
    }
}

/// The outcome, for programs and for people.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Outcome {
    /// The load.
    pub(crate) load: Load,
    /// Requests a second that were due; none in a closed loop.
    pub(crate) rate: Option<f64>,
    search: Option<Search>,
    median_requests_per_second: f64,
    /// Which side was busy.
    pub(crate) bottleneck: &'static str,
    /// Warnings, a sentence each.
    pub(crate) warnings: Vec<String>,
    /// In the order of time.
    pub(crate) repetitions: Vec<Sample>,
}

/// A thread that works for more than this share of the time is busy.
const BUSY: f64 = 0.9;
/// If more than this share of the requests left late, the generator did not keep to its schedule.
const LATE: f64 = 0.001;

impl Outcome {
    /// The outcome of measurements at one rate, or in a closed loop if none, and of the search
    /// before them.
    pub(crate) fn new(
        load: Load,
        rate: Option<f64>,
        search: Option<Search>,
        repetitions: Vec<Sample>,
    ) -> Outcome {
        let mut outcome = Outcome {
            load,
            rate,
            search,
            median_requests_per_second: 0.0,
            bottleneck: "",
            warnings: Vec::new(),
            repetitions,
        };
        outcome.median_requests_per_second = outcome.median(|sample| sample.requests_per_second);
        outcome.bottleneck = outcome.judge();
        outcome.warnings = outcome.doubts();
        outcome
    }

    /// Values that were not those of their keys.
    pub(crate) fn wrong(&self) -> u64 {
        self.sum(|sample| sample.wrong)
    }

    /// The median of one figure of the measurements.
    pub(crate) fn median(&self, of: impl Fn(&Sample) -> f64) -> f64 {
        median(self.repetitions.iter().map(of))
    }

    /// The sum of a count over the measurements.
    pub(super) fn sum(&self, of: impl Fn(&Sample) -> u64) -> u64 {
        self.repetitions.iter().map(of).sum()
    }

    fn judge(&self) -> &'static str {
        let client = self.median(Sample::busiest_client) > BUSY;
        let known = self.repetitions.iter().all(|s| s.server_cores.is_some());
        let server = self.median(|sample| {
            let thread = sample.server_busiest_thread.unwrap_or(0.0);
            thread.max(sample.server_busy.unwrap_or(0.0))
        }) > BUSY;
        match (client, server, known) {
            (true, true, _) => "both: the load threads and the server were busy",
            (true, false, true) => "the load generator; the server had time to spare",
            (true, false, false) => "the load generator, perhaps; the server cannot be seen",
            (false, true, _) => "the server",
            (false, false, true) => {
                "neither; what was asked, or what was in flight, was too little"
            }
            (false, false, false) => "not the load generator; the server cannot be seen",
        }
    }

    fn doubts(&self) -> Vec<String> {
        let mut doubts = Vec::new();
        let busy = self.median(Sample::busiest_client);
        if busy > BUSY {
            doubts.push(format!(
                "the load threads{} were {:.0} % busy: this measures them; give more --threads or \
                 cores",
                if self.load.agents.is_empty() {
                    ""
                } else {
                    " of a machine"
                },
                busy * 100.0
            ));
        }
        let requests = self.sum(|sample| sample.requests);
        let late = self.sum(|sample| sample.late);
        if late as f64 > LATE * requests as f64 {
            doubts.push(format!(
                "{late} of {requests} requests left more than {:?} late though a connection was \
                 free: the load generator did not get its core",
                Measured::LATE
            ));
        }
        let mut doubt = |count: u64, what: &str| {
            if count > 0 {
                doubts.push(format!("{count} {what}"));
            }
        };
        doubt(
            self.sum(|sample| sample.unsent),
            "requests were due and found no free connection before the end; their wait until then \
             is in the latencies",
        );
        doubt(
            self.sum(|sample| sample.lost),
            "datagrams were lost; coua holds back replies beyond its --udp-reply-rate",
        );
        doubt(
            self.sum(|sample| sample.errors),
            "requests were answered with an error",
        );
        doubt(self.wrong(), "values were not those of their keys");
        let mut examples = self.repetitions.iter().filter_map(|s| s.example.as_deref());
        doubts.extend(
            examples
                .next()
                .map(|example| format!("the first of them: {example}")),
        );
        if self
            .search
            .as_ref()
            .is_some_and(|search| search.rate.is_none())
        {
            doubts.push("no rate kept the bound; what follows is a closed loop".to_owned());
        }
        doubts
    }

    /// Who had no CPU when replies took long, over all measurements; none without `--gaps`.
    pub(crate) fn absences(&self) -> Option<String> {
        let sum = |of: fn(&Absences) -> u64| -> u64 {
            let samples = self.repetitions.iter();
            samples.filter_map(|s| s.absences.as_ref()).map(of).sum()
        };
        let is_known = self.repetitions.iter().any(|s| s.absences.is_some());
        is_known.then(|| {
            format!(
                "slow replies: the load had no core for {}, the server none for {}, the machine was away \
                 for {}, none of these for {}",
                sum(|a| a.load),
                sum(|a| a.server),
                sum(|a| a.machine),
                sum(|a| a.other)
            )
        })
    }

    /// A line for each second of each measurement.
    pub(crate) fn seconds_table(&self) -> Table {
        let mut table = Table::new([
            "second",
            "requests/s",
            "p50, µs",
            "p99, µs",
            "longest, µs",
            "errors/s",
        ]);
        let single = self.repetitions.len() == 1;
        for (sample, number) in self.repetitions.iter().zip(1..) {
            for second in &sample.by_second {
                let from = second.from_seconds;
                table.row([
                    match single {
                        true => format!("{from:.0}"),
                        false => format!("{number}: {from:.0}"),
                    },
                    format!("{:.0}", second.requests_per_second),
                    format!("{:.1}", second.latency_us_p50),
                    format!("{:.1}", second.latency_us_p99),
                    format!("{:.1}", second.latency_us_max),
                    format!("{:.0}", second.errors_per_second),
                ]);
            }
        }
        table
    }

    fn table(&self) -> Table {
        let mut table = match self.repetitions.len() {
            1 => Table::new(["", "measured"]),
            _ => Table::new(["", "median", "least", "most"]),
        };
        let single = self.repetitions.len() == 1;
        let mut row = |name: &str, digits: usize, unit: &str, of: &dyn Fn(&Sample) -> f64| {
            let values: Vec<f64> = self.repetitions.iter().map(of).collect();
            let least = values.iter().copied().fold(f64::INFINITY, f64::min);
            let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let show = |value: f64| format!("{value:.digits$}{unit}");
            match single {
                true => table.row([name.to_owned(), show(values[0])]),
                false => table.row([
                    name.to_owned(),
                    show(median(values)),
                    show(least),
                    show(most),
                ]),
            }
        };
        row("requests/s", 0, "", &|s| s.requests_per_second);
        row("latency, mean", 1, " µs", &|s| s.latency_us_mean);
        row("p50", 1, " µs", &|s| s.latency_us_p50);
        row("p90", 1, " µs", &|s| s.latency_us_p90);
        row("p99", 1, " µs", &|s| s.latency_us_p99);
        row("p99.9", 1, " µs", &|s| s.latency_us_p999);
        row("p99.99", 1, " µs", &|s| s.latency_us_p9999);
        row("longest", 1, " µs", &|s| s.latency_us_max);
        row("hits", 0, "", &|s| s.hits as f64);
        row("misses", 0, "", &|s| s.misses as f64);
        if self.sum(|s| s.stored + s.not_stored) > 0 {
            row("stored", 0, "", &|s| s.stored as f64);
            row("not stored", 0, "", &|s| s.not_stored as f64);
        }
        row("errors", 0, "", &|s| s.errors as f64);
        row("wrong", 0, "", &|s| s.wrong as f64);
        row("sent", 1, " MB/s", &|s| s.bytes_sent_per_second / 1e6);
        row("received", 1, " MB/s", &|s| {
            s.bytes_received_per_second / 1e6
        });
        row("load threads busy", 0, " %", &|s| s.client_busy * 100.0);
        for agent in &self.load.agents {
            row(&format!("those of {agent}"), 0, " %", &|s| {
                s.agents_busy.get(agent).copied().unwrap_or(0.0) * 100.0
            });
        }
        if self.repetitions.iter().all(|s| s.server_cores.is_some()) {
            row("server's cores", 2, "", &|s| s.server_cores.unwrap_or(0.0));
            row("its busiest thread", 0, " %", &|s| {
                s.server_busiest_thread.unwrap_or(0.0) * 100.0
            });
        }
        table
    }
}

/// Everything except the target.
impl Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{}, {} connections of {} threads{}, {} in flight each, {} keys a get",
            self.dialect,
            self.connections,
            self.threads,
            match self.agents.len() {
                0 => String::new(),
                agents => format!(" on each of {} machines", agents + 1),
            },
            self.depth,
            self.keys_per_get
        )?;
        write!(
            f,
            "{} keys of {:.1} bytes, values of {:.1} (means), {}; {}",
            self.keys, self.key_bytes_mean, self.value_bytes_mean, self.popularity, self.mix
        )
    }
}

impl Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let load = &self.load;
        writeln!(f, "{}: {load}", load.target)?;
        match self.rate {
            Some(rate) => writeln!(f, "open loop, {rate:.0} requests/s, {}", load.arrivals)?,
            None => writeln!(f, "closed loop")?,
        }
        if let Some(Search {
            bound,
            rate: Some(rate),
            ..
        }) = &self.search
        {
            writeln!(f, "highest rate with {bound}: {rate:.0} requests/s")?;
        }
        writeln!(f, "\n{}", self.table())?;
        write!(f, "bottleneck: {}", self.bottleneck)?;
        if let Some(absences) = self.absences() {
            write!(f, "\n{absences}")?;
        }
        for warning in &self.warnings {
            write!(f, "\nwarning: {warning}")?;
        }
        Ok(())
    }
}
