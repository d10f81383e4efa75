//! The same session against memcached and coua, and the lines side by side.

use std::os::unix::net::UnixStream;
use std::path::Path;

use crate::memcached::memcached_program;
use crate::process::Folder;
use crate::support::{Server, coua_program};
use crate::{Reader, await_that, stat};

/// Requests that cover what lines tell of. Each ends with a request that is always answered, so that
/// the next part finds all done.
const SESSION: &[&str] = &[
    "get none\r\n",
    "set a 0 0 3\r\nabc\r\n",
    "set b 5 100 0\r\n\r\n",
    "get a b none a\r\n",
    "gets a\r\n",
    "add a 0 0 1\r\nx\r\n",
    "add c 0 10 2\r\nxy\r\n",
    "replace none 0 0 1\r\nx\r\n",
    "replace a 0 0 4\r\nwxyz\r\n",
    "append b 0 0 2\r\n!!\r\n",
    "prepend none 0 0 2\r\n!!\r\n",
    "prepend b 0 0 3\r\n???\r\n",
    "cas a 0 0 1 999999\r\nx\r\n",
    "cas none 0 0 1 999999\r\nx\r\n",
    "set quiet 0 0 1 noreply\r\nx\r\n",
    "set bad 0 0 1\r\nxyz\r\n",
    "set n 0 0 1\r\n5\r\n",
    "incr n 2\r\n",
    "decr n 100\r\n",
    "incr none 1\r\n",
    "touch a 50\r\n",
    "touch none 50\r\n",
    "gat 60 a none\r\n",
    "delete a\r\n",
    "delete a\r\n",
    "delete quiet noreply\r\n",
    "mg b v\r\n",
    "mg none v\r\n",
    "mg b k q f t s\r\n",
    "mg viv N30 v\r\n",
    "mg dG91Y2g= b v\r\n",
    "ms m1 4 T90\r\nabcd\r\n",
    "ms m1 2 ME\r\nxx\r\n",
    "ms m1 2 MA\r\nxx\r\n",
    "ms m2 2 MA N40\r\nxx\r\n",
    "ms m1 2 C999999\r\nxx\r\n",
    "ms dG91Y2g= 3 b\r\nabc\r\n",
    "ma num\r\n",
    "ma num N70 J13\r\n",
    "ma num N70 D4\r\n",
    "md m1 I\r\n",
    "md m1 x\r\n",
    "md m2\r\n",
    "md none\r\n",
    "md n q\r\n",
    "me b\r\n",
    "me none\r\n",
    "set %2f~./ 0 0 1\r\nx\r\n",
    "get ############################################################\r\n",
    "set long 0 0 200000\r\nLONG\r\n",
    "append long 0 0 100000\r\nHALF\r\n",
    "get long\r\n",
    "set f 0 0 1\r\nx\r\nset g 0 0 1\r\nx\r\nflush_all\r\n",
];

/// Binary requests: set, add, a get that is quiet, increments with and without an initial value, touch,
/// delete.
fn binary_session() -> Vec<u8> {
    let request = |opcode: u8, extras: &[u8], key: &[u8], value: &[u8]| {
        let mut bytes = vec![0x80, opcode, 0, u8::try_from(key.len()).expect("short")];
        bytes.extend([u8::try_from(extras.len()).expect("short"), 0, 0, 0]);
        let len = u32::try_from(extras.len() + key.len() + value.len()).expect("short");
        bytes.extend(len.to_be_bytes());
        bytes.extend([0; 12]);
        [&bytes, extras, key, value].concat()
    };
    let count = |expiry: u32| {
        let numbers = [1_u64.to_be_bytes(), 7_u64.to_be_bytes()].concat();
        [&numbers[..], &expiry.to_be_bytes()].concat()
    };
    [
        request(0x01, &[0; 8], b"bin", b"value"),
        request(0x02, &[0; 8], b"bin", b"value"),
        request(0x09, &[], b"bin", b""),
        request(0x0e, &[], b"bin", b"++"),
        request(0x05, &count(u32::MAX), b"bin-number", b""),
        request(0x05, &count(30), b"bin-number", b""),
        request(0x05, &count(30), b"bin-number", b""),
        request(0x1c, &[0, 0, 0, 9], b"bin", b""),
        request(0x04, &[], b"bin", b""),
        request(0x00, &[], b"bin", b""),
    ]
    .concat()
}

fn both(flags: &[&str]) -> [Server; 2] {
    [memcached_program(), coua_program()].map(|program| Server::start(&program, flags))
}

