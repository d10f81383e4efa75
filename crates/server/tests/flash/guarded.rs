//! Items on flash over TLS, for users with few rights, and under limits that change.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

use crate::certificates::{Authority, TlsClient, encrypt};
use crate::process::Folder;
use crate::scene::{Client, Scene, start, value};

/// Bytes of a value that is in pieces on flash.
const LONG: usize = 300_000;

struct Encrypted(BufReader<TlsClient>);

impl Encrypted {
    fn send(&mut self, request: impl AsRef<[u8]>) {
        let stream = self.0.get_mut();
        stream.write_all(request.as_ref()).expect("it is open");
        stream.flush().expect("it is open");
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).expect("an answer");
        line.trim_end().to_owned()
    }

    /// Takes a value and its end.
    fn take(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len + 2];
        self.0.read_exact(&mut bytes).expect("an answer");
        bytes.truncate(len);
        bytes
    }
}

#[test]
fn over_tls() {
    let authority = Authority::new();
    authority.certify("server");
    let folder = Folder::new();
    let options = authority.options("server", "");
    let process = start(&folder, &["-Z", "-o", &options]);
    let connect = || {
        let stream = TcpStream::connect(process.address()).expect("the kernel accepts");
        Encrypted(BufReader::new(encrypt(stream, &authority.client(None))))
    };
    let mut client = connect();
    let mut set = |key: String, bytes: Vec<u8>| {
        client.send(
            [
                format!("set {key} 0 0 {}\r\n", bytes.len()).as_bytes(),
                &bytes,
                b"\r\n",
            ]
            .concat(),
        );
        assert_eq!(client.line(), "STORED", "{key}");
    };
    for number in 0..12 {
        set(format!("long{number}"), value(number, LONG));
    }
    for number in 0..40_000 {
        set(format!("k{number}"), value(number, 1000));
    }
    // Clients that read, and one that reads late.
    let mut late = connect();
    let requests: String = (0..12)
        .map(|number| format!("mg long{number} v u\r\n"))
        .collect();
    late.send(&requests);
    let mut client = connect();
    let mut found = 0;
    for number in 0..40_000 {
        client.send(format!("mg k{number} v u\r\n"));
        if client.line() == "VA 1000" {
            assert!(client.take(1000) == value(number, 1000), "k{number}");
            found += 1;
        }
    }
    assert!(found > 35_000, "{found}");
    let mut long = 0;
    for client in [&mut client, &mut late] {
        if long == 0 {
            client.send(&requests);
        }
        for number in 0..12 {
            if client.line() == format!("VA {LONG}") {
                assert!(client.take(LONG) == value(number, LONG), "long{number}");
                long += 1;
            }
        }
    }
    client.send("stats\r\n");
    let mut hits = 0;
    loop {
        let line = client.line();
        if line == "END" {
            break;
        }
        if let Some(count) = line.strip_prefix("STAT get_extstore ") {
            hits = count.parse().expect("a number");
        }
    }
    assert!(long > 8 && hits > 5000 + long, "{long} {hits}");
}

#[test]
fn for_users_with_few_rights() {
    let folder = Folder::new();
    let users = "boss:b\napp:a\nreader:r\n\n[reader]\nrights = [\"read\"]\n[app]\n\
                 rights = [\"read\", \"write\"]\nprefixes = [\"app:\"]\n";
    std::fs::write(folder.path("users"), users).expect("the folder is there");
    let process = start(&folder, &["-Y", &folder.text("users")]);
    let log_in = |user: &str| {
        let mut client = Client::connect(process.address());
        assert_eq!(
            client.ask(format!("set login 0 0 {}\r\n{user}\r\n", user.len())),
            "STORED"
        );
        client
    };
    let mut boss = log_in("boss b");
    boss.fill("app:", 100, 1000);
    boss.fill("k", 100, 1000);
    boss.set("app:long", &value(7, LONG));
    boss.push_out();
    let before = boss.stat("get_extstore");
    let (mut app, mut reader) = (log_in("app a"), log_in("reader r"));
    let mut found = 0;
    for number in 0..100 {
        if let Some(bytes) = app.get(&format!("app:{number}")) {
            assert!(bytes == value(number, 1000));
            found += 1;
        }
        let denied = app.ask(format!("get k{number}\r\n"));
        assert_eq!(denied, "CLIENT_ERROR permission denied");
        if let Some(bytes) = reader.get(&format!("k{number}")) {
            assert!(bytes == value(number, 1000));
            found += 1;
        }
        let denied = reader.ask(format!("touch k{number} 9\r\n"));
        assert_eq!(denied, "CLIENT_ERROR permission denied");
    }
    if let Some(bytes) = app.get("app:long") {
        assert!(bytes == value(7, LONG));
        assert_eq!(app.ask("append app:long 0 0 1\r\n!\r\n"), "STORED");
        assert_eq!(app.get("app:long").map(|bytes| bytes.len()), Some(LONG + 1));
    }
    assert!(found > 100, "{found}");
    assert!(boss.stat("get_extstore") > before + 100);
}

