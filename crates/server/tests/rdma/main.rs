//! Clients over RDMA: the real server over libfabric's provider `tcp`, which needs no device.
//!
//! Where libfabric is missing, each test says so and ends; `cargo xtask setup` installs it.

#![allow(clippy::print_stderr, reason = "says what was left out")]

mod deaths;
mod forged;
#[path = "../support/process.rs"]
#[expect(dead_code, reason = "each test file uses its own part of the support")]
mod process;
mod requests;
#[path = "../support/mod.rs"]
#[expect(dead_code, reason = "each test file uses its own part of the support")]
mod support;
mod switched;
#[cfg(feature = "lab")]
mod verbs;

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use coua_rdma::Offer;
use coua_rdma::libfabric::{Driver, Error, Link, LinkError, Setup};

use process::{Process, coua};

/// Generous: the machine may do much else.
const PATIENCE: Duration = Duration::from_secs(60);

/// What a client lends its server.
const LENT_LEN: usize = 8 << 20;

/// Whether libfabric is there.
fn has_libfabric() -> bool {
    let setup = Setup {
        provider: "tcp".to_owned(),
        address: "127.0.0.1:0".parse().expect("an address"),
        credits: 1,
        peers_max: 1,
    };
    match Driver::client(setup) {
        Err(error @ (Error::NoLibrary | Error::OldLibrary)) => {
            eprintln!("left out: {error}");
            false
        }
        Err(error) => panic!("{error}"),
        Ok(_) => true,
    }
}

/// A running server.
struct Server {
    address: SocketAddr,
    process: Process,
}

impl Server {
    fn start(flags: &[&str]) -> Server {
        let process = Process::start(coua(flags));
        let address = process.address();
        Server { address, process }
    }
}

/// Where the servers of this process take clients, unless that is the kernel's TCP.
static WHERE: OnceLock<&str> = OnceLock::new();

/// A server that takes clients over RDMA; `None` without libfabric.
fn server(flags: &[&str]) -> Option<Server> {
    let place = WHERE.get().unwrap_or(&"127.0.0.1,provider=tcp,clients=8");
    let rdma = ["--rdma", place];
    has_libfabric().then(|| Server::start(&[&rdma[..], flags].concat()))
}

/// An ordinary connection, on which lines are asked for.
struct Lines(BufReader<TcpStream>);

impl Lines {
    fn connect(server: &Server) -> Lines {
        let stream = TcpStream::connect(server.address).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        Lines(BufReader::new(stream))
    }

    fn ask(&mut self, request: &str) -> String {
        self.0
            .get_mut()
            .write_all(request.as_bytes())
            .expect("it takes them");
        self.line()
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).expect("an answer");
        line.trim_end().to_owned()
    }

    fn offer(&mut self) -> Offer {
        let line = self.ask("rdma\r\n");
        Offer::decode(&line).unwrap_or_else(|| panic!("no offer: {line}"))
    }

    /// What `stats rdma` says of a name.
    fn stat(&mut self, name: &str) -> u64 {
        let mut found = None;
        let mut line = self.ask("stats rdma\r\n");
        while line != "END" {
            if let Some(rest) = line.strip_prefix(&format!("STAT {name} ")) {
                found = rest.parse().ok();
            }
            line = self.line();
        }
        found.unwrap_or_else(|| panic!("stats rdma has no number {name}"))
    }

    /// Waits until `stats rdma` says `wanted` of a name.
    fn wait_for(&mut self, name: &str, wanted: u64) {
        self.wait_until(name, |is| is == wanted);
    }

    /// Waits until what `stats rdma` says of a name is right: it may be a tenth of a second old.
    fn wait_until(&mut self, name: &str, is_right: impl Fn(u64) -> bool) {
        let began = Instant::now();
        loop {
            let is = self.stat(name);
            if is_right(is) {
                return;
            }
            assert!(began.elapsed() < PATIENCE, "{name} is {is}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// A client with both connections.
struct Client {
    lines: Lines,
    link: Link,
}

impl Client {
    fn connect(server: &Server) -> Client {
        let mut lines = Lines::connect(server);
        let offer = lines.offer();
        let link = Link::connect(&offer, LENT_LEN, PATIENCE).expect("it was offered");
        Client { lines, link }
    }

    fn try_ask(
        &mut self,
        command: &[u8],
        value: Option<&[u8]>,
        reply_max: usize,
    ) -> Result<Vec<u8>, LinkError> {
        let deadline = Instant::now() + PATIENCE;
        let ticket = self.link.submit(command, value, reply_max, deadline)?;
        let len = self.link.wait(ticket, deadline)?;
        let reply = self.link.reply(ticket, len).to_vec();
        self.link.release(ticket);
        Ok(reply)
    }

    fn ask(&mut self, command: &str) -> String {
        let reply = self
            .try_ask(command.as_bytes(), None, 64 << 10)
            .expect(command);
        String::from_utf8(reply).expect("text")
    }

    fn set(&mut self, key: &str, value: &[u8]) {
        let line = format!("set {key} 0 0 {}\r\n", value.len());
        let reply = self.try_ask(line.as_bytes(), Some(value), 64).expect(&line);
        assert_eq!(reply, b"STORED\r\n", "{line}");
    }

    fn get(&mut self, key: &str) -> Vec<u8> {
        self.try_ask(format!("get {key}\r\n").as_bytes(), None, 2 << 20)
            .expect(key)
    }
}

/// `len` bytes that show where they come from.
fn value(len: usize, seed: usize) -> Vec<u8> {
    let byte = |at: usize| u8::try_from((at * 31 + at / 253 + seed) % 251).expect("below 251");
    (0..len).map(byte).collect()
}

/// What `get` answers.
fn hit(key: &str, value: &[u8]) -> Vec<u8> {
    [
        format!("VALUE {key} 0 {}\r\n", value.len()).as_bytes(),
        value,
        b"\r\nEND\r\n",
    ]
    .concat()
}
