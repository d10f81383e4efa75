//! `stats net`: what the stacks of the server's own have counted (`--net`). Nothing without one.
//!
//! All counts are told as sums over the workers; of each worker's, those that show whether the card
//! spreads connections evenly, which worker has trouble and of what kind (all drops, by their
//! reasons), and how much of its time it is waiting.

use std::time::Duration;

use super::Stats;
use crate::clock::Now;
use crate::output::Output;
use crate::shared::Shared;

/// Workers that are told of one by one: the answer is bounded.
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

/// Whether a count of the stack's is told of each worker.
fn is_of_worker(name: &str) -> bool {
    matches!(
        name,
        "frames_received" | "frames_sent" | "segments_retransmitted"
    ) || name.starts_with("dropped_")
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
