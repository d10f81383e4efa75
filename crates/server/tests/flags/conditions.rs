//! What a server says of the machine's conditions when it starts, in cgroups that this test makes.

use std::fs;
use std::path::{Path, PathBuf};

use crate::process::{Process, poll, wrapped};

/// A cgroup of the test's own; removed when dropped.
struct Cgroup(PathBuf);

impl Cgroup {
    /// Sets a limit of version 1 or, where that is not mounted, of version 2. `None` where this process
    /// may make no cgroup.
    fn with(controller: &str, first: &[(&str, &str)], second: (&str, &str)) -> Option<Cgroup> {
        let own = fs::read_to_string("/proc/self/cgroup").ok()?;
        let of_first = own.lines().find_map(|line| {
            let (_, rest) = line.split_once(':')?;
            let (controllers, path) = rest.split_once(':')?;
            let has = controllers.split(',').any(|one| one == controller);
            has.then(|| format!("/sys/fs/cgroup/{controllers}{path}"))
        });
        let of_second = own.lines().find_map(|line| line.strip_prefix("0::"));
        let (parent, files) = match (of_first, of_second) {
            (Some(parent), _) => (parent, first),
            (None, Some(path)) => (format!("/sys/fs/cgroup{path}"), &[second][..]),
            (None, None) => return None,
        };
        let name = format!("coua-{controller}-{}", std::process::id());
        let cgroup = Cgroup(Path::new(&parent).join(name));
        fs::create_dir(&cgroup.0).ok()?;
        for (file, text) in files {
            fs::write(cgroup.0.join(file), text).ok()?;
        }
        Some(cgroup)
    }

    /// Starts a server in it.
    fn start(&self, flags: &[&str]) -> Process {
        let script = "echo $$ > \"$0/cgroup.procs\" && exec \"$@\"";
        let folder = self.0.to_str().expect("a path of text");
        Process::start(wrapped(&["sh", "-c", script, folder], flags))
    }
}

#[expect(clippy::print_stderr, reason = "what is left out is told")]
fn leave_out() {
    eprintln!("left out: no cgroup can be made here");
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        poll("the cgroup's end", || {
            fs::remove_dir(&self.0).is_ok().then_some(())
        });
    }
}

#[test]
fn less_memory_than_coua_takes_is_told() {
    let limit = (100_u64 << 20).to_string();
    let Some(cgroup) = Cgroup::with(
        "memory",
        &[("memory.limit_in_bytes", &limit)],
        ("memory.max", &limit),
    ) else {
        leave_out();
        return;
    };
    let process = cgroup.start(&["-m", "90"]);
    let line = process.hear("and the cgroup has 100 (");
    assert!(line.contains("-m 90: coua takes up to "), "{line}");
    assert!(
        line.contains("beside -m (2 threads, 1024 connections)"),
        "{line}"
    );
    drop(process);
    let process = cgroup.start(&["-m", "32"]);
    process.listening();
    assert!(
        !process.said().contains("the cgroup has"),
        "{}",
        process.said()
    );
    drop(process);
    drop(cgroup);
}

#[test]
fn fewer_processors_than_threads_are_told() {
    let Some(cgroup) = Cgroup::with(
        "cpu",
        &[
            ("cpu.cfs_period_us", "100000"),
            ("cpu.cfs_quota_us", "150000"),
        ],
        ("cpu.max", "150000 100000"),
    ) else {
        leave_out();
        return;
    };
    let process = cgroup.start(&["-t", "3"]);
    let line = process.hear("the cgroup has 1.5 processors (");
    assert!(
        line.contains("-t 3: ") && line.contains("give -t 2"),
        "{line}"
    );
    drop(process);
    drop(cgroup);
}
