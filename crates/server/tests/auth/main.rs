//! Who may log in, and what users may do.
//!
//! What is written to a server that nobody has logged in to, and what it answers, is played to memcached too.
//! memcached keeps one answer of several that it owes before a login, so every request there waits for the answer to the
//! one before.
//!
//! # Not here
//! How the file of users is read (`src/users/tests.rs`), how requests are told apart (`coua-protocol`), other people's
//! clients (`tests/clients`).

mod beside_memcached;
mod floods;
mod rights;
mod sasl;

#[path = "../support/memcached.rs"]
mod memcached;
#[path = "../support/process.rs"]
#[allow(dead_code, reason = "these tests need the process alone")]
mod process;
#[path = "../support/mod.rs"]
#[allow(dead_code, reason = "these tests need the program alone")]
mod support;

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use process::{Folder, Process, coua, poll};
use rustix::process::Signal;

/// A connection of which every byte counts.
struct Connection(TcpStream);

impl Connection {
    fn to(address: SocketAddr) -> Connection {
        let stream = poll("a connection", || TcpStream::connect(address).ok());
        let patience = Some(Duration::from_secs(30));
        stream.set_read_timeout(patience).expect("a timeout");
        Connection(stream)
    }

    fn send(&mut self, bytes: impl AsRef<[u8]>) {
        // A server that has hung up need not read it.
        let _ = self.0.write_all(bytes.as_ref());
    }

    /// As many bytes as are expected, or fewer where the server hangs up.
    fn receive(&mut self, len: usize) -> Vec<u8> {
        let mut answer = Vec::new();
        let mut piece = [0; 4096];
        while answer.len() < len {
            let room = piece.len().min(len - answer.len());
            match self.0.read(&mut piece[..room]) {
                Ok(0) => break,
                Ok(len) => answer.extend_from_slice(&piece[..len]),
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => break,
                Err(error) => panic!("{error} after {:?}", String::from_utf8_lossy(&answer)),
            }
        }
        answer
    }

    /// What else it says until it hangs up.
    fn rest(&mut self) -> Vec<u8> {
        self.receive(usize::MAX)
    }

    /// Sends a request and checks the answer.
    #[track_caller]
    fn ask(&mut self, request: impl AsRef<[u8]>, answer: &str) {
        self.send(&request);
        let said = self.receive(answer.len());
        assert_eq!(
            String::from_utf8_lossy(&said),
            answer,
            "to {}",
            request.as_ref().escape_ascii()
        );
    }

    /// Ends the client's half and checks that nothing else was said.
    #[track_caller]
    fn end(mut self) {
        let _ = self.0.shutdown(Shutdown::Write);
        assert_eq!(String::from_utf8_lossy(&self.rest()), "");
    }

    /// Logs in by text.
    #[track_caller]
    fn log_in(address: SocketAddr, user: &str, password: &str) -> Connection {
        let mut connection = Connection::to(address);
        connection.ask(login(user, password), "STORED\r\n");
        connection
    }
}

/// The pretended `set` of a login.
fn login(user: &str, password: &str) -> String {
    let len = user.len() + 1 + password.len();
    format!("set login 0 0 {len}\r\n{user} {password}\r\n")
}

/// A server with this file of users.
struct Guarded {
    folder: Folder,
    process: Process,
    address: SocketAddr,
}

impl Guarded {
    fn start(users: &str, flags: &[&str]) -> Guarded {
        let folder = Folder::new();
        fs::write(folder.path("users"), users).expect("the folder is there");
        let file = folder.text("users");
        let process = Process::start(coua(&[&["-Y", &file], flags].concat()));
        let address = process.address();
        Guarded {
            folder,
            process,
            address,
        }
    }

    /// Changes the file, and has the server read it.
    fn change(&self, users: &str, said: &str) {
        fs::write(self.folder.path("users"), users).expect("the folder is there");
        self.process.signal(Signal::HUP);
        self.process.hear(said);
    }
}

#[test]
fn the_file_is_read_again_at_a_signal() {
    let server = Guarded::start("alice:old\n", &[]);
    let mut before = Connection::log_in(server.address, "alice", "old");
    server.change("alice:new\nbob:x\n", "has 2 passwords");
    before.ask("mn\r\n", "MN\r\n");
    Connection::log_in(server.address, "alice", "new").end();
    let mut stale = Connection::to(server.address);
    stale.ask(
        login("alice", "old"),
        "CLIENT_ERROR authentication failure\r\n",
    );
    // A bad file changes nothing.
    server.change("alice\n", "line 1 is not user:password");
    Connection::log_in(server.address, "alice", "new").end();
    Connection::log_in(server.address, "bob", "x").end();
}

#[test]
fn the_log_shows_requests_and_no_password() {
    let server = Guarded::start("alice:hidden1\n", &["-S", "-vvv"]);
    let mut connection = Connection::to(server.address);
    connection.ask("alice hidden1\r\n", "CLIENT_ERROR unauthenticated\r\n");
    connection.ask(login("alice", "hidden1"), "STORED\r\n");
    connection.ask("get shown\r\n", "END\r\n");
    connection.end();
    let mut connection = Connection::to(server.address);
    connection.send(sasl::request(0x21, "PLAIN", "\0alice\0hidden1"));
    assert_eq!(connection.receive(37).len(), 37);
    connection.end();
    let mut connection = Connection::to(server.address);
    connection.ask(
        login("hidden2", "hidden1"),
        "CLIENT_ERROR authentication failure\r\n",
    );
    server.process.hear("login from tcp:127.0.0.1");
    server.process.hear("get shown");
    let said = server.process.said();
    assert!(!said.contains("hidden"), "{said}");
}

#[test]
fn flags_that_do_not_fit_are_refused() {
    let folder = Folder::new();
    let file = folder.text("users");
    fs::write(&file, "a:b\n").expect("the folder is there");
    let line = |flags: &[&str]| {
        let end = Process::start(coua(flags)).end();
        end.one_line(64).to_owned()
    };
    let missing = folder.text("none");
    assert!(line(&["-Y", &missing]).starts_with(&format!("coua: -Y: {missing} cannot be read")));
    assert_eq!(
        line(&["-S"]),
        "coua: -S: the passwords of SASL come from the file of -Y; give both"
    );
    assert_eq!(
        line(&["-Y", &file, "-B", "binary"]),
        "coua: -Y: without -S only the text protocol can log in; give -S, or leave -B out"
    );
    assert_eq!(
        line(&["-Y", &file, "-S", "-B", "ascii"]),
        "coua: -S: SASL is for the binary protocol; leave it or -B ascii out"
    );
    assert_eq!(
        line(&["-Y", &file, "-U", "11311"]),
        "coua: -Y: nobody can log in by UDP; leave -Y or -U out"
    );
}

/// `stats settings` and `stats` tell of it as memcached does.
#[test]
fn statistics_tell_of_it() {
    let server = Guarded::start("alice:a\n", &["-S"]);
    let mut failed = Connection::to(server.address);
    failed.ask(
        login("alice", "b"),
        "CLIENT_ERROR authentication failure\r\n",
    );
    let connection = Connection::log_in(server.address, "alice", "a");
    let mut client = process::Client::new(connection.0);
    assert_eq!(client.stat("stats", "auth_cmds"), "2");
    assert_eq!(client.stat("stats", "auth_errors"), "1");
    assert_eq!(client.stat("stats settings", "auth_enabled_sasl"), "yes");
    assert_eq!(
        client.stat("stats settings", "auth_enabled_ascii"),
        server.folder.text("users")
    );
}
