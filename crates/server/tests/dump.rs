//! `lru_crawler metadump` and `mgdump`, and `stats cachedump`: beside memcached, at length, and as tools read them.

#[path = "support/memcached.rs"]
mod memcached;
mod support;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use support::Server;

/// How long anything may take that a test waits for.
const PATIENCE: Duration = Duration::from_secs(30);

struct Client {
    stream: BufReader<TcpStream>,
}

impl Client {
    fn of(server: &Server) -> Client {
        let stream = server.connect();
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        Client {
            stream: BufReader::new(stream),
        }
    }

    fn send(&mut self, bytes: &[u8]) {
        self.stream.get_mut().write_all(bytes).expect("it reads");
    }

    /// The next line, its end included.
    fn line(&mut self) -> Vec<u8> {
        let mut line = Vec::new();
        self.stream.read_until(b'\n', &mut line).expect("a line");
        assert!(line.ends_with(b"\n"), "{}", line.escape_ascii());
        line
    }

    /// Sends what is answered without a word, and waits until that is done.
    fn load(&mut self, bytes: &[u8]) {
        self.send(bytes);
        self.send(b"mn\r\n");
        assert_eq!(self.line(), b"MN\r\n");
    }

    /// The lines of an answer that is one line or ends with `END` or `EN`.
    fn ask(&mut self, question: &str) -> Vec<Vec<u8>> {
        self.send(format!("{question}\r\n").as_bytes());
        let mut lines = vec![self.line()];
        // `crawl` and the settings have an OK of their own.
        let is_dump = question.starts_with("lru_crawler m") && lines[0] == b"OK\r\n";
        let is_list = is_dump || lines[0].starts_with(b"ITEM ");
        while is_list
            && !matches!(
                lines.last().expect("one").as_slice(),
                b"END\r\n" | b"EN\r\n"
            )
        {
            lines.push(self.line());
        }
        lines
    }
}

/// The answer to a question on a connection of its own, when memcached's crawler is free.
fn answer(server: &Server, question: &str) -> Vec<Vec<u8>> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let lines = Client::of(server).ask(question);
        if !lines[0].starts_with(b"BUSY") {
            return lines;
        }
        assert!(Instant::now() < deadline, "{question}: always busy");
        thread::sleep(Duration::from_millis(5));
    }
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.expect("after 1970").as_secs()
}

/// memcached without the thread that moves items to where `stats cachedump` does not look.
fn memcached(flags: &[&str]) -> Server {
    let flags = [&["-m", "64", "-o", "no_lru_maintainer"], flags].concat();
    Server::start(&memcached::memcached_program(), &flags)
}

/// Items whose keys hold every byte that they can, with and without all that an item may have.
fn items() -> Vec<u8> {
    let mut commands = Vec::new();
    let expiry = now() + 100_000;
    let mut set = |key: &[u8], rest: &str, value: &[u8]| {
        commands.extend_from_slice(b"set ");
        commands.extend_from_slice(key);
        commands.extend_from_slice(format!(" {rest} {} noreply\r\n", value.len()).as_bytes());
        commands.extend_from_slice(value);
        commands.extend_from_slice(b"\r\n");
    };
    for byte in (0x21..=0xff).filter(|&byte| byte != 0x7f) {
        set(&[b't', byte, b't'], "0 0", b"text");
    }
    set(&[b'k'; 250], "0 0", b"");
    set(b"flags", "4294967295 0", b"1");
    set(b"expires", &format!("7 {expiry}"), b"22");
    set(b"read", "0 0", b"333");
    set(b"deleted", "0 0", b"gone");
    set(b"expired", "0 -1", b"gone");
    for byte in 0..=255_u8 {
        let mut key = [0; 8];
        let len = coua_protocol::base64::encode(&[b'b', byte], &mut key).expect("room");
        let key = String::from_utf8_lossy(&key[..len]);
        commands.extend_from_slice(format!("ms {key} 1 b q\r\nx\r\n").as_bytes());
    }
    commands.extend_from_slice(b"delete deleted noreply\r\n");
    commands
}

/// A line of a metadump without what is each server's own, which is checked.
fn shared_part(line: &[u8]) -> String {
    let line = std::str::from_utf8(line).expect("URIs are ASCII");
    let mut rest = String::new();
    let words = line.strip_suffix(" \n").expect("a blank and an end");
    for word in words.split(' ') {
        let (name, value) = word.split_once('=').expect("a name and a value");
        let number = value.parse::<u64>();
        match name {
            "la" => assert!(number.expect("a time").abs_diff(now()) < 60, "{line}"),
            "cas" | "size" | "cls" => assert!(number.expect("a number") > 0, "{line}"),
            _ => {
                write!(rest, "{word} ").expect("memory");
                continue;
            }
        }
        write!(rest, "{name} ").expect("memory");
    }
    rest
}

fn plain(line: &[u8]) -> String {
    line.escape_ascii().to_string()
}

