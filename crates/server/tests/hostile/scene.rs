//! A server, its witness, and what is measured of it.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::sync::{Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use crate::resident::resident_kib;
use crate::support::Server;
use crate::witness::Witness;
use crate::{ANSWER_LIMIT, OUTSIDE_MIB};

/// A witness that had fewer answers has seen nothing.
const WITNESS_MIN: u64 = 50;

/// One test at a time: a second one would take the time of the witness.
static STAGE: Mutex<()> = Mutex::new(());

/// A server on which a hostile client is let loose.
pub(crate) struct Scene {
    server: Server,
    witness: Witness,
    descriptors: usize,
    memory_max_kib: u64,
    _stage: MutexGuard<'static, ()>,
}

impl Scene {
    /// Starts a server with a witness.
    pub(crate) fn open(flags: &[&str]) -> Self {
        // A test that failed before has released the stage as any other.
        let stage = STAGE
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        let server = Server::coua(flags);
        let megabytes: u64 = flags
            .iter()
            .skip_while(|flag| **flag != "-m")
            .nth(1)
            .and_then(|number| number.parse().ok())
            .expect("every scene says -m");
        let witness = Witness::start(server.connect(), server.child.id());
        // Its connection is one of those that are there at first.
        witness.wait_for(1);
        let descriptors = descriptors(server.child.id());
        Self {
            server,
            witness,
            descriptors,
            memory_max_kib: (megabytes + OUTSIDE_MIB) * 1024,
            _stage: stage,
        }
    }

    /// A new connection to the server.
    pub(crate) fn connect(&self) -> TcpStream {
        self.server.connect()
    }

    /// Sends a request that has one line of answer, on a connection of its own.
    pub(crate) fn ask(&self, request: &str) -> String {
        let mut stream = self.connect();
        stream
            .set_read_timeout(Some(Duration::from_secs(10)))
            .expect("a timeout can be set");
        stream
            .write_all(request.as_bytes())
            .expect("the server reads");
        let mut line = String::new();
        BufReader::new(stream)
            .read_line(&mut line)
            .expect("an answer");
        line
    }

    /// Stores a value of so many bytes.
    pub(crate) fn store(&self, key: &str, length: usize) {
        let answer = self.ask(&format!(
            "set {key} 0 0 {length}\r\n{}\r\n",
            "x".repeat(length)
        ));
        assert_eq!(answer, "STORED\r\n", "a value of {length} bytes");
    }

    /// The server is within `-m` and its constant.
    pub(crate) fn check_memory(&self) {
        let resident = resident_kib(self.server.child.id());
        assert!(
            resident <= self.memory_max_kib,
            "{resident} KiB resident, {} KiB allowed",
            self.memory_max_kib
        );
    }

    /// Returns when the server has no more than so many connections beside the witness, or after ten seconds.
    pub(crate) fn wait_until_gone(&self, left: usize) {
        let deadline = Instant::now() + Duration::from_secs(10);
        while descriptors(self.server.child.id()) > self.descriptors + left
            && Instant::now() < deadline
        {
            thread::sleep(Duration::from_millis(2));
        }
    }

    /// Ends the test: all that was promised must have held. Says whether the witness had to wait for
    /// too long: that can also be the work of whoever else uses the machine.
    pub(crate) fn close(self) -> Result<(), String> {
        self.close_after(|_| ())
    }

    /// As [`Scene::close`], after a last look once the hostile clients' descriptors are gone.
    pub(crate) fn close_after(self, look: impl FnOnce(&Self)) -> Result<(), String> {
        let pid = self.server.child.id();
        self.wait_until_gone(0);
        let now = descriptors(pid);
        assert!(
            now <= self.descriptors,
            "{now} descriptors are open, {} were at first",
            self.descriptors
        );
        look(&self);
        self.check_memory();
        self.witness.wait_for(WITNESS_MIN);
        let report = self.witness.stop();
        // What kept the echo waiting may have met the server twice.
        if report.longest <= ANSWER_LIMIT + 2 * report.longest_echo {
            return Ok(());
        }
        Err(format!(
            "the witness waited {:?} for one of {} answers, and {:?} for an echo",
            report.longest, report.answers, report.longest_echo
        ))
    }
}

/// Plays until the witness has nothing to complain about: what makes others wait does so each time; who
/// else uses the machine does not.
pub(crate) fn one_of_three(play: impl Fn() -> Result<(), String>) {
    let complaints: Vec<String> = (0..3).map_while(|_| play().err()).collect();
    assert!(complaints.len() < 3, "{}", complaints.join("\n"));
}

fn descriptors(pid: u32) -> usize {
    fs::read_dir(format!("/proc/{pid}/fd"))
        .expect("the server lives")
        .count()
}
