//! A client with several connections and keys of its own.

use std::collections::{HashMap, VecDeque};
use std::fmt::Write as _;
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::mpsc::{Sender, channel};
use std::thread;

use rand::RngExt;
use rand::rngs::Xoshiro256PlusPlus;

use crate::book::{Content, Entry, Op, Reply, State};
use crate::content::Part;
use crate::process::PATIENCE;

/// Each key is always asked for on the same one, so that its requests have an order.
const CONNECTIONS: usize = 3;

/// Requests that follow each other before their answers are read.
const DEPTH_MAX: u32 = 40;

/// Keys that are read back at once after a restart.
const READ_BACK: usize = 64;

/// Parts of a value at most.
const PARTS_MAX: usize = 8;

/// Seconds that mortal items have: longer than a test runs.
const TTL_S: u32 = 100_000;

/// The sizes of what a client stores.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    /// Keys a client.
    pub(crate) keys: u32,
    /// One value in so many has up to 300 KB, and the others 300 bytes.
    pub(crate) large_one_in: u32,
    /// Whether items may be evicted.
    pub(crate) evicts: bool,
}

/// A client.
pub(crate) struct User {
    first_key: u32,
    sizes: Sizes,
    entries: Vec<Entry>,
    random: Xoshiro256PlusPlus,
    /// What it has asked so far, and been answered.
    pub(crate) count: Count,
}

/// Counts of a client.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Count {
    /// Requests that were answered.
    pub(crate) answered: u64,
    /// Requests that were sent and not answered.
    pub(crate) unanswered: u64,
    /// Items that were found after a restart.
    pub(crate) found: u64,
    /// Items whose CAS was compared then.
    pub(crate) cas_compared: u64,
}

/// The server has closed the connection.
struct HungUp;

/// A connection. A thread of its own writes, so that neither side waits for the other to read.
struct Connection {
    reader: BufReader<TcpStream>,
    writer: Sender<Vec<u8>>,
    /// Requests that are not answered yet, with the keys' places.
    waiting: VecDeque<(usize, Op)>,
}

impl Connection {
    fn open(address: SocketAddr) -> io::Result<Connection> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut written = stream.try_clone()?;
        let (writer, requests) = channel::<Vec<u8>>();
        thread::spawn(move || {
            while let Ok(bytes) = requests.recv() {
                if written.write_all(&bytes).is_err() {
                    return;
                }
            }
            let _ = written.shutdown(Shutdown::Both);
        });
        Ok(Connection {
            reader: BufReader::with_capacity(64 << 10, stream),
            writer,
            waiting: VecDeque::new(),
        })
    }

    fn send(&self, bytes: Vec<u8>) {
        // Where the thread is gone, so is the server, which the next read tells.
        let _ = self.writer.send(bytes);
    }

    fn line(&mut self) -> Result<String, HungUp> {
        let mut line = Vec::new();
        self.reader.read_until(b'\n', &mut line).map_err(hung_up)?;
        match line.strip_suffix(b"\r\n") {
            Some(text) => Ok(String::from_utf8_lossy(text).into_owned()),
            None => Err(HungUp),
        }
    }

    fn body(&mut self, len: usize) -> Result<Vec<u8>, HungUp> {
        let mut bytes = vec![0; len + 2];
        self.reader.read_exact(&mut bytes).map_err(hung_up)?;
        assert!(
            bytes.ends_with(b"\r\n"),
            "a value of {len} bytes has no end"
        );
        bytes.truncate(len);
        Ok(bytes)
    }

    fn reply(&mut self, is_get: bool) -> Result<Reply, HungUp> {
        let line = self.line()?;
        if !is_get {
            return Ok(Reply::Line(line));
        }
        if line == "END" {
            return Ok(Reply::Miss);
        }
        let words: Vec<&str> = line.split(' ').collect();
        let ["VALUE", _, flags, len] = words[..] else {
            return Ok(Reply::Line(line));
        };
        let (flags, len) = (flags.parse(), len.parse());
        let (flags, len) = (flags.expect("a number"), len.expect("a number"));
        let bytes = self.body(len)?;
        assert_eq!(self.line()?, "END");
        Ok(Reply::Value { flags, bytes })
    }
}

