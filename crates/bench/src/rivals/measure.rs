//! How fast a store is, on one thread or several.

use std::sync::Barrier;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::{Operation, Requests, Rival, Work};
use crate::cpu;
use crate::workload::Values;

/// The result of one measurement.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Speed {
    /// Operations per second of a thread's CPU time, summed over the threads. Other work on the
    /// machine does not change it.
    pub(crate) per_cpu_second: f64,
    /// Operations of all threads per second.
    pub(crate) per_second: f64,
    /// The fraction of gets that found something, or of sets that were accepted.
    pub(crate) succeeded: f64,
}

/// Which keys are asked for, and for how long.
#[derive(Clone, Copy)]
pub(crate) struct Load<'a> {
    /// The value of each key.
    pub(crate) values: &'a Values,
    /// Which key comes next; each thread begins at another place.
    pub(crate) requests: &'a Requests,
    /// How long each thread works.
    pub(crate) time: Duration,
}

/// Puts the load on a store, thread t on the core `cores[t]`.
pub(crate) fn measure(
    rival: &dyn Rival,
    operation: Operation,
    batch: usize,
    cores: &[usize],
    load: Load<'_>,
) -> Speed {
    let start = Barrier::new(cores.len());
    let one = |thread: usize| {
        // If the core cannot be had, the scheduler chooses one; both figures stay true.
        let _ = cpu::pin(cores[thread]);
        start.wait();
        let (begun, cpu_before) = (Instant::now(), cpu::of_this_thread());
        let mut work = Work::new(load.requests, load.values, thread, cores.len(), load.time);
        rival.run(thread, operation, batch, &mut work);
        (
            work.done,
            work.succeeded,
            cpu::of_this_thread() - cpu_before,
            begun.elapsed(),
        )
    };
    let threads: Vec<_> = std::thread::scope(|scope| {
        let one = &one;
        let spawned: Vec<_> = (0..cores.len())
            .map(|thread| scope.spawn(move || one(thread)))
            .collect();
        spawned
            .into_iter()
            .map(|thread| thread.join().expect("a rival does not panic"))
            .collect()
    });
    let rate = |done: u64, time: Duration| done as f64 / time.as_secs_f64().max(1e-9);
    let done: u64 = threads.iter().map(|(done, ..)| done).sum();
    let succeeded: u64 = threads.iter().map(|(_, succeeded, ..)| succeeded).sum();
    Speed {
        per_cpu_second: threads
            .iter()
            .map(|&(done, _, cpu, _)| rate(done, cpu))
            .sum(),
        per_second: threads
            .iter()
            .map(|&(done, .., wall)| rate(done, wall))
            .sum(),
        succeeded: succeeded as f64 / done.max(1) as f64,
    }
}
