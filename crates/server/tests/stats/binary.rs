//! Statistics in the binary protocol are those of the text.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use crate::asking::{ask, pass_traffic, say};
use crate::memcached;
use crate::support::Server;

/// The status and the statistics of one question.
fn ask_in_binary(stream: &mut TcpStream, question: &str) -> (u16, Vec<(String, String)>) {
    let key_len = u16::try_from(question.len()).expect("a short question");
    let mut request = vec![0x80, 0x10];
    request.extend(key_len.to_be_bytes());
    request.extend([0; 4]);
    request.extend(u32::from(key_len).to_be_bytes());
    request.extend(*b"opaq");
    request.extend([0; 8]);
    request.extend(question.bytes());
    stream.write_all(&request).expect("the server reads");
    let mut stats = Vec::new();
    loop {
        let mut header = [0; 24];
        stream.read_exact(&mut header).expect("an answer");
        assert_eq!(
            (&header[..2], &header[12..16]),
            (&b"\x81\x10"[..], &b"opaq"[..])
        );
        let key_len = usize::from(u16::from_be_bytes([header[2], header[3]]));
        let body_len = u32::from_be_bytes([header[8], header[9], header[10], header[11]]);
        let mut body = vec![0; body_len as usize];
        stream.read_exact(&mut body).expect("a body");
        let status = u16::from_be_bytes([header[6], header[7]]);
        if status != 0 || body.is_empty() {
            return (status, stats);
        }
        let (key, value) = body.split_at(key_len);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        stats.push((text(key), text(value)));
    }
}

fn connect(server: &Server) -> TcpStream {
    let stream = server.connect();
    let limit = Some(Duration::from_secs(10));
    stream.set_read_timeout(limit).expect("a timeout");
    stream
}

#[test]
fn the_same_in_both_dialects() {
    let server = Server::coua(&["-m", "64"]);
    pass_traffic(&server);
    let mut stream = connect(&server);
    for (question, of_text) in [
        ("", "stats"),
        ("settings", "stats settings"),
        ("items", "stats items"),
        ("slabs", "stats slabs"),
        ("sizes", "stats sizes"),
    ] {
        let (status, stats) = ask_in_binary(&mut stream, question);
        assert_eq!(status, 0, "{question}");
        let names: Vec<&String> = stats.iter().map(|stat| &stat.0).collect();
        let text = ask(&server, of_text);
        assert_eq!(names.len(), text.len(), "{question}");
        assert!(
            names.iter().all(|name| text.contains_key(*name)),
            "{names:?}"
        );
    }
    let general: BTreeMap<String, String> = ask_in_binary(&mut stream, "").1.into_iter().collect();
    assert_eq!(general["cmd_flush"], "1");
    assert_eq!(general["curr_items"], ask(&server, "stats")["curr_items"]);
}

/// What is asked in this way, and what is not there, as memcached has it.
#[test]
fn commands_beside_memcached() {
    let memcached = Server::start(&memcached::memcached_program(), &[]);
    for server in [memcached, Server::coua(&[])] {
        let mut stream = connect(&server);
        assert_eq!(ask_in_binary(&mut stream, "no such"), (1, Vec::new()));
        assert_eq!(ask_in_binary(&mut stream, "detail on"), (0, Vec::new()));
        say(&server, "set a:b 0 0 1\r\nx\r\n", "STORED");
        let (status, dump) = ask_in_binary(&mut stream, "detail dump");
        assert_eq!((status, dump.len()), (0, 1));
        assert_eq!(dump[0].0, "detailed");
        let line = "PREFIX a get 0 hit 0 set 1 del 0";
        assert!(dump[0].1.starts_with(line), "{dump:?}");
        assert_eq!(ask_in_binary(&mut stream, "detail off"), (0, Vec::new()));
        assert_eq!(ask_in_binary(&mut stream, "detail what"), (1, Vec::new()));
        assert_eq!(ask_in_binary(&mut stream, "reset"), (0, Vec::new()));
        let after: BTreeMap<String, String> =
            ask_in_binary(&mut stream, "").1.into_iter().collect();
        assert_eq!(after["cmd_set"], "0");
    }
}
