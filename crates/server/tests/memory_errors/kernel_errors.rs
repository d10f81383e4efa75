//! Pages that the kernel takes out of use for ever, of each kind of memory and of each kind of page,
//! while clients check what they read.

#![expect(clippy::print_stdout, reason = "tests tell what they saw")]

use std::io::Write;
use std::path::Path;
use std::time::Duration;

use crate::lab::{Map, Memory, corrupt, machine_check, maps, physical_page, start};
use crate::process::{Client, Process, poll};
use crate::user::{KEYS, USERS, at_work, connect, number, read_back, wait_until_settled};

/// How an error is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Error {
    /// `MADV_HWPOISON` by a worker.
    Advised,
    /// The kernel is told of an error that nobody has touched.
    Corrupt,
    /// The processor tells the kernel.
    MachineCheck,
}

/// What `poison` calls a page. The last one is of a segment to which items are appended.
const TARGETS: [&str; 6] = ["item", "value", "index", "item", "buffers", "open"];

/// What became of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Made {
    Lost,
    /// The kernel says that it could not take the page out of use, which it may have lost all the same.
    Doubtful,
    /// There is no such page.
    Nothing,
}

/// A server under errors, and the client that asks for them.
struct Victim<'v> {
    server: &'v mut Process,
    client: &'v mut Client,
    /// Errors before this address would be errors of the tables as well.
    first: usize,
}

impl Error {
    /// Loses a page of the kind that some key has.
    fn happen(
        self,
        victim: &mut Victim<'_>,
        keys: impl Iterator<Item = String>,
        target: &str,
    ) -> Made {
        if target == "open" {
            let said = victim.ask("set open 0 0 4\r\nopen\r\n");
            assert_eq!(said, "STORED");
            return self.happen_to(victim, "open", "item");
        }
        let mut made = keys.map(|key| self.happen_to(victim, &key, target));
        made.find(|made| *made != Made::Nothing)
            .unwrap_or(Made::Nothing)
    }

    fn happen_to(self, victim: &mut Victim<'_>, key: &str, target: &str) -> Made {
        let said = victim.ask(&format!("poison {key} {target} where\r\n"));
        let Some(address) = said.strip_prefix("0x") else {
            assert_eq!(said, "NOT_FOUND");
            return Made::Nothing;
        };
        let address = usize::from_str_radix(address, 16).expect("an address");
        if address < victim.first {
            return Made::Nothing;
        }
        let Some(page) = physical_page(victim.server, address) else {
            return Made::Nothing;
        };
        let is_made = if self == Error::Advised {
            let said = victim.ask(&format!("poison {key} {target} hwpoison\r\n"));
            match said.as_str() {
                "OK" => true,
                "NOT_FOUND" => return Made::Nothing,
                "SERVER_ERROR the page cannot be poisoned" => false,
                line => panic!("{line}"),
            }
        } else {
            match self {
                Error::MachineCheck => machine_check(page).is_ok(),
                _ => corrupt(page).is_ok(),
            }
        };
        if is_made { Made::Lost } else { Made::Doubtful }
    }
}

impl Victim<'_> {
    fn ask(&mut self, request: &str) -> String {
        let line = self.client.ask(request);
        if line.is_empty() {
            let status = poll("the end", || self.server.child.try_wait().expect("a child"));
            let kernel = std::process::Command::new("dmesg").output();
            let kernel = kernel.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
            let kernel = kernel.unwrap_or_default();
            let lines: Vec<&str> = kernel.lines().collect();
            println!("{}", lines[lines.len().saturating_sub(12)..].join("\n"));
            panic!(
                "{request:?} ended the server, {status}: {}",
                self.server.said()
            );
        }
        line
    }
}

/// The first address of huge pages that hold no tables.
fn behind_tables(server: &Process, memory: Memory, flags: &[String]) -> usize {
    if memory.page_len() == 4096 {
        return 0;
    }
    let is_file = |map: &Map| map.name == Path::new(&flags[1]);
    let file = maps(server).into_iter().find(is_file);
    file.expect("it is mapped").start + memory.page_len()
}