/// A line without what differs from process to process: time, number, connection, and which class.
fn masked(line: &str) -> String {
    let words = line.split(' ').map(|word| match word.split_once('=') {
        Some(("ts", time)) => {
            let (seconds, micros) = time.split_once('.').expect("a point");
            assert!(seconds.parse::<u64>().is_ok() && micros.parse::<u32>().is_ok());
            "ts".to_owned()
        }
        Some((name @ ("gid" | "cfd" | "rport"), number)) => {
            assert!(number.parse::<u64>().is_ok(), "{line}");
            name.to_owned()
        }
        Some(("clsid", class)) if class != "0" => "clsid=some".to_owned(),
        _ => word.to_owned(),
    });
    words.collect::<Vec<_>>().join(" ")
}

fn gid(line: &str) -> u64 {
    let found = line.split(' ').find_map(|word| word.strip_prefix("gid="));
    found.expect("a number").parse().expect("a number")
}

#[test]
fn lines_of_requests_are_memcacheds() {
    let told = both(&["-t", "1"]).map(|server| {
        let mut watcher = Reader::watch(&server, "fetchers mutations deletions");
        let mut client = Reader::new(server.connect());
        for part in SESSION {
            let part = part.replace("LONG", &"x".repeat(200_000));
            client.send(&part.replace("HALF", &"x".repeat(100_000)));
            client.send("mn\r\n");
            client.lines_up_to("MN");
        }
        let mut stream = server.connect();
        std::io::Write::write_all(&mut stream, &binary_session()).expect("it reads");
        // The binary noop is answered when all is done.
        let mut noop = [0; 24];
        (noop[0], noop[1]) = (0x80, 0x0a);
        std::io::Write::write_all(&mut stream, &noop).expect("it reads");
        await_noop(&mut stream);
        client.send("set end 0 0 1\r\nx\r\ndelete end\r\n");
        let lines = watcher.lines_up_to("type=deleted key=end");
        for pair in lines.windows(2) {
            assert_eq!(gid(&pair[1]), gid(&pair[0]) + 1, "{pair:?}");
        }
        lines.iter().map(|line| masked(line)).collect::<Vec<_>>()
    });
    let [theirs, ours] = told;
    assert!(theirs.len() > 70, "{} lines", theirs.len());
    for (number, (theirs, ours)) in theirs.iter().zip(&ours).enumerate() {
        assert_eq!(ours, theirs, "line {number}");
    }
    assert_eq!(ours.len(), theirs.len());
}

fn await_noop(stream: &mut std::net::TcpStream) {
    use std::io::Read;
    let patience = Some(crate::PATIENCE);
    stream.set_read_timeout(patience).expect("a timeout");
    let mut head = [0; 24];
    loop {
        stream.read_exact(&mut head).expect("an answer");
        if head[1] == 0x0a {
            return;
        }
        let len = u32::from_be_bytes([head[8], head[9], head[10], head[11]]);
        let mut body = vec![0; len as usize];
        stream.read_exact(&mut body).expect("its body");
    }
}

/// Each stream has its lines and no others.
#[test]
fn streams_are_memcacheds() {
    for (words, last) in [
        ("", "type=item_get key=end"),
        ("mutations", "type=item_store key=end"),
        ("mut", "type=item_store key=end"),
        ("deletions", "type=deleted key=end"),
        ("rawcmds sysevents d", "type=deleted key=end"),
        (
            "evictions proxyreqs proxyevents proxyuser f",
            "item_get key=end",
        ),
    ] {
        let [theirs, ours] = both(&["-t", "1"]).map(|server| {
            let mut watcher = Reader::watch(&server, words);
            let mut client = Reader::new(server.connect());
            for part in &SESSION[..32] {
                client.send(part);
            }
            client.send("set end 0 0 1\r\nx\r\ndelete end\r\n");
            let lines = watcher.lines_up_to(last);
            lines.iter().map(|line| masked(line)).collect::<Vec<_>>()
        });
        assert!(theirs.len() > 2, "{words}: {theirs:?}");
        assert_eq!(ours, theirs, "watch {words}");
    }
}

#[test]
fn connections_are_told_of_as_memcached_does() {
    let [theirs, ours] = both(&["-t", "1"]).map(|server| {
        let mut watcher = Reader::watch(&server, "connevents");
        let mut lines = Vec::new();
        let mut next = |what: &str| {
            let line = watcher.line();
            lines.push(format!("{what}: {}", masked(&line)));
        };
        let mut client = Reader::new(server.connect());
        next("opened");
        client.send("quit\r\n");
        next("quit");
        let client = server.connect();
        next("opened");
        drop(client);
        next("closed");
        let mut client = Reader::new(server.connect());
        next("opened");
        client.send("GET / HTTP/1.1\r\n");
        next("no request");
        lines
    });
    assert_eq!(ours, theirs);
}

#[test]
fn a_unix_socket_has_no_address() {
    let told = [memcached_program(), coua_program()].map(|program| {
        let folder = Folder::new();
        let path = folder.text("socket");
        let mut child = std::process::Command::new(program)
            .args(["-s", &path, "-t", "1"])
            .args(if crate::support::is_root() {
                &["-u", "root"][..]
            } else {
                &[]
            })
            .stderr(std::process::Stdio::null())
            .spawn()
            .expect("it starts");
        let told = lines_of_unix(Path::new(&path));
        child.kill().expect("it runs");
        child.wait().expect("it ends");
        told
    });
    let [theirs, ours] = told;
    assert_eq!(ours, theirs);
}

