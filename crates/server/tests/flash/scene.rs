//! A server whose memory is much smaller than what it is given, and a client of it.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::Duration;

use crate::process::{Folder, PATIENCE, Process, coua, poll};

/// Megabytes of the file.
const FILE_MIB: usize = 256;

/// A server and the folder with its file.
pub(crate) struct Scene {
    /// The folder.
    pub(crate) folder: Folder,
    /// The server.
    pub(crate) process: Process,
}

impl Scene {
    /// Starts a server with one thread, 32 MiB of memory and a file; items of any length go there.
    pub(crate) fn new(flags: &[&str]) -> Scene {
        let folder = Folder::new();
        let process = start(&folder, flags);
        Scene { folder, process }
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.process.address()
    }

    /// A new connection.
    pub(crate) fn client(&self) -> Client {
        Client::connect(self.address())
    }
}

/// Starts a server whose files are in a folder.
pub(crate) fn start(folder: &Folder, flags: &[&str]) -> Process {
    let path = format!(
        "ext_path={}:{FILE_MIB}m,ext_item_size=1",
        folder.text("flash")
    );
    let all = [&["-m", "32", "-t", "1", "-o", &path], flags].concat();
    Process::start(coua(&all))
}

/// A value that is known by its number: its beginning says which it is, and all of it is different from the others'.
pub(crate) fn value(number: usize, len: usize) -> Vec<u8> {
    let mut state = number as u64 + 1;
    let mut bytes = format!("{number}:").into_bytes();
    while bytes.len() < len {
        state = state
            .wrapping_mul(0x5851_f42d_4c95_7f2d)
            .wrapping_add(0x1405_7b7e_f767_814f);
        bytes.extend_from_slice(format!("{:016x}", state).as_bytes());
    }
    bytes.truncate(len);
    bytes
}

/// A connection.
pub(crate) struct Client {
    stream: BufReader<TcpStream>,
}

impl Client {
    /// Connects.
    pub(crate) fn connect(address: SocketAddr) -> Client {
        let stream = TcpStream::connect(address).expect("the kernel accepts");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        stream.set_nodelay(true).expect("TCP_NODELAY");
        Client {
            stream: BufReader::with_capacity(1 << 20, stream),
        }
    }

    /// Sends bytes.
    pub(crate) fn send(&mut self, request: impl AsRef<[u8]>) {
        let sent = self.stream.get_mut().write_all(request.as_ref());
        sent.expect("the server reads");
    }

    /// The next line, without its end.
    pub(crate) fn line(&mut self) -> String {
        let mut line = Vec::new();
        self.stream.read_until(b'\n', &mut line).expect("an answer");
        assert!(line.ends_with(b"\r\n"), "no line: {line:?}");
        String::from_utf8_lossy(&line[..line.len() - 2]).into_owned()
    }

    /// The next line of a stream that is watched, without its end.
    pub(crate) fn log_line(&mut self) -> String {
        let mut line = String::new();
        self.stream.read_line(&mut line).expect("a line");
        assert_eq!(line.pop(), Some('\n'), "{line}");
        line
    }

    /// The next bytes.
    pub(crate) fn take(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.stream.read_exact(&mut bytes).expect("an answer");
        bytes
    }

    /// The first line of the answer to a request.
    pub(crate) fn ask(&mut self, request: impl AsRef<[u8]>) -> String {
        self.send(request);
        self.line()
    }

    /// Stores a value.
    pub(crate) fn set(&mut self, key: &str, value: &[u8]) {
        let head = format!("set {key} 0 0 {}\r\n", value.len());
        let request = [head.as_bytes(), value, b"\r\n"].concat();
        assert_eq!(self.ask(request), "STORED", "{key}");
    }