/// Lines of a list, which has no order.
fn sorted(lines: &[Vec<u8>], show: impl Fn(&[u8]) -> String) -> Vec<String> {
    let mut lines: Vec<String> = lines.iter().map(|line| show(line)).collect();
    lines.sort();
    lines
}

#[test]
fn lists_hold_what_those_of_memcached_hold() {
    let servers = [Server::coua(&["-m", "64"]), memcached(&[])];
    let items = items();
    for server in &servers {
        let mut client = Client::of(server);
        client.load(&items);
        client.send(b"mg read\r\n");
        assert_eq!(client.line(), b"HD\r\n");
    }
    // memcached's list can miss an item that it moves in its LRU at that moment.
    let both = |question| {
        let theirs = (0..20).map(|_| answer(&servers[1], question));
        let theirs = theirs.max_by_key(Vec::len).expect("twenty answers");
        [answer(&servers[0], question), theirs]
    };
    for question in ["lru_crawler metadump all", "lru_crawler metadump hash"] {
        let [ours, theirs] = both(question);
        assert_eq!(ours[0], b"OK\r\n");
        assert_eq!((&ours[0], ours.last()), (&theirs[0], theirs.last()));
        let inner = |lines: &[Vec<u8>]| sorted(&lines[1..lines.len() - 1], shared_part);
        assert_eq!(inner(&ours), inner(&theirs), "{question}");
        assert_eq!(ours.len(), 2 + 222 + 4 + 256, "{question}");
    }
    for question in ["lru_crawler mgdump all", "lru_crawler mgdump hash"] {
        let [ours, theirs] = both(question);
        assert_eq!((&ours[0], ours.last()), (&theirs[0], theirs.last()));
        assert_eq!(sorted(&ours, plain), sorted(&theirs, plain));
    }
    // memcached has the long key in another class, and shows what has expired and is not swept up.
    let [mut ours, mut theirs] = both("stats cachedump 1 0");
    ours.retain(|line| !line.starts_with(b"ITEM kkk"));
    theirs.retain(|line| !line.starts_with(b"ITEM expired "));
    assert_eq!(sorted(&ours, plain), sorted(&theirs, plain));
    assert_eq!(ours.len(), 222 + 3 + 1);
    for (question, lines) in [("1 5", 6), ("1 1", 2), ("2 5", 1), ("63 0", 1)] {
        let ours = answer(&servers[0], &format!("stats cachedump {question}"));
        assert_eq!(
            (ours.len(), ours.last()),
            (lines, Some(&b"END\r\n".to_vec()))
        );
    }
}

#[test]
fn what_is_not_listed_is_answered_as_by_memcached() {
    let servers = [Server::coua(&["-m", "64"]), memcached(&[])];
    let silent = [Server::coua(&["-m", "64", "-X"]), memcached(&["-X"])];
    let same = |servers: &[Server; 2], question: &str| {
        let [ours, theirs] = servers.each_ref().map(|server| answer(server, question));
        assert_eq!(ours, theirs, "{question}");
    };
    let classes = [
        "2",
        "63",
        "64",
        "0",
        "x",
        "1x",
        "-1",
        "+2",
        "02",
        "2,3",
        "2,,3",
        "2,x",
        ",2",
        "2,",
        "ALL",
        "4294967298",
        "18446744073709551618",
        "al",
        "2,64",
    ];
    for classes in classes {
        for command in ["metadump", "mgdump", "m", "mg", "crawl", "c"] {
            same(&servers, &format!("lru_crawler {command} {classes}"));
        }
    }
    for rest in [
        "",
        " metadump",
        " metadump all x",
        " crawl hash",
        " crawl all x",
        " enable",
        " nonsense",
        " nonsense all",
        " tocrawl 0",
        " tocrawl x",
        " tocrawl -1",
        " tocrawl +1",
        " tocrawl 1 2",
        " sleep 1000000",
        " sleep 1000001",
        " sleep x",
        " sleep +1",
        " sleep",
        " t 1",
        " s 1",
    ] {
        same(&servers, &format!("lru_crawler{rest}"));
    }
    for question in [
        "lru_crawler metadump all",
        "lru_crawler metadump x",
        "lru_crawler mgdump all",
        "lru_crawler mgdump x",
        "lru_crawler metadump",
        "stats cachedump 1 1",
    ] {
        same(&silent, question);
    }
    let lines = answer(&servers[0], "lru_crawler metadump ,");
    assert_eq!(lines, [b"NOTSTARTED no items to crawl\r\n"]);
    same(&servers, "lru_crawler disable");
}

