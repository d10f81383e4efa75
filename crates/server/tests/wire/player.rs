//! Plays the steps of a case to one server and notes what comes back.
//!
//! Nothing but the connection itself tells when everything is answered: many requests have no answer. So a player
//! that must wait asks for a key that nobody stores and takes that answer out again. Where the last byte sent is
//! no line's end, a question would become part of the request, and a pause stands in its place.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::binary;
use crate::script::{Case, Piece, Step};
use crate::support::Server;
use crate::transcript::{Conversation, Ending};

/// How a client cuts what it sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Split {
    /// One write for all that stands between two waits.
    Whole,
    /// One write a line.
    Lines,
    /// One write a byte; long parts in [`MOST_WRITES`] writes.
    Bytes,
}

/// Longer parts are cut into this many writes: a megabyte by single bytes takes a minute.
const MOST_WRITES: usize = 1500;
/// How long a question waits before the script is wrong or the server is stuck.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);
/// For a server to act on what it has read, where nothing can be asked.
const PAUSE: Duration = Duration::from_millis(60);

/// Plays a case on fresh connections. What is left unfinished at its end is cut off by closing the client's side,
/// so that the server must answer what it has and end the conversation.
pub(crate) fn play(case: &Case, server: &Server, split: Split) -> Vec<Conversation> {
    let mut player = Player {
        server,
        split,
        clients: BTreeMap::new(),
        done: Vec::new(),
        questions: 0,
    };
    for step in &case.steps {
        player.step(step);
    }
    let open: Vec<usize> = player.clients.keys().copied().collect();
    for number in open {
        player.hang(number);
    }
    // A connection that hung up and came again is told in the order of the numbers, then of time.
    player
        .done
        .sort_by_key(|conversation| conversation.connection);
    player.done
}

struct Player<'a> {
    server: &'a Server,
    split: Split,
    clients: BTreeMap<usize, Client>,
    done: Vec<Conversation>,
    questions: usize,
}

impl Player<'_> {
    fn step(&mut self, step: &Step) {
        match step {
            Step::Send { connection, pieces } => {
                // Requests of two connections are answered in the order of the script.
                let others: Vec<usize> = self
                    .clients
                    .keys()
                    .copied()
                    .filter(|other| other != connection)
                    .collect();
                others.into_iter().for_each(|other| self.settle(other));
                let bytes = self.resolve(pieces);
                self.client(*connection).unsent.extend_from_slice(&bytes);
            }
            Step::Sleep(duration) => {
                self.settle_all();
                thread::sleep(*duration);
            }
            Step::Counters(names) => {
                self.settle_all();
                let lines = self.counters(names);
                self.done.push(Conversation::note(lines));
            }
            Step::Hang { connection } => self.hang(*connection),
        }
    }

    fn client(&mut self, number: usize) -> &mut Client {
        self.clients
            .entry(number)
            .or_insert_with(|| Client::open(self.server.connect()))
    }

    fn resolve(&mut self, pieces: &[Piece]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for piece in pieces {
            match piece {
                Piece::Bytes(part) => bytes.extend_from_slice(part),
                Piece::CasOf { key, add } => {
                    self.settle_all();
                    let cas = self.cas_of(key).wrapping_add_signed(*add);
                    bytes.extend_from_slice(cas.to_string().as_bytes());
                }
                Piece::BinaryCasOf { key } => {
                    self.settle_all();
                    bytes.extend_from_slice(&self.cas_of(key).to_be_bytes());
                }
            }
        }
        bytes
    }

    /// Asks on a connection of its own, without touching the item's age.
    fn cas_of(&self, key: &str) -> u64 {
        let answer = self.ask(&format!("mg {key} c u\r\n"), "\r\n");
        answer
            .trim_end()
            .rsplit_once(" c")
            .and_then(|(_, cas)| cas.parse().ok())
            .unwrap_or(0)
    }

    fn counters(&self, names: &[String]) -> Vec<String> {
        let answer = self.ask("stats\r\n", "END\r\n");
        let of_name = |name: &String| {
            let line = answer
                .lines()
                .find(|line| line.split(' ').nth(1) == Some(name));
            line.map_or_else(|| format!("STAT {name} is missing"), str::to_owned)
        };
        names.iter().map(of_name).collect()
    }

    fn ask(&self, question: &str, end: &str) -> String {
        let mut stream = self.server.connect();
        stream
            .set_read_timeout(Some(ANSWER_LIMIT))
            .expect("a timeout can be set");
        stream
            .write_all(question.as_bytes())
            .expect("the server reads");
        let (mut answer, mut buffer) = (Vec::new(), [0; 4096]);
        while !answer.ends_with(end.as_bytes()) {
            match stream.read(&mut buffer) {
                Ok(count) if count > 0 => answer.extend_from_slice(&buffer[..count]),
                _ => break,
            }
        }
        String::from_utf8_lossy(&answer).into_owned()
    }

    fn settle_all(&mut self) {
        let all: Vec<usize> = self.clients.keys().copied().collect();
        all.into_iter().for_each(|number| self.settle(number));
    }

    /// Writes what is unsent, and waits until it is answered.
    fn settle(&mut self, number: usize) {
        self.questions += 1;
        let question = self.questions;
        let split = self.split;
        if let Some(client) = self.clients.get_mut(&number) {
            client.settle(split, question);
        }
    }

    fn hang(&mut self, number: usize) {
        self.settle(number);
        if let Some(client) = self.clients.remove(&number) {
            self.done.push(client.close(number));
        }
    }
}

