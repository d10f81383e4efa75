//! How long threads waited for a core, as the kernel's scheduler counts it.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use rustix::process::Pid;

/// How long threads were ready to run and had no core, since each began: `run_delay` of
/// `/proc/PID/task/TID/schedstat`.
#[derive(Debug)]
pub(crate) struct RunDelay {
    threads: Vec<File>,
}

impl RunDelay {
    /// Of the calling thread.
    pub(crate) fn of_this_thread() -> io::Result<RunDelay> {
        let file = File::open("/proc/thread-self/schedstat")?;
        Ok(RunDelay {
            threads: vec![file],
        })
    }

    /// Of all threads that a process has now.
    pub(crate) fn of_process(process: Pid) -> io::Result<RunDelay> {
        let folder = format!("/proc/{}/task", process.as_raw_nonzero());
        let mut threads = Vec::new();
        for entry in std::fs::read_dir(folder)? {
            // A thread may end meanwhile.
            threads.extend(File::open(entry?.path().join("schedstat")));
        }
        Ok(RunDelay { threads })
    }

    /// So far, of all of them together. What has ended meanwhile counts for nothing.
    pub(crate) fn nanoseconds(&self) -> u64 {
        self.threads.iter().filter_map(delay).sum()
    }
}

fn delay(file: &File) -> Option<u64> {
    let mut text = [0; 64];
    let len = file.read_at(&mut text, 0).ok()?;
    second_number(str::from_utf8(&text[..len]).ok()?)
}

/// Time on a core, time ready without one, times on one.
fn second_number(schedstat: &str) -> Option<u64> {
    schedstat.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// Time for which the hypervisor gave a core of this machine to another guest, since boot: `steal` of
/// `/proc/stat`, to a clock tick. None where the kernel does not report it.
pub(crate) fn stolen(core: usize) -> Option<Duration> {
    let text = std::fs::read_to_string("/proc/stat").ok()?;
    let name = format!("cpu{core}");
    let line = text
        .lines()
        .find(|line| line.split_ascii_whitespace().next() == Some(&name))?;
    let ticks: u64 = line.split_ascii_whitespace().nth(8)?.parse().ok()?;
    let per_second = rustix::param::clock_ticks_per_second().max(1);
    Some(Duration::from_micros(ticks * 1_000_000 / per_second))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_delay_is_the_second_number() {
        assert_eq!(second_number("123 4567 8\n"), Some(4567));
        assert_eq!(second_number("123"), None);
    }

    #[test]
    fn a_thread_that_has_to_share_its_core_waits_for_it() {
        let core = crate::cpu::allowed().unwrap()[0];
        crate::cpu::pinned(core, || {
            let delay = RunDelay::of_this_thread().unwrap();
            let before = delay.nanoseconds();
            // Both spin on one core until this one has lost a millisecond to the other.
            let done = std::sync::atomic::AtomicBool::new(false);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    while !done.load(std::sync::atomic::Ordering::Relaxed) {
                        std::hint::spin_loop();
                    }
                });
                while delay.nanoseconds() - before < 1_000_000 {
                    std::hint::spin_loop();
                }
                done.store(true, std::sync::atomic::Ordering::Relaxed);
            });
            let all = RunDelay::of_process(rustix::process::getpid()).unwrap();
            assert!(all.nanoseconds() >= 1_000_000);
        })
        .unwrap();
    }
}