    /// Stores values under `prefix` and their numbers, many at a time.
    pub(crate) fn fill(&mut self, prefix: &str, count: usize, len: usize) {
        for first in (0..count).step_by(100) {
            let numbers = first..count.min(first + 100);
            let mut request = Vec::new();
            for number in numbers.clone() {
                let head = format!("set {prefix}{number} 0 0 {len}\r\n");
                request.extend_from_slice(head.as_bytes());
                request.extend_from_slice(&value(number, len));
                request.extend_from_slice(b"\r\n");
            }
            self.send(request);
            // Where many tests run at once, a device may need a moment, or items are evicted without it.
            thread::sleep(Duration::from_millis(2));
            for number in numbers {
                assert_eq!(self.line(), "STORED", "{prefix}{number}");
            }
        }
    }

    /// What is answered to a `get` or `gets`: the values by key, and the last number of their lines.
    pub(crate) fn values(&mut self) -> Vec<(String, Vec<u8>, String)> {
        let mut values = Vec::new();
        loop {
            let line = self.line();
            if line == "END" {
                return values;
            }
            let words: Vec<&str> = line.split(' ').collect();
            assert_eq!(words[0], "VALUE", "{line}");
            let len: usize = words[3].parse().expect("a length");
            let mut bytes = self.take(len + 2);
            assert_eq!(bytes.split_off(len), b"\r\n", "{line}");
            let last = words.last().copied().unwrap_or_default().to_owned();
            values.push((words[1].to_owned(), bytes, last));
        }
    }

    /// The value of a key.
    pub(crate) fn get(&mut self, key: &str) -> Option<Vec<u8>> {
        self.send(format!("get {key}\r\n"));
        let found = self.values().pop();
        found.map(|(name, bytes, _)| {
            assert_eq!(name, key);
            bytes
        })
    }

    /// The value and the CAS of a key.
    pub(crate) fn gets(&mut self, key: &str) -> Option<(Vec<u8>, u64)> {
        self.send(format!("gets {key}\r\n"));
        let found = self.values().pop();
        found.map(|(_, bytes, cas)| (bytes, cas.parse().expect("a CAS")))
    }

    /// What `stats` says.
    pub(crate) fn stats(&mut self) -> BTreeMap<String, String> {
        self.send("stats\r\n");
        let mut stats = BTreeMap::new();
        loop {
            let line = self.line();
            if line == "END" {
                return stats;
            }
            let mut words = line.splitn(3, ' ').skip(1).map(str::to_owned);
            let key = words.next().expect("a key");
            stats.insert(key, words.next().unwrap_or_default());
        }
    }

    /// A number of `stats`.
    pub(crate) fn stat(&mut self, key: &str) -> u64 {
        let stats = self.stats();
        let text = stats.get(key).unwrap_or_else(|| panic!("no {key}"));
        text.parse().unwrap_or_else(|_| panic!("{key} is {text}"))
    }

    /// Stores so much else that what was stored before goes to flash, and waits until writing has ended.
    pub(crate) fn push_out(&mut self) {
        self.fill("other", 45_000, 1000);
        self.settle();
    }

    /// Fills memory with items that are accessed, so that others go to flash although they have been accessed.
    pub(crate) fn fill_with_accessed(&mut self) {
        for first in (0..).step_by(50) {
            let prefix = format!("other{first}-");
            self.fill(&prefix, 50, 1000);
            let keys: String = (0..50).map(|number| format!(" {prefix}{number}")).collect();
            for _ in 0..2 {
                self.send(format!("get{keys}\r\n"));
                assert!(self.values().len() > 40);
            }
            let is_checked = first % 5000 == 0;
            if is_checked && self.stat("coua_segments_main") > 4 * self.stat("coua_segments_small")
            {
                return;
            }
            assert!(
                first < 1_000_000,
                "memory keeps nothing of what is accessed"
            );
        }
    }

    /// Waits until nothing more is written to flash.
    pub(crate) fn settle(&mut self) {
        let mut before = 0;
        poll("items on flash", || {
            let written = self.stat("extstore_objects_written");
            thread::sleep(Duration::from_millis(50));
            let is_over = written > 0 && written == before;
            before = written;
            is_over.then_some(())
        });
    }
}
