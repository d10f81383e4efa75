//! The server on NVMe devices in a virtual machine, by each driver, and while the devices fail: `cargo xtask test lab`
//! runs it there.

#![allow(
    clippy::print_stdout,
    reason = "tests say how each device was reached, and what came of it"
)]

mod drivers;
mod pulled_out;
mod unreadable;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::process::{Process, coua};
use crate::scene::{Client, value};

/// How many items, and how long their values are: several times the memory of the server.
const COUNT: usize = 60_000;
const LEN: usize = 1000;

/// A controller of the machine.
pub(crate) struct Controller {
    /// Its place among `--nvme`.
    number: usize,
    /// Its PCI address.
    address: String,
}

/// How the server reaches a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Driver {
    Block,
    Passthrough,
    Own,
}

impl Controller {
    /// Finds it; the kernel's driver has it.
    pub(crate) fn find(number: usize) -> Controller {
        let serial = format!("lab{number}");
        let found = classes().find(|path| read(path, "serial") == serial);
        let path = found.unwrap_or_else(|| panic!("no controller {serial}"));
        let address = read(&path, "address");
        Controller { number, address }
    }

    /// The kernel's name of its namespace, after `/dev/nvme` or `/dev/ng`; none where the kernel does not have it.
    fn name(&self) -> Option<String> {
        let mut found = classes().filter(|path| read(path, "address") == self.address);
        let name = found.next()?.file_name()?.to_string_lossy().into_owned();
        Some(format!("{}n1", name.strip_prefix("nvme")?))
    }

    /// What `--flash` takes.
    pub(crate) fn place(&self, driver: Driver) -> String {
        let name = || self.name().expect("the kernel's driver has it");
        match driver {
            Driver::Block => format!("/dev/nvme{}", name()),
            Driver::Passthrough => format!("/dev/ng{}", name()),
            Driver::Own => self.address.clone(),
        }
    }

    /// Whether the kernel's driver has it.
    pub(crate) fn is_the_kernels(&self) -> bool {
        self.name()
            .is_some_and(|name| Path::new(&format!("/dev/nvme{name}")).exists())
    }

    /// Waits until the kernel's driver has it again.
    pub(crate) fn wait_for_the_kernel(&self) {
        wait("the kernel's driver has its device again", || {
            self.is_the_kernels()
        });
    }

    /// Pulls it out of the machine.
    pub(crate) fn pull_out(&self) {
        from_outside(&format!("device_del ctrl{}", self.number));
    }
}

fn classes() -> impl Iterator<Item = PathBuf> {
    let classes = fs::read_dir("/sys/class/nvme").expect("NVMe controllers");
    classes.flatten().map(|entry| entry.path())
}

fn read(path: &Path, name: &str) -> String {
    let text = fs::read_to_string(path.join(name)).unwrap_or_default();
    text.trim().to_owned()
}

/// Waits for something; an emulated machine may take long.
pub(crate) fn wait(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(180);
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}: not in time");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Asks the machine's monitor.
pub(crate) fn from_outside(command: &str) {
    let done = Command::new("lab-hmp").arg(command).output();
    let done = done.expect("lab-run --hmp");
    let said = String::from_utf8_lossy(&done.stdout).to_lowercase();
    assert!(
        done.status.success() && !said.contains("error"),
        "{command}: {said}{}",
        String::from_utf8_lossy(&done.stderr)
    );
}

/// A server with 64 MiB of memory and a device.
pub(crate) fn start(place: &str, flags: &[&str]) -> Process {
    let all = [&["-m", "64", "-t", "2", "--flash", place], flags].concat();
    let process = Process::start(coua(&all));
    process.hear("listening on");
    process
}

/// Ends a server by a signal to stop; it ends well.
pub(crate) fn stop(process: Process) {
    process.signal(Signal::TERM);
    let (mut process, begin) = (process, Instant::now());
    while process.runs() {
        if begin.elapsed() > Duration::from_secs(60) {
            panic!("it does not end: {}", whereabouts(&process));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    let end = process.end();
    assert!(end.status.success(), "{}", end.said);
}

/// What a server has said, and what each of its threads waits for in the kernel.
fn whereabouts(process: &Process) -> String {
    let mut text = process.said();
    let tasks = fs::read_dir(format!("/proc/{}/task", process.child.id()));
    for task in tasks.into_iter().flatten().flatten() {
        let of = |name| read(&task.path(), name);
        text += &format!("{} {}\n{}\n", of("comm"), of("syscall"), of("stack"));
    }
    text
}

/// Stores all items, and waits until nothing is written any more.
pub(crate) fn store_all(client: &mut Client) {
    client.fill("k", COUNT, LEN);
    client.settle();
}

/// Asks for all items; returns how many are there. All values are right.
pub(crate) fn found(client: &mut Client) -> usize {
    COUNT - missing(client, 0..COUNT).len()
}

/// Asks for items in multi-gets of 50; returns those that are not there. All values are right.
pub(crate) fn missing(client: &mut Client, numbers: impl Iterator<Item = usize>) -> Vec<usize> {
    let numbers: Vec<usize> = numbers.collect();
    let mut missing = Vec::new();
    for asked in numbers.chunks(50) {
        let keys: String = asked.iter().map(|number| format!(" k{number}")).collect();
        client.send(format!("get{keys}\r\n"));
        let mut there = BTreeSet::new();
        for (key, bytes, _) in client.values() {
            let number: usize = key[1..].parse().expect("a number");
            assert!(bytes == value(number, LEN), "{key} has another value");
            assert!(asked.contains(&number) && there.insert(number), "{key}");
        }
        missing.extend(asked.iter().filter(|number| !there.contains(number)));
    }
    missing
}

/// Stores all items and reads them; almost all of them are there, and some come from flash.
pub(crate) fn store_and_read(client: &mut Client) {
    store_all(client);
    let found = found(client);
    // An emulated device may not keep up; what it misses is evicted.
    let evicted = usize::try_from(client.stat("evictions")).expect("a small number");
    assert!(found + evicted + 10 >= COUNT, "{found} and {evicted}");
    assert!(found > COUNT / 2, "{found}");
    let hits = client.stat("get_extstore");
    assert!(hits > 2000, "{hits}");
    assert_eq!(client.stat("badcrc_from_extstore"), 0);
    assert_eq!(client.stat("miss_from_extstore"), 0);
    println!("{found} of {COUNT} found, {hits} of them on flash, {evicted} evicted");
}
