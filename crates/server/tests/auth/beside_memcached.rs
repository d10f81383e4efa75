//! Before a login, byte for byte as memcached.

use std::fs;
use std::net::SocketAddr;
use std::process::Command;

use crate::process::{Folder, Process};
use crate::support::{free_address, is_root};
use crate::{Connection, Guarded, login, memcached};

const USERS: &str = "alice:secret\nbob:pa:ss word\n";

const UNAUTHENTICATED: &str = "CLIENT_ERROR unauthenticated\r\n";
const FAILURE: &str = "CLIENT_ERROR authentication failure\r\n";
const BAD_FORMAT: &str = "CLIENT_ERROR bad authentication token format\r\n";
const STORED: &str = "STORED\r\n";

/// What is sent and what is answered, one after another on one connection.
type Talk = &'static [(&'static str, &'static str)];

const TALKS: &[Talk] = &[
    &[
        ("get a\r\n", UNAUTHENTICATED),
        ("version\r\n", UNAUTHENTICATED),
        ("mg a v\r\n", UNAUTHENTICATED),
        ("stats\r\n", UNAUTHENTICATED),
        ("flush_all\r\n", UNAUTHENTICATED),
        ("shutdown\r\n", UNAUTHENTICATED),
        ("GET / HTTP/1.0\r\n", UNAUTHENTICATED),
        ("set a 0 12\r\n", UNAUTHENTICATED),
        (" set a 0 0 12\r\n", UNAUTHENTICATED),
        ("set a 0 0 x\r\n", UNAUTHENTICATED),
        ("set a 0 0 -1\r\n", UNAUTHENTICATED),
        ("set a 0 0 +12\r\n", UNAUTHENTICATED),
        ("set a 0 0 12x\r\n", UNAUTHENTICATED),
        ("abcde\r\n", UNAUTHENTICATED),
        ("      \n", UNAUTHENTICATED),
        (
            "set a 0 0 4294967295\r\n",
            "CLIENT_ERROR auth token too long\r\n",
        ),
        ("set a 0 0 5\r\nalice\r\n", BAD_FORMAT),
        ("set a 0 0 0\r\n\r\n", BAD_FORMAT),
        ("set a 0 0 12\r\nalice\tsecret\r\n", BAD_FORMAT),
        (
            "set a 0 0 12\r\nalice secretXX",
            "CLIENT_ERROR bad command line termination\r\n",
        ),
        ("set a 0 0 12\r\nalice secret\r\n", STORED),
        // From here on a set is a set.
        ("get a\r\n", "END\r\n"),
        ("set a 0 0 12\r\nalice secret\r\n", STORED),
        ("get a\r\n", "VALUE a 0 12\r\nalice secret\r\nEND\r\n"),
        ("delete a\r\n", "DELETED\r\n"),
    ],
    &[("quit\r\n", "")],
    &[("mn\r\n", "")],
    &[("gets\r\n", "")],
    &[("abcde\n", "")],
    &[("\u{0}\u{a}bc", "")],
    &[("set b 0 0 12 noreply\r\nalice secret\r\n", STORED)],
    &[("setx b 0 0 12\r\nalice secret\r\n", STORED)],
    &[("set  b  0  0  0012 \nalice secret\r\n", STORED)],
    &[("set b 0 0 14\r\nbob pa:ss word\r\n", STORED)],
    &[
        ("set b 0 0 12\r\nalice ", ""),
        ("secret\r\nge", STORED),
        ("t a\r\n", "END\r\n"),
    ],
    &[(
        "set b 0 0 12\r\nalice secret\r\nget a\r\nmn\r\n",
        "STORED\r\nEND\r\nMN\r\n",
    )],
    &[
        ("set b 0 0 11\r\nalice secre\r\n", FAILURE),
        ("get a\r\n", UNAUTHENTICATED),
    ],
    &[("set b 0 0 13\r\nalice secrets\r\n", FAILURE)],
    &[("set b 0 0 13\r\nalice  secret\r\n", FAILURE)],
    &[("set b 0 0 4\r\nbob \r\n", FAILURE)],
    &[
        ("set b 0 0 1\r\n \r\n", FAILURE),
        ("set b 0 0 12\r\nalice secret\r\n", STORED),
    ],
];

#[test]
fn before_a_login() {
    let ours = Guarded::start(USERS, &[]);
    let theirs = Memcached::start();
    for talk in TALKS {
        for (who, address) in [("memcached", theirs.address), ("coua", ours.address)] {
            play(who, address, talk);
        }
    }
    let junk = "x".repeat(2049);
    let short = "x".repeat(2000);
    for address in [theirs.address, ours.address] {
        let mut connection = Connection::to(address);
        connection.send(&junk);
        assert_eq!(connection.rest(), b"");
        let mut connection = Connection::to(address);
        connection.send(&short);
        connection.end();
    }
}

fn play(who: &str, address: SocketAddr, talk: Talk) {
    let mut connection = Connection::to(address);
    for (request, answer) in talk {
        connection.send(request);
        let said = connection.receive(answer.len());
        assert_eq!(
            String::from_utf8_lossy(&said),
            *answer,
            "{who} to {request:?}"
        );
    }
    connection.end();
}

/// memcached keeps one of the answers that it owes to somebody who has not logged in. coua keeps them all.
#[test]
fn requests_in_one_piece_are_all_answered() {
    let server = Guarded::start(USERS, &[]);
    let mut connection = Connection::to(server.address);
    let requests = [
        "get a\r\n",
        &login("x", "y"),
        "mg a v\r\n",
        &login("alice", "secret"),
        "get a\r\n",
    ];
    let answers = [UNAUTHENTICATED, FAILURE, UNAUTHENTICATED, STORED, "END\r\n"];
    connection.ask(requests.concat(), &answers.concat());
    connection.end();
}

/// memcached reads as much as its buffer holds, and closes without a word when there is more.
#[test]
fn too_much_is_refused_at_once() {
    let server = Guarded::start(USERS, &[]);
    for len in [1025_u32, 20_000, 1_000_000_000] {
        let mut connection = Connection::to(server.address);
        let line = format!("set a 0 0 {len}\r\n");
        connection.ask(line, "CLIENT_ERROR auth token too long\r\n");
        connection.send("x");
        assert_eq!(connection.rest(), b"");
    }
}

struct Memcached {
    address: SocketAddr,
    _folder: Folder,
    _process: Process,
}

impl Memcached {
    fn start() -> Memcached {
        let folder = Folder::new();
        let file = folder.path("users");
        fs::write(&file, USERS).expect("the folder is there");
        let address = free_address();
        let mut command = Command::new(memcached::memcached_program());
        command.args(["-l", "127.0.0.1", "-p", &address.port().to_string(), "-Y"]);
        command.arg(&file);
        if is_root() {
            command.args(["-u", "root"]);
        }
        Memcached {
            address,
            _folder: folder,
            _process: Process::start(command),
        }
    }
}
