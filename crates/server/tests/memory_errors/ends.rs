//! Pages that the server cannot do without: code, stacks and tables. It dies of them, no value is wrong,
//! and the next process begins with what the file holds.

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::Signal;

use crate::lab::{Map, Memory, corrupt, maps, physical_page, stack_of, start};
use crate::process::{Client, Process, poll};
use crate::support::coua_program;
use crate::user::number;

const KEYS: u64 = 500;

/// A server with items in a file on tmpfs, by a program that may be a copy.
struct Life {
    program: PathBuf,
    flags: Vec<String>,
}

impl Life {
    fn of(program: PathBuf) -> Life {
        Life {
            program,
            flags: Memory::Tmpfs.flags(),
        }
    }

    fn start(&self) -> Process {
        let mut command = Command::new(&self.program);
        command.args([
            "-l",
            "127.0.0.1",
            "-p",
            "-1",
            "-u",
            "root",
            "-m",
            "32",
            "-t",
            "1",
        ]);
        command.args(&self.flags);
        Process::start(command)
    }

    /// The next process begins with all items.
    fn is_warm(&self) {
        let server = self.start();
        let mut client = Client::connect(server.address());
        let line = server.hear("the cache begins");
        assert!(line.contains("begins with"), "{line}");
        for key in 0..KEYS {
            let line = client.ask(&format!("get key{key}\r\n"));
            assert_eq!(line, format!("VALUE key{key} 0 5"));
            assert_eq!(client.line(), format!("{:05}", key));
            assert_eq!(client.line(), "END");
        }
    }
}

fn fill(client: &mut Client) {
    for key in 0..KEYS {
        let said = client.ask(&format!("set key{key} 0 0 5\r\n{key:05}\r\n"));
        assert_eq!(said, "STORED");
    }
}

/// A server that has died of an error.
fn dies(server: Process) -> String {
    let end = server.end();
    let sigbus = Signal::BUS.as_raw();
    assert_eq!(
        end.status.signal(),
        Some(sigbus),
        "{} {}",
        end.status,
        end.said
    );
    end.said
}

#[test]
fn a_worker_s_stack() {
    let life = Life::of(coua_program());
    let server = life.start();
    let mut client = Client::connect(server.address());
    fill(&mut client);
    let address = poll("a worker that waits", || stack_of(&server, "coua-0"));
    let page = physical_page(&server, address).expect("it is in memory");
    corrupt(page).expect("root may");
    // Nobody has touched it, and the others live on; the worker touches it when it goes on.
    client.send("get key1\r\n");
    dies(server);
    life.is_warm();
}

/// All pages of code that are in memory.
fn lose_code(server: &Process, program: &Path) -> usize {
    let is_code = |map: &Map| map.access.starts_with("r-x") && map.name == program;
    let code: Vec<Map> = maps(server).into_iter().filter(is_code).collect();
    assert!(!code.is_empty());
    let pages = code
        .iter()
        .flat_map(|map| (map.start..map.end).step_by(4096));
    let lost = pages.filter_map(|address| physical_page(server, address));
    lost.filter(|&page| corrupt(page).is_ok()).count()
}

fn copy_to(folder: &str) -> PathBuf {
    let copy = Path::new(folder).join("coua-copy");
    let _ = std::fs::remove_file(&copy);
    std::fs::copy(coua_program(), &copy).expect("there is room");
    // What is on the disk is dropped, what is not is lost.
    rustix::fs::sync();
    copy
}

/// The kernel reads code again that is on a disk, and the server does not even notice.
#[test]
fn code_that_is_on_a_disk() {
    let life = Life::of(copy_to(Memory::Disk.folder()));
    let server = life.start();
    let mut client = Client::connect(server.address());
    fill(&mut client);
    let lost = lose_code(&server, &life.program);
    assert!(lost > 10, "{lost} pages");
    assert_eq!(client.ask("get key1\r\n"), "VALUE key1 0 5");
    assert_eq!(client.line(), "00001");
    assert_eq!(client.line(), "END");
    assert_eq!(number(&mut client, "stats memory_errors", "errors"), 0);
    server.signal(Signal::KILL);
    server.end();
    life.is_warm();
}

/// Code that is in memory alone is lost.
#[test]
fn code_that_is_on_tmpfs() {
    let life = Life::of(copy_to("/dev/shm"));
    let server = life.start();
    let mut client = Client::connect(server.address());
    fill(&mut client);
    let lost = lose_code(&server, &life.program);
    assert!(lost > 0, "{lost} pages");
    client.send("get key1\r\n");
    dies(server);
    Life {
        program: coua_program(),
        flags: life.flags,
    }
    .is_warm();
}

#[test]
fn the_store_s_tables() {
    tables_are_restored(corrupt);
}

/// The superblock's page is written anew from its copy: the server serves on, and the next start is warm.
pub(crate) fn tables_are_restored(lose: impl FnOnce(u64) -> std::io::Result<()>) {
    let files = Memory::Tmpfs.flags();
    let server = start(&files, &["-t", "1"]);
    let mut client = Client::connect(server.address());
    fill(&mut client);
    let is_file = |map: &Map| map.name == Path::new(&files[1]);
    let file = maps(&server)
        .into_iter()
        .find(is_file)
        .expect("it is mapped");
    // The superblock: the sequence number in it is drawn for each segment.
    let page = physical_page(&server, file.start).expect("it is in memory");
    lose(page).expect("root may");
    let value = "x".repeat(10_000);
    for key in 0..100 {
        let set = format!("set large{key} 0 0 10000\r\n{value}\r\n");
        assert_eq!(client.ask(&set), "STORED");
    }
    assert_eq!(client.ask("get key1\r\n"), "VALUE key1 0 5");
    server.signal(Signal::KILL);
    server.end();
    let server = start(&files, &["-t", "1"]);
    let line = server.hear("the cache begins");
    assert!(line.contains("begins with"), "{line}");
    let mut client = Client::connect(server.address());
    assert_eq!(client.ask("get key1\r\n"), "VALUE key1 0 5");
}
