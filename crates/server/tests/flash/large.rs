//! Values of every length, and clients that do not read.

use crate::scene::{Client, Scene, value};

/// From a few bytes to values that are sent from where they lie, and values in pieces in memory, or on flash too.
#[test]
fn values_of_every_length() {
    const LENS: [usize; 8] = [1, 100, 900, 4000, 15_000, 17_000, 100_000, 400_000];
    let scene = Scene::new(&["-m", "256"]);
    let mut client = scene.client();
    for (nth, len) in LENS.into_iter().enumerate() {
        client.fill(&format!("l{nth}-"), 20, len);
    }
    client.fill("other", 10_000, 30_000);
    client.settle();
    let before = client.stat("get_extstore");
    let mut found = [0; LENS.len()];
    for (nth, len) in LENS.into_iter().enumerate() {
        for number in 0..20 {
            let key = format!("l{nth}-{number}");
            if let Some(bytes) = client.get(&key) {
                assert!(bytes == value(number, len), "{key}");
                found[nth] += 1;
            }
            let line = client.ask(format!("mg {key} v\r\n"));
            if line != "EN" {
                assert_eq!(line, format!("VA {len}"));
                assert!(client.take(len + 2)[..len] == value(number, len), "{key}");
            }
        }
    }
    assert!(client.stat("get_extstore") - before >= 20, "{found:?}");
    assert!(found.iter().all(|&count| count > 0), "{found:?}");
}

const LONG: usize = 500_000;

/// A server with long values on flash, and their numbers.
fn with_long_values(flags: &[&str], count: usize) -> (Scene, Client, Vec<usize>) {
    let scene = Scene::new(flags);
    let mut client = scene.client();
    for number in 0..count {
        client.set(&format!("long{number}"), &value(number, LONG));
    }
    client.push_out();
    let known = |client: &mut Client, number: &usize| {
        client.ask(format!("mg long{number} u s\r\n")) == format!("HD s{LONG}")
    };
    let there: Vec<usize> = (0..count).filter(|it| known(&mut client, it)).collect();
    assert!(there.len() > count / 2, "{there:?}");
    (scene, client, there)
}

/// Sent piece by piece, in their place among other requests, by each command that only reads.
#[test]
fn long_values_leave_in_their_place() {
    let (_scene, mut client, there) = with_long_values(&[], 16);
    client.set("short", b"s");
    let before = client.stat("get_extstore");
    let keys: String = there.iter().map(|it| format!(" long{it} short")).collect();
    client.send(format!("get{keys} absent\r\nmn\r\n"));
    let values = client.values();
    assert_eq!(values.len(), 2 * there.len());
    for (nth, (key, bytes, _)) in values.into_iter().enumerate() {
        match nth % 2 {
            0 => assert!(bytes == value(there[nth / 2], LONG), "{key}"),
            _ => assert_eq!((key.as_str(), &*bytes), ("short", &b"s"[..])),
        }
    }
    assert_eq!(client.line(), "MN");
    assert!(client.stat("get_extstore") - before >= there.len() as u64);
    // The second time some come back to memory on the way.
    for number in &there {
        let line = client.ask(format!("mg long{number} v k\r\n"));
        assert_eq!(line, format!("VA {LONG} klong{number}"));
        assert!(client.take(LONG + 2)[..LONG] == value(*number, LONG));
        assert!(client.get(&format!("long{number}")) == Some(value(*number, LONG)));
    }
    assert_eq!(client.stat("extstore_io_queue"), 0);
}

