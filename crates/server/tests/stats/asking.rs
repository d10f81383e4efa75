//! Questions to a server, and the traffic that gives it something to tell.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use crate::support::Server;

/// Fills several slab classes of a memcached and raises all that counts requests.
pub(crate) fn pass_traffic(server: &Server) {
    let mut text = String::new();
    for len in [1, 100, 1000, 20_000, 300_000] {
        let value = "x".repeat(len);
        for item in 0..3 {
            text += &format!("set k{len}:{item} 0 0 {len}\r\n{value}\r\nget k{len}:{item}\r\n");
        }
    }
    text += "set n 0 0 1\r\n5\r\nincr n 1\r\ndecr n 1\r\nincr none 1\r\ndecr none 1\r\nget none\r\n\
        touch n 0\r\ntouch none 0\r\ngat 0 n\r\ndelete k1:1\r\ndelete none\r\nms e 1 E100\r\nz\r\n\
        cas e 0 0 1 100\r\nw\r\ncas e 0 0 1 100\r\nw\r\ncas none 0 0 1 100\r\nw\r\nme n\r\n\
        set gone 0 -1 1\r\nx\r\nget gone\r\nflush_all 1000\r\nmn\r\n";
    let mut stream = server.connect();
    stream
        .set_read_timeout(Some(Duration::from_secs(10)))
        .expect("a timeout can be set");
    let mut writer = stream.try_clone().expect("a second handle");
    // The replies are large: they are read while the requests are still being sent.
    thread::scope(|scope| {
        scope.spawn(move || writer.write_all(text.as_bytes()).expect("the server reads"));
        let last = BufReader::new(&mut stream)
            .lines()
            .map(|line| line.expect("an answer"))
            .find(|line| line == "MN");
        assert!(last.is_some(), "the server hangs up");
    });
    // What a worker has stored is counted at the end of its turn, behind the answers; the next turn
    // comes after it.
    stream.write_all(b"mn\r\n").expect("the server reads");
    let mut answer = [0; 4];
    stream.read_exact(&mut answer).expect("an answer");
    assert_eq!(&answer, b"MN\r\n");
}

pub(crate) fn ask(server: &Server, question: &str) -> BTreeMap<String, String> {
    ask_on(&mut server.connect(), question)
}

pub(crate) fn ask_on(stream: &mut TcpStream, question: &str) -> BTreeMap<String, String> {
    let mut stats = BTreeMap::new();
    for (key, value) in lines_on(stream, question) {
        assert!(
            stats.insert(key.clone(), value).is_none(),
            "{question}: {key} comes twice"
        );
    }
    stats
}

pub(crate) fn lines(server: &Server, question: &str) -> Vec<(String, String)> {
    lines_on(&mut server.connect(), question)
}

pub(crate) fn lines_on(stream: &mut TcpStream, question: &str) -> Vec<(String, String)> {
    stream
        .set_read_timeout(Some(Duration::from_secs(10)))
        .expect("a timeout can be set");
    stream
        .write_all(format!("{question}\r\n").as_bytes())
        .expect("the server reads");
    let mut stats = Vec::new();
    for line in BufReader::new(stream).lines() {
        let line = line.expect("an answer that ends with END");
        if line == "END" {
            return stats;
        }
        let pair = line
            .strip_prefix("STAT ")
            .and_then(|rest| rest.split_once(' '));
        let (key, value) = pair.unwrap_or_else(|| panic!("{question}: {line}"));
        stats.push((key.to_owned(), value.to_owned()));
    }
    panic!("{question}: the answer ends without END");
}

pub(crate) fn say(server: &Server, request: &str, answer: &str) {
    assert_eq!(
        line(server, request),
        answer,
        "{}",
        request.lines().next().unwrap_or_default()
    );
}

pub(crate) fn line(server: &Server, request: &str) -> String {
    let mut stream = server.connect();
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
    line.trim_end().to_owned()
}

pub(crate) fn number(stats: &BTreeMap<String, String>, key: &str) -> u64 {
    stats[key].parse().expect("a number")
}

pub(crate) fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}