#[test]
fn a_list_stands_in_its_place_among_other_answers() {
    let server = Server::coua(&["-m", "64", "-t", "1"]);
    let mut client = Client::of(&server);
    client.send(
        b"set a 0 0 1\r\nx\r\nlru_crawler mgdump all\r\nget a\r\nlru_crawler metadump 9\r\n\
        stats cachedump 1 0\r\nlru_crawler metadump all noreply\r\nlru_crawler mgdump all\r\nquit\r\n",
    );
    for line in [
        "STORED",
        "OK",
        "mg a",
        "EN",
        "VALUE a 0 1",
        "x",
        "END",
        "OK",
        "END",
        "ITEM a [1 b; 0 s]",
        "END",
        "OK",
        "mg a",
        "EN",
    ] {
        assert_eq!(client.line(), format!("{line}\r\n").as_bytes());
    }
    assert_eq!(client.stream.fill_buf().expect("the end"), b"");
}

/// Keys of a store that a list of many megabytes tells of.
const MANY: usize = 200_000;

fn many(server: &Server) {
    let mut client = Client::of(server);
    for first in (0..MANY).step_by(1000) {
        let mut commands = String::new();
        for number in first..first + 1000 {
            write!(commands, "set {} 0 0 1 noreply\r\nx\r\n", name(number)).expect("memory");
        }
        client.load(commands.as_bytes());
    }
}

fn name(number: usize) -> String {
    format!("a-key-that-is-as-long-as-keys-often-are-{number:08}")
}

fn stat(server: &Server, name: &str) -> u64 {
    let mut client = Client::of(server);
    client.send(b"stats\r\n");
    loop {
        let line = client.line();
        assert_ne!(line, b"END\r\n", "no {name}");
        let line = String::from_utf8_lossy(&line);
        if let Some(value) = line.strip_prefix(&format!("STAT {name} ")) {
            return value.trim_end().parse().expect("a number");
        }
    }
}

/// Bytes of memory that the process has touched, but for what is mapped for items.
fn own_memory(server: &Server) -> u64 {
    let path = format!("/proc/{}/smaps", server.child.id());
    let maps = fs::read_to_string(path).expect("our child's");
    let mut is_heap = false;
    let mut kilobytes = 0;
    for line in maps.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["Rss:", count, "kB"] if is_heap => {
                kilobytes += count.parse::<u64>().expect("a number")
            }
            ["Size:", count, "kB"] => is_heap = count.parse::<u64>().expect("a number") < 60 << 10,
            _ => {}
        }
    }
    kilobytes << 10
}

#[test]
fn a_list_of_many_megabytes_delays_nobody_and_takes_no_memory() {
    let server = Server::coua(&["-m", "64", "-t", "1"]);
    many(&server);
    let before = own_memory(&server);
    let mut slow: Vec<Client> = (0..4).map(|_| Client::of(&server)).collect();
    for client in &mut slow {
        client.send(b"lru_crawler metadump all\r\nmn\r\n");
        assert_eq!(client.line(), b"OK\r\n");
    }
    // They do not read on; others are served, what they write grows the index.
    let mut other = Client::of(&server);
    for number in 0..2000 {
        let command = format!("set other{number} 0 0 1\r\ny\r\nget other{number}\r\n");
        other.send(command.as_bytes());
        assert_eq!(other.line(), b"STORED\r\n");
        assert_eq!(
            other.line(),
            format!("VALUE other{number} 0 1\r\n").as_bytes()
        );
        assert_eq!(
            (other.line(), other.line()),
            (b"y\r\n".to_vec(), b"END\r\n".to_vec())
        );
    }
    let grown = own_memory(&server).saturating_sub(before);
    assert!(grown < 6 << 20, "four lists take {grown} bytes");
    // One never reads on.
    let gone = slow.pop();
    for mut client in slow {
        let mut found = BTreeSet::new();
        loop {
            let line = client.line();
            if line == b"END\r\n" {
                break;
            }
            let word = line.split(|&byte| byte == b' ').next().expect("a word");
            found.insert(word.strip_prefix(b"key=").expect("a key").to_vec());
        }
        assert_eq!(client.line(), b"MN\r\n");
        let missing = (0..MANY).find(|&number| !found.contains(name(number).as_bytes()));
        assert_eq!(missing.map(name), None);
    }
    drop(gone);
}

/// A client that reads as fast as it can gets no more than its share of each turn.
#[test]
fn a_turn_produces_a_part_of_a_list() {
    let server = Server::coua(&["-m", "64", "-t", "1"]);
    many(&server);
    let mut reader = Client::of(&server);
    let before = stat(&server, "coua_turns");
    let lines = reader.ask("lru_crawler metadump all");
    let turns = stat(&server, "coua_turns") - before;
    let len: usize = lines.iter().map(Vec::len).sum();
    assert_eq!(lines.len(), MANY + 2);
    assert!(
        turns >= len as u64 / (96 << 10),
        "{len} bytes in {turns} turns"
    );
    let mut listed = reader.ask("stats cachedump 1 0");
    let len: usize = listed.iter().map(Vec::len).sum();
    assert!(
        (2_000_000..2 << 20).contains(&len),
        "a cachedump of {len} bytes"
    );
    assert_eq!(listed.pop(), Some(b"END\r\n".to_vec()));
    assert_eq!(listed.iter().collect::<BTreeSet<_>>().len(), listed.len());
}
