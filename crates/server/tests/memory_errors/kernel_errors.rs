//! Pages that the kernel takes out of use for ever, of each kind of memory and of each kind of page,
//! while clients check what they read.

use std::io::Write;
use std::time::Duration;

use crate::lab::{Memory, corrupt, machine_check, physical_page, start};
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

impl Error {
    /// Loses a page; whether the kernel could.
    pub(crate) fn happen(
        self,
        server: &Process,
        client: &mut Client,
        key: &str,
        target: &str,
    ) -> bool {
        let (key, target) = if target == "open" {
            assert_eq!(client.ask("set open 0 0 4\r\nopen\r\n"), "STORED");
            ("open", "item")
        } else {
            (key, target)
        };
        if self == Error::Advised {
            return match client
                .ask(&format!("poison {key} {target} hwpoison\r\n"))
                .as_str()
            {
                "OK" => true,
                // Somebody else has the page at the moment.
                "NOT_FOUND" | "SERVER_ERROR the page cannot be poisoned" => false,
                line => panic!("{line}"),
            };
        }
        let said = client.ask(&format!("poison {key} {target} where\r\n"));
        let Some(address) = said.strip_prefix("0x") else {
            assert_eq!(said, "NOT_FOUND");
            return false;
        };
        let address = usize::from_str_radix(address, 16).expect("an address");
        let Some(page) = physical_page(server, address) else {
            return false;
        };
        match self {
            Error::MachineCheck => machine_check(page).is_ok(),
            _ => corrupt(page).is_ok(),
        }
    }
}

/// Loses pages of all kinds under load, two of them at once now and then.
pub(crate) fn serves_through(error: Error, memory: Memory, rounds: u64) {
    let flags = ["-t", "2", "-o", "poison_command,mce_limit=10000"];
    let server = start(&memory.flags(), &flags);
    let address = server.address();
    let (mut users, made) = at_work(address, |client| {
        // Something for connection buffers to hold.
        let mut unfinished = connect(address);
        unfinished
            .write_all(b"set half 0 0 10\r\n01234")
            .expect("sent");
        let mut made = 0;
        for round in 0..rounds {
            let user = round % USERS;
            let key = (round * 37 % 10 * 300 + round % 7 * (round % 3)) % KEYS;
            let target = TARGETS[round as usize % TARGETS.len()];
            made += u64::from(error.happen(&server, client, &format!("u{user}-{key}"), target));
            if round % 4 == 0 {
                // Before the first one is settled.
                let other = format!("u{user}-{}", (key + 17) % KEYS);
                made += u64::from(error.happen(&server, client, &other, "item"));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        made
    });
    assert!(
        made >= rounds / 2,
        "{made} of {rounds} errors could be made"
    );
    read_back(&mut users);
    let mut client = Client::connect(address);
    // Those that wait for a touch have had one by now, where anything lay.
    wait_until_settled(&mut client);
    let missing: u64 = users.iter().map(|user| user.missing).sum();
    let told = number(&mut client, "stats memory_errors", "errors");
    let text = server.said();
    // Of a file on a disk what is there already is read again, and nothing is lost.
    assert!(told > 0 || memory == Memory::Disk, "of {made}: {text}");
    let items = memory.page_len() as u64 / 10;
    assert!(missing <= made * items, "{missing} of {made} pages");
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
    println!("  {error:?}, {memory:?}: {made} errors made, {told} told, {missing} items missing");
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

/// A storm ends the server in order, and the next one has what is left, of each kind of file.
fn storm(memory: Memory) {
    let files = memory.flags();
    let flags = ["-o", "poison_command,mce_limit=2/600"];
    let server = start(&files, &flags);
    let mut client = Client::connect(server.address());
    let value = "x".repeat(5000);
    for key in 0..1000 {
        let said = client.ask(&format!("set key{key} 0 0 5000\r\n{value}\r\n"));
        assert_eq!(said, "STORED");
    }
    for key in [0, 500, 999] {
        // The connection may be gone after the third.
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
    let most_lost = 3 * (memory.page_len() as u64 / 5000 + 2) + 6;
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