/// Less memory pushes items to flash; more memory, a flush and tags hold as ever.
#[test]
fn under_limits_that_change() {
    let scene = Scene::new(&["-m", "64"]);
    let mut client = scene.client();
    client.fill("k", 30_000, 1000);
    let count = |client: &mut Client, prefix: &str, count: usize| {
        let mut found = 0;
        for number in (0..count).step_by(10) {
            if let Some(bytes) = client.get(&format!("{prefix}{number}")) {
                assert!(bytes == value(number, 1000), "{prefix}{number}");
                found += 1;
            }
        }
        found
    };
    assert_eq!(client.ask("cache_memlimit 24\r\n"), "OK");
    client.settle();
    assert!(count(&mut client, "k", 30_000) > 2500);
    let on_flash = client.stat("coua_flash_items");
    assert!(on_flash > 10_000, "{on_flash}");
    assert_eq!(client.ask("cache_memlimit 64\r\n"), "OK");
    client.fill("l", 10_000, 1000);
    assert!(count(&mut client, "l", 10_000) > 900);
    for number in 0..8 {
        client.send(format!("ms tagged{number} {LONG} Gt{}\r\n", number % 2));
        client.send([&*value(number, LONG), b"\r\n"].concat());
        assert_eq!(client.line(), "HD");
    }
    client.push_out();
    assert_eq!(client.ask("md t0 G\r\n"), "HD");
    let mut found = 0;
    for number in 0..8 {
        let got = client.get(&format!("tagged{number}"));
        assert!(
            got.is_none() || number % 2 == 1,
            "tagged{number} was made gone"
        );
        found += usize::from(got.is_some_and(|bytes| bytes == value(number, LONG)));
    }
    assert!(found > 1, "{found}");
    assert_eq!(client.ask("flush_all\r\n"), "OK");
    assert_eq!(
        count(&mut client, "k", 30_000) + count(&mut client, "l", 10_000),
        0
    );
}

/// What is let go to flash, and how much a day.
#[test]
fn rules_of_admission() {
    let reads = Scene::new(&["-o", "ext_admission=read"]);
    let mut client = reads.client();
    client.fill("k", 60_000, 1000);
    assert_eq!(client.stat("extstore_objects_written"), 0);
    assert!(client.stat("coua_flash_items_rejected") > 20_000);
    let budget = Scene::new(&["-o", "ext_write_budget=48m"]);
    let mut client = budget.client();
    client.fill("k", 60_000, 1000);
    // An hour's, of which half is for what was read.
    let written = client.stat("extstore_bytes_written");
    assert!((900_000..=2_200_000).contains(&written), "{written}");
    let lens = Scene::new(&["-o", "ext_item_size_max=500"]);
    let mut client = lens.client();
    client.fill("short", 60_000, 400);
    client.fill("long", 40_000, 1000);
    assert!(client.stat("extstore_objects_written") > 20_000);
    for number in 0..10_000 {
        let unread = client.ask(format!("mg long{number} u\r\n"));
        assert_eq!(unread, "EN", "long{number}");
    }
}
