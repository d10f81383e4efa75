//! The real server on a machine with two nodes of memory: where the kernel says that its memory lies.
//!
//! `cargo xtask test lab` boots such a machine; elsewhere the test is left out and says so.

#[path = "support/process.rs"]
#[allow(dead_code, reason = "each test takes what it needs")]
mod process;
#[path = "support/mod.rs"]
#[allow(dead_code, reason = "these tests need the program alone")]
mod support;

use std::fs;

use process::{Client, Process, coua, poll};
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_setaffinity};

/// Items of a kilobyte that fill two thirds of `-m 64`.
const ITEMS: usize = 40_000;

/// A part of the server's memory, as the kernel shows it.
#[derive(Debug)]
struct Part {
    policy: String,
    /// Pages of 4 KiB that lie in each node.
    pages: [u64; 2],
}

/// The parts of the arena. They have a policy, and nothing else of the server's has.
fn parts(server: &Process) -> Vec<Part> {
    let path = format!("/proc/{}/numa_maps", server.child.id());
    let text = fs::read_to_string(path).expect("it runs");
    let part = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        let count = |key: &str| {
            let found = words.iter().find_map(|word| word.strip_prefix(key));
            found.map_or(0, |text| text.parse::<u64>().expect("a number"))
        };
        let in_kib = count("kernelpagesize_kB=");
        Part {
            policy: words[1].to_owned(),
            pages: ["N0=", "N1="].map(|key| count(key) * in_kib / 4),
        }
    };
    let parts = text.lines().map(part);
    parts.filter(|part| part.policy != "default").collect()
}

/// Binds the thread of that name to a core.
fn pin(server: &Process, name: &str, core: usize) {
    let folder = format!("/proc/{}/task", server.child.id());
    let task = fs::read_dir(folder).expect("it runs").flatten();
    let mut ids = task.filter_map(|task| {
        let comm = fs::read_to_string(task.path().join("comm")).ok()?;
        (comm.trim() == name).then(|| task.file_name().to_string_lossy().parse::<i32>().ok())?
    });
    let id = ids.next().expect("the thread is there");
    let mut cores = CpuSet::new();
    cores.set(core);
    sched_setaffinity(Pid::from_raw(id), &cores).expect("there is such a core");
}

/// Whether the machine has two nodes with a core each, 0 and 1.
fn has_two_nodes() -> bool {
    let online = fs::read_to_string("/sys/devices/system/node/online").unwrap_or_default();
    let core = |node| fs::read_to_string(format!("/sys/devices/system/node/node{node}/cpulist"));
    online.trim() == "0-1"
        && core(0).is_ok_and(|list| list.trim() == "0")
        && core(1).is_ok_and(|list| list.trim() == "1")
}

fn number(client: &mut Client, key: &str) -> u64 {
    client.stat("stats", key).parse().expect("a number")
}

/// Fills memory by both workers, or by the one that a connection has come to.
fn fill(server: &Process, both: bool) -> Client {
    let address = server.address();
    // Connections are dealt evenly.
    let mut clients = [Client::connect(address), Client::connect(address)];
    let value = "x".repeat(1000);
    for item in 0..ITEMS {
        let client = &mut clients[if both { item % 2 } else { 0 }];
        client.send(&format!("set key-{item} 0 0 1000\r\n{value}\r\n"));
        if item % 16 == 15 || !both {
            let each = if both { 8 } else { 1 };
            let used = &mut clients[..if both { 2 } else { 1 }];
            for client in used {
                (0..each).for_each(|_| assert_eq!(client.line(), "STORED"));
            }
        }
    }
    let [first, _] = clients;
    first
}

fn each_node_has_its_own(flags: &[&str]) {
    if !has_two_nodes() {
        #[expect(clippy::print_stderr, reason = "what is left out is told")]
        {
            eprintln!("left out: not a machine with two nodes of one core");
        }
        return;
    }
    let server = Process::start(coua(flags));
    server.hear("2 NUMA nodes");
    pin(&server, "coua-0", 0);
    pin(&server, "coua-1", 1);
    let mut client = fill(&server, true);
    for node in 0..2 {
        let near = number(&mut client, &format!("coua_node{node}_pages_near"));
        let far = number(&mut client, &format!("coua_node{node}_pages_far"));
        assert!(
            near > 100 && far == 0,
            "node {node}: {near} near, {far} far"
        );
    }
    // What is supplied ahead of use is supplied where it is to lie.
    let pages = poll("the memory", || {
        let parts = parts(&server);
        let sum = |policy: &str| {
            let parts = parts.iter().filter(|part| part.policy.starts_with(policy));
            parts.fold([0, 0], |sum, part| {
                [sum[0] + part.pages[0], sum[1] + part.pages[1]]
            })
        };
        let found = ["prefer:0", "prefer:1", "interleave:0-1"].map(sum);
        (found[0][0] > 4000 && found[1][1] > 4000).then_some(found)
    });
    let [first, second, shared] = pages;
    assert_eq!((first[1], second[0]), (0, 0), "{pages:?}");
    // Pages of 2 MiB may be too large to be divided.
    assert!(shared[0] + shared[1] > 0, "{pages:?}");
}

#[test]
fn two_nodes_of_private_memory() {
    each_node_has_its_own(&["-t", "2"]);
}

#[test]
fn two_nodes_of_a_file() {
    let path = std::path::Path::new("/dev/shm").join(format!("coua-numa-{}", std::process::id()));
    let _ = fs::remove_file(&path);
    each_node_has_its_own(&["-t", "2", "-e", path.to_str().expect("ASCII")]);
    let _ = fs::remove_file(&path);
}

/// Who has chosen a policy himself keeps it.
#[test]
fn two_nodes_under_another_policy() {
    if !has_two_nodes() {
        return;
    }
    let server = Process::start(coua(&["-t", "2"]));
    server.listening();
    assert!(!parts(&server).is_empty());
    let interleaved = ["numactl", "--interleave=all"];
    let server = Process::start(process::wrapped(&interleaved, &["-t", "2"]));
    server.listening();
    let mut client = Client::connect(server.address());
    client.send("stats\r\n");
    let lines = std::iter::from_fn(|| Some(client.line()));
    let mut stats = lines.take_while(|line| line != "END");
    assert!(!stats.any(|line| line.contains("coua_node")));
    assert!(!server.said().contains("NUMA"), "{}", server.said());
}
