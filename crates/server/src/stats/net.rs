//! `stats net`: what the server's own stacks have counted (`--net`). Empty without `--net`.
//!
//! All counts are shown as sums over the workers. Some are also shown for each worker: those that
//! say whether the card spreads connections evenly, which drops a worker has and why, and how much
//! of its time it waits.

use std::time::Duration;

use super::Stats;
use crate::clock::Now;
use crate::output::Output;
use crate::shared::Shared;

/// The most workers that are shown one by one, so that the answer is bounded.
const WORKERS_MAX: usize = 64;

pub(super) fn write(shared: &Shared, _now: Now, output: &mut Output) {
    let mut stats = Stats::new(output);
    let workers: Vec<_> = shared.net_counters().collect();
    if let Some((_, first)) = workers.first() {
        for (at, (name, _)) in first.stack.all().into_iter().enumerate() {
            let sum: u64 = workers
                .iter()
                .map(|(_, worker)| worker.stack.all()[at].1)
                .sum();
            stats.add(name, sum);
        }
    }
    for (number, worker) in workers.iter().take(WORKERS_MAX) {
        let turns = &worker.turns;
        let of_stack = worker.stack.all();
        let counts = of_stack.into_iter().filter(|(name, _)| is_of_worker(name));
        let of_turns = [
            ("turns", turns.all),
            ("turns_idle", turns.idle),
            ("bursts", turns.all - turns.idle),
            ("idle_us", micros(turns.idle_time)),
            ("busy_us", micros(turns.busy_time)),
        ];
        for (name, count) in counts.chain(of_turns) {
            stats.add(&format!("worker:{number}:{name}"), count);
        }
    }
    stats.end();
}

/// Whether a count of the stack is shown for each worker.
fn is_of_worker(name: &str) -> bool {
    matches!(
        name,
        "frames_received" | "frames_sent" | "segments_retransmitted"
    ) || name.starts_with("dropped_")
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