/// Loses pages of all kinds under load, two of them at once now and then.
pub(crate) fn serves_through(error: Error, memory: Memory, rounds: u64) {
    let files = memory.flags();
    let flags = ["-t", "2", "-o", "poison_command,mce_limit=10000"];
    let mut server = start(&files, &flags);
    let address = server.address();
    let first = behind_tables(&server, memory, &files);
    let (mut users, made) = at_work(address, |client| {
        // Something for connection buffers to hold.
        let mut unfinished = connect(address);
        let half = b"set half 0 0 10\r\n01234";
        unfinished.write_all(half).expect("sent");
        let mut victim = Victim {
            server: &mut server,
            client,
            first,
        };
        let mut made = Vec::new();
        for round in 0..rounds {
            let target = TARGETS[round as usize % TARGETS.len()];
            let step = if target == "value" { 300 } else { 7 };
            let keys = |from: u64| {
                let numbers = (from..).map(move |number| number * step % KEYS);
                let key = move |key| format!("u{}-{key}", round % USERS);
                numbers.map(key).take(40)
            };
            made.push(error.happen(&mut victim, keys(round), target));
            if round % 4 == 0 {
                // Before the first one is settled.
                made.push(error.happen(&mut victim, keys(round + 17), "item"));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        made
    });
    let lost = made.iter().filter(|made| **made == Made::Lost).count() as u64;
    let doubtful = made.iter().filter(|made| **made == Made::Doubtful).count() as u64;
    let attempts = lost + doubtful;
    assert!(attempts > rounds / 6, "{made:?}");
    let (all, gone) = read_back(&mut users);
    assert!(gone < all, "all are gone");
    let mut client = Client::connect(address);
    // Those that wait for a touch have had one by now, where anything lay.
    wait_until_settled(&mut client);
    let missing: u64 = users.iter().map(|user| user.missing).sum();
    let told = number(&mut client, "stats memory_errors", "errors");
    let text = server.said();
    println!(
        "  {error:?}, {memory:?}: {lost} errors made, {doubtful} doubtful, {told} told, {missing} items missing"
    );
    // Of a file on a disk what is there already is read again, and nothing is lost.
    assert!(told > 0 || memory == Memory::Disk, "{text}");
    let items = memory.page_len() as u64 / 10;
    assert!(missing <= attempts * items, "{missing} of {attempts} pages");
    let lines = text.matches("memory error: ").count() as u64;
    assert_eq!(lines, told, "{text}");
    if memory != Memory::Disk {
        let begin = format!("memory error: {} bytes at", memory.page_len());
        assert!(text.contains(&begin), "{text}");
    }
    // What was lost is replaced, and serves as before.
    for key in 0..1000 {
        let said = client.ask(&format!("set again-{key} 0 0 5\r\nagain\r\n"));
        assert_eq!(said, "STORED");
    }
}

fn advised(memory: Memory) {
    serves_through(Error::Advised, memory, rounds(memory));
}

fn corrupted(memory: Memory) {
    serves_through(Error::Corrupt, memory, rounds(memory));
}

/// Huge pages are few.
fn rounds(memory: Memory) -> u64 {
    match memory {
        Memory::Hugetlbfs => 6,
        _ => 36,
    }
}

#[test]
fn advised_private() {
    advised(Memory::Private);
}

#[test]
fn advised_tmpfs() {
    advised(Memory::Tmpfs);
}

#[test]
fn advised_hugetlbfs() {
    advised(Memory::Hugetlbfs);
}

#[test]
fn advised_disk() {
    advised(Memory::Disk);
}

#[test]
fn advised_dax() {
    advised(Memory::Dax);
}

#[test]
fn corrupted_private() {
    corrupted(Memory::Private);
}

#[test]
fn corrupted_tmpfs() {
    corrupted(Memory::Tmpfs);
}

#[test]
fn corrupted_hugetlbfs() {
    corrupted(Memory::Hugetlbfs);
}

#[test]
fn corrupted_disk() {
    corrupted(Memory::Disk);
}

#[test]
fn corrupted_dax() {
    corrupted(Memory::Dax);
}

/// Buffers of flash are pinned by io_uring, and items are on their way.
#[test]
fn advised_flash() {
    crate::flash::serve_through_losses(" hwpoison");
}

/// A storm ends the server in order, and the next one has what is left, of each kind of file.
fn storm(memory: Memory) {
    let files = memory.flags();
    let flags = ["-o", "poison_command,mce_limit=1/600"];
    let server = start(&files, &flags);
    let mut client = Client::connect(server.address());
    let value = "x".repeat(5000);
    for key in 0..1000 {
        let said = client.ask(&format!("set key{key} 0 0 5000\r\n{value}\r\n"));
        assert_eq!(said, "STORED");
    }
    // They lie behind the tables, also where 2 MiB are lost together.
    for key in [600, 999] {
        // The connection may be gone after the second.
        client.send(&format!(
            "poison key{key} item hwpoison\r\nget key{key}\r\n"
        ));
        std::thread::sleep(Duration::from_millis(200));
    }
    let end = server.end();
    assert_eq!(end.status.code(), Some(71), "{}", end.said);
    assert!(end.said.contains("mce_limit"), "{}", end.said);
    let server = start(&files, &flags);
    let mut client = Client::connect(server.address());
    let line = server.hear("the cache begins");
    assert!(line.contains("begins with"), "{line}");
    let left = number(&mut client, "stats", "curr_items");
    // Of a segment that was not seen to before the end all is dropped.
    let most_lost = 2 * (memory.page_len().max(64 << 10) as u64 / 5000 + 2);
    assert!((1000 - most_lost..1000).contains(&left), "{left}");
    for key in 0..1000 {
        let line = client.ask(&format!("get key{key}\r\n"));
        if line != "END" {
            assert!(client.line() == value, "a wrong value");
            assert_eq!(client.line(), "END");
        }
    }
    poll("no more losses", || {
        (number(&mut client, "stats memory_errors", "errors") == 0).then_some(())
    });
}

#[test]
fn storm_in_tmpfs() {
    storm(Memory::Tmpfs);
}

#[test]
fn storm_in_dax() {
    storm(Memory::Dax);
}

#[test]
fn storm_in_hugetlbfs() {
    storm(Memory::Hugetlbfs);
}