/// Commands that need the value itself find it in memory, with its CAS.
#[test]
fn long_values_come_back_for_commands() {
    let (_scene, mut client, there) = with_long_values(&[], 20);
    for number in there {
        let key = format!("long{number}");
        let due = value(number, LONG);
        match number % 4 {
            0 => {
                assert_eq!(
                    client.ask(format!("append {key} 0 0 3\r\nend\r\n")),
                    "STORED"
                );
                assert!(client.get(&key) == Some([&*due, b"end"].concat()), "{key}");
            }
            1 => {
                let (bytes, cas) = client.gets(&key).expect("it was there");
                assert!(bytes == due, "{key}");
                let other = cas + 1;
                assert_eq!(
                    client.ask(format!("cas {key} 0 0 1 {other}\r\nx\r\n")),
                    "EXISTS"
                );
                assert_eq!(
                    client.ask(format!("cas {key} 0 0 1 {cas}\r\nx\r\n")),
                    "STORED"
                );
            }
            2 => {
                assert_eq!(client.ask(format!("touch {key} 100\r\n")), "TOUCHED");
                client.send(format!("gat 200 {key}\r\n"));
                assert!(client.values()[0].1 == due, "{key}");
                assert_eq!(client.ask(format!("mg {key} t\r\n")), "HD t200");
            }
            _ => {
                assert_eq!(
                    client.ask(format!("add {key} 0 0 1\r\nx\r\n")),
                    "NOT_STORED"
                );
                assert_eq!(client.ask(format!("delete {key}\r\n")), "DELETED");
                assert_eq!(client.get(&key), None);
            }
        }
    }
    assert!(client.stat("recache_from_extstore") > 8);
    assert_eq!(client.stat("extstore_io_queue"), 0);
}

/// Clients that stop to read in the middle of a value keep nothing that others need; those that leave, neither.
#[test]
fn long_values_for_those_who_read_late_or_leave() {
    let (scene, mut client, there) = with_long_values(&[], 16);
    let requests: String = there
        .iter()
        .map(|it| format!("mg long{it} v u\r\n"))
        .collect();
    let mut late: Vec<Client> = (0..40).map(|_| scene.client()).collect();
    for late in &mut late {
        late.send(&requests);
    }
    for number in &there {
        client.send(format!("mg long{number} v u\r\n"));
        assert_eq!(client.line(), format!("VA {LONG}"));
        assert!(client.take(LONG + 2)[..LONG] == value(*number, LONG));
    }
    late.truncate(20);
    for late in &mut late {
        for number in &there {
            assert_eq!(late.line(), format!("VA {LONG}"));
            assert!(late.take(LONG + 2)[..LONG] == value(*number, LONG));
        }
    }
    drop(late);
    crate::process::poll("reads to end", || {
        (client.stat("extstore_io_queue") == 0).then_some(())
    });
}

/// Clients that ask for much and do not read for a while get everything in the end, and others are served meanwhile.
#[test]
fn clients_that_read_late() {
    const COUNT: usize = 200;
    let scene = Scene::new(&[]);
    let mut client = scene.client();
    client.fill("k", COUNT, 15_000);
    client.push_out();
    let mut late: Vec<Client> = (0..4).map(|_| scene.client()).collect();
    for late in &mut late {
        let requests: String = (0..COUNT)
            .map(|number| format!("get k{number}\r\n"))
            .collect();
        late.send(requests);
    }
    for _ in 0..100 {
        client.set("small", b"value");
        assert_eq!(client.get("small").as_deref(), Some(&b"value"[..]));
    }
    let mut found = 0;
    for late in &mut late {
        for number in 0..COUNT {
            for (key, bytes, _) in late.values() {
                assert_eq!(key, format!("k{number}"));
                assert!(bytes == value(number, 15_000), "{key}");
                found += 1;
            }
        }
    }
    assert!(found > 0);
    assert!(client.stat("get_extstore") > 0);
    assert_eq!(client.stat("extstore_io_queue"), 0);
}

/// Values that arrive in pieces, for items that are on flash.
#[test]
fn long_values_with_conditions() {
    const COUNT: usize = 40;
    let scene = Scene::new(&[]);
    let mut client = scene.client();
    client.fill("k", COUNT, 3000);
    client.push_out();
    let long = value(1, 60_000);
    for number in 0..COUNT {
        let key = format!("k{number}");
        if client.ask(format!("mg {key} u\r\n")) != "HD" {
            continue;
        }
        for (command, due) in [("add", "NOT_STORED"), ("append", "STORED")] {
            let head = format!("{command} {key} 0 0 {}\r\n", long.len());
            client.send(head);
            for piece in long.chunks(20_000) {
                client.send(piece);
            }
            assert_eq!(client.ask("\r\n"), due, "{key}");
        }
        let due = [&*value(number, 3000), &long].concat();
        assert!(client.get(&key) == Some(due), "{key}");
    }
    assert!(client.stat("recache_from_extstore") > 10);
}