fn lines_of_unix(path: &Path) -> Vec<String> {
    use std::io::{BufRead, BufReader, Write};
    await_that("the socket", || UnixStream::connect(path).is_ok());
    let mut watcher = UnixStream::connect(path).expect("it listens");
    watcher
        .write_all(b"watch connevents\r\n")
        .expect("it reads");
    let patience = Some(crate::PATIENCE);
    watcher.set_read_timeout(patience).expect("a timeout");
    let mut lines = BufReader::new(watcher).lines();
    let mut next = || lines.next().expect("a line").expect("a line in time");
    assert_eq!(next(), "OK");
    let mut client = UnixStream::connect(path).expect("it listens");
    client.write_all(b"quit\r\n").expect("it reads");
    // The connection that has looked for the socket may close late.
    let mut told = Vec::new();
    while told.len() < 2 {
        let line = masked(&next());
        if !told.is_empty() || line.contains("conn_new") {
            told.push(line);
        }
    }
    told
}

#[test]
fn evictions_are_told_of_as_memcached_does() {
    for (program, memory) in [(memcached_program(), "64"), (coua_program(), "16")] {
        let server = Server::start(&program, &["-t", "1", "-m", memory]);
        let mut watcher = Reader::watch(&server, "evictions");
        let mut client = Reader::new(server.connect());
        let value = "x".repeat(50_000);
        for number in 0..2000 {
            let ttl = if number % 2 == 0 { 0 } else { 500 };
            client.send(&format!(
                "set key/{number} 0 {ttl} 50000 noreply\r\n{value}\r\nmg key/{number} q\r\n"
            ));
        }
        let mut seen = [false; 4];
        for _ in 0..20 {
            let line = watcher.line();
            let shown = masked(&line);
            let words: Vec<&str> = shown.split(' ').collect();
            let [
                "ts",
                "gid",
                "type=eviction",
                key,
                fetch,
                ttl,
                la,
                "clsid=some",
                "size=50000",
            ] = words[..]
            else {
                panic!("{}: {line}", program.display());
            };
            assert!(key.starts_with("key=key%2F"), "{line}");
            assert!(
                la.strip_prefix("la=")
                    .is_some_and(|la| la.parse::<u32>().is_ok())
            );
            match ttl
                .strip_prefix("ttl=")
                .and_then(|ttl| ttl.parse::<i64>().ok())
            {
                Some(-1) => seen[0] = true,
                Some(1..=500) => seen[1] = true,
                _ => panic!("{line}"),
            }
            match fetch {
                "fetch=yes" => seen[2] = true,
                "fetch=no" => seen[3] = true,
                _ => panic!("{line}"),
            }
        }
        assert!(seen[0] && seen[1], "{}: {seen:?}", program.display());
        assert!(seen[2] || seen[3]);
    }
}

/// What is not a request to watch is answered alike, and refused alike where watching is not permitted.
#[test]
fn refusals_are_memcacheds() {
    for (flags, requests) in [
        (
            &["-t", "1"][..],
            &["watch x", "watch fetchersx", "watch fetchers x", "Watch"][..],
        ),
        (&["-t", "1", "-W"], &["watch", "watch fetchers", "watch x"]),
    ] {
        for request in requests {
            let [theirs, ours] =
                both(flags).map(|server| Reader::new(server.connect()).ask(request));
            assert_eq!(ours, theirs, "{request}");
        }
    }
    let [theirs, ours] = both(&["-t", "1"]).map(|server| {
        let mut client = Reader::new(server.connect());
        client.send("get none\r\nwatch\r\nmn\r\n");
        client.lines_up_to("MN")
    });
    assert_eq!(ours, theirs, "behind another request");
}

/// At most twenty may watch at a time; when one has gone, there is room again.
#[test]
fn too_many_watchers_are_refused_as_memcached_does() {
    for server in both(&["-t", "2"]) {
        let mut all: Vec<Reader> = (0..20)
            .map(|_| Reader::watch(&server, "mutations"))
            .collect();
        let mut client = Reader::new(server.connect());
        assert_eq!(
            client.ask("watch"),
            "WATCHER_TOO_MANY log watcher limit reached"
        );
        await_that("the count", || stat(&mut client, "log_watchers") == 20);
        // The connection serves requests as before.
        assert_eq!(client.ask("set a 0 0 1\r\nx"), "STORED");
        for watcher in &mut all {
            assert!(watcher.line().contains("key=a status=stored"));
        }
        drop(all);
        await_that("the count", || stat(&mut client, "log_watchers") == 0);
        assert_eq!(client.ask("watch"), "OK");
    }
}