struct Client {
    stream: TcpStream,
    received: Arc<Received>,
    reader: JoinHandle<()>,
    unsent: Vec<u8>,
    unfinished: bool,
    /// What it speaks; its first byte decides.
    is_binary: Option<bool>,
    /// No answer came to a question: what follows is not waited for again.
    silent: bool,
}

#[derive(Default)]
struct Received {
    state: Mutex<ReceivedState>,
    changed: Condvar,
}

#[derive(Default)]
struct ReceivedState {
    bytes: Vec<u8>,
    ended: bool,
}

impl Client {
    fn open(stream: TcpStream) -> Self {
        let received = Arc::new(Received::default());
        let mut source = stream.try_clone().expect("a socket can be cloned");
        let target = Arc::clone(&received);
        let reader = thread::spawn(move || {
            let mut buffer = vec![0; 1 << 16];
            loop {
                // A reset ends the conversation as an ordinary end does: it says that unread bytes were thrown away.
                let count = source.read(&mut buffer).unwrap_or(0);
                let mut state = target.state.lock().expect("no holder panics");
                state.bytes.extend_from_slice(&buffer[..count]);
                state.ended = count == 0;
                target.changed.notify_all();
                if count == 0 {
                    return;
                }
            }
        });
        Self {
            stream,
            received,
            reader,
            unsent: Vec::new(),
            unfinished: false,
            is_binary: None,
            silent: false,
        }
    }

    fn settle(&mut self, split: Split, question: usize) {
        if self.unsent.is_empty() {
            return;
        }
        let bytes = std::mem::take(&mut self.unsent);
        let is_binary = *self.is_binary.get_or_insert(bytes.starts_with(b"\x80"));
        self.unfinished = match is_binary {
            true => !binary::is_whole(&bytes),
            false => !bytes.ends_with(b"\n"),
        };
        write_split(&mut self.stream, &bytes, split);
        if self.silent || self.unfinished {
            self.wait_until_read();
            thread::sleep(PAUSE);
            return;
        }
        let (question, answer) = match is_binary {
            true => binary::question(question),
            false => {
                let key = format!("coua-is-all-answered-{question}");
                let (ask, miss) = (format!("mg {key} k\r\n"), format!("EN k{key}\r\n"));
                (ask.into_bytes(), miss.into_bytes())
            }
        };
        let _ = self.stream.write_all(&question);
        self.silent = !self.received.wait_and_remove(&answer);
    }

