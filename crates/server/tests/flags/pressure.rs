//! `-o memory_pressure`, with pressure that this test makes: a program that reads a large file in a
//! cgroup that is too small for it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::process::{Client, Process, coua, poll};

/// A cgroup of little memory; removed when dropped.
struct Small(PathBuf);

impl Small {
    /// `None` where this process may make none.
    fn make() -> Option<Small> {
        let own = fs::read_to_string("/proc/self/cgroup").ok()?;
        let of = |prefix: fn(&str) -> Option<&str>| own.lines().find_map(prefix).map(str::to_owned);
        let first = of(|line| line.split_once(":memory:").map(|(_, path)| path));
        let second = of(|line| line.strip_prefix("0::"));
        let name = format!("coua-pressure-{}", std::process::id());
        let (directory, limit) = match (first, second) {
            (Some(path), _) => {
                let mount = format!("/sys/fs/cgroup/memory{path}");
                (Path::new(&mount).join(name), "memory.limit_in_bytes")
            }
            (None, Some(path)) => {
                let mount = format!("/sys/fs/cgroup{path}");
                (Path::new(&mount).join(name), "memory.max")
            }
            (None, None) => return None,
        };
        fs::create_dir(&directory).ok()?;
        let small = Small(directory);
        fs::write(small.0.join(limit), "16777216").ok()?;
        Some(small)
    }

    /// A shell in the cgroup that reads the file until it is dropped.
    fn read_in(&self, file: &Path) -> Reader {
        let script = "echo $$ > \"$0/cgroup.procs\" && while :; do cat \"$1\" > /dev/null; done";
        let mut shell = Command::new("sh");
        let shell = shell.args(["-c", script]).arg(&self.0).arg(file);
        shell.stdout(Stdio::null()).stderr(Stdio::null());
        Reader(shell.spawn().expect("a shell"))
    }
}

/// A shell; it ends when this is dropped.
struct Reader(Child);

impl Drop for Reader {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Microseconds for which some task of the machine has waited for memory.
fn stalled_us() -> u64 {
    let pressure = fs::read_to_string("/proc/pressure/memory").unwrap_or_default();
    let total = pressure
        .lines()
        .next()
        .and_then(|line| line.split_once("total="));
    total.map_or(0, |(_, total)| total.trim().parse().expect("a number"))
}

/// Makes a file that lies on the disk alone: what the page cache has of it is nobody's pressure.
fn write_to_disk(path: &Path, len: usize) {
    fs::write(path, vec![1; len]).expect("a file on a disk");
    let file = fs::File::open(path).expect("it is there");
    file.sync_all().expect("a disk");
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).expect("a file");
}

impl Drop for Small {
    fn drop(&mut self) {
        for _ in 0..500 {
            if fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

#[test]
fn memory_is_held_back_under_pressure_and_used_again_afterwards() {
    let Some(small) = Small::make() else {
        // It takes root and a memory controller; the policy's own tests run everywhere.
        return;
    };
    let file = std::env::temp_dir().join(format!("coua-pressure-{}", std::process::id()));
    write_to_disk(&file, 64 << 20);
    let options = "memory_pressure=16,memory_pressure_step=25,memory_pressure_stall=1";
    let process = Process::start(coua(&["-m", "64", "-o", options]));
    let mut client = Client::connect(process.address());
    let value = "v".repeat(10_000);
    for number in 0..8000 {
        let set = format!("set key-{number} 0 0 10000\r\n{value}\r\n");
        assert_eq!(client.ask(&set), "STORED");
    }
    let number = |client: &mut Client, name: &str| -> u64 {
        client.stat("stats", name).parse().expect("a number")
    };
    let reader = small.read_in(&file);
    let before = stalled_us();
    let begun = Instant::now();
    while number(&mut client, "coua_memory_held_back") < 16 << 20 {
        if begun.elapsed() > Duration::from_secs(30) {
            // A folder in memory, or a disk that is as fast as memory, makes nobody wait.
            let stalled = stalled_us() - before;
            assert!(
                stalled < 1_000_000,
                "no step down after {stalled} us of stalls"
            );
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    poll("memory given back", || {
        (number(&mut client, "coua_memory") <= 48 << 20).then_some(())
    });
    // The goal stays, and so does the floor.
    assert_eq!(number(&mut client, "limit_maxbytes"), 64 << 20);
    assert!(number(&mut client, "coua_memory_held_back") <= 48 << 20);
    assert_eq!(client.stat("stats settings", "coua_memory_pressure"), "16");
    drop(reader);
    drop(small);
    let _ = fs::remove_file(&file);
    // What a client sets counts at once.
    assert_eq!(client.ask("cache_memlimit 16\r\n"), "OK");
    poll("nothing held back below the floor", || {
        (number(&mut client, "coua_memory_held_back") == 0).then_some(())
    });
    assert_eq!(number(&mut client, "limit_maxbytes"), 16 << 20);
}
