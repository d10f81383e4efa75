//! Where the kernel reports memory pressure: pressure stall information (PSI), and the events of the
//! cgroup's limits.
//!
//! A trigger is written to a file of PSI; from then on `poll` reports POLLPRI, at most once in each
//! window, when tasks have waited for memory for longer than the trigger says. The process's own
//! cgroup has such a file where it is one of version 2; otherwise the whole machine's counts. Where
//! that cgroup is limited, `memory.events` counts how often it has reached `memory.high` or
//! `memory.max`.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// The window of a trigger: two seconds are what the kernel grants to ordinary users.
const WINDOW_US: u32 = 2_000_000;

/// The whole machine's pressure.
const MACHINE: &str = "/proc/pressure/memory";

/// See the module.
pub(super) struct Source {
    trigger: File,
    path: PathBuf,
    /// `memory.events` of the cgroup, and what it has counted so far.
    events: Option<(PathBuf, u64)>,
}

impl Source {
    /// Watches this process's cgroup, or else the machine. It is pressure when some task has waited
    /// for memory for `stall_ms` of two seconds.
    pub(super) fn open(stall_ms: u32) -> io::Result<Source> {
        let cgroup = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let of_cgroup = directory(&cgroup).and_then(|directory| {
            let events = directory.join("memory.events");
            Source::of(&directory.join("memory.pressure"), Some(events), stall_ms).ok()
        });
        match of_cgroup {
            Some(source) => Ok(source),
            None => Source::of(Path::new(MACHINE), None, stall_ms),
        }
    }

    fn of(path: &Path, events: Option<PathBuf>, stall_ms: u32) -> io::Result<Source> {
        let mut trigger = OpenOptions::new().read(true).write(true).open(path)?;
        // The kernel wants it in one piece, and a zero behind it.
        let text = format!("some {} {WINDOW_US}\0", u64::from(stall_ms) * 1000);
        trigger.write_all(text.as_bytes())?;
        let events = events.and_then(|path| {
            let reached = reached(&std::fs::read_to_string(&path).ok()?);
            Some((path, reached))
        });
        Ok(Source {
            trigger,
            path: path.to_owned(),
            events,
        })
    }

    /// The file that is watched.
    pub(super) fn name(&self) -> String {
        self.path.display().to_string()
    }

    /// Waits until there is pressure, `most` at most. True if there is.
    pub(super) fn wait(&mut self, most: Duration) -> io::Result<bool> {
        let timeout = Timespec::try_from(most).map_err(io::Error::other)?;
        let mut polled = [PollFd::new(&self.trigger, PollFlags::PRI)];
        let found = match poll(&mut polled, Some(&timeout)) {
            Ok(_) => polled[0].revents(),
            Err(rustix::io::Errno::INTR) => PollFlags::empty(),
            Err(error) => return Err(error.into()),
        };
        if found.contains(PollFlags::ERR) {
            return Err(io::Error::other("the kernel does not report it any more"));
        }
        Ok(found.contains(PollFlags::PRI) | self.has_reached_limit())
    }

    /// Whether the cgroup has reached one of its limits since the last call.
    fn has_reached_limit(&mut self) -> bool {
        let Some((path, before)) = &mut self.events else {
            return false;
        };
        let now = std::fs::read_to_string(path).map_or(*before, |events| reached(&events));
        std::mem::replace(before, now) < now
    }
}

/// The directory of the cgroup of version 2 that `/proc/self/cgroup` names.
fn directory(cgroups: &str) -> Option<PathBuf> {
    let path = cgroups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let mounts = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];
    let mut directories = mounts.map(|mount| Path::new(mount).join(path)).into_iter();
    directories.find(|directory| directory.join("memory.pressure").exists())
}

/// How often a cgroup has reached its limits, from its `memory.events`.
fn reached(events: &str) -> u64 {
    let counts = events.lines().filter_map(|line| line.split_once(' '));
    counts
        .filter(|(name, _)| ["high", "max"].contains(name))
        .filter_map(|(_, count)| count.trim().parse::<u64>().ok())
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_of_limits_are_counted() {
        let events = "low 5\nhigh 17\nmax 4\noom 3\noom_kill 2\n";
        assert_eq!(reached(events), 21);
        assert_eq!(reached(""), 0);
    }

    #[test]
    fn a_limit_that_is_reached_is_pressure_once() {
        let file = std::env::temp_dir().join(format!("coua-events-{}", std::process::id()));
        let write = |high: u64| std::fs::write(&file, format!("low 0\nhigh {high}\nmax 0\n"));
        write(3).expect("a file");
        let Ok(mut source) = Source::of(Path::new(MACHINE), Some(file.clone()), 2000) else {
            // A kernel without PSI: then there is no source at all.
            assert!(!Path::new(MACHINE).exists());
            return;
        };
        assert!(!source.has_reached_limit());
        write(4).expect("a file");
        assert!(source.wait(Duration::from_millis(1)).expect("a source"));
        assert!(!source.has_reached_limit());
        std::fs::remove_file(&file).expect("the file");
    }

    #[test]
    fn a_trigger_that_cannot_be_is_refused() {
        // Longer than its window.
        assert!(Source::of(Path::new(MACHINE), None, 2001).is_err());
    }
}
