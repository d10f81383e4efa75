//! A test-bed of network namespaces: nothing in them reaches the machine's own network.
//!
//! ```text
//! ┌ Pair.ours ────┐                ┌ Pair.peers ───┐
//! │          eth0 ├────── veth ────┤ eth0          │
//! └───────────────┘                └───────────────┘
//! ```
//!
//! Both interfaces are up, without addresses, and IPv6 is off, so that nothing is on the cable but
//! what a test sends. A namespace and what is in it goes with its [`Namespace`], also when the test
//! fails; what an earlier run left behind because it was killed goes when the next one begins.
//!
//! It needs root, or CAP_NET_ADMIN and CAP_SYS_ADMIN, and the programs `ip` and `ethtool`; without
//! them a test fails and says so.
//!
//! A thread is in one namespace, and what it opens stays there: [`Namespace::enter`] runs a closure
//! in a thread of its own and returns what that gives, a socket for instance.
#![allow(dead_code, reason = "each test takes what it needs")]

use std::fs::{self, File};
use std::os::fd::AsFd;
use std::process::Command;
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use std::{process, thread};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// Where `ip netns` keeps its namespaces.
const FOLDER: &str = "/run/netns";
/// What the names begin with, before the number of the process and a counter.
const PREFIX: &str = "coua-test-";
/// What the interfaces of a pair are called in both namespaces.
pub(crate) const DEVICE: &str = "eth0";

/// How often, and how far apart, cards are looked for.
const CARDS_RETRIES: usize = 1200;
const CARDS_RETRY_EVERY: Duration = Duration::from_millis(50);

/// Two namespaces and a cable between them.
pub(crate) struct Pair {
    /// Where the code under test has its end.
    pub(crate) ours: Namespace,
    /// Where its peer is: the kernel, most often.
    pub(crate) peers: Namespace,
}

impl Pair {
    /// Makes both, joined by a veth pair whose ends are called [`DEVICE`].
    pub(crate) fn new() -> Pair {
        Pair::with_queues(1)
    }

    /// As [`Pair::new`], with so many queues a side. What is sent on a queue comes in on the other
    /// end's queue of the same number.
    pub(crate) fn with_queues(count: usize) -> Pair {
        let pair = Pair {
            ours: Namespace::new(),
            peers: Namespace::new(),
        };
        let other = &pair.peers.name;
        let queues = format!("numrxqueues {count} numtxqueues {count}");
        pair.ours.ip(&format!(
            "link add {DEVICE} {queues} type veth peer name {DEVICE} {queues} netns {other}"
        ));
        for end in [&pair.ours, &pair.peers] {
            end.ip(&format!("link set {DEVICE} up"));
        }
        pair
    }
}

/// The machine's own cards, joined by a cable already, that one driver of the kernel's drives.
pub(crate) struct Cards {
    /// The driver's name, such as `virtio_net`.
    pub(crate) driver: &'static str,
    /// What ethtool calls the merging of frames that it does unless told not to.
    pub(crate) merging: &'static str,
}

impl Cards {
    /// The first two in the order of their addresses, each in a namespace and called [`DEVICE`]. They
    /// go back to where they were when the namespaces go.
    pub(crate) fn pair(&self) -> Pair {
        let pair = Pair {
            ours: Namespace::new(),
            peers: Namespace::new(),
        };
        for (end, card) in [&pair.ours, &pair.peers].into_iter().zip(self.names()) {
            let name = end.name();
            run("ip", &["link", "set", &card, "netns", name, "name", DEVICE]);
            end.run("ethtool", &format!("-K {DEVICE} {} off", self.merging));
            end.ip(&format!("link set {DEVICE} up"));
        }
        pair
    }

    /// Waits for them: a test before may still be giving them back.
    fn names(&self) -> [String; 2] {
        for _ in 0..CARDS_RETRIES {
            let mut found = self.found();
            found.sort();
            if let [(_, ours), (_, peers), ..] = &found[..] {
                return [ours.clone(), peers.clone()];
            }
            thread::sleep(CARDS_RETRY_EVERY);
        }
        panic!("the machine has no two cards that {} drives", self.driver);
    }

    /// Addresses and names.
    fn found(&self) -> Vec<(String, String)> {
        let entries = fs::read_dir("/sys/class/net").expect("a machine with networks");
        let cards = entries.flatten().filter_map(|entry| {
            let path = entry.path();
            let driver = fs::read_link(path.join("device/driver")).ok()?;
            let address = fs::read_to_string(path.join("address")).ok()?;
            let name = entry.file_name().to_string_lossy().into_owned();
            driver.ends_with(self.driver).then_some((address, name))
        });
        cards.collect()
    }
}

