//! A file system that is too small for the file, or becomes too small; and another `-m`.

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;

use rustix::process::Signal;

use crate::MemoryFile;
use crate::process::{Client, Folder, Process, coua, poll, wrapped};
use crate::support::is_root;

/// A server whose file lies in a tmpfs of its own; `None` where nobody may mount one.
fn in_tmpfs(folder: &Folder, size: &str, flags: &[&str]) -> Option<Process> {
    if !is_root() {
        return None;
    }
    let (path, file) = (folder.text(""), folder.text("memory"));
    let script = format!("mount -t tmpfs -o size={size} tmpfs {path} && exec \"$@\"");
    let all = [flags, &["-e", &file]].concat();
    Some(Process::start(wrapped(
        &[
            "unshare",
            "--mount",
            "--propagation=private",
            "sh",
            "-c",
            &script,
            "sh",
        ],
        &all,
    )))
}

/// A path of the server's, in its view of the file system.
fn seen_by(process: &Process, folder: &Folder, name: &str) -> PathBuf {
    let path = folder.path(name);
    let path = path.strip_prefix("/").expect("it is absolute");
    PathBuf::from(format!("/proc/{}/root", process.child.id())).join(path)
}

/// Stores so many values of a megabyte; each is told.
fn store(client: &mut Client, count: usize) {
    let value = "v".repeat(1_000_000);
    for number in 0..count {
        let request = format!("set large{number} 0 0 1000000\r\n{value}\r\n");
        assert_eq!(client.ask(&request), "STORED", "{number}");
    }
}

/// Others fill the file system while the server runs: it goes on with what it has, evicts, and takes
/// the rest when there is room again.
#[test]
fn others_fill_the_file_system() {
    let folder = Folder::new();
    let flags = ["-m", "280", "-I", "2m", "-t", "2"];
    let Some(mut process) = in_tmpfs(&folder, "300m", &flags) else {
        return;
    };
    let mut client = Client::connect(process.address());
    let mut other = File::create(seen_by(&process, &folder, "other")).expect("there is room");
    while other.write_all(&[1; 1 << 16]).is_ok() {}
    store(&mut client, 400);
    assert!(process.runs(), "{}", process.said());
    assert!(
        process.said().contains("the file system is full"),
        "{}",
        process.said()
    );
    assert_eq!(process.said().matches("the file system is full").count(), 1);
    let evictions: u64 = client.stat("stats", "evictions").parse().expect("a number");
    assert!(evictions > 200, "{evictions}");
    // The last ones are there.
    assert_eq!(client.ask("mg large399 s\r\n"), "HD s1000000");
    let memory = |client: &mut Client| -> u64 {
        client
            .stat("stats", "coua_memory")
            .parse()
            .expect("a number")
    };
    let before = memory(&mut client);
    drop(other);
    std::fs::remove_file(seen_by(&process, &folder, "other")).expect("it is ours");
    assert_eq!(client.ask("cache_memlimit 280\r\n"), "OK");
    store(&mut client, 400);
    let after = memory(&mut client);
    assert!(after > before + (50 << 20), "{before} {after}");
    process.signal(Signal::TERM);
    assert!(process.end().status.success());
}

#[test]
fn without_room_the_items_go_with_the_process() {
    let folder = Folder::new();
    let Some(process) = in_tmpfs(&folder, "20m", &["-m", "64"]) else {
        return;
    };
    let mut client = Client::connect(process.address());
    assert_eq!(client.ask("set k 0 0 1\r\nv\r\n"), "STORED");
    let line = process.hear("-e has no effect");
    assert!(
        line.contains("has room for 20 MiB, and 64 MiB are wanted"),
        "{line}"
    );
    assert_eq!(client.stat("stats settings", "memory_file"), "(null)");
    // Nor can another program go on with them.
    process.signal(Signal::USR2);
    process.hear("SIGUSR2: ignored");
    assert_eq!(client.ask("mg k\r\n"), "HD");
}

#[test]
fn another_m_goes_on_with_the_items() {
    let file = MemoryFile::new();
    let start = |memory: &str, threads: &str| {
        Process::start(coua(&["-e", file.text(), "-m", memory, "-t", threads]))
    };
    let process = start("96", "2");
    let mut client = Client::connect(process.address());
    store(&mut client, 60);
    process.signal(Signal::KILL);
    process.end();

    let process = start("48", "3");
    let mut client = Client::connect(process.address());
    let line = process.hear("the cache begins with");
    assert!(
        line.contains("made for 96 MiB, and what 48 MiB do not hold is evicted"),
        "{line}"
    );
    poll("less memory", || {
        let memory: u64 = client
            .stat("stats", "coua_memory")
            .parse()
            .expect("a number");
        (memory <= 48 << 20).then_some(())
    });
    let items: u32 = client
        .stat("stats", "curr_items")
        .parse()
        .expect("a number");
    assert!((15..50).contains(&items), "{items}");
    assert_eq!(
        client.stat("stats", "limit_maxbytes"),
        (48 << 20).to_string()
    );
    process.signal(Signal::TERM);
    process.end();

    let process = start("200", "1");
    let mut client = Client::connect(process.address());
    let line = process.hear("which is all of 200 MiB that is used");
    assert!(line.contains("made for 96 MiB"), "{line}");
    assert_eq!(
        client.stat("stats", "limit_maxbytes"),
        (96 << 20).to_string()
    );
    let now: u32 = client
        .stat("stats", "curr_items")
        .parse()
        .expect("a number");
    assert_eq!(now, items);
    store(&mut client, 60);
    let now: u32 = client
        .stat("stats", "curr_items")
        .parse()
        .expect("a number");
    assert!(now > 50, "{now}");
}