    /// Returns when nothing lies in the server's receive queue, or the connection is gone.
    fn wait_until_read(&self) {
        let (Ok(client), Ok(server)) = (self.stream.local_addr(), self.stream.peer_addr()) else {
            return;
        };
        let (client, server) = (
            format!("0100007F:{:04X}", client.port()),
            format!("0100007F:{:04X}", server.port()),
        );
        let deadline = Instant::now() + ANSWER_LIMIT;
        while Instant::now() < deadline {
            let table = fs::read_to_string("/proc/net/tcp").unwrap_or_default();
            let still = |local: &str, remote: &str, idle: fn(&str) -> bool| {
                table
                    .lines()
                    .map(|line| line.split_whitespace().collect::<Vec<_>>())
                    .any(|columns| {
                        columns.get(1) == Some(&local)
                            && columns.get(2) == Some(&remote)
                            && !idle(columns[4])
                    })
            };
            // The fifth column holds the lengths of the two queues: sent but not taken, taken but not read.
            let (sent, taken) = (
                |lengths: &str| lengths.starts_with("00000000:"),
                |lengths: &str| lengths.ends_with(":00000000"),
            );
            if !still(&client, &server, sent) && !still(&server, &client, taken) {
                return;
            }
            thread::sleep(Duration::from_millis(2));
        }
    }

    /// Ends the client's side and takes what the server still says.
    fn close(self, connection: usize) -> Conversation {
        let early = self.received.state.lock().expect("no holder panics").ended;
        let _ = self.stream.shutdown(Shutdown::Write);
        let ended = self.received.wait_for_end();
        let _ = self.stream.shutdown(Shutdown::Both);
        self.reader.join().expect("the reader does not panic");
        let bytes =
            std::mem::take(&mut self.received.state.lock().expect("no holder panics").bytes);
        let ending = match (early, ended) {
            (true, _) => Ending::ClosedByServer,
            (false, true) if self.silent => Ending::ClosedAfterSilence,
            (false, true) => Ending::ClosedAfterClient,
            (false, false) => Ending::NeverClosed,
        };
        Conversation {
            connection,
            bytes,
            ending,
        }
    }
}

impl Received {
    /// True when the answer came or the conversation ended.
    fn wait_and_remove(&self, answer: &[u8]) -> bool {
        let deadline = Instant::now() + ANSWER_LIMIT;
        let mut state = self.state.lock().expect("no holder panics");
        loop {
            if state.bytes.ends_with(answer) {
                let left = state.bytes.len() - answer.len();
                state.bytes.truncate(left);
                return true;
            }
            let now = Instant::now();
            if state.ended || now >= deadline {
                return state.ended;
            }
            state = self
                .changed
                .wait_timeout(state, deadline - now)
                .expect("no holder panics")
                .0;
        }
    }

    fn wait_for_end(&self) -> bool {
        let state = self.state.lock().expect("no holder panics");
        let (state, _) = self
            .changed
            .wait_timeout_while(state, ANSWER_LIMIT, |state| !state.ended)
            .expect("no holder panics");
        state.ended
    }
}

/// Errors are left to the reader: a server that closes early is part of what is compared.
fn write_split(stream: &mut TcpStream, bytes: &[u8], split: Split) {
    let parts: Box<dyn Iterator<Item = &[u8]>> = match split {
        Split::Whole => Box::new(std::iter::once(bytes)),
        Split::Lines => Box::new(bytes.split_inclusive(|byte| *byte == b'\n')),
        Split::Bytes => Box::new(bytes.chunks(bytes.len().div_ceil(MOST_WRITES))),
    };
    for part in parts {
        if stream.write_all(part).is_err() {
            return;
        }
        if split == Split::Bytes {
            // Long enough for the server to wake up and read the one byte.
            thread::sleep(Duration::from_micros(20));
        }
    }
}