/// One network namespace.
pub(crate) struct Namespace {
    name: String,
}

impl Namespace {
    /// Makes one, with only the loopback interface, which is up.
    pub(crate) fn new() -> Namespace {
        static LEFTOVERS: Once = Once::new();
        static COUNT: AtomicU32 = AtomicU32::new(0);
        LEFTOVERS.call_once(delete_leftovers);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("{PREFIX}{}-{count}", process::id());
        run("ip", &["netns", "add", &name]);
        let namespace = Namespace { name };
        namespace.ip("link set lo up");
        namespace.enter(|| {
            for which in ["all", "default"] {
                // A kernel without IPv6 has no such file.
                let path = format!("/proc/sys/net/ipv6/conf/{which}/disable_ipv6");
                let _ = fs::write(path, "1");
            }
        });
        namespace
    }

    /// Its name, for `ip netns exec` and the like.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Runs `ip` with these words in the namespace.
    pub(crate) fn ip(&self, words: &str) -> String {
        let mut all = vec!["-n", &self.name];
        all.extend(words.split_whitespace());
        run("ip", &all)
    }

    /// Runs a program in the namespace and gives what it prints.
    ///
    /// # Panics
    /// Where it fails, with what it said.
    pub(crate) fn run(&self, program: &str, words: &str) -> String {
        let mut all = vec!["netns", "exec", &self.name, program];
        all.extend(words.split_whitespace());
        run("ip", &all)
    }

    /// Whether a program succeeds in the namespace.
    pub(crate) fn succeeds(&self, program: &str, words: &str) -> bool {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name, program]);
        command.args(words.split_whitespace());
        command.output().is_ok_and(|output| output.status.success())
    }

    /// Has the kernel fill in the checksums of what it sends here, and cut segments itself, as it
    /// does for a cable that leads out of the machine.
    pub(crate) fn fill_checksums(&self) {
        self.run("ethtool", &format!("-K {DEVICE} tx off tso off gso off"));
    }

    /// The MAC address of [`DEVICE`].
    pub(crate) fn mac(&self) -> [u8; 6] {
        self.mac_of(DEVICE)
    }

    /// The MAC address of any interface.
    pub(crate) fn mac_of(&self, device: &str) -> [u8; 6] {
        let text = self.ip(&format!("link show dev {device}"));
        let address = text
            .split_whitespace()
            .skip_while(|word| *word != "link/ether")
            .nth(1)
            .expect("`ip link` shows a MAC address");
        let mut mac = [0; 6];
        for (byte, digits) in mac.iter_mut().zip(address.split(':')) {
            *byte = u8::from_str_radix(digits, 16).expect("hexadecimal digits");
        }
        mac
    }

    /// Moves the calling thread into the namespace, for good.
    pub(crate) fn join(&self) {
        let path = format!("{FOLDER}/{}", self.name);
        let file = File::open(path).expect("the namespace is there");
        move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))
            .expect("entering a network namespace needs CAP_SYS_ADMIN: run the tests as root");
    }

    /// Runs `work` in a thread in the namespace, and waits for it.
    pub(crate) fn enter<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        let result = thread::scope(|scope| {
            let inside = scope.spawn(|| {
                self.join();
                work()
            });
            inside.join()
        });
        result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        delete(&self.name);
    }
}

fn run(program: &str, words: &[&str]) -> String {
    let output = Command::new(program).args(words).output();
    let output = output.unwrap_or_else(|error| {
        panic!("the test needs the program `{program}`: {error}");
    });
    // Some programs say what is wrong where they say all else.
    let said = [&output.stdout, &output.stderr].map(|said| String::from_utf8_lossy(said));
    assert!(
        output.status.success(),
        "`{program} {}` failed; network namespaces need root and the packages iproute2 and ethtool: {}",
        words.join(" "),
        said.concat()
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn delete(name: &str) {
    let _ = Command::new("ip").args(["netns", "del", name]).output();
}

/// Deletes what processes made that are no more.
fn delete_leftovers() {
    let Ok(entries) = fs::read_dir(FOLDER) else {
        return;
    };
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let owner = name
            .strip_prefix(PREFIX)
            .and_then(|rest| rest.split('-').next());
        if owner.is_some_and(|pid| fs::metadata(format!("/proc/{pid}")).is_err()) {
            delete(&name);
        }
    }
}