/// # Panics
/// Where the server lives and gives no answer.
fn hung_up(error: io::Error) -> HungUp {
    let is_late = matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut);
    assert!(!is_late, "no answer in {PATIENCE:?}");
    HungUp
}

impl User {
    /// A client whose keys begin with this one.
    pub(crate) fn new(first_key: u32, sizes: Sizes, random: Xoshiro256PlusPlus) -> User {
        let entries = (0..sizes.keys).map(|_| Entry::new()).collect();
        User {
            first_key,
            sizes,
            entries,
            random,
            count: Count::default(),
        }
    }

    /// An acknowledged `flush_all` has removed everything.
    pub(crate) fn flushed(&mut self) {
        for entry in &mut self.entries {
            entry.possible = vec![State::Absent];
            entry.cas = None;
        }
    }

    /// Asks for things until the server hangs up.
    ///
    /// # Errors
    /// What contradicts the book.
    pub(crate) fn work(&mut self, address: SocketAddr) -> Result<(), String> {
        // The server may be gone before it accepts.
        let opened = (0..CONNECTIONS).map(|_| Connection::open(address));
        let Ok(mut connections) = opened.collect::<io::Result<Vec<Connection>>>() else {
            return Ok(());
        };
        // The others stay as they are, with their CAS.
        let (first, last) = (self.random.random(), self.random.random());
        let hot =
            self.within(first).min(self.within(last))..=self.within(first).max(self.within(last));
        loop {
            for (number, connection) in connections.iter_mut().enumerate() {
                let mut bytes = Vec::new();
                for _ in 0..self.random.random_range(1..=DEPTH_MAX) {
                    let at = self.random.random_range(hot.clone()) / CONNECTIONS * CONNECTIONS;
                    let at = at + number;
                    if at < self.entries.len() {
                        let op = self.draw(at);
                        self.write(at, &op, &mut bytes);
                        if op.writes() {
                            self.entries[at].cas = None;
                        }
                        connection.waiting.push_back((at, op));
                    }
                }
                connection.send(bytes);
            }
            for number in 0..CONNECTIONS {
                if self.read(&mut connections[number])?.is_err() {
                    // What has come on the others counts too.
                    for other in &mut connections {
                        let _ = self.read(other)?;
                    }
                    self.give_up(&connections);
                    return Ok(());
                }
            }
        }
    }

    fn within(&self, draw: u32) -> usize {
        draw as usize % self.entries.len()
    }

    /// Reads what is waited for.
    fn read(&mut self, connection: &mut Connection) -> Result<Result<(), HungUp>, String> {
        while let Some((at, op)) = connection.waiting.pop_front() {
            let Ok(reply) = connection.reply(matches!(op, Op::Get)) else {
                connection.waiting.push_front((at, op));
                return Ok(Err(HungUp));
            };
            let key = self.key(at);
            self.entries[at].answered(key, &op, &reply, self.sizes.evicts)?;
            self.count.answered += 1;
        }
        Ok(Ok(()))
    }

    /// Notes what will not be answered.
    fn give_up(&mut self, connections: &[Connection]) {
        let mut lost: HashMap<usize, Vec<Op>> = HashMap::new();
        for (at, op) in connections.iter().flat_map(|one| &one.waiting) {
            lost.entry(*at).or_default().push(op.clone());
            self.count.unanswered += 1;
        }
        for (at, ops) in lost {
            self.entries[at].unanswered(&ops);
        }
    }

    #[expect(clippy::cast_possible_truncation, reason = "fewer than a million keys")]
    fn key(&self, at: usize) -> u32 {
        self.first_key + at as u32
    }

    fn part(&mut self, at: usize, len: u32) -> Part {
        self.entries[at].version += 1;
        Part {
            version: self.entries[at].version,
            len,
        }
    }

