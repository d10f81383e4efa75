//! Mixed use of a server for a long time: do values stay right, and what becomes of memory and
//! latency?

mod user;
mod value;

use std::io;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use serde::Serialize;

use crate::client::Client;
use crate::process;
use crate::target::Target;
use user::User;

/// What a soak consists of.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// The server.
    pub(crate) target: Target,
    /// Its process, if it runs on this machine.
    pub(crate) pid: Option<u32>,
    /// Users, each a thread with one connection at a time.
    pub(crate) users: usize,
    /// Keys that they share.
    pub(crate) keys: u32,
    /// How long to run.
    pub(crate) time: Duration,
    /// How long one row of the report is.
    pub(crate) interval: Duration,
}

/// What happened in one interval.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    /// Seconds since the beginning, at its end.
    pub(crate) seconds: f64,
    /// Requests answered.
    pub(crate) requests: u64,
    /// Gets that found a value, in percent.
    pub(crate) hit_percent: f64,
    /// Median latency in microseconds.
    pub(crate) p50_us: u64,
    /// The 99th percentile.
    pub(crate) p99_us: u64,
    /// The 99.9th percentile.
    pub(crate) p999_us: u64,
    /// The longest latency.
    pub(crate) max_us: u64,
    /// Resident memory of the server's process in KiB; 0 if it is not known.
    pub(crate) resident_kib: u64,
    /// `curr_items`.
    pub(crate) items: u64,
    /// `evictions` since the server's start.
    pub(crate) evictions: u64,
}

/// What the users count together.
struct Counts {
    latency: Histogram<u64>,
    gets: u64,
    hits: u64,
}

impl Counts {
    fn new() -> Counts {
        Counts {
            latency: Histogram::new_with_max(600_000_000, 3).expect("the bounds are in order"),
            gets: 0,
            hits: 0,
        }
    }
}

/// Why a soak ended early.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The server gave a wrong answer.
    #[error("user {user}: {what}")]
    Wrong {
        /// The user that saw it.
        user: usize,
        /// What was wrong.
        what: String,
    },
    /// The conversation with the server failed.
    #[error(transparent)]
    Client(#[from] crate::client::Error),
    /// The system refused something.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Runs until the plan's time is over, or to the first wrong answer. Calls `report` after each
/// interval.
pub(crate) fn soak(plan: &Plan, mut report: impl FnMut(&Row)) -> Result<(), Error> {
    let (stop, failed) = (AtomicBool::new(false), AtomicBool::new(false));
    let counts = Mutex::new(Counts::new());
    let mut asker = Client::connect(&plan.target)?;
    let begun = Instant::now();
    thread::scope(|scope| {
        let users: Vec<_> = (0..plan.users)
            .map(|number| {
                let (stop, failed, counts) = (&stop, &failed, &counts);
                scope.spawn(move || {
                    let used = User::new(number, plan).use_until(stop, counts);
                    if used.is_err() {
                        failed.store(true, Relaxed);
                    }
                    used
                })
            })
            .collect();
        let mut asked = Ok(());
        while begun.elapsed() < plan.time && !failed.load(Relaxed) && asked.is_ok() {
            let end = Instant::now() + plan.interval;
            while Instant::now() < end && !failed.load(Relaxed) {
                thread::sleep(Duration::from_millis(20));
            }
            asked = row(plan, &mut asker, &counts, begun).map(|row| report(&row));
        }
        stop.store(true, Relaxed);
        for (number, user) in users.into_iter().enumerate() {
            let used = user.join().expect("a user does not panic");
            used.map_err(|what| Error::Wrong { user: number, what })?;
        }
        asked
    })
}

fn row(
    plan: &Plan,
    asker: &mut Client,
    counts: &Mutex<Counts>,
    begun: Instant,
) -> Result<Row, Error> {
    let mut locked = counts.lock().unwrap_or_else(PoisonError::into_inner);
    let counts = std::mem::replace(&mut *locked, Counts::new());
    drop(locked);
    let stats = asker.stats()?;
    Ok(Row {
        seconds: begun.elapsed().as_secs_f64(),
        requests: counts.latency.len(),
        hit_percent: counts.hits as f64 * 100.0 / counts.gets.max(1) as f64,
        p50_us: counts.latency.value_at_quantile(0.5),
        p99_us: counts.latency.value_at_quantile(0.99),
        p999_us: counts.latency.value_at_quantile(0.999),
        max_us: counts.latency.max(),
        resident_kib: plan.pid.map_or(0, process::resident_kib),
        items: stats.number("curr_items"),
        evictions: stats.number("evictions"),
    })
}
