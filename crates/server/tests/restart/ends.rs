//! Ends of all kinds, and what time does meanwhile.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process, test_kill_process};

use crate::MemoryFile;
use crate::process::{Client, Folder, Process, coua, poll};

/// Starts coua on the file, and gives what it says of it.
fn start(file: &MemoryFile) -> (Process, Client, String) {
    let process = Process::start(coua(&["-e", file.text()]));
    let client = Client::connect(process.address());
    let line = process.hear("the cache begins");
    (process, client, line)
}

fn value(client: &mut Client, key: &str) -> Option<String> {
    let line = client.ask(&format!("mg {key} v\r\n"));
    line.starts_with("VA ").then(|| client.line())
}

#[test]
fn every_signal_leaves_the_items() {
    let file = MemoryFile::new();
    let (mut process, mut client, line) = start(&file);
    assert!(line.contains("begins empty: the file is new"), "{line}");
    let signals = [Signal::USR1, Signal::TERM, Signal::KILL, Signal::INT];
    for (round, signal) in signals.into_iter().enumerate() {
        let set = format!("set k{round} 0 0 1\r\n{round}\r\n");
        assert_eq!(client.ask(&set), "STORED");
        process.signal(signal);
        let end = process.end();
        let is_left = signal != Signal::KILL;
        assert_eq!(end.status.success(), is_left, "{signal:?}: {}", end.said);
        let says_so = end.said.contains("left for the next process");
        assert_eq!(says_so, is_left, "{signal:?}: {}", end.said);
        let line;
        (process, client, line) = start(&file);
        let begins = format!("begins with {} items", round + 1);
        assert!(line.contains(&begins), "{signal:?}: {line}");
        assert_eq!(line.contains("was killed"), !is_left, "{line}");
        for before in 0..=round {
            let found = value(&mut client, &format!("k{before}"));
            assert_eq!(found, Some(before.to_string()), "{signal:?}");
        }
    }
}

#[test]
fn shutdown_leaves_the_items() {
    let file = MemoryFile::new();
    let process = Process::start(coua(&["-A", "-e", file.text()]));
    let mut client = Client::connect(process.address());
    assert_eq!(client.ask("set k 0 0 1\r\nv\r\n"), "STORED");
    client.send("shutdown\r\n");
    assert!(process.end().status.success());
    let (_process, mut client, line) = start(&file);
    assert!(!line.contains("was killed"), "{line}");
    assert_eq!(value(&mut client, "k").as_deref(), Some("v"));
}

/// Time goes on while nobody runs.
#[test]
fn items_expire_while_the_server_is_down() {
    for signal in [Signal::TERM, Signal::KILL] {
        let file = MemoryFile::new();
        let (process, mut client, _) = start(&file);
        for (key, ttl_s) in [("short", 2), ("long", 1000), ("ever", 0)] {
            let set = format!("set {key} 0 {ttl_s} 1\r\nv\r\n");
            assert_eq!(client.ask(&set), "STORED");
        }
        process.signal(signal);
        process.end();
        thread::sleep(Duration::from_secs(3));
        let (_process, mut client, line) = start(&file);
        assert!(line.contains("begins with"), "{line}");
        assert_eq!(value(&mut client, "short"), None, "{signal:?}");
        assert_eq!(value(&mut client, "ever").as_deref(), Some("v"));
        let left = client.ask("mg long t\r\n");
        let left: u32 = left
            .strip_prefix("HD t")
            .and_then(|t| t.parse().ok())
            .expect(&left);
        assert!((1..=997).contains(&left), "{signal:?}: {left} s are left");
    }
}

/// A flush that was answered holds, and so does one that is to come.
#[test]
fn flushes_outlive_the_process() {
    let file = MemoryFile::new();
    let (process, mut client, _) = start(&file);
    assert_eq!(client.ask("set gone 0 0 1\r\nv\r\n"), "STORED");
    assert_eq!(client.ask("flush_all\r\n"), "OK");
    process.signal(Signal::KILL);
    process.end();
    let (process, mut client, _) = start(&file);
    assert_eq!(value(&mut client, "gone"), None);
    assert_eq!(client.ask("set doomed 0 0 1\r\nv\r\n"), "STORED");
    assert_eq!(client.ask("flush_all 2\r\n"), "OK");
    process.signal(Signal::KILL);
    process.end();
    let (_process, mut client, _) = start(&file);
    poll("the flush that was ordered before", || {
        value(&mut client, "doomed").is_none().then_some(())
    });
    assert_eq!(client.ask("set new 0 0 1\r\nv\r\n"), "STORED");
    assert_eq!(value(&mut client, "new").as_deref(), Some("v"));
}

#[test]
fn the_file_is_its_owners_alone() {
    let file = MemoryFile::new();
    let (_process, mut client, _) = start(&file);
    let mode = fs::metadata(&file.0)
        .expect("it is there")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(client.stat("stats settings", "memory_file"), file.text());
    let process = Process::start(coua(&[]));
    let mut client = Client::connect(process.address());
    assert_eq!(client.stat("stats settings", "memory_file"), "(null)");
}

/// The server in the background has another folder.
#[test]
fn a_relative_path_counts_from_where_the_command_was_given() {
    let folder = Folder::new();
    for round in 0..2 {
        let mut command = coua(&["-d", "-P", "pid", "-s", "socket", "-e", "memory"]);
        command.current_dir(folder.path(""));
        let end = Process::start(command).end();
        assert_eq!(end.status.code(), Some(0), "{}", end.said);
        let socket = std::os::unix::net::UnixStream::connect(folder.path("socket"));
        let mut stream = socket.expect("it serves");
        use std::io::{Read, Write};
        let mut reply = [0; 8];
        let request = if round == 0 {
            "set k 0 0 1\r\nv\r\n"
        } else {
            "mg k\r\n\r\nmn\r\n"
        };
        stream.write_all(request.as_bytes()).expect("it reads");
        let len = if round == 0 { 8 } else { 4 };
        stream.read_exact(&mut reply[..len]).expect("it answers");
        let expected: &[u8] = if round == 0 { b"STORED\r\n" } else { b"HD\r\n" };
        assert_eq!(
            reply[..len].escape_ascii().to_string(),
            expected.escape_ascii().to_string()
        );
        assert!(folder.path("memory").exists());
        end_background(&folder.path("pid"));
    }
}

fn end_background(pid_file: &Path) {
    let text = fs::read_to_string(pid_file).expect("it is there when the command ends");
    let pid = text
        .trim()
        .parse()
        .ok()
        .and_then(Pid::from_raw)
        .expect("a number");
    kill_process(pid, Signal::KILL).expect("it runs");
    poll("the end of the server", || {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let is_zombie = stat
            .rsplit(") ")
            .next()
            .is_some_and(|rest| rest.starts_with('Z'));
        // Its sockets and files are open until the last of its threads has ended.
        let threads = fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count);
        (is_zombie && threads <= 1 || test_kill_process(pid).is_err()).then_some(())
    });
}
