//! `watch`: the lines beside memcached's, and watchers that are too many, too slow, or gone.

mod beside_memcached;
mod slow_requests;
mod slow_watchers;

#[path = "../support/memcached.rs"]
mod memcached;
#[path = "../support/process.rs"]
#[allow(dead_code, reason = "these tests need a part of it")]
mod process;
#[path = "../support/mod.rs"]
mod support;

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::time::Duration;

use support::Server;

/// How long a line may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// A client that reads lines.
struct Reader(BufReader<TcpStream>);

impl Reader {
    fn new(stream: TcpStream) -> Reader {
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        Reader(BufReader::new(stream))
    }

    /// Connects and sends `watch` with these words; the answer is `OK`.
    fn watch(server: &Server, words: &str) -> Reader {
        let mut reader = Reader::new(server.connect());
        assert_eq!(reader.ask(&format!("watch {words}")), "OK", "watch {words}");
        reader
    }

    fn send(&mut self, text: &str) {
        let stream = self.0.get_mut();
        stream.write_all(text.as_bytes()).expect("it reads");
    }

    /// The next line without its end.
    fn line(&mut self) -> String {
        let mut line = String::new();
        let count = self.0.read_line(&mut line).expect("a line in time");
        assert!(count > 0, "the server has hung up");
        line.trim_end().to_owned()
    }

    /// Sends a line, and returns the first one of the answer.
    fn ask(&mut self, request: &str) -> String {
        self.send(&format!("{request}\r\n"));
        self.line()
    }

    /// All lines up to one that contains `last`, that one included.
    fn lines_up_to(&mut self, last: &str) -> Vec<String> {
        let mut lines = Vec::new();
        loop {
            let line = self.line();
            let is_last = line.contains(last);
            lines.push(line);
            if is_last {
                return lines;
            }
        }
    }
}

/// A value of `stats`.
fn stat(client: &mut Reader, key: &str) -> u64 {
    client.send("stats\r\n");
    let lines = client.lines_up_to("END");
    let prefix = format!("STAT {key} ");
    let value = lines.iter().find_map(|line| line.strip_prefix(&prefix));
    value.expect(key).parse().expect("a number")
}

/// Looks until `is_so`.
fn await_that(what: &str, mut is_so: impl FnMut() -> bool) {
    process::poll(what, || is_so().then_some(()));
}
