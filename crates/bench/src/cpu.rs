//! Cores and CPU time: which core a thread runs on, and how much of it a thread or a process has
//! used.

use std::collections::HashMap;
use std::io;
use std::time::Duration;

use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};

/// Runs `work` with the calling thread bound to `core`, then restores what it was bound to before.
/// Threads and processes that `work` starts stay on `core`.
pub(crate) fn pinned<T>(core: usize, work: impl FnOnce() -> T) -> io::Result<T> {
    bound(&[core], work)
}

/// As [`pinned`], to several cores.
pub(crate) fn bound<T>(cores: &[usize], work: impl FnOnce() -> T) -> io::Result<T> {
    let before = sched_getaffinity(None)?;
    bind(cores)?;
    let outcome = work();
    sched_setaffinity(None, &before)?;
    Ok(outcome)
}

/// Binds the calling thread to `core`; an error where the machine has no such core.
pub(crate) fn pin(core: usize) -> io::Result<()> {
    bind(&[core])
}

fn bind(cores: &[usize]) -> io::Result<()> {
    let mut only = CpuSet::new();
    for &core in cores {
        if core >= CpuSet::MAX_CPU {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        only.set(core);
    }
    Ok(sched_setaffinity(None, &only)?)
}

/// Cores that the calling thread may run on, in ascending order.
pub(crate) fn allowed() -> io::Result<Vec<usize>> {
    allowed_to(None)
}

/// Cores that a process may run on, or the calling thread where none is given, in ascending order.
pub(crate) fn allowed_to(process: Option<Pid>) -> io::Result<Vec<usize>> {
    let set = sched_getaffinity(process)?;
    Ok((0..CpuSet::MAX_CPU)
        .filter(|&core| set.is_set(core))
        .collect())
}

/// CPU time that the calling thread has used so far.
pub(crate) fn of_this_thread() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanoseconds = u64::try_from(time.tv_nsec).unwrap_or(0);
    Duration::from_secs(seconds) + Duration::from_nanos(nanoseconds)
}

/// CPU time, user and system, that all threads of a process have used so far, to a clock tick (10
/// ms).
pub(crate) fn of_process(process: Pid) -> io::Result<Duration> {
    of_stat(&format!("/proc/{}/stat", process.as_raw_nonzero()))
}

/// CPU time of each thread of a process, by thread id, to a clock tick.
pub(crate) fn of_threads(process: Pid) -> io::Result<HashMap<u32, Duration>> {
    let mut threads = HashMap::new();
    for entry in std::fs::read_dir(format!("/proc/{}/task", process.as_raw_nonzero()))? {
        let name = entry?.file_name();
        let id = name.to_str().and_then(|name| name.parse().ok());
        let id = id.ok_or(io::ErrorKind::InvalidData)?;
        let path = format!("/proc/{}/task/{id}/stat", process.as_raw_nonzero());
        // A thread may end meanwhile.
        if let Ok(time) = of_stat(&path) {
            threads.insert(id, time);
        }
    }
    Ok(threads)
}

fn of_stat(path: &str) -> io::Result<Duration> {
    let text = std::fs::read_to_string(path)?;
    let ticks = ticks_in(&text).ok_or(io::ErrorKind::InvalidData)?;
    let per_second = rustix::param::clock_ticks_per_second().max(1);
    Ok(Duration::from_micros(ticks * 1_000_000 / per_second))
}

/// utime + stime: fields 14 and 15. The name in field 2 may hold blanks and brackets.
fn ticks_in(stat: &str) -> Option<u64> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    user.checked_add(system)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fourteenth_and_fifteenth_field_are_added() {
        let stat = "7 (a ) b) S 1 7 7 0 -1 4194560 100 0 0 0 31 11 5 6 20 0 1 0 100 0 0";
        assert_eq!(ticks_in(stat), Some(42));
        assert_eq!(ticks_in("7 (a) S"), None);
    }

    #[test]
    fn work_is_charged_to_its_thread() {
        let before = of_this_thread();
        let mut sum = 0u64;
        while of_this_thread() - before < Duration::from_millis(2) {
            sum = std::hint::black_box(sum + 1);
        }
        assert!(sum > 0);
        let process = of_process(rustix::process::getpid()).unwrap();
        assert!(process < Duration::from_secs(3600));
        let threads = of_threads(rustix::process::getpid()).unwrap();
        assert!(!threads.is_empty() && threads.values().all(|time| time.as_secs() < 3600));
    }

    #[test]
    fn a_pin_ends_with_its_work() {
        let before = allowed().unwrap();
        let inside = pinned(before[0], || allowed().unwrap()).unwrap();
        assert_eq!(inside, before[..1]);
        assert_eq!(allowed().unwrap(), before);
    }
}