    fn draw(&mut self, at: usize) -> Op {
        let is_counter = at.is_multiple_of(7);
        let is_mortal = self.random.random_bool(0.2);
        match self.random.random_range(0..100) {
            0..25 => Op::Get,
            25..37 => Op::Delete,
            37..42 => Op::Touch { is_mortal },
            42..60 if is_counter => Op::Incr(self.random.random_range(1..1000)),
            _ if is_counter => {
                let number = self.random.random_range(0..1 << 40);
                let content = Content::Counter(number);
                Op::Set { content, is_mortal }
            }
            42..52 if self.may_grow(at) => {
                let len = self.random.random_range(10..100);
                Op::Append(self.part(at, len))
            }
            _ => {
                let is_large = self.random.random_ratio(1, self.sizes.large_one_in);
                let most = if is_large { 300_000 } else { 300 };
                let len = self.random.random_range(10..=most);
                let content = Content::Parts(vec![self.part(at, len)]);
                Op::Set { content, is_mortal }
            }
        }
    }

    fn may_grow(&self, at: usize) -> bool {
        self.entries[at].possible.iter().all(|state| match state {
            State::Present {
                content: Content::Parts(parts),
                ..
            } => parts.len() < PARTS_MAX,
            _ => true,
        })
    }

    fn write(&self, at: usize, op: &Op, to: &mut Vec<u8>) {
        let key = self.key(at);
        let ttl = |is_mortal: bool| if is_mortal { TTL_S } else { 0 };
        let line = match op {
            Op::Get => format!("get r{key}\r\n"),
            Op::Delete => format!("delete r{key}\r\n"),
            Op::Incr(by) => format!("incr r{key} {by}\r\n"),
            Op::Touch { is_mortal } => format!("touch r{key} {}\r\n", ttl(*is_mortal)),
            Op::Append(part) => format!("append r{key} 0 0 {}\r\n", part.len),
            Op::Set { content, is_mortal } => {
                let (flags, len) = (content.flags(), content.bytes(key).len());
                format!("set r{key} {flags} {} {len}\r\n", ttl(*is_mortal))
            }
        };
        to.extend_from_slice(line.as_bytes());
        let content = match op {
            Op::Append(part) => Content::Parts(vec![*part]),
            Op::Set { content, .. } => content.clone(),
            _ => return,
        };
        to.extend_from_slice(&content.bytes(key));
        to.extend_from_slice(b"\r\n");
    }

    /// Reads every key back after a restart.
    ///
    /// # Errors
    /// What contradicts the book.
    pub(crate) fn read_back(&mut self, address: SocketAddr) -> Result<(), String> {
        let opened = Connection::open(address);
        let mut connection = opened.map_err(|error| format!("no connection: {error}"))?;
        for first in (0..self.entries.len()).step_by(READ_BACK) {
            let batch = first..self.entries.len().min(first + READ_BACK);
            let mut request = String::new();
            for at in batch.clone() {
                let _ = write!(request, "mg r{} f c t v\r\n", self.key(at));
            }
            connection.send(request.into_bytes());
            for at in batch {
                let ended = || "the server ends while it is read".to_owned();
                self.look_at(at, &mut connection)?
                    .map_err(|HungUp| ended())?;
            }
        }
        Ok(())
    }

    fn look_at(
        &mut self,
        at: usize,
        connection: &mut Connection,
    ) -> Result<Result<(), HungUp>, String> {
        let Ok(line) = connection.line() else {
            return Ok(Err(HungUp));
        };
        let (key, evicts) = (self.key(at), self.sizes.evicts);
        let entry = &mut self.entries[at];
        if line == "EN" {
            return entry.found(key, None, evicts).map(Ok);
        }
        let words: Vec<&str> = line.split(' ').collect();
        let strange = || format!("key {key}: the answer {line:?}");
        let ["VA", len, flags, cas, ttl] = words[..] else {
            return Err(strange());
        };
        let number = |word: &str| word.parse::<i64>().map_err(|_| strange());
        let len = usize::try_from(number(len)?).map_err(|_| strange())?;
        let flags = u32::try_from(number(&flags[1..])?).map_err(|_| strange())?;
        let cas = u64::try_from(number(&cas[1..])?).map_err(|_| strange())?;
        let ttl = number(&ttl[1..])?;
        let Ok(bytes) = connection.body(len) else {
            return Ok(Err(HungUp));
        };
        self.count.found += 1;
        self.count.cas_compared += u64::from(entry.cas.is_some());
        entry
            .found(key, Some((flags, cas, ttl, &bytes)), evicts)
            .map(Ok)
    }
}
